"""Stands in for the application's start-up: one MRML scene, the module logics, ``slicer.modules``.

The scene, the nodes and the logics are Slicer's own (``slicer-core``). What the application does in
Qt code is done here by hand: it creates the logics (qSlicerCoreApplication, qSlicerModuleManager),
it gives every node that asks for a place an item in the subject hierarchy
(qSlicerSubjectHierarchyPluginLogic), and it sets up the layout with its slice nodes
(qMRMLLayoutManager).
"""

from __future__ import annotations

import tempfile
from types import ModuleType
from typing import Any

import slicer
import slicer.util
import vtk

from slicer_host.slice_view import SliceView

_LOGICS = {
    "Colors": "vtkSlicerColorLogic",
    "Segmentations": "vtkSlicerSegmentationsModuleLogic",
    "SubjectHierarchy": "vtkSlicerSubjectHierarchyModuleLogic",
    "Terminologies": "vtkSlicerTerminologiesModuleLogic",
    "Volumes": "vtkSlicerVolumesLogic",
    "Transforms": "vtkSlicerTransformLogic",
    "Tables": "vtkSlicerTablesLogic",
    "Plots": "vtkSlicerPlotsLogic",
    "Sequences": "vtkSlicerSequencesLogic",
    "Markups": "vtkSlicerMarkupsLogic",
}
SLICE_VIEWS = {"Red": "Axial", "Green": "Coronal", "Yellow": "Sagittal"}


class ModuleEntry:
    """A loadable module as ``slicer.modules.<name>`` shows it: its name and its logic."""

    def __init__(self, name: str, logic: Any) -> None:
        self.name = name
        self._logic = logic

    def logic(self) -> Any:
        return self._logic


class ModuleFactory(ModuleType):
    """``slicer.modules``: modules as attributes, lower-case."""


