"""Stands in for Slicer's widgets over MRML (qMRML…, qSlicer…), as far as modules use them.

The names, properties, signals and the behaviour that the headers document are Slicer's: a selector
without a scene is disabled, lists what its filters let through in the order of the scene, follows
additions, removals and renames, and takes the first node where "None" is not allowed.
"""

# Names are Slicer's and Qt's.
# ruff: noqa: N801, N802, N815

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import slicer
import vtk
from PySide6.QtCore import Property, QObject, QSignalBlocker, Qt, Signal
from PySide6.QtGui import QStandardItem, QStandardItemModel
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QTableWidgetItem
from shiboken6 import isValid

from slicer_host.ctk_module import ctkDoubleSpinBox, ctkSliderWidget
from slicer_host.pythonqt_style import add_style
from slicer_host.qt_module import qt, register_widget


def _offer(cls: type) -> type:
    add_style(cls)
    register_widget(cls)
    setattr(slicer, cls.__name__, cls)
    return cls


class _MRMLWidget(qt.QWidget):
    """What the widgets over a scene have in common."""

    def __init__(self, parent: Any = None) -> None:
        super().__init__(parent)
        self._scene: Any = None
        self._tags: list[tuple[Any, int]] = []
        self.destroyed.connect(_observer_remover(self._tags))

    def mrmlScene(self) -> Any:
        return self._scene

    def _observe(self, node: Any, event: Any, method: Callable[..., None]) -> None:
        # Weakly: a cycle of node, observer and widget would be cleared by the garbage collector at
        # a moment when Qt's destructors must not run.
        weak = weakref.WeakMethod(method)

        def call(caller: Any, _event: Any, data: Any = None) -> None:
            alive = weak()
            if alive is not None and isValid(alive.__self__):
                alive(caller, data)

        if event == slicer.vtkMRMLScene.NodeAboutToBeRemovedEvent:
            # Only where the event brings an object: VTK takes whatever comes for one.
            call = vtk.calldata_type(vtk.VTK_OBJECT)(call)
        self._tags.append((node, node.AddObserver(event, call)))

    def _unobserve(self) -> None:
        _observer_remover(self._tags)()


def _nothing() -> None:
    pass


def _observer_remover(tags: list[tuple[Any, int]]) -> Any:
    def remove(*_: Any) -> None:
        while tags:
            node, tag = tags.pop()
            node.RemoveObserver(tag)

    return remove


@_offer
class qMRMLWidget(_MRMLWidget):
    """A widget that hands its scene on."""

    mrmlSceneChanged = Signal(object)

    def setMRMLScene(self, scene: Any) -> None:
        if scene is not self._scene:
            self._scene = scene
            self.mrmlSceneChanged.emit(scene)


@_offer
class qSlicerWidget(qMRMLWidget):
    pass


def _stored(name: str, kind: Any) -> Any:
    return Property(
        kind, lambda self: self._state[name], lambda self, value: self._change(name, value)
    )


def _setter(name: str) -> Any:
    return lambda self, value: self._change(name, value)


class qMRMLSortFilterProxyModel(QObject):
    """What a selector lets through by ID; a selector's other filters are its own properties."""

    def __init__(self, parent: Any) -> None:
        super().__init__(parent)
        self._hidden: list[str] = []

    def _set_hidden(self, node_ids: list[str]) -> None:
        if list(node_ids) != self._hidden:
            self._hidden = list(node_ids)
            self.parent()._populate()

    # Written as a property: its setter is no slot, so that PythonQt does not offer it.
    hiddenNodeIDs = Property("QStringList", lambda self: self._hidden, _set_hidden)


