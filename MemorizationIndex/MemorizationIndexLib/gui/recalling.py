"""What the scene keeps of former runs → results to show again. No Qt here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import slicer.util
from numpy.typing import NDArray

from ..images.volume import ImageError, Volume
from ..results import PART, AuditResult, AuditSummary, SliceResult, Verdict
from ..scene.geometry import ijk_to_ras, slice_axis
from ..scene.reading import source_of, volume_problem
from ..scene.sequences import frames_of
from ..scene.source import remember
from ..scene.table import KeptTable, read_table
from .inputs import AuditInput, flag_foreign
from .rows import for_part

PICTURE_SIZE = 128
"""Side of a picture that is drawn from a volume in the scene, in pixels."""


@dataclass(frozen=True)
class Recalled:
    """A former run, as far as the scene keeps it.

    Attributes:
        result: Its numbers, without pictures, null and known copies, which no scene keeps.
        inputs: The volumes it is about.
        numbered: Whether it holds numbers in place of the names of reference subjects.
    """

    result: AuditResult
    inputs: tuple[AuditInput, ...]
    numbered: bool


def recall(nodes: Sequence[Any]) -> Recalled | None:
    """Return the latest run that the scene keeps of some of these volumes.

    Returns:
        The run, restricted to these volumes; None where the scene keeps nothing of them.

    Raises:
        SceneError: What it keeps cannot be read.
    """
    kept: list[tuple[Any, KeptTable]] = []
    for node in nodes:
        table = None if volume_problem(node) else read_table(node)
        if table is not None and table.rows:
            kept.append((node, table))
    if not kept:
        return None
    latest = max((table.summary for _node, table in kept), key=lambda one: one.created)
    kept = [(node, table) for node, table in kept if _run(table.summary) == _run(latest)]
    inputs = tuple(_input(node, table) for node, table in kept)
    rows = [row for _node, table in kept for row in table.rows]
    return Recalled(
        _result(rows, latest, inputs), inputs, any(table.numbered for _node, table in kept)
    )


def _run(summary: AuditSummary) -> tuple[str, str, str]:
    return summary.created, summary.cohort, summary.fingerprint


def _input(node: Any, table: KeptTable) -> AuditInput:
    return AuditInput(
        source=remember(node, name=table.name, is_frame=frames_of(node) is not None),
        axis=table.axis,
        names=tuple(dict.fromkeys(row.volume for row in table.rows)),
        all_frames=table.frames is not None,
        foreign=table.rows[0].domain.rpartition(": ")[2],
    )


def _result(
    rows: Sequence[SliceResult], summary: AuditSummary, inputs: Sequence[AuditInput]
) -> AuditResult:
    from ..findings import volume_results
    from ..summary import finding_sentence

    volumes = volume_results(rows)
    whole = len(rows) == summary.slices
    if not whole:
        # Part of a run: what was said of the whole does not hold for it.
        oni = [row.oni for row in rows if row.oni is not None]
        summary = replace(
            summary,
            finding=finding_sentence(rows, volumes),
            slices=len(rows),
            scored=len(oni),
            copies=sum(row.verdict is Verdict.COPY for row in rows),
            suspicious=sum(row.verdict is Verdict.SUSPICIOUS for row in rows),
            part_suspicious=sum(row.flagged_by == PART for row in rows),
            mean_oni=float(np.mean(oni)) if oni else None,
            share=None,
            share_low=None,
            share_high=None,
            share_note="the scene keeps only part of the run",
        )
        rows = [replace(row, domain="") for row in rows]
    scored = [row.similarity for row in rows if row.similarity is not None]
    result = AuditResult(
        tuple(rows), tuple(volumes), summary, np.zeros(0), {}, np.array(scored, np.float64)
    )
    return result if whole else flag_foreign(result, inputs)


def query_picture(one: AuditInput, frame: int | None, index: int) -> NDArray[np.uint8] | None:
    """Return a small picture of a slice, from the volume in the scene.

    Args:
        one: The volume.
        frame: Frame of a sequence; None for an ordinary volume or the frame shown now.
        index: The slice, as stored.

    Returns:
        uint8 (:data:`PICTURE_SIZE`, :data:`PICTURE_SIZE`), turned as the audit turned it; None
        where there is no such slice or it cannot be scored.

    Raises:
        SceneError: The volume is gone or has changed.
    """
    from ..images.normalizing import fit_to_square, normalize, why_not_scorable
    from ..images.slicing import canonical_stack

    node = one.source.node()
    frames = frames_of(node)
    if frame is not None and frames is not None:
        node = frames.sequence.GetNthDataNode(frame)
    planes = ("axial", "coronal", "sagittal")
    plane = next(plane for plane in planes if slice_axis(node, plane) == one.axis)
    volume = Volume(
        name=one.source.name,
        subject="",
        array=slicer.util.arrayFromVolume(node),
        affine=ijk_to_ras(node),
        source=source_of(node),
    )
    try:
        stack, storage, spacing = canonical_stack(volume, plane)
    except ImageError:
        return None
    position = np.flatnonzero(storage == index)
    if len(position) != 1:
        return None
    pixels = np.array(stack[int(position[0])], order="C")
    if why_not_scorable(pixels, spacing, None):
        return None
    square = fit_to_square(normalize(pixels), spacing, PICTURE_SIZE)
    return (square * 255).round().astype(np.uint8)


def reference_picture(
    cohort: Path | None, row: SliceResult, summary: AuditSummary
) -> tuple[NDArray[np.uint8] | None, str]:
    """Return the picture of the nearest reference slice, from the cohort if it is still there.

    Of a slice that is flagged for a part of it alone, that of the slice that the part is like,
    turned as the part is.

    Args:
        cohort: The cohort that is chosen now.
        row: The slice.
        summary: Of its run.

    Returns:
        The picture, or None and a sentence that says why there is none.
    """
    from ..cohort.store import INDEX

    of_part = for_part(row)
    number, index = (
        (row.part_row, row.part_slice) if of_part else (row.nearest_row, row.nearest_slice)
    )
    if number is None:
        return None, ""
    lacking = (
        f"The scene keeps no picture of the reference slice; choose the cohort "
        f"“{summary.cohort}” above to see it."
    )
    if cohort is None or cohort.stem != summary.cohort:
        return None, lacking
    try:
        facts = json.loads((cohort / INDEX).read_text(encoding="utf-8"))["facts"]
        indices = np.load(cohort / "indices.npy", mmap_mode="r", allow_pickle=False)
        same = (
            facts["fingerprint"] == summary.fingerprint
            and len(indices) == summary.reference_slices
            and int(indices[number]) == index
        )
        if not same:
            return None, (
                f"The cohort “{summary.cohort}” was built anew since, so that the reference slice "
                "cannot be shown; press Apply again."
            )
        thumbnails = cohort / ("parts.pictures.npy" if of_part else "thumbnails.npy")
        if not thumbnails.exists():
            return (
                None,
                "The cohort keeps no pictures, so that the reference slice cannot be shown.",
            )
        pictures = np.load(thumbnails, mmap_mode="r", allow_pickle=False)
        picture = np.array(pictures[number])
        return _turned(picture, row.part_pose) if of_part else picture, ""
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None, lacking


def _turned(picture: NDArray[np.uint8], pose: str) -> NDArray[np.uint8]:
    """Turn a picture as a part is turned, given in words."""
    from ..comparison.parts import flipped
    from ..index.poses import FLIPS

    return flipped(picture, [flip.label for flip in FLIPS].index(pose))
