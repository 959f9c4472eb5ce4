"""One person under two names that share no slice, linked by slices that lie next to each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.cohort.cohort import Cohort
from MemorizationIndexLib.encoders.encoder import Encoder
from MemorizationIndexLib.index.control import balanced_sample
from MemorizationIndexLib.index.poses import FLIPS, Pose, query_views, reference_poses, seen_pose
from MemorizationIndexLib.progress import (
    CancelFunction,
    Progress,
    ProgressFunction,
    check,
    never,
    quiet,
)

KEPT = 8
"""Nearest other subjects kept of each slice."""

NEXT = 5
"""Persons after the nearest that a slice's lead is measured against."""

LEAST_NEXT = 3
"""Fewest of them."""

SIMILARITY_FLOOR = 0.02
"""Smallest similarity a lead is measured against."""

MISSED = 0.05
"""Share of neighboring slices of one subject that may fall below the threshold."""

TYPICAL = 0.6
"""Share of the median of neighboring slices that the threshold reaches, however spread they are."""

QUANTILE, CLEARANCE = 0.95, 3.5
"""The threshold lies this many times as far above the null's mean as this quantile of it."""

NEIGHBORS = 400
"""Most slices whose nearest other slice of their own subject calibrates the threshold."""

LEAST_NEIGHBORS, LEAST_NULL = 20, 10
"""Fewest of these, and fewest subjects in the null."""

TURNS = (-2.0, 0.0, 2.0)
"""Rotations in degrees, about the pose already found, under which two pictures are correlated."""

REACH = 1 / 12
"""Largest shift between them, as a share of the side."""

FINE, COARSE = 0.7, 3.0
"""Standard deviations of the band-pass, in pixels of a 96-pixel picture."""

_SIDE = 96
_BLOCK = 256


@dataclass(frozen=True)
class NearestSubjects:
    """The nearest other subjects of every slice, nearest first.

    Attributes:
        similarity: Similarity of the nearest slice of each, 0 where there are fewer, (N, KEPT).
        rows: That slice, −1 where there are fewer, shape (N, KEPT).
    """

    similarity: NDArray[np.float64]
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class LinkedPair:
    """Two names whose slices lie next to each other.

    Attributes:
        first: Name of the first subject.
        second: Name of the second subject.
        slices: Slices of either whose nearest slice of another person is the other's, with a score
            that reaches the threshold.
        first_row: The slice of the first in the strongest pair.
        second_row: The slice of the second in it.
        similarity: Similarity of this pair.
        lead: It divided by what the next persons reach.
        correlation: Correlation of the two pictures, aligned.
        score: ``lead`` times ``correlation``.
    """

    first: str
    second: str
    slices: int
    first_row: int
    second_row: int
    similarity: float
    lead: float
    correlation: float
    score: float


@dataclass(frozen=True)
class Linkage:
    """What was linked, and by which rule.

    Attributes:
        pairs: Strongest first.
        threshold: Score from which two slices are neighbors; None where nothing can be linked.
        highest_clean: Largest score below it of slices of different names.
        power: Share of slices whose nearest other slice of their own subject reaches it.
        reason: Why nothing can be linked, a clause; empty otherwise.
    """

    pairs: tuple[LinkedPair, ...]
    threshold: float | None
    highest_clean: float
    power: float
    reason: str


