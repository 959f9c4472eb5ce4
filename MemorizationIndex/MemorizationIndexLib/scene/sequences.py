"""Volumes in time: one frame or all, read without moving the browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import slicer
import slicer.util

from ..images.volume import Volume
from ..results import AuditResult, SliceResult, Verdict
from .errors import SceneError
from .geometry import ijk_to_ras
from .outputs import output_node
from .overlay import KIND as OVERLAY_KIND
from .overlay import write_overlay
from .plot import write_plot
from .reading import read_volume, source_of, subject_of, volume_problem
from .results import SceneResult, rows_of, slices_in_order
from .segmentation import KIND as SEGMENTATION_KIND
from .segmentation import write_segmentation
from .source import VolumeSource
from .table import frame_name, write_table


@dataclass(frozen=True)
class Frames:
    """The sequence that a proxy volume shows one frame of.

    Attributes:
        browser: The vtkMRMLSequenceBrowserNode that moves the proxy.
        sequence: The vtkMRMLSequenceNode with the frames.
        count: Number of frames.
        selected: Index of the frame that the proxy shows now.
    """

    browser: Any
    sequence: Any
    count: int
    selected: int


def frames_of(node: Any) -> Frames | None:
    """Return the sequence behind a volume node; None if it is an ordinary volume."""
    for browser in slicer.util.getNodesByClass("vtkMRMLSequenceBrowserNode"):
        sequence = browser.GetSequenceNode(node)
        if sequence is None or sequence.GetNumberOfDataNodes() == 0:
            continue
        master = browser.GetMasterSequenceNode()
        selected = browser.GetSelectedItemNumber()
        if master is not None and master is not sequence and selected >= 0:
            value = master.GetNthIndexValue(selected)
            selected = sequence.GetItemNumberFromIndexValue(value, False)
        return Frames(browser, sequence, sequence.GetNumberOfDataNodes(), max(selected, 0))
    return None


def read_frames(node: Any, *, name: str | None = None) -> list[Volume]:
    """Copy all frames of the sequence behind a volume node.

    The frames are taken from the sequence itself: the browser's selection, the proxy and everything
    else that follows the browser stay as they are.

    Args:
        node: The proxy volume node.
        name: Name of the whole in the results; the node's name if None.

    Returns:
        One volume per frame, named by :func:`frame_name`, all of the same subject.

    Raises:
        SceneError: The node is no sequence, or one of its frames cannot be audited.
    """
    frames = frames_of(node)
    if frames is None:
        raise SceneError(f"'{node.GetName()}' is no sequence; read it as one volume.")
    whole = node.GetName() if name is None else name
    subject, source = subject_of(node), source_of(node)
    volumes = []
    for frame in range(frames.count):
        data = frames.sequence.GetNthDataNode(frame)
        problem = volume_problem(data)
        if problem:
            raise SceneError(f"Frame {frame} of '{whole}': {problem}")
        volumes.append(
            Volume(
                name=frame_name(whole, frame),
                subject=subject,
                array=np.array(slicer.util.arrayFromVolume(data)),
                affine=ijk_to_ras(data),
                source=source,
            )
        )
    return volumes


def read_this_frame(node: Any, *, name: str | None = None) -> Volume:
    """Copy the frame that a proxy volume shows now; for an ordinary volume, the volume.

    Raises:
        SceneError: The node cannot be audited.
    """
    return read_volume(node, name=name)


def write_frames(
    source: VolumeSource,
    result: AuditResult,
    axis: int,
    *,
    volume_name: str | None = None,
    show_subjects: bool = False,
) -> SceneResult:
    """Write what an audit found about all frames of a sequence.

    The segmentation and the overlay become sequences in the input's browser, so that they follow
    the frame shown; one table holds all frames; the plot shows the frame selected now.

    Args:
        source: The proxy volume as it was when the frames were read.
        result: What the audit found, its volumes named by :func:`frame_name`.
        axis: Array axis of the slices (0 K, 1 J, 2 I).
        volume_name: Name of the whole in the results; the source's name if None.
        show_subjects: Write the reference's subject names into the table.

    Raises:
        SceneError: The volume is gone or no sequence, or the result does not fit it.
    """
    volume = source.node()
    frames = frames_of(volume)
    if frames is None:
        raise SceneError(f"'{volume.GetName()}' is no longer a sequence; press Apply again.")
    whole = source.name if volume_name is None else volume_name
    rows = [rows_of(result, frame_name(whole, frame)) for frame in range(frames.count)]
    ordered = [slices_in_order(volume, frame_rows, axis) for frame_rows in rows]
    selected = frames.selected

    def write_frame(frame: int) -> tuple[Any, Any]:
        verdicts = [row.verdict if row else Verdict.NOT_SCORED for row in ordered[frame]]
        oni = [row.oni if row else None for row in ordered[frame]]
        return write_segmentation(volume, verdicts, axis), write_overlay(volume, oni, axis)

    segmentation, overlay = write_frame(selected)
    sequences = [
        _sequence(volume, frames, SEGMENTATION_KIND, segmentation),
        _sequence(volume, frames, OVERLAY_KIND, overlay),
    ]
    for frame in range(frames.count):
        value = frames.sequence.GetNthIndexValue(frame)
        for sequence, node in zip(sequences, write_frame(frame), strict=True):
            sequence.SetDataNodeAtValue(node, value)
    write_frame(selected)
    for sequence, node in zip(sequences, (segmentation, overlay), strict=True):
        # Attached last, and only once: detaching would make the browser delete the node.
        if frames.browser.GetProxyNode(sequence) is not node:
            frames.browser.AddSynchronizedSequenceNodeID(sequence.GetID())
            frames.browser.AddProxyNode(node, sequence, False)
    flat: Sequence[tuple[int, SliceResult]] = [
        (frame, row) for frame, frame_rows in enumerate(rows) for row in frame_rows
    ]
    return SceneResult(
        volume=volume,
        segmentation=segmentation,
        overlay=overlay,
        table=write_table(
            volume,
            [row for _, row in flat],
            result.summary,
            name=whole,
            axis=axis,
            run=result.slices,
            show_subjects=show_subjects,
            frames=[frame for frame, _ in flat],
        ),
        chart=write_plot(volume, [row for row in ordered[selected] if row], result.summary),
    )


def _sequence(volume: Any, frames: Frames, kind: str, node: Any) -> Any:
    sequence = output_node(volume, f"{kind}Sequence", "vtkMRMLSequenceNode", node.GetName())
    sequence.RemoveAllDataNodes()
    sequence.SetIndexName(frames.sequence.GetIndexName())
    sequence.SetIndexUnit(frames.sequence.GetIndexUnit())
    sequence.SetIndexType(frames.sequence.GetIndexType())
    return sequence