@_offer
class qMRMLNodeComboBox(_MRMLWidget):
    currentNodeChanged = Signal(object)
    currentNodeIDChanged = Signal(str)
    currentNodeRenamed = Signal(str)
    nodeAdded = Signal(object)
    nodeAddedByUser = Signal(object)
    nodeAboutToBeRemoved = Signal(object)
    nodeAboutToBeEdited = Signal(object)
    nodeActivated = Signal(object)

    def __init__(self, parent: Any = None) -> None:
        super().__init__(parent)
        self._state: dict[str, Any] = {
            "nodeTypes": [], "showHidden": False, "showChildNodeTypes": True,
            "hideChildNodeTypes": [], "baseName": "", "noneEnabled": False, "addEnabled": True,
            "removeEnabled": True, "editEnabled": False, "renameEnabled": False,
            "selectNodeUponCreation": True, "noneDisplay": "None",
            "interactionNodeSingletonTag": "",
        }  # fmt: skip
        self._attributes: list[tuple[str, str, Any]] = []
        self._nodes: list[Any] = []
        self._current: Any = None
        self._filter = qMRMLSortFilterProxyModel(self)
        self._combo = QComboBox(self)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._combo)
        self._combo.activated.connect(self._on_activated)
        self.setEnabled(False)

    # Filters

    def addAttribute(self, node_type: str, name: str, value: Any = None) -> None:
        self._attributes.append((node_type, name, value))
        self._populate()

    def removeAttribute(self, node_type: str, name: str) -> None:
        self._attributes = [a for a in self._attributes if a[:2] != (node_type, name)]
        self._populate()

    def sortFilterProxyModel(self) -> qMRMLSortFilterProxyModel:
        return self._filter

    def _takes(self, node: Any) -> bool:
        if node.GetID() in self._filter.hiddenNodeIDs:
            return False
        if node.GetHideFromEditors() and not self._state["showHidden"]:
            return False
        types = self._state["nodeTypes"]
        exact = node.GetClassName() in types
        derived = self._state["showChildNodeTypes"] and any(node.IsA(t) for t in types)
        if not (exact or derived):
            return False
        if not exact and any(node.IsA(t) for t in self._state["hideChildNodeTypes"]):
            return False
        for node_type, name, value in self._attributes:
            if node.IsA(node_type):
                found = node.GetAttribute(name)
                if found is None or (value is not None and found != str(value)):
                    return False
        return True

    # Scene

    def setMRMLScene(self, scene: Any) -> None:
        if scene is self._scene:
            return
        self._unobserve()
        self._scene = scene
        if scene is not None:
            for event in ("NodeAddedEvent", "NodeRemovedEvent", "EndCloseEvent", "EndImportEvent",
                          "EndBatchProcessEvent"):  # fmt: skip
                self._observe(scene, getattr(slicer.vtkMRMLScene, event), self._on_scene)
            event = slicer.vtkMRMLScene.NodeAboutToBeRemovedEvent
            self._observe(scene, event, self._on_about_to_remove)
        self.setEnabled(scene is not None)
        self._populate()

    def _on_about_to_remove(self, _scene: Any, node: Any) -> None:
        if node in self._nodes:
            self.nodeAboutToBeRemoved.emit(node)

    def _on_scene(self, *_: Any) -> None:
        if not self._scene.IsBatchProcessing():
            before = list(self._nodes)
            self._populate()
            for node in self._nodes:
                if node not in before:
                    self.nodeAdded.emit(node)

    def _populate(self) -> None:
        if not hasattr(self, "_combo"):
            return
        nodes = []
        if self._scene is not None:
            count = self._scene.GetNumberOfNodes()
            every = (self._scene.GetNthNode(index) for index in range(count))
            nodes = [node for node in every if self._takes(node)]
        for node in nodes:
            if node not in self._nodes:
                self._observe(node, vtk.vtkCommand.ModifiedEvent, self._on_node)
        self._nodes = nodes
        self._fill()
        current = self._current if self._current in nodes else None
        if current is None and nodes and not self._state["noneEnabled"]:
            current = nodes[0]
        self._select(current)

    def _on_node(self, node: Any, _data: Any) -> None:
        if node in self._nodes:
            item = self._nodes.index(node) + self._state["noneEnabled"]
            if self._combo.itemText(item) != node.GetName():
                self._combo.setItemText(item, node.GetName())
                if node is self._current:
                    self.currentNodeRenamed.emit(node.GetName())

    def _fill(self) -> None:
        with QSignalBlocker(self._combo):
            self._combo.clear()
            if self._state["noneEnabled"]:
                self._combo.addItem(self._state["noneDisplay"])
            for node in self._nodes:
                self._combo.addItem(node.GetName())
        self._show_current()

    def _show_current(self) -> None:
        offset = int(self._state["noneEnabled"])
        index = offset - 1
        if self._current in self._nodes:
            index = self._nodes.index(self._current) + offset
        with QSignalBlocker(self._combo):
            self._combo.setCurrentIndex(index)

    def _on_activated(self, index: int) -> None:
        position = index - int(self._state["noneEnabled"])
        node = self._nodes[position] if position >= 0 else None
        self._select(node)
        self.nodeActivated.emit(node)

    def _select(self, node: Any) -> None:
        changed = node is not self._current
        self._current = node
        self._show_current()
        if changed:
            self.currentNodeChanged.emit(node)
            self.currentNodeIDChanged.emit(node.GetID() if node is not None else "")

    # Selection

    def currentNode(self) -> Any:
        return self._current

    def setCurrentNode(self, node: Any) -> None:
        if isinstance(node, str):
            self.setCurrentNodeID(node)
        else:
            self._select(node if node in self._nodes else None)

    def setCurrentNodeID(self, node_id: str) -> None:
        found = [node for node in self._nodes if node.GetID() == node_id]
        self._select(found[0] if found else None)

    def setCurrentNodeIndex(self, index: int) -> None:
        self._select(self.nodeFromIndex(index))

    def _get_current_id(self) -> str:
        return self._current.GetID() if self._current is not None else ""

    currentNodeID = Property(str, _get_current_id, setCurrentNodeID)

    # ``nodes`` is public in C++ but no slot: PythonQt does not offer it, hence it is not here.

    def nodeCount(self) -> int:
        return len(self._nodes)

    def nodeFromIndex(self, index: int) -> Any:
        return self._nodes[index] if 0 <= index < len(self._nodes) else None

    def addNode(self, node_type: str = "") -> Any:
        """Make a node as the menu's "Create new" does."""
        kind = node_type or self._state["nodeTypes"][0]
        base = self._state["baseName"]
        name = self._scene.GenerateUniqueName(base) if base else ""
        node = self._scene.AddNewNodeByClass(kind, name)
        for wanted, attribute, value in self._attributes:
            if node.IsA(wanted):
                node.SetAttribute(attribute, "" if value is None else str(value))
        self._populate()
        if self._state["selectNodeUponCreation"]:
            self._select(node)
        self.nodeAddedByUser.emit(node)
        return node

    def removeCurrentNode(self) -> None:
        if self._current is not None:
            self._scene.RemoveNode(self._current)

    nodeTypes = _stored("nodeTypes", "QStringList")
    showHidden = _stored("showHidden", bool)
    showChildNodeTypes = _stored("showChildNodeTypes", bool)
    hideChildNodeTypes = _stored("hideChildNodeTypes", "QStringList")
    baseName = _stored("baseName", str)
    noneEnabled = _stored("noneEnabled", bool)
    addEnabled = _stored("addEnabled", bool)
    removeEnabled = _stored("removeEnabled", bool)
    editEnabled = _stored("editEnabled", bool)
    renameEnabled = _stored("renameEnabled", bool)
    selectNodeUponCreation = _stored("selectNodeUponCreation", bool)
    noneDisplay = _stored("noneDisplay", str)
    interactionNodeSingletonTag = _stored("interactionNodeSingletonTag", str)
    setNodeTypes = _setter("nodeTypes")
    setShowHidden = _setter("showHidden")
    setShowChildNodeTypes = _setter("showChildNodeTypes")
    setHideChildNodeTypes = _setter("hideChildNodeTypes")
    setBaseName = _setter("baseName")
    setNoneEnabled = _setter("noneEnabled")
    setAddEnabled = _setter("addEnabled")
    setRemoveEnabled = _setter("removeEnabled")
    setEditEnabled = _setter("editEnabled")
    setRenameEnabled = _setter("renameEnabled")
    setSelectNodeUponCreation = _setter("selectNodeUponCreation")
    setNoneDisplay = _setter("noneDisplay")
    setInteractionNodeSingletonTag = _setter("interactionNodeSingletonTag")

    def _change(self, name: str, value: Any) -> None:
        self._state[name] = list(value) if isinstance(value, (list, tuple)) else value
        self._populate()