def link(
    cohort: Cohort,
    encoder: Encoder,
    nearest: NearestSubjects,
    people: Sequence[int] | NDArray[np.int64],
    shared: frozenset[tuple[int, int]] = frozenset(),
    copy: float = np.inf,
    *,
    progress: ProgressFunction = quiet,
    cancelled: CancelFunction = never,
) -> Linkage:
    """Link names whose slices are as alike as neighboring slices of one subject.

    A slice is paired with the most similar slice of another person. Its score is the lead of that
    similarity over the median of the next five persons' (the geometric mean of the leads seen from
    both slices; the ratio test of Lowe 2004, with subjects for keypoints) times the correlation of
    the two band-passed pictures, aligned. The two err independently: the lead where few subjects
    come from one scanner, the correlation where heads have one outline. What neighbors reach is
    learned from slices and their nearest other slice of the same subject.

    Args:
        cohort: The cohort, with pictures.
        encoder: Its encoder; only what it knows of flips is used.
        nearest: The nearest other subjects of every slice.
        people: Person of each subject code, equal where names are known to be one, shape (S,).
        shared: A slice and a subject code that holds the same slice; such pairs are no evidence.
        copy: Similarity from which two slices are one.
        progress: Told of the progress.
        cancelled: Asked between slices.

    Raises:
        CancelledError: ``cancelled`` said so.
    """
    if cohort.thumbnails is None:
        return _nothing("the cohort holds no pictures")
    codes, person = cohort.reference.subjects, np.asarray(people, np.int64)
    others = [_others(nearest, row, codes, person) for row in range(cohort.slice_count)]
    beside = [_reference([s for s, _ in found[1:]]) for found in others]
    alone = [_reference([s for s, _ in found]) for found in others]
    aligned = _Alignment(cohort, encoder)
    neighbors = _neighbors(cohort, aligned, alone, copy, progress, cancelled)
    control = np.array(list(neighbors))
    if len(control) < LEAST_NEIGHBORS:
        return _nothing(
            f"only {len(control)} of its slices have another of their own subject to learn from "
            f"what neighboring slices look like, and {LEAST_NEIGHBORS} are needed"
        )
    scores = np.zeros(cohort.slice_count)
    partners = np.full(cohort.slice_count, -1)
    found: dict[int, tuple[float, float, float]] = {}
    for row, candidates in enumerate(others):
        if candidates and beside[row] and beside[candidates[0][1]]:
            other = candidates[0][1]
            if not shared & {(row, int(codes[other])), (other, int(codes[row]))}:
                partners[row] = other
    rows = np.flatnonzero(partners >= 0)
    every = aligned.each(rows, [partners[row : row + 1] for row in rows])
    for done, (row, similarities) in enumerate(zip(rows.tolist(), every, strict=True)):
        check(cancelled)
        progress(Progress("Comparing neighboring slices", done, len(rows)))
        other = int(partners[row])
        correlation = aligned.correlation(row, other, similarities[:, :, 0])
        similarity = others[row][0][0]
        scores[row], lead = _score(similarity, beside[row], beside[other], correlation)
        found[row] = similarity, lead, correlation
    progress(Progress("Comparing neighboring slices", len(rows), len(rows)))
    threshold = link_threshold(scores, codes, np.where(partners < 0, -1, codes[partners]), control)
    if threshold is None:
        return _nothing(
            "neighboring slices of one subject do not stand clearly above slices of different "
            "subjects, or too few subjects are left to compare with"
        )
    clean = scores[scores < threshold]
    return Linkage(
        pairs=_linked(scores, partners, found, threshold, codes, cohort.facts.subjects),
        threshold=threshold,
        highest_clean=float(clean.max()) if len(clean) else 0.0,
        power=float(np.mean(control >= threshold)),
        reason="",
    )


