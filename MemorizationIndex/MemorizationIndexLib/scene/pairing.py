"""Show the reference slice that was copied beside the slice that copies it."""

from __future__ import annotations

from typing import Any

import numpy as np
import slicer
import slicer.util
import vtk
from numpy.typing import NDArray

from ..results import PART, AuditResult, SliceResult
from .errors import SceneError
from .outputs import OUTPUT_ATTRIBUTE

REFERENCE_VIEW = "MemorizationIndexReference"
QUERY_VIEW = "Red"
# Slicer's own layouts end below 1000; modules choose large numbers of their own.
LAYOUT_ID = 26130
KIND = "ReferenceSlice"
VIEW_KIND = "ReferenceView"
# A view group of its own: linked views of the first group must not drag this one along.
VIEW_GROUP = 26130

_LAYOUT = f"""
<layout type="horizontal" split="true">
 <item>
  <view class="vtkMRMLSliceNode" singletontag="{QUERY_VIEW}">
   <property name="orientation" action="default">Axial</property>
   <property name="viewlabel" action="default">R</property>
   <property name="viewcolor" action="default">#F34A33</property>
  </view>
 </item>
 <item>
  <view class="vtkMRMLSliceNode" singletontag="{REFERENCE_VIEW}">
   <property name="orientation" action="default">Axial</property>
   <property name="viewlabel" action="default">Reference</property>
   <property name="viewcolor" action="default">#8C8C8C</property>
   <property name="viewgroup" action="default">{VIEW_GROUP}</property>
  </view>
 </item>
</layout>
"""


def show_side_by_side() -> int:
    """Switch the views to the audited volume beside its reference.

    Returns:
        The view arrangement that was shown before, for :func:`restore_layout`; four views where
        this one was shown already, as in a scene that was saved with it.

    Raises:
        SceneError: The scene has no layout, as without the application.
    """
    node = _layout_node()
    before = int(node.GetViewArrangement())
    if before == LAYOUT_ID:
        before = int(node.SlicerLayoutFourUpView)
    if not node.IsLayoutDescription(LAYOUT_ID):
        node.AddLayoutDescription(LAYOUT_ID, _LAYOUT)
    node.SetViewArrangement(LAYOUT_ID)
    view = slicer.mrmlScene.GetSingletonNode(REFERENCE_VIEW, "vtkMRMLSliceNode")
    if view is not None:
        view.SetAttribute(OUTPUT_ATTRIBUTE, VIEW_KIND)
    return before


def restore_layout(arrangement: int) -> None:
    """Show the views as they were before :func:`show_side_by_side`.

    Raises:
        SceneError: The scene has no layout, as without the application.
    """
    _layout_node().SetViewArrangement(arrangement)


def show_reference(pixels: NDArray[np.generic], name: str) -> Any:
    """Show a reference slice in the reference view.

    Args:
        pixels: The slice as a picture, shape (rows, columns), row 0 at the top.
        name: What the view shall call it.

    Returns:
        The volume node. It is hidden and not saved with the scene: it is someone else's image.

    Raises:
        SceneError: The pixels are not one gray picture.
    """
    if pixels.ndim != 2 or min(pixels.shape) < 1:
        raise SceneError(
            f"A reference slice must be one gray picture (rows × columns), not an array of shape "
            f"{pixels.shape}."
        )
    node = _reference_node()
    node.SetName(name)
    was_modified = node.StartModify()
    try:
        # Columns run to the patient's left and rows to the back, as an axial view draws them.
        matrix = vtk.vtkMatrix4x4()
        matrix.SetElement(0, 0, -1)
        matrix.SetElement(1, 1, -1)
        node.SetIJKToRASMatrix(matrix)
        slicer.util.updateVolumeFromArray(node, np.asarray(pixels, np.float32)[np.newaxis])
        if node.GetDisplayNode() is None:
            node.CreateDefaultDisplayNodes()
        display = node.GetDisplayNode()
        display.SetAutoWindowLevel(0)
        low, high = float(np.min(pixels)), float(np.max(pixels))
        display.SetWindowLevelMinMax(low, high if high > low else low + 1)
    finally:
        node.EndModify(was_modified)
    _put_into_view(node)
    return node


def show_nearest(
    result: AuditResult, row: SliceResult, *, show_subjects: bool = False
) -> Any | None:
    """Show the reference slice that a verdict rests on, where the result has its picture.

    That is the nearest one; of a slice that is flagged for a part of it alone, the one that the
    part is like, turned as the part is.

    Args:
        result: The audit, with its pictures.
        row: One of its slices.
        show_subjects: Name the subject in the view.

    Returns:
        The volume node; None, and no reference shown, where there is no picture.
    """
    picture = None
    subject, index = row.nearest_subject, row.nearest_slice
    if row.flagged_by == PART:
        pictures = result.part_pictures.get((row.volume, row.slice))
        picture = None if pictures is None else pictures.reference
        subject, index = row.part_subject, row.part_slice
    elif row.nearest_row is not None:
        picture = result.reference_pictures.get(row.nearest_row)
    if picture is None:
        hide_reference()
        return None
    who = f"{subject}, " if show_subjects and subject else ""
    return show_reference(picture, f"Reference: {who}slice {index}")


def hide_reference() -> None:
    """Remove the reference slice from the scene."""
    node = _find_reference_node()
    if node is not None:
        display = node.GetDisplayNode()
        slicer.mrmlScene.RemoveNode(node)
        if display is not None:
            slicer.mrmlScene.RemoveNode(display)


def _layout_node() -> Any:
    nodes = slicer.util.getNodesByClass("vtkMRMLLayoutNode")
    if not nodes:
        raise SceneError("The scene has no view layout; run this inside the Slicer application.")
    return nodes[0]


def _find_reference_node() -> Any | None:
    for node in slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode"):
        if node.GetAttribute(OUTPUT_ATTRIBUTE) == KIND:
            return node
    return None


def _reference_node() -> Any:
    node = _find_reference_node()
    if node is None:
        node = slicer.vtkMRMLScalarVolumeNode()
        node.SetAttribute(OUTPUT_ATTRIBUTE, KIND)
        node.SetHideFromEditors(1)
        node.SetSaveWithScene(0)
        node = slicer.mrmlScene.AddNode(node)
    return node


def _put_into_view(node: Any) -> None:
    for composite in slicer.util.getNodesByClass("vtkMRMLSliceCompositeNode"):
        if composite.GetLayoutName() == REFERENCE_VIEW:
            composite.SetBackgroundVolumeID(node.GetID())
            composite.SetForegroundVolumeID(None)
            composite.SetLabelVolumeID(None)
    view = slicer.mrmlScene.GetSingletonNode(REFERENCE_VIEW, "vtkMRMLSliceNode")
    if view is None:
        return
    view.SetAttribute(OUTPUT_ATTRIBUTE, VIEW_KIND)
    columns, rows, _ = node.GetImageData().GetDimensions()
    view.SetOrientation("Axial")
    view.JumpSliceByCentering(-(columns - 1) / 2, -(rows - 1) / 2, 0)
    width, height = view.GetDimensions()[:2]
    if width > 0 and height > 0:
        scale = max(columns / width, rows / height)
        view.SetFieldOfView(width * scale, height * scale, view.GetFieldOfView()[2])
