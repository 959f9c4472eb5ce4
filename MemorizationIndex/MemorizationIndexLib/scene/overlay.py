"""ONI → a colour overlay: a scalar volume with its own colour scale and legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import slicer
import slicer.util
import vtk
from numpy.typing import NDArray

from ..colors import oni_color
from .errors import SceneError
from .geometry import ijk_to_ras, slice_count
from .outputs import OUTPUT_ATTRIBUTE, output_node, place_beside

KIND = "Overlay"
COLOR_KIND = "OniColors"
COLOR_STEPS = 255
# Outside [−1, 1], so that the display threshold makes slices without a score transparent.
NOT_SCORED_VALUE = -2.0
_THRESHOLD = -1.5
OVERLAY_OPACITY = 0.4


def oni_values(oni: Sequence[float | None]) -> NDArray[np.float32]:
    """Return one value per slice, :data:`NOT_SCORED_VALUE` where there is no ONI."""
    return np.array([NOT_SCORED_VALUE if value is None else value for value in oni], np.float32)


def write_overlay(volume: Any, oni: Sequence[float | None], axis: int) -> Any:
    """Show the ONI of a volume's slices as a scalar volume of the same geometry.

    Args:
        volume: The audited volume node.
        oni: One per slice along ``axis``; None where the slice was not scored.
        axis: Array axis of the slices (0 K, 1 J, 2 I).

    Returns:
        The vtkMRMLScalarVolumeNode, float32.

    Raises:
        SceneError: The number of values is not the number of slices.
    """
    count = slice_count(volume, axis)
    if len(oni) != count:
        raise SceneError(
            f"'{volume.GetName()}' has {count} slices along array axis {axis}, but the result has "
            f"{len(oni)}; run the audit again."
        )
    shape = [1, 1, 1]
    shape[axis] = count
    voxels = np.empty(tuple(reversed(volume.GetImageData().GetDimensions())), np.float32)
    voxels[:] = oni_values(oni).reshape(shape)
    node = output_node(volume, KIND, "vtkMRMLScalarVolumeNode", f"{volume.GetName()} ONI")
    was_modified = node.StartModify()
    try:
        matrix = vtk.vtkMatrix4x4()
        matrix.DeepCopy(ijk_to_ras(volume).ravel())
        node.SetIJKToRASMatrix(matrix)
        node.SetDescription(
            "Originality Norm Index of each slice: −1 copy, 0 typical, +1 novel, "
            f"{NOT_SCORED_VALUE:g} not scored"
        )
        slicer.util.updateVolumeFromArray(node, voxels)
        if node.GetDisplayNode() is None:
            _set_up_display(node)
    finally:
        node.EndModify(was_modified)
    place_beside(node, volume)
    return node


def oni_color_node() -> Any:
    """Return the scene's ONI colour table, made at the first call.

    It is not hidden: the Save dialog leaves hidden nodes out, and a saved overlay would come back
    without its colours.
    """
    for node in slicer.util.getNodesByClass("vtkMRMLColorTableNode"):
        if node.GetAttribute(OUTPUT_ATTRIBUTE) == COLOR_KIND:
            return node
    node = slicer.vtkMRMLColorTableNode()
    node.SetTypeToUser()
    node.SetNumberOfColors(COLOR_STEPS)
    for step, value in enumerate(np.linspace(-1, 1, COLOR_STEPS)):
        red, green, blue = (part / 255 for part in oni_color(float(value)))
        node.SetColor(step, f"{value:+.2f}", red, green, blue, 1.0)
    node.SetName("ONI")
    node.SetAttribute(OUTPUT_ATTRIBUTE, COLOR_KIND)
    node.SetAttribute("Category", "MemorizationIndex")
    node.SetHideFromEditors(0)
    return slicer.mrmlScene.AddNode(node)


def show_overlay(volume: Any, overlay: Any, *, opacity: float = OVERLAY_OPACITY) -> None:
    """Lay the overlay over the volume in the slice views, with its legend."""
    for composite in _composites():
        composite.SetBackgroundVolumeID(volume.GetID())
        composite.SetForegroundVolumeID(overlay.GetID())
        composite.SetForegroundOpacity(opacity)
    _set_legend_visible(overlay, True)


def hide_overlay(overlay: Any) -> None:
    """Take the overlay and its legend out of the slice views; other layers stay."""
    for composite in slicer.util.getNodesByClass("vtkMRMLSliceCompositeNode"):
        if composite.GetForegroundVolumeID() == overlay.GetID():
            composite.SetForegroundVolumeID(None)
    _set_legend_visible(overlay, False)


def _composites() -> list[Any]:
    # Views of another group (the reference beside it) show something else on purpose.
    wanted = []
    for composite in slicer.util.getNodesByClass("vtkMRMLSliceCompositeNode"):
        view = slicer.mrmlScene.GetSingletonNode(composite.GetLayoutName(), "vtkMRMLSliceNode")
        if view is None or not view.GetAttribute(OUTPUT_ATTRIBUTE):
            wanted.append(composite)
    return wanted


def _set_up_display(node: Any) -> None:
    node.CreateDefaultDisplayNodes()
    display = node.GetDisplayNode()
    display.SetAndObserveColorNodeID(oni_color_node().GetID())
    display.SetAutoWindowLevel(0)
    display.SetWindowLevelMinMax(-1.0, 1.0)
    display.SetAutoThreshold(0)
    display.SetThreshold(_THRESHOLD, 1.0)
    display.SetApplyThreshold(1)
    display.SetInterpolate(0)
    legend = slicer.vtkSlicerColorLogic.AddDefaultColorLegendDisplayNode(node)
    legend.SetTitleText("ONI (−1: copy)")
    legend.SetLabelFormat("%+.1f")
    legend.SetNumberOfLabels(5)
    legend.SetVisibility(0)


def _set_legend_visible(overlay: Any, visible: bool) -> None:
    legend = slicer.vtkSlicerColorLogic.GetColorLegendDisplayNode(overlay)
    if legend is not None:
        legend.SetVisibility(int(visible))