def link_threshold(
    scores: NDArray[np.float64],
    subjects: NDArray[np.int64],
    partners: NDArray[np.int64],
    control: NDArray[np.float64],
) -> float | None:
    """Return the score of neighboring slices, seen against a null without linked subjects.

    It is the score that 95 % of the known neighbors reach, or that which stands clear of the null,
    or six tenths of the neighbors' median, whichever is highest. The last counts where a part of
    the subjects has wide gaps, so that a few weak neighbors would pull the first down to the most
    similar subjects of a rare scanner (measured on spines, every second slice of 8 or 19 of 38
    subjects renamed: false pairs without it, none with it). The null holds what is sought, so
    subjects with a slice at or above the threshold are taken out of it, until both agree.

    Args:
        scores: Of every slice with its nearest slice of another person, shape (N,).
        subjects: Subject code of each slice, shape (N,).
        partners: Subject code of the other slice, −1 where there is none, shape (N,).
        control: Scores of known neighbors, shape (m,), m ≥ 1.

    Returns:
        The threshold; None where fewer than ten subjects are left in the null, or less than half
        of the known neighbors reach it.
    """
    lowest = max(float(np.quantile(control, MISSED)), TYPICAL * float(np.median(control)))
    cut = lowest
    while True:
        above = scores >= cut
        out = np.concatenate([subjects[above], partners[above]])
        left = ~np.isin(subjects, out)
        if len(np.unique(subjects[left])) < LEAST_NULL:
            return None
        null = scores[left]
        mean = float(null.mean())
        far = float(np.quantile(null, QUANTILE, method="higher"))
        threshold = max(lowest, mean + CLEARANCE * (far - mean))
        if threshold <= cut:
            return threshold if np.mean(control >= threshold) >= 0.5 else None
        cut = threshold


def correlation_of(first: NDArray[np.floating], others: Sequence[NDArray[np.floating]]) -> float:
    """Return the largest correlation of band-passed pictures (T, T) over small shifts.

    Args:
        first: A picture.
        others: Renderings of another, of which the best counts.
    """
    from scipy.fft import irfft2, next_fast_len, rfft2

    reach = round(REACH * first.shape[0])
    shape = (next_fast_len(first.shape[0] + reach, real=True),) * 2
    near = np.arange(-reach, reach + 1)
    here = rfft2(_band(first), shape)
    every = [irfft2(here * np.conj(rfft2(_band(one), shape)), shape) for one in others]
    return float(np.clip(max(one[np.ix_(near, near)].max() for one in every), 0.0, 1.0))


def _band(picture: NDArray[np.floating]) -> NDArray[np.float32]:
    """Keep fine structure, with its contrast evened out, as a vector of length 1."""
    from scipy.ndimage import gaussian_filter

    scale = picture.shape[0] / _SIDE
    values = np.asarray(picture, np.float32)
    band = gaussian_filter(values, FINE * scale) - gaussian_filter(values, COARSE * scale)
    contrast = np.sqrt(gaussian_filter(band**2, COARSE * scale))
    band /= contrast + 0.15 * contrast.mean() + 1e-6
    band -= band.mean()
    return band / max(float(np.linalg.norm(band)), 1e-12)


class _Alignment:
    """Compares slices in every pose, and correlates their pictures in the best."""

    def __init__(self, cohort: Cohort, encoder: Encoder) -> None:
        self.cohort = cohort
        self.views = query_views(encoder, robust=cohort.facts.robust)
        self.poses = reference_poses(encoder, robust=cohort.facts.robust)

    def each(
        self, rows: NDArray[np.int64], others: Sequence[NDArray[np.int64]]
    ) -> Iterator[NDArray[np.float64]]:
        """Give the similarity of each slice to its others by view and pose, (V, P, others)."""
        reference, features = self.cohort.reference, self.cohort.features
        for start in range(0, len(rows), _BLOCK):
            part = rows[start : start + _BLOCK]
            raw = [np.asarray(layer[0][part]) for layer in features]
            seen = [reference.whiten(view) for view in self.views(raw)]
            for at, candidates in enumerate(others[start : start + _BLOCK]):
                joint = np.ones((len(seen), len(self.poses), len(candidates)))
                for layer, stored in enumerate(reference.rows):
                    queries = np.stack([view[layer][at] for view in seen])
                    cosines = np.asarray(stored[:, candidates]) @ queries.T
                    joint *= np.maximum(np.moveaxis(cosines, -1, 0), 0.0)
                yield joint ** (1.0 / len(reference.rows))

    def correlation(self, row: int, other: int, similarity: NDArray[np.float64]) -> float:
        """Return the correlation of two slices' pictures.

        Args:
            row: A slice.
            other: Another.
            similarity: Their similarity by view and pose, (V, P).
        """
        pictures = self.cohort.thumbnails
        assert pictures is not None
        view, at = np.unravel_index(int(similarity.argmax()), similarity.shape)
        pose = seen_pose(self.poses[int(at)], FLIPS[int(view)])
        first = pictures[row].astype(np.float32) / 255
        second = pose.render(pictures[other].astype(np.float32) / 255)
        return correlation_of(first, [Pose(turn).render(second) for turn in TURNS])


