"""Stands in for the module ``qt``: PySide6's Qt in PythonQt's style.

``Signal``, ``Slot`` and ``Property`` are left out on purpose: PythonQt has no signals of one's own.
"""

# Names are Slicer's and Qt's.
# ruff: noqa: N802

from __future__ import annotations

from types import ModuleType
from typing import Any
from xml.etree import ElementTree

from PySide6 import QtCore, QtGui, QtNetwork, QtUiTools, QtWidgets

from slicer_host.pythonqt_style import made_up_attributes_ignored, wrapper_of

_MODULES = (QtCore, QtGui, QtWidgets, QtNetwork)
_NOT_IN_PYTHONQT = frozenset({"Signal", "Slot", "Property", "ClassInfo", "SignalInstance"})
_custom_widgets: dict[str, type] = {}


class QtModule(ModuleType):
    """``import qt``: looks names up in PySide6 and wraps what is a QObject."""

    def __getattr__(self, name: str) -> Any:
        if name in _NOT_IN_PYTHONQT or name.startswith("__"):
            raise AttributeError(f"module 'qt' has no attribute '{name}'")
        if name == "QUiLoader":
            value: Any = UiLoader
        else:
            value = self._find(name)
            if isinstance(value, type) and issubclass(value, QtCore.QObject):
                value = wrapper_of(value)
        setattr(self, name, value)
        return value

    @staticmethod
    def _find(name: str) -> Any:
        for module in _MODULES:
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"module 'qt' has no attribute '{name}'")


qt = QtModule("qt")


def register_widget(cls: type) -> type:
    """Class decorator: let a ``.ui`` file name this class."""
    _custom_widgets[cls.__name__] = cls
    return cls


class UiLoader(QtUiTools.QUiLoader):
    """QUiLoader whose widgets and layouts have PythonQt's style, ctk and qMRML ones among them."""

    def createWidget(self, class_name: str, parent: Any = None, name: str = "") -> Any:
        cls = _custom_widgets.get(class_name)
        if cls is None:
            if class_name == "Line":
                class_name = "QFrame"
            try:
                cls = getattr(qt, class_name)
            except AttributeError:
                message = f"the stand-in has no widget {class_name}"
                raise NotImplementedError(message) from None
        widget = cls(parent) if parent is not None else cls()
        widget.setObjectName(name)
        return widget

    def createLayout(self, class_name: str, parent: Any = None, name: str = "") -> Any:
        cls = getattr(qt, class_name)
        layout = cls(parent) if isinstance(parent, QtWidgets.QWidget) else cls()
        layout.setObjectName(name)
        return layout

    def load(self, device: Any, parent: Any = None) -> Any:
        document = ElementTree.fromstring(bytes(device.readAll()))
        connections = _take_mrml_connections(document)
        buffer = QtCore.QBuffer()
        buffer.setData(ElementTree.tostring(document))
        buffer.open(QtCore.QIODevice.OpenModeFlag.ReadOnly)
        with made_up_attributes_ignored():
            widget = super().load(buffer, parent)
        if widget is not None:
            for connection in connections:
                sender = _named(widget, connection["sender"])
                receiver = _named(widget, connection["receiver"])
                signal = getattr(sender, connection["signal"].partition("(")[0])
                signal.connect(getattr(receiver, connection["slot"].partition("(")[0]))
        return widget


def _take_mrml_connections(document: ElementTree.Element) -> list[dict[str, str]]:
    # QUiLoader cannot connect signals that carry MRML objects: they are Python's here.
    taken = []
    for connections in document.iter("connections"):
        for connection in list(connections):
            part = {child.tag: child.text or "" for child in connection}
            if "vtkMRML" in part["signal"]:
                connections.remove(connection)
                taken.append(part)
    return taken


def _named(root: Any, name: str) -> Any:
    if root.objectName == name:
        return root
    found = QtCore.QObject.findChildren(root, QtCore.QObject, name)
    if not found:
        raise ValueError(f"the .ui file connects an object '{name}' that it does not have")
    return found[0]
