"""Runs of flagged slices that walk through one reference subject: a copied volume's signature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from MemorizationIndexLib.evidence.errors import EvidenceError

_TOLERANCE = 1
_LONGEST_STALL = 4


@dataclass(frozen=True)
class Run:
    """Consecutive flagged slices whose matches advance through one reference subject.

    Attributes:
        start: Position of its first slice in the sequence; 0 if there is no run.
        length: Number of slices; 0 if no slice is flagged with a match.
        subject: The reference subject; None if there is no run.
        direction: +1 if the matched slice index rises, −1 if it falls, 0 for a single slice.
    """

    start: int
    length: int
    subject: str | None
    direction: int


def longest_run(
    flagged: Sequence[bool],
    subjects: Sequence[str | None],
    slices: Sequence[int | None],
    *,
    tolerance: int = _TOLERANCE,
    longest_stall: int = _LONGEST_STALL,
) -> Run:
    """Return the longest run of flagged slices that advance through one subject (METHOD.md 4).

    A chance match names slices in any order; a copied volume names them one after the other. Within
    a run the matched slice index may fall back by ``tolerance`` behind the furthest slice reached
    (the nearest of two like neighbors is a toss-up), and stay without a new furthest slice for
    ``longest_stall`` slices (a query cut finer than the reference). Of runs of one length the first
    is returned.

    Args:
        flagged: Whether each slice is flagged, in anatomical order. An unflagged slice ends a run,
            so leave out slices that could not be scored.
        subjects: Nearest reference subject of each slice; None ends a run.
        slices: Index of the nearest slice in that subject; None ends a run.
        tolerance: Slices by which a match may fall back.
        longest_stall: Query slices without a new furthest match after which the run ends.

    Raises:
        EvidenceError: The sequences differ in length, or a limit is negative.
    """
    if not len(flagged) == len(subjects) == len(slices):
        raise EvidenceError(
            f"A run needs one entry per slice, but there are {len(flagged)} flags, "
            f"{len(subjects)} subjects and {len(slices)} slice indices."
        )
    if tolerance < 0 or longest_stall < 0:
        raise EvidenceError(
            f"The tolerance {tolerance} or the longest stall {longest_stall} is negative; give 0 "
            "or more."
        )
    longest = Run(0, 0, None, 0)
    for start in range(len(flagged)):
        for direction in (1, -1):
            run = _run_from(start, direction, flagged, subjects, slices, tolerance, longest_stall)
            if run.length > longest.length:
                longest = run
    return longest


def _run_from(
    start: int,
    direction: int,
    flagged: Sequence[bool],
    subjects: Sequence[str | None],
    slices: Sequence[int | None],
    tolerance: int,
    longest_stall: int,
) -> Run:
    subject, first = subjects[start], slices[start]
    if not flagged[start] or subject is None or first is None:
        return Run(start, 0, None, 0)
    furthest = direction * first
    # What follows the last new furthest slice is no part of an advance.
    length, stall = 1, 0
    for position in range(start + 1, len(flagged)):
        matched = slices[position]
        if not flagged[position] or subjects[position] != subject or matched is None:
            break
        reached = direction * matched
        if reached > furthest:
            furthest, stall, length = reached, 0, position - start + 1
            continue
        stall += 1
        if reached < furthest - tolerance or stall > longest_stall:
            break
    return Run(start, length, subject, direction if length > 1 else 0)