def _others(
    nearest: NearestSubjects, row: int, codes: NDArray[np.int64], person: NDArray[np.int64]
) -> list[tuple[float, int]]:
    """Return similarity and slice of the nearest other persons, each once."""
    seen = {int(person[codes[row]])}
    found = []
    for similarity, other in zip(nearest.similarity[row], nearest.rows[row], strict=True):
        if other < 0 or int(person[codes[other]]) in seen:
            continue
        seen.add(int(person[codes[other]]))
        found.append((float(similarity), int(other)))
    return found


def _reference(similarities: Sequence[float]) -> float:
    """Return what a lead is measured against, 0 where there are too few."""
    if len(similarities) < LEAST_NEXT:
        return 0.0
    return max(float(np.median(similarities[:NEXT])), SIMILARITY_FLOOR)


def _score(
    similarity: float, first: float, second: float, correlation: float
) -> tuple[float, float]:
    lead = similarity / float(np.sqrt(first * second))
    return lead * correlation, lead


def _neighbors(
    cohort: Cohort,
    aligned: _Alignment,
    alone: Sequence[float],
    copy: float,
    progress: ProgressFunction,
    cancelled: CancelFunction,
) -> Iterator[float]:
    """Give the score of slices with the most similar other slice of their own subject."""
    codes, digests = cohort.reference.subjects, cohort.digests
    several = np.flatnonzero(np.bincount(codes)[codes] > 1)
    drawn = balanced_sample(codes[several], NEIGHBORS, np.random.default_rng(cohort.facts.seed))
    rows = several[drawn]
    own = [np.flatnonzero((codes == codes[r]) & (digests != digests[r])) for r in rows]
    for done, (row, others, every) in enumerate(
        zip(rows.tolist(), own, aligned.each(rows, own), strict=True)
    ):
        check(cancelled)
        progress(Progress("Learning from neighboring slices", done, len(rows)))
        similarity = every.max((0, 1), initial=0.0)
        similarity[similarity >= copy] = 0.0
        if not similarity.any():
            continue
        at = int(similarity.argmax())
        other = int(others[at])
        if alone[row] and alone[other]:
            correlation = aligned.correlation(row, other, every[:, :, at])
            yield _score(float(similarity[at]), alone[row], alone[other], correlation)[0]
    progress(Progress("Learning from neighboring slices", len(rows), len(rows)))


def _linked(
    scores: NDArray[np.float64],
    partners: NDArray[np.int64],
    found: dict[int, tuple[float, float, float]],
    threshold: float,
    codes: NDArray[np.int64],
    names: Sequence[str],
) -> tuple[LinkedPair, ...]:
    rows_of: dict[tuple[int, int], list[int]] = {}
    for row in np.flatnonzero(scores >= threshold):
        one, two = sorted((int(codes[row]), int(codes[partners[row]])))
        rows_of.setdefault((one, two), []).append(int(row))
    pairs = []
    for (one, two), rows in rows_of.items():
        best = max(rows, key=lambda row: float(scores[row]))
        similarity, lead, correlation = found[best]
        first, second = sorted((best, int(partners[best])), key=lambda row: int(codes[row]))
        pairs.append(
            LinkedPair(
                names[one],
                names[two],
                len(rows),
                first,
                second,
                similarity,
                lead,
                correlation,
                float(scores[best]),
            )
        )
    return tuple(sorted(pairs, key=lambda pair: (-pair.score, pair.first, pair.second)))


def _nothing(reason: str) -> Linkage:
    return Linkage((), None, 0.0, 0.0, reason)
