"""How much memory what the user has chosen needs. No Qt here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..memory import (
    INTERPRETER,
    build_memory,
    encoder_memory,
    feature_widths,
    in_words,
    score_memory,
)
from ..scene.geometry import slice_axis, slice_count
from ..scene.reading import volume_problem
from ..scene.sequences import frames_of
from .auditing import CohortFacts


def memory_of_check(
    facts: CohortFacts, nodes: Sequence[Any], *, all_frames: bool, batch: int, device: str
) -> int:
    """Return the bytes that checking volumes against a cohort takes at its peak."""
    return (
        INTERPRETER
        + encoder_memory(facts.encoder, facts.input_size, batch=batch, device=device)
        + score_memory(
            facts.widths,
            facts.input_size,
            subjects=facts.subjects,
            volume_bytes=_bytes_of(nodes, all_frames),
        )
    )


def memory_of_build(
    encoder: str,
    nodes: Sequence[Any] | None,
    *,
    input_size: int,
    plane: str,
    pictures: bool,
    batch: int,
    device: str,
) -> int:
    """Return the bytes that building a cohort takes at its peak.

    Args:
        encoder: Name of the encoder.
        nodes: The volumes it is built of; None for a folder, whose images are not counted.
        input_size: Side of the slices in pixels; 0 for the encoder's own.
        plane: Plane of the slices.
        pictures: Whether small pictures are kept.
        batch: Slices at once; 0 for the encoder's own choice.
        device: Where the encoder runs.
    """
    from ..cohort.building import THUMBNAIL
    from ..encoders.registry import BUILTIN
    from ..index.poses import SMALL_CHANGES

    size = input_size or _own_size(encoder)
    usable = [node for node in nodes or () if not volume_problem(node)]
    slices = None
    if nodes is not None:
        slices = sum(slice_count(node, slice_axis(node, plane)) for node in usable)
    return (
        INTERPRETER
        + encoder_memory(encoder, size, batch=batch, device=device)
        + build_memory(
            feature_widths(encoder) or (),
            size,
            slices=slices,
            poses=len(SMALL_CHANGES) if encoder == BUILTIN else 1,
            thumbnail=THUMBNAIL if pictures else 0,
            volume_bytes=_bytes_of(usable, False),
        )
    )


def shortage(needed: int, free: int | None) -> str:
    """Return a sentence if a run needs more memory than the machine has free; else empty."""
    if free is None or needed <= free:
        return ""
    return (
        f"This needs about {in_words(needed)} of memory, and {in_words(free)} are free: it may "
        "fail, or slow the whole computer down."
    )


def _own_size(encoder: str) -> int:
    from ..encoders.mri_core import INPUT_SIZE as MRI_CORE_SIZE
    from ..encoders.registry import BUILTIN
    from ..encoders.structure import INPUT_SIZE

    return INPUT_SIZE if encoder == BUILTIN else MRI_CORE_SIZE


def _bytes_of(nodes: Sequence[Any], all_frames: bool) -> int:
    total = 0
    for node in nodes:
        if volume_problem(node):
            continue
        frames = frames_of(node) if all_frames else None
        count = frames.count if frames is not None else 1
        total += count * int(node.GetImageData().GetActualMemorySize()) * 1024
    return total
