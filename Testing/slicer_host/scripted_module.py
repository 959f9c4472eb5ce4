"""Stands in for ``slicer.ScriptedLoadableModule`` and for what loads a scripted module.

The base classes do what Slicer's do for a module without developer mode. ``load_module`` does what
the module factory does: run the file, make the module object, list it in ``slicer.modules``;
``widgetRepresentation()`` makes the panel at its first call.
"""

# Names are Slicer's and Qt's.
# ruff: noqa: N801, N802, N803, N815

from __future__ import annotations

import importlib.util
import sys
import unittest
from pathlib import Path
from types import ModuleType
from typing import Any

import slicer
import slicer.util

from slicer_host.mrml_widgets import _offer, qSlicerWidget
from slicer_host.qt_module import qt


class ScriptedLoadableModule:
    def __init__(self, parent: Any) -> None:
        super().__init__()
        self.parent = parent
        self.moduleName = type(self).__name__
        parent.title = ""
        parent.categories = []
        parent.dependencies = []
        parent.contributors = []
        parent.helpText = ""
        parent.acknowledgementText = ""
        folder = Path(parent.path).parent / "Resources" / "Icons"
        for extension in (".svg", ".png"):
            icon = folder / f"{self.moduleName}{extension}"
            if icon.is_file():
                parent.icon = qt.QIcon(str(icon))
                break
        if not hasattr(slicer, "selfTests"):
            slicer.selfTests = {}
        slicer.selfTests[self.moduleName] = self.runTest

    def resourcePath(self, filename: str) -> str:
        return str(Path(self.parent.path).parent / "Resources" / filename)

    def getDefaultModuleDocumentationLink(self, docPage: str | None = None) -> str:
        url = slicer.app.moduleDocumentationUrl(self.moduleName)
        if docPage:
            url = slicer.app.documentationBaseUrl + docPage
        return f'<p>For more information, see the <a href="{url}">online documentation</a>.</p>'

    def runTest(self, msec: int = 100, **options: Any) -> None:
        test_class = getattr(sys.modules[type(self).__module__], f"{self.moduleName}Test")
        test = test_class()
        test.messageDelay = msec
        test.runTest(**options)


class ScriptedLoadableModuleWidget:
    def __init__(self, parent: Any = None) -> None:
        super().__init__()
        self.moduleName = type(self).__name__.removesuffix("Widget")
        self.developerMode = False
        if parent is None:
            self.parent = slicer.qMRMLWidget()
            self.parent.setLayout(qt.QVBoxLayout())
            self.parent.setMRMLScene(slicer.mrmlScene)
        else:
            self.parent = parent
        self.layout = self.parent.layout()
        if parent is None:
            self.setup()
            self.parent.show()
        slicer.app.moduleManager().connect(
            "moduleAboutToBeUnloaded(QString)", self._onModuleAboutToBeUnloaded
        )

    def resourcePath(self, filename: str) -> str:
        folder = Path(slicer.util.modulePath(self.moduleName)).parent
        return str(folder / "Resources" / filename)

    def setup(self) -> None:
        pass

    def cleanup(self) -> None:
        pass

    def onReload(self) -> None:
        slicer.util.reloadScriptedModule(self.moduleName)

    def _onModuleAboutToBeUnloaded(self, module_name: str) -> None:
        if module_name == self.moduleName:
            self.cleanup()
            slicer.app.moduleManager().disconnect(
                "moduleAboutToBeUnloaded(QString)", self._onModuleAboutToBeUnloaded
            )


class ScriptedLoadableModuleLogic:
    def __init__(self, parent: Any = None) -> None:
        super().__init__()
        self.moduleName = type(self).__name__.removesuffix("Logic")
        self.isSingletonParameterNode = True

    def getParameterNode(self) -> Any:
        if self.isSingletonParameterNode:
            node = slicer.mrmlScene.GetSingletonNode(self.moduleName, "vtkMRMLScriptedModuleNode")
            if node is not None:
                # Closing the scene may take the attribute away.
                if node.GetAttribute("ModuleName") != self.moduleName:
                    node.SetAttribute("ModuleName", self.moduleName)
                return node
        elif self.getAllParameterNodes():
            return self.getAllParameterNodes()[0]
        return slicer.mrmlScene.AddNode(self.createParameterNode())

    def getAllParameterNodes(self) -> list[Any]:
        nodes = slicer.util.getNodesByClass("vtkMRMLScriptedModuleNode")
        return [node for node in nodes if node.GetAttribute("ModuleName") == self.moduleName]

    def createParameterNode(self) -> Any:
        node = slicer.vtkMRMLScriptedModuleNode()
        if self.isSingletonParameterNode:
            node.SetSingletonTag(self.moduleName)
        node.SetAttribute("ModuleName", self.moduleName)
        node.SetName(slicer.mrmlScene.GenerateUniqueName(self.moduleName))
        return node


