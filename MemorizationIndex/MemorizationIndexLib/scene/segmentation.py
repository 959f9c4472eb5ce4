"""Verdicts → a segmentation: four segments in one shared labelmap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import slicer
import vtk
from numpy.typing import NDArray
from vtk.util import numpy_support

from ..colors import VERDICT_COLORS
from ..results import Verdict
from .errors import SceneError
from .geometry import ijk_to_ras, slice_count
from .outputs import claim, output_node, place_beside

KIND = "Segmentation"
SEGMENT_IDS = {
    Verdict.COPY: "Copy",
    Verdict.SUSPICIOUS: "Suspicious",
    Verdict.NO_EVIDENCE: "NoEvidence",
    Verdict.NOT_SCORED: "NotScored",
}
SEGMENT_NAMES = {verdict: verdict.value.capitalize() for verdict in Verdict}
LABELS = {verdict: label for label, verdict in enumerate(SEGMENT_IDS, start=1)}
# Only what needs a look is shown at first; a tint over every slice would hide the image.
SHOWN_AT_FIRST = frozenset({Verdict.COPY, Verdict.SUSPICIOUS})
FILL_OPACITY = 0.4


def verdict_labels(verdicts: Sequence[Verdict]) -> NDArray[np.uint8]:
    """Return the label of each slice, shape (slices,)."""
    return np.array([LABELS[verdict] for verdict in verdicts], dtype=np.uint8)


def write_segmentation(
    volume: Any, verdicts: Sequence[Verdict], axis: int, *, segmentation: Any = None
) -> Any:
    """Show the verdicts of a volume's slices as a segmentation.

    A new node is made only if the volume has none yet; its segments are replaced, what the user
    chose to see of them is kept, and segments of other origin stay.

    Args:
        volume: The audited volume node.
        verdicts: One per slice along ``axis``.
        axis: Array axis of the slices (0 K, 1 J, 2 I).
        segmentation: The vtkMRMLSegmentationNode to write to instead of the volume's own.

    Returns:
        The vtkMRMLSegmentationNode.

    Raises:
        SceneError: The number of verdicts is not the number of slices.
    """
    count = slice_count(volume, axis)
    if len(verdicts) != count:
        raise SceneError(
            f"'{volume.GetName()}' has {count} slices along array axis {axis}, but the result has "
            f"{len(verdicts)}; run the audit again."
        )
    if segmentation is None:
        segmentation = output_node(
            volume, KIND, "vtkMRMLSegmentationNode", f"{volume.GetName()} verdicts"
        )
    else:
        claim(segmentation, volume, KIND)
    place_beside(segmentation, volume)
    if segmentation.GetDisplayNode() is None:
        segmentation.CreateDefaultDisplayNodes()
        segmentation.GetDisplayNode().SetOpacity2DFill(FILL_OPACITY)
    was_modified = segmentation.StartModify()
    try:
        _replace_segments(segmentation, volume, verdict_labels(verdicts), axis)
    finally:
        segmentation.EndModify(was_modified)
    return segmentation


def _replace_segments(segmentation: Any, volume: Any, labels: NDArray[np.uint8], axis: int) -> None:
    display = segmentation.GetDisplayNode()
    segments = segmentation.GetSegmentation()
    shown = {
        verdict: bool(display.GetSegmentVisibility(segment_id))
        for verdict, segment_id in SEGMENT_IDS.items()
        if segments.GetSegment(segment_id) is not None
    }
    for segment_id in SEGMENT_IDS.values():
        segments.RemoveSegment(segment_id)
    _use_binary_labelmap(segments)
    segmentation.SetReferenceImageGeometryParameterFromVolumeNode(volume)
    image = _labelmap(volume, labels, axis)
    representation = slicer.vtkSegmentationConverter.GetBinaryLabelmapRepresentationName()
    for verdict, segment_id in SEGMENT_IDS.items():
        segment = slicer.vtkSegment()
        segment.SetName(SEGMENT_NAMES[verdict])
        segment.SetColor(*(part / 255 for part in VERDICT_COLORS[verdict]))
        segment.SetLabelValue(LABELS[verdict])
        segment.SetTag("MemorizationIndex.Verdict", verdict.value)
        # The same image object in every segment is what makes it one shared layer.
        segment.AddRepresentation(representation, image)
        segments.AddSegment(segment, segment_id)
    for verdict, segment_id in SEGMENT_IDS.items():
        visible = shown.get(verdict, verdict in SHOWN_AT_FIRST)
        display.SetSegmentVisibility(segment_id, visible)


def _use_binary_labelmap(segments: Any) -> None:
    name = slicer.vtkSegmentationConverter.GetBinaryLabelmapRepresentationName()
    if segments.GetSourceRepresentationName() == name:
        return
    if segments.GetNumberOfSegments() and not segments.CreateRepresentation(name):
        raise SceneError(
            "The chosen segmentation cannot be turned into a binary labelmap; choose another one "
            "or let a new one be made."
        )
    segments.SetSourceRepresentationName(name)


def _labelmap(volume: Any, labels: NDArray[np.uint8], axis: int) -> Any:
    dimensions = volume.GetImageData().GetDimensions()
    shape = [1, 1, 1]
    shape[axis] = len(labels)
    voxels = np.empty(tuple(reversed(dimensions)), np.uint8)
    voxels[:] = labels.reshape(shape)
    image = slicer.vtkOrientedImageData()
    image.SetDimensions(dimensions)
    scalars = numpy_support.numpy_to_vtk(
        voxels.ravel(), deep=True, array_type=vtk.VTK_UNSIGNED_CHAR
    )
    scalars.SetName("ImageScalars")
    image.GetPointData().SetScalars(scalars)
    matrix = vtk.vtkMatrix4x4()
    matrix.DeepCopy(ijk_to_ras(volume).ravel())
    image.SetGeometryFromImageToWorldMatrix(matrix)
    return image
