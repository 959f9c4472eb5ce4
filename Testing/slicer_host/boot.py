"""Puts the stand-in where modules look: ``qt``, ``ctk``, ``slicer.app`` and the rest."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slicer_host.application import Application

_app: Any = None
_qt_application: Any = None


def boot() -> Application:
    """Start the stand-in once per process and return ``slicer.app``."""
    global _app, _qt_application
    if _app is not None:
        return _app
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6.QtWidgets import QApplication

    _qt_application = QApplication.instance() or QApplication(["slicer_host"])
    _qt_application.setOrganizationName("NA-MIC")
    _qt_application.setApplicationName("Slicer")

    import slicer

    from slicer_host.scene import host_scene

    host = host_scene()
    from slicer_host.qt_module import qt

    sys.modules["qt"] = qt
    from slicer_host import mrml_widgets
    from slicer_host.application import Application
    from slicer_host.ctk_module import ctk

    assert mrml_widgets  # It lists its classes in ``slicer``.
    sys.modules["ctk"] = ctk
    from slicer_host.translation import i18n

    sys.modules["slicer.i18n"] = slicer.i18n = i18n
    _app = slicer.app = Application(host)
    from slicer_host import parameter_node, scripted_module

    sys.modules["slicer.parameterNodeWrapper"] = parameter_node.module
    slicer.parameterNodeWrapper = parameter_node.module
    sys.modules["slicer.ScriptedLoadableModule"] = scripted_module.module
    slicer.ScriptedLoadableModule = scripted_module.module
    return _app