@_offer
class qMRMLCheckableNodeComboBox(qMRMLNodeComboBox):
    """A node selector in which several nodes can be checked."""

    checkedNodesChanged = Signal()

    def __init__(self, parent: Any = None) -> None:
        self._checked: list[Any] = []
        super().__init__(parent)
        self._checked = []
        self._model = QStandardItemModel(self)
        self._combo.setModel(self._model)
        self._model.itemChanged.connect(self._on_item)

    def checkedNodes(self) -> list[Any]:
        return [node for node in self._nodes if node in self._checked]

    def uncheckedNodes(self) -> list[Any]:
        return [node for node in self._nodes if node not in self._checked]

    def allChecked(self) -> bool:
        return not self.uncheckedNodes()

    def noneChecked(self) -> bool:
        return not self.checkedNodes()

    def checkState(self, node: Any) -> Any:
        checked = node in self._nodes and node in self._checked
        return Qt.CheckState.Checked if checked else Qt.CheckState.Unchecked

    def setCheckState(self, node: Any, state: Any) -> None:
        checked = Qt.CheckState(state) == Qt.CheckState.Checked
        if node not in self._nodes or checked == (node in self._checked):
            return
        if checked:
            self._checked.append(node)
        else:
            self._checked.remove(node)
        self._fill()
        self.checkedNodesChanged.emit()

    def check(self, node: Any) -> None:
        self.setCheckState(node, Qt.CheckState.Checked)

    def uncheck(self, node: Any) -> None:
        self.setCheckState(node, Qt.CheckState.Unchecked)

    def _populate(self) -> None:
        super()._populate()
        kept = [node for node in self._checked if node in self._nodes]
        if len(kept) != len(self._checked):
            self._checked = kept
            self.checkedNodesChanged.emit()

    def _fill(self) -> None:
        if not hasattr(self, "_model"):
            return
        with QSignalBlocker(self._model):
            self._model.clear()
            for node in self._nodes:
                item = QStandardItem(node.GetName())
                item.setCheckable(True)
                item.setCheckState(self.checkState(node))
                self._model.appendRow(item)
        names = ", ".join(node.GetName() for node in self.checkedNodes())
        self._combo.setPlaceholderText(names or "None")
        self._show_current()

    def _show_current(self) -> None:
        with QSignalBlocker(self._combo):
            self._combo.setCurrentIndex(-1)

    def _on_item(self, item: Any) -> None:
        self.setCheckState(self._nodes[item.row()], item.checkState())


