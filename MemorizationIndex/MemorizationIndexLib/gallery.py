"""Pictures of query slices and their matches, kept for the report while slices stream by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.cohort.building import thumbnail
from MemorizationIndexLib.cohort.cohort import Cohort
from MemorizationIndexLib.cohort.pictures import reference_pixels
from MemorizationIndexLib.evidence.flagged import MOST_VERIFIED, reduced
from MemorizationIndexLib.findings import Scored, by_suspicion
from MemorizationIndexLib.index.verdict import Thresholds
from MemorizationIndexLib.progress import CancelFunction, check
from MemorizationIndexLib.results import SliceResult

PICTURES = 200
"""Most suspicious slices for which pictures are kept."""


class Gallery:
    """Small pictures of the most similar slices so far; their number stays bounded."""

    def __init__(self) -> None:
        """Start empty."""
        self.pictures: dict[int, NDArray[np.uint8]] = {}
        self.similarity: dict[int, float] = {}

    def offer(self, number: int, similarity: float, pixels: NDArray[np.float32]) -> None:
        """Take a slice's picture, and drop the least similar ones where there are many."""
        self.pictures[number] = thumbnail(pixels)
        self.similarity[number] = similarity
        if len(self.pictures) > 10 * PICTURES:
            ranked = sorted(self.similarity, key=self.similarity.__getitem__)
            for dropped in ranked[: -5 * PICTURES]:
                del self.pictures[dropped], self.similarity[dropped]


class FlaggedKeeper:
    """The flagged slices to be verified, the most similar ones if there are many."""

    def __init__(self, thresholds: Thresholds | None) -> None:
        """Keep what lies above the suspicious threshold; nothing where there is none."""
        self.above = np.inf if thresholds is None else thresholds.suspicious
        self.kept: dict[int, tuple[float, NDArray[np.float32]]] = {}

    def offer(self, number: int, similarity: float, pixels: NDArray[np.float32]) -> None:
        """Keep a slice that may be flagged."""
        if similarity > self.above:
            self.kept[number] = similarity, reduced(pixels)
            if len(self.kept) >= 2 * MOST_VERIFIED:
                self.kept = {number: self.kept[number] for number in self._ranked()}

    def most_similar(self) -> dict[int, NDArray[np.float32]]:
        """Return the slices to verify, by number."""
        return {number: self.kept[number][1] for number in self._ranked()}

    def _ranked(self) -> list[int]:
        return sorted(self.kept, key=lambda number: -self.kept[number][0])[:MOST_VERIFIED]


def query_pictures(
    scored: Scored, slices: Sequence[SliceResult]
) -> dict[tuple[str, int], NDArray[np.uint8]]:
    """Return the pictures of the most suspicious slices, by volume and slice."""
    return {
        (slices[number].volume, slices[number].slice): scored.pictures[number]
        for number in by_suspicion(slices)[:PICTURES]
        if number in scored.pictures
    }


def read_matches(cohort: Cohort, slices: Sequence[SliceResult], cancelled: CancelFunction) -> None:
    """Read what :func:`reference_pictures` will show, so that it is remembered.

    Before matches are verified: each file is then read once for both.
    """
    if cohort.thumbnails is None:
        reference_pixels(cohort, _matched(slices), between_files=lambda: check(cancelled))


def reference_pictures(
    cohort: Cohort, slices: Sequence[SliceResult]
) -> dict[int, NDArray[np.uint8]]:
    """Return pictures of what the most suspicious slices match, by reference row."""
    rows = _matched(slices)
    if cohort.thumbnails is not None:
        return {row: np.array(cohort.thumbnails[row]) for row in rows}
    return {row: thumbnail(pixels) for row, pixels in reference_pixels(cohort, rows).items()}


def _matched(slices: Sequence[SliceResult]) -> set[int]:
    return {
        row
        for number in by_suspicion(slices)[:PICTURES]
        if (row := slices[number].nearest_row) is not None
    }
