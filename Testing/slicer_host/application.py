"""Stands in for ``slicer.app``: the application object, its layout and module managers.

There is no main window, as with ``Slicer --no-main-window``: ``slicer.util.mainWindow()`` is None.
"""

# Names are Slicer's and Qt's.
# ruff: noqa: N802, N815

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import slicer
from PySide6.QtCore import QObject, QProcessEnvironment, QSettings, Signal
from PySide6.QtWidgets import QApplication, QWidget

from slicer_host.pythonqt_style import add_style
from slicer_host.scene import HostScene


class SliceWidget:
    """``layoutManager.sliceWidget(name)``: the nodes and the logic of one slice view."""

    def __init__(self, host: HostScene, name: str) -> None:
        self._host = host
        self._name = name

    def sliceLogic(self) -> Any:
        return self._host.slice_logic(self._name)

    def mrmlSliceNode(self) -> Any:
        return self.sliceLogic().GetSliceNode()

    def mrmlSliceCompositeNode(self) -> Any:
        return self.sliceLogic().GetSliceCompositeNode()

    def sliceView(self) -> Any:
        return self._host.slice_view(self._name)

    def fitSliceToBackground(self) -> None:
        self.sliceLogic().FitSliceToBackground()


@add_style
class LayoutManager(QObject):
    """``slicer.app.layoutManager()``."""

    layoutChanged = Signal(int)
    threeDViewCount = tableViewCount = plotViewCount = 0

    def __init__(self, host: HostScene) -> None:
        super().__init__()
        self._host = host

    def _get_layout(self) -> int:
        return int(self._host.layout_node.GetViewArrangement())

    def setLayout(self, arrangement: int) -> None:
        self._host.layout_node.SetViewArrangement(arrangement)
        self.layoutChanged.emit(arrangement)

    layout = property(_get_layout, setLayout)

    def layoutLogic(self) -> Any:
        return self._host.layout_logic

    def sliceViewNames(self) -> list[str]:
        return self._host.slice_view_names()

    def sliceWidget(self, name: str) -> SliceWidget | None:
        return SliceWidget(self._host, name) if name in self.sliceViewNames() else None

    def mrmlSliceLogics(self) -> Any:
        return self._host.application_logic.GetSliceLogics()

    def resetSliceViews(self) -> None:
        for name in self.sliceViewNames():
            self._host.slice_logic(name).FitSliceToBackground()


class FactoryManager:
    """``moduleManager().factoryManager()``, as far as it lists modules."""

    def __init__(self, modules: dict[str, Any]) -> None:
        self._modules = modules

    def loadedModuleNames(self) -> list[str]:
        return sorted(self._modules)

    def isLoaded(self, name: str) -> bool:
        return name in self._modules


@add_style
class ModuleManager(QObject):
    """``slicer.app.moduleManager()``."""

    moduleAboutToBeUnloaded = Signal(str)
    moduleLoaded = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._modules: dict[str, Any] = {}

    def module(self, name: str) -> Any:
        return self._modules.get(name) or getattr(slicer.modules, name.lower(), None)

    def factoryManager(self) -> FactoryManager:
        return FactoryManager(self._modules)


@add_style
class Application(QObject):
    """``slicer.app``.

    Attributes:
        testing: What ``testingEnabled()`` says; message boxes are then answered by themselves.
    """

    startupCompleted = Signal()
    aboutToQuit = Signal()
    lastWindowClosed = Signal()
    mrmlSceneChanged = Signal(object)

    applicationName = mainApplicationName = "Slicer"
    applicationVersion = "5.12.3-2026-07-22"
    majorVersion, minorVersion = 5, 12
    revision = repositoryRevision = "34000"
    documentationBaseUrl = "https://slicer.readthedocs.io/"
    platform = "linux-amd64"
    os = "linux"
    arch = "amd64"

    def __init__(self, host: HostScene) -> None:
        super().__init__()
        self._host = host
        self._settings_folder = tempfile.TemporaryDirectory(prefix="slicer_host_settings")
        QSettings.setDefaultFormat(QSettings.Format.IniFormat)
        for scope in (QSettings.Scope.UserScope, QSettings.Scope.SystemScope):
            QSettings.setPath(QSettings.Format.IniFormat, scope, self._settings_folder.name)
        self._temporary = tempfile.TemporaryDirectory(prefix="slicer_host_temporary")
        self._layout_manager = LayoutManager(host)
        self._module_manager = ModuleManager()
        self._testing = True

    # Folders, settings and environment

    temporaryPath = property(lambda self: self._temporary.name)
    slicerHome = property(lambda self: str(Path(sys.executable).parent))
    extensionsInstallPath = property(lambda self: self._temporary.name)
    slicerUserSettingsFilePath = property(lambda self: QSettings().fileName())

    def settings(self) -> Any:
        return QSettings()

    def userSettings(self) -> Any:
        return QSettings()

    def startupEnvironment(self) -> Any:
        return QProcessEnvironment.systemEnvironment()

    # State

    def _set_testing(self, testing: bool) -> None:
        self._testing = testing

    testing = property(lambda self: self._testing, _set_testing)

    def testingEnabled(self) -> bool:
        return self._testing

    def processEvents(self, *_: Any) -> None:
        QApplication.processEvents()

    def translate(self, _context: str, text: str) -> str:
        return text

    def setOverrideCursor(self, cursor: Any) -> None:
        QApplication.setOverrideCursor(cursor)

    def restoreOverrideCursor(self) -> None:
        QApplication.restoreOverrideCursor()

    def pauseRender(self) -> None:
        pass

    def resumeRender(self) -> None:
        pass

    def quit(self) -> None:
        """Do what modules see of quitting: the signal, then their clean-up."""
        self.aboutToQuit.emit()

    def moduleDocumentationUrl(self, name: str) -> str:
        return f"{self.documentationBaseUrl}user_guide/modules/{name.lower()}.html"

    # Parts

    def mrmlScene(self) -> Any:
        return self._host.scene

    def applicationLogic(self) -> Any:
        return self._host.application_logic

    def layoutManager(self) -> LayoutManager:
        return self._layout_manager

    def moduleManager(self) -> ModuleManager:
        return self._module_manager

    def topLevelWidgets(self) -> list[QWidget]:
        return []

    def clipboard(self) -> Any:
        return QApplication.clipboard()

    def palette(self) -> Any:
        return QApplication.palette()

    def styleSheet(self) -> str:
        return str(QApplication.instance().styleSheet())