@_offer
class qMRMLSliderWidget(ctkSliderWidget):
    def setMRMLScene(self, scene: Any) -> None:
        pass


@_offer
class qMRMLSpinBox(ctkDoubleSpinBox):
    def setMRMLScene(self, scene: Any) -> None:
        pass


@_offer
class qMRMLTableView(qt.QTableWidget):
    """Shows a table node's text; like the application's, it cannot color single cells."""

    def __init__(self, parent: Any = None) -> None:
        super().__init__(parent)
        self._node: Any = None
        self._tag = 0

    def setMRMLScene(self, scene: Any) -> None:
        pass

    def mrmlTableNode(self) -> Any:
        return self._node

    def setMRMLTableNode(self, node: Any) -> None:
        if self._node is not None:
            self._node.RemoveObserver(self._tag)
        self._node = node
        if node is not None:
            weak = weakref.WeakMethod(self._update)
            self._tag = node.AddObserver(
                vtk.vtkCommand.ModifiedEvent, lambda *_: (weak() or _nothing)()
            )
        self._update()

    def _update(self, *_: Any) -> None:
        node = self._node
        rows = node.GetNumberOfRows() if node is not None else 0
        columns = node.GetNumberOfColumns() if node is not None else 0
        self.setRowCount(rows)
        self.setColumnCount(columns)
        for column in range(columns):
            name = node.GetColumnName(column)
            title = node.GetColumnTitle(name) if node.GetUseColumnTitleAsColumnHeader() else ""
            self.setHorizontalHeaderItem(column, QTableWidgetItem(title or name))
            for row in range(rows):
                self.setItem(row, column, QTableWidgetItem(node.GetCellText(row, column)))