class ScriptedLoadableModuleTest(unittest.TestCase):
    messageDelay = 50

    def runTest(self) -> None:
        pass

    def delayDisplay(self, message: str, *_: Any, **__: Any) -> None:
        slicer.app.processEvents()


class qSlicerScriptedLoadableModule:
    """The module object: what ``parent`` is to the Python module class."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.name = path.stem
        self.title = ""
        self.categories: list[str] = []
        self.dependencies: list[str] = []
        self.contributors: list[str] = []
        self.helpText = self.acknowledgementText = ""
        self.icon: Any = None
        self.hidden = False
        self.widgetRepresentationCreationEnabled = True
        self._widget: Any = None
        self._logic: Any = None

    def logic(self) -> Any:
        return self._logic

    def widgetRepresentation(self) -> Any:
        if self._widget is None:
            self._widget = self.createNewWidgetRepresentation()
        return self._widget

    def createNewWidgetRepresentation(self) -> Any:
        widget = slicer.qSlicerScriptedLoadableModuleWidget()
        widget.setPythonSource(self.path)
        widget.setup()
        widget.setMRMLScene(slicer.mrmlScene)
        return widget


@_offer
class qSlicerScriptedLoadableModuleWidget(qSlicerWidget):
    """The panel in which a module's widget class lives: its ``self.parent``."""

    def __init__(self) -> None:
        super().__init__()
        self._python_self: Any = None
        self._path = ""
        self._entered = False
        qt.QVBoxLayout(self)

    isEntered = property(lambda self: self._entered)

    def self(self) -> Any:
        return self._python_self

    def setPythonSource(self, path: str) -> None:
        name = Path(path).stem
        widget_class = getattr(sys.modules[name], f"{name}Widget")
        self._path = path
        self._python_self = widget_class(self)
        setattr(slicer.modules, f"{name}Widget", self._python_self)

    def setup(self) -> None:
        self._python_self.setup()

    def enter(self) -> None:
        self._entered = True
        if hasattr(self._python_self, "enter"):
            self._python_self.enter()

    def exit(self) -> None:
        self._entered = False
        if hasattr(self._python_self, "exit"):
            self._python_self.exit()

    def reload(self) -> None:
        self.setPythonSource(self._path)
        self.setup()


slicer.qSlicerScriptedLoadableModule = qSlicerScriptedLoadableModule

module = ModuleType("slicer.ScriptedLoadableModule")
module.__all__ = [  # type: ignore[attr-defined]
    "ScriptedLoadableModule",
    "ScriptedLoadableModuleLogic",
    "ScriptedLoadableModuleTest",
    "ScriptedLoadableModuleWidget",
]
for _public in (
    ScriptedLoadableModule, ScriptedLoadableModuleLogic, ScriptedLoadableModuleTest,
    ScriptedLoadableModuleWidget,
):  # fmt: skip
    setattr(module, _public.__name__, _public)


def load_module(path: Path | str) -> Any:
    """Load a scripted module as the application's factory does.

    Args:
        path: Its entry file, ``…/Name.py``. Its folder goes onto ``sys.path``.

    Returns:
        The module object (``slicer.modules.name``); ``widgetRepresentation()`` makes the panel.
    """
    path = Path(path).resolve()
    name = path.stem
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    source = importlib.util.module_from_spec(spec)
    sys.modules[name] = source
    spec.loader.exec_module(source)
    entry = qSlicerScriptedLoadableModule(path)
    instance = getattr(source, name)(entry)
    slicer.app.moduleManager()._modules[name] = entry
    setattr(slicer.modules, name.lower(), entry)
    setattr(slicer.modules, f"{name}Instance", instance)
    if hasattr(instance, "setup"):
        instance.setup()
    slicer.app.moduleManager().moduleLoaded.emit(name)
    return entry


def unload_module(name: str) -> None:
    """Do what the application does with a module when it quits or unloads it."""
    manager = slicer.app.moduleManager()
    entry = manager._modules.get(name)
    if entry is None:
        return
    manager.moduleAboutToBeUnloaded.emit(name)
    if entry._widget is not None:
        entry._widget.deleteLater()
        qt.QApplication.processEvents()
    del manager._modules[name]
    for attribute in (name.lower(), f"{name}Widget", f"{name}Instance"):
        if hasattr(slicer.modules, attribute):
            delattr(slicer.modules, attribute)
    sys.modules.pop(name, None)
