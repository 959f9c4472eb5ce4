"""Stands in for the module ``ctk``: the Common Toolkit's widgets that modules use most.

Names, properties and signals are CTK's; the looks are plain Qt.
"""

# Names are Slicer's and Qt's.
# ruff: noqa: N801, N802, N815

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from PySide6.QtCore import Property, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QMessageBox, QSlider, QToolButton

from slicer_host.pythonqt_style import add_style
from slicer_host.qt_module import qt, register_widget

ctk = ModuleType("ctk")


def _offer(cls: type) -> type:
    add_style(cls)
    register_widget(cls)
    setattr(ctk, cls.__name__, cls)
    return cls


@_offer
class ctkCheckBox(qt.QCheckBox):
    pass


@_offer
class ctkComboBox(qt.QComboBox):
    pass


@_offer
class ctkPushButton(qt.QPushButton):
    pass


@_offer
class ctkCheckablePushButton(qt.QPushButton):
    pass


@_offer
class ctkDoubleSpinBox(qt.QDoubleSpinBox):
    pass


@_offer
class ctkExpandableWidget(qt.QFrame):
    pass


@_offer
class ctkFittedTextBrowser(qt.QTextBrowser):
    pass


@_offer
class ctkSearchBox(qt.QLineEdit):
    pass


@_offer
class ctkMessageBox(qt.QMessageBox):
    """QMessageBox with "Don't show this message again"."""

    def __init__(self, parent: Any = None) -> None:
        super().__init__(parent)
        self._key = ""

    def _get_key(self) -> str:
        return self._key

    def _set_key(self, key: str) -> None:
        self._key = key

    dontShowAgainSettingsKey = Property(str, _get_key, _set_key)

    def setDontShowAgainVisible(self, visible: bool) -> None:
        self.setCheckBox(qt.QCheckBox("Don't show this message again") if visible else None)

    # PythonQt also finds the statics on the class.
    Ok = QMessageBox.StandardButton.Ok
    Cancel = QMessageBox.StandardButton.Cancel


@_offer
class ctkCollapsibleButton(qt.QWidget):
    """A titled section whose contents fold away."""

    contentsCollapsed = Signal(bool)
    clicked = Signal(bool)
    toggled = Signal(bool)

    _TITLE_HEIGHT = 26

    def __init__(self, *arguments: Any) -> None:
        parent = arguments[-1] if arguments and not isinstance(arguments[-1], str) else None
        super().__init__(parent)
        self._collapsed = False
        self._button = QToolButton(self)
        self._button.setObjectName("")
        self._button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self._button.setArrowType(Qt.ArrowType.DownArrow)
        self._button.setAutoRaise(True)
        self._button.clicked.connect(self._on_clicked)
        self.setContentsMargins(0, self._TITLE_HEIGHT, 0, 0)
        if arguments and isinstance(arguments[0], str):
            self._set_text(arguments[0])

    def resizeEvent(self, event: Any) -> None:
        self._button.setGeometry(0, 0, event.size().width(), self._TITLE_HEIGHT)
        super().resizeEvent(event)

    def _on_clicked(self) -> None:
        self._set_collapsed(not self._collapsed)
        self.clicked.emit(not self._collapsed)

    def _get_text(self) -> str:
        return self._button.text()

    def _set_text(self, text: str) -> None:
        self._button.setText(text)

    def _get_collapsed(self) -> bool:
        return self._collapsed

    def _set_collapsed(self, collapsed: bool) -> None:
        if collapsed == self._collapsed:
            return
        self._collapsed = collapsed
        arrow = Qt.ArrowType.RightArrow if collapsed else Qt.ArrowType.DownArrow
        self._button.setArrowType(arrow)
        for child in self.children():
            if child is not self._button and child.isWidgetType():
                child.setVisible(not collapsed)
        self.setMaximumHeight(self._TITLE_HEIGHT if collapsed else 16777215)
        self.contentsCollapsed.emit(collapsed)
        self.toggled.emit(not collapsed)

    text = Property(str, _get_text, _set_text)
    collapsed = Property(bool, _get_collapsed, _set_collapsed)