class HostScene:
    """The application's data side.

    Attributes:
        scene: ``slicer.mrmlScene``.
        application_logic: The vtkSlicerApplicationLogic.
        logics: Module logics by module name.
        layout_node: The layout, as qMRMLLayoutManager would keep it.
        layout_logic: Creates and maps the view nodes of a layout.
    """

    def __init__(self) -> None:
        # Without Qt nothing shows warnings in a log widget, and Slicer's own are many.
        vtk.vtkObject.GlobalWarningDisplayOff()
        self.scene = slicer.vtkMRMLScene()
        self.application_logic = slicer.vtkSlicerApplicationLogic()
        self.application_logic.SetMRMLScene(self.scene)
        colors = self.application_logic.GetColorLogic()
        colors.SetMRMLScene(self.scene)
        colors.AddDefaultColorNodes()
        self._set_up_reading()
        self.logics: dict[str, Any] = {}
        slicer.mrmlScene = self.scene
        slicer.modules = ModuleFactory("slicer.modules")
        for name, class_name in _LOGICS.items():
            self._create_logic(name, class_name)
        self._observe_subject_hierarchy()
        self.layout_logic = slicer.vtkMRMLLayoutLogic()
        self.layout_logic.SetMRMLScene(self.scene)
        self._slice_logics: dict[str, Any] = {}
        self._slice_views: dict[str, SliceView] = {}
        self._slice_logic_collection = vtk.vtkCollection()
        self.application_logic.SetSliceLogics(self._slice_logic_collection)
        self.set_up_views()

    @property
    def layout_node(self) -> Any:
        return self.layout_logic.GetLayoutNode()

    def clear(self) -> None:
        """Close the scene as File > Close scene does, and bring the views back."""
        self.scene.Clear(0)
        self.set_up_views()

    def slice_logic(self, name: str) -> Any:
        """Return the vtkMRMLSliceLogic of a view, as ``sliceWidget(name).sliceLogic()`` does."""
        node = self.scene.GetSingletonNode(name, "vtkMRMLSliceNode")
        if node is None:
            raise KeyError(f"there is no slice view named {name}")
        logic = self._slice_logics.get(name)
        if logic is None or logic.GetSliceNode() is not node:
            if logic is not None:
                self._slice_logic_collection.RemoveItem(logic)
            logic = slicer.vtkMRMLSliceLogic()
            logic.SetMRMLApplicationLogic(self.application_logic)
            logic.SetMRMLScene(self.scene)
            logic.SetSliceNode(node)
            composite = logic.GetSliceCompositeNode()
            if composite is None:
                composite = self.scene.AddNode(slicer.vtkMRMLSliceCompositeNode())
                composite.SetLayoutName(name)
                logic.SetSliceCompositeNode(composite)
            self._slice_logic_collection.AddItem(logic)
            self._slice_logics[name] = logic
        return logic

    def slice_view(self, name: str, size: tuple[int, int] = (400, 400)) -> SliceView:
        """Return the view of that name, opened at the first call as the layout manager does.

        As in the application, a color legend appears in the views that were open when it was made.
        """
        view = self._slice_views.get(name)
        node = self.slice_logic(name).GetSliceNode()
        if view is None or view.node is not node:
            view = self._slice_views[name] = SliceView(self, name, size)
        elif tuple(view.window.GetSize()) != size:
            view.resize(size)
        return view

    def slice_view_names(self) -> list[str]:
        """Return the layout names of the slice nodes in the scene."""
        nodes = slicer.util.getNodesByClass("vtkMRMLSliceNode")
        return [node.GetLayoutName() for node in nodes]

    def set_up_views(self) -> None:
        """Create the layout node and the slice nodes of the current layout."""
        self.layout_logic.SetMRMLScene(self.scene)
        node = self.layout_node
        if node.GetViewArrangement() in (0, node.SlicerLayoutNone):
            node.SetViewArrangement(node.SlicerLayoutFourUpView)
        for name, orientation in SLICE_VIEWS.items():
            if self.scene.GetSingletonNode(name, "vtkMRMLSliceNode") is None:
                view = slicer.vtkMRMLSliceNode()
                view.SetSingletonTag(name)
                view.SetLayoutName(name)
                view.SetName(name)
                view = self.scene.AddNode(view)
                view.SetOrientation(orientation)
            self.slice_logic(name)
        for singleton in ("vtkMRMLSelectionNode", "vtkMRMLInteractionNode"):
            if self.scene.GetSingletonNode("Singleton", singleton) is None:
                node = self.scene.CreateNodeByClass(singleton)
                node.UnRegister(None)
                node.SetSingletonTag("Singleton")
                self.scene.AddNode(node)

    def _set_up_reading(self) -> None:
        # Reading a scene bundle asks for the cache folder, which the application would set.
        self._cache_folder = tempfile.TemporaryDirectory(prefix="slicer_host")
        cache = slicer.vtkCacheManager()
        cache.SetRemoteCacheDirectory(self._cache_folder.name)
        data_io = slicer.vtkDataIOManager()
        data_io.SetCacheManager(cache)
        self.scene.SetCacheManager(cache)
        self.scene.SetDataIOManager(data_io)
        self.application_logic.SetTemporaryPath(self._cache_folder.name)

    def _create_logic(self, name: str, class_name: str) -> None:
        logic = getattr(slicer, class_name)()
        logic.SetMRMLApplicationLogic(self.application_logic)
        logic.SetMRMLScene(self.scene)
        self.application_logic.SetModuleLogic(name, logic)
        self.logics[name] = logic
        setattr(slicer.modules, name.lower(), ModuleEntry(name, logic))

    def _observe_subject_hierarchy(self) -> None:
        @vtk.calldata_type(vtk.VTK_OBJECT)
        def on_node_added(_caller: Any, _event: Any, node: Any) -> None:
            if self.scene.IsImporting() or self.scene.IsClosing() or node is None:
                return
            wants_place = node.IsA("vtkMRMLDisplayableNode") or node.IsA("vtkMRMLTableNode")
            wants_place = wants_place or node.IsA("vtkMRMLPlotChartNode")
            wants_place = wants_place or node.IsA("vtkMRMLPlotSeriesNode")
            if not wants_place or node.GetHideFromEditors():
                return
            hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(self.scene)
            if not hierarchy.GetItemByDataNode(node):
                hierarchy.CreateItem(hierarchy.GetSceneItemID(), node)

        self._on_node_added = on_node_added
        self.scene.AddObserver(slicer.vtkMRMLScene.NodeAddedEvent, on_node_added)


_host: HostScene | None = None


def host_scene() -> HostScene:
    """Return the process's one scene with its logics; the first call boots it."""
    global _host
    if _host is None:
        _host = HostScene()
    return _host
