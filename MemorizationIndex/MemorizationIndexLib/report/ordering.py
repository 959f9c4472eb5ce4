"""Most suspicious first: the order in which a reader should look."""

from __future__ import annotations

from collections.abc import Sequence

from ..results import SliceResult, Verdict, VolumeResult

GRAVITY: dict[Verdict, int] = {
    Verdict.COPY: 0,
    Verdict.SUSPICIOUS: 1,
    Verdict.NO_EVIDENCE: 2,
    Verdict.NOT_SCORED: 3,
}
"""Rank of a verdict; the lower, the graver."""


def slices_by_suspicion(slices: Sequence[SliceResult]) -> list[SliceResult]:
    """Return the scored slices by verdict, then p-value, then falling similarity."""

    def rank(one: SliceResult) -> tuple[int, float, float]:
        p_value = 2.0 if one.least_p is None else one.least_p
        similarity = 0.0 if one.similarity is None else one.similarity
        return GRAVITY[one.verdict], p_value, -similarity

    return sorted((one for one in slices if one.verdict is not Verdict.NOT_SCORED), key=rank)


def volumes_by_suspicion(volumes: Sequence[VolumeResult]) -> list[VolumeResult]:
    """Return the volumes by verdict, then number of copies, flagged slices and lowest ONI."""

    def rank(one: VolumeResult) -> tuple[int, int, int, float]:
        lowest = 2.0 if one.lowest_oni is None else one.lowest_oni
        return GRAVITY[one.verdict], -one.copies, -one.suspicious, lowest

    return sorted(volumes, key=rank)


def gravest(slices: Sequence[SliceResult]) -> SliceResult:
    """Return the slice of the gravest verdict, and among those of the lowest ONI."""

    def rank(one: SliceResult) -> tuple[int, float]:
        return GRAVITY[one.verdict], 2.0 if one.oni is None else one.oni

    return min(slices, key=rank)