@_offer
class ctkCollapsibleGroupBox(qt.QGroupBox):
    """A group box that folds when its box is unchecked."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.setCheckable(True)
        self.toggled.connect(self._show_children)

    def _show_children(self, shown: bool) -> None:
        for child in self.children():
            if child.isWidgetType():
                child.setVisible(shown)

    def _get_collapsed(self) -> bool:
        return not self.isChecked()

    def _set_collapsed(self, collapsed: bool) -> None:
        self.setChecked(not collapsed)

    collapsed = Property(bool, _get_collapsed, _set_collapsed)


class _Slider(qt.QWidget):
    """A slider with a spin box beside it."""

    _STEPS = 1000

    def __init__(self, parent: Any = None) -> None:
        super().__init__(parent)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        self._slider = QSlider(Qt.Orientation.Horizontal, self)
        self._slider.setRange(0, self._STEPS)
        self._box = qt.QDoubleSpinBox(self)
        self._box.setRange(0, 99)
        layout.addWidget(self._slider)
        layout.addWidget(self._box)
        self._box.valueChanged.connect(self._on_box)
        self._slider.sliderMoved.connect(self._on_slider)

    def _on_box(self, value: float) -> None:
        low, high = self._box.minimum, self._box.maximum
        if high > low:
            self._slider.setValue(round((value - low) / (high - low) * self._STEPS))
        self.valueChanged.emit(value)

    def _on_slider(self, position: int) -> None:
        low, high = self._box.minimum, self._box.maximum
        self._box.setValue(low + position / self._STEPS * (high - low))

    def setRange(self, low: float, high: float) -> None:
        self._box.setRange(low, high)


def _through(name: str, kind: type) -> Any:
    return Property(
        kind,
        lambda self: getattr(self._box, name),
        lambda self, value: setattr(self._box, name, value),
    )


@_offer
class ctkSliderWidget(_Slider):
    valueChanged = Signal(float)
    value = _through("value", float)
    minimum = _through("minimum", float)
    maximum = _through("maximum", float)
    singleStep = _through("singleStep", float)
    decimals = _through("decimals", int)
    suffix = _through("suffix", str)
    prefix = _through("prefix", str)


@_offer
class ctkDoubleSlider(_Slider):
    valueChanged = Signal(float)
    value = _through("value", float)
    minimum = _through("minimum", float)
    maximum = _through("maximum", float)
    singleStep = _through("singleStep", float)


class _PathWidget(qt.QWidget):
    """A line edit and a browse button."""

    def __init__(self, parent: Any = None) -> None:
        super().__init__(parent)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        self._edit = QLineEdit(self)
        self._browse = QToolButton(self)
        self._browse.setText("…")
        self._browse.setToolTip("Browse")
        layout.addWidget(self._edit)
        layout.addWidget(self._browse)


@_offer
class ctkPathLineEdit(_PathWidget):
    """A path that can be typed or browsed; the folder button opens a dialog in the application."""

    currentPathChanged = Signal(str)
    validInputChanged = Signal(bool)
    Files, Dirs, Readable, Writable, Executable = 2, 1, 16, 32, 64

    def __init__(self, parent: Any = None) -> None:
        super().__init__(parent)
        self._state: dict[str, Any] = {
            "filters": 0, "nameFilters": [], "settingKey": "", "label": "",
            "sizeAdjustPolicy": 0, "showBrowseButton": True, "showHistoryButton": True,
        }  # fmt: skip
        self._edit.textChanged.connect(self.currentPathChanged)

    def addCurrentPathToHistory(self) -> None:
        pass

    def _get_path(self) -> str:
        return self._edit.text()

    def _set_path(self, path: str) -> None:
        self._edit.setText(path)

    currentPath = Property(str, _get_path, _set_path)


def _stored(name: str) -> property:
    return property(
        lambda self: self._state[name],
        lambda self, value: self._state.__setitem__(name, value),
    )


for _name in ("filters", "nameFilters", "settingKey", "label", "sizeAdjustPolicy",
              "showBrowseButton", "showHistoryButton"):  # fmt: skip
    setattr(ctkPathLineEdit, _name, _stored(_name))


@_offer
class ctkDirectoryButton(qt.QPushButton):
    """A button that shows and chooses a folder."""

    directoryChanged = Signal(str)
    directorySelected = Signal(str)

    def __init__(self, *arguments: Any) -> None:
        super().__init__()
        self._directory = str(Path.cwd())

    def _get_directory(self) -> str:
        return self._directory

    def _set_directory(self, directory: str) -> None:
        if directory != self._directory:
            self._directory = directory
            self.setText(directory)
            self.directoryChanged.emit(directory)

    directory = Property(str, _get_directory, _set_directory)
