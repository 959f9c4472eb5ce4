"""Whether a part of a slice was copied: the best window of the most likely reference slices.

A part that was pasted into another slice leaves the slice's features mostly as they were: the rest
decides the cosine. So windows are compared instead. The reference slices whose window is nearest by
features (``part_windows``) are laid over the query pixel by pixel, and the statistic is the local
normalised cross-correlation, averaged over the window where it is largest. Its null are slices of
the reference against the subjects of the other folds, under the same search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from MemorizationIndexLib.comparison.part_reference import SIDE, PartReference
from MemorizationIndexLib.comparison.part_windows import candidates, candidates_among, flipped_views
from MemorizationIndexLib.encoders.structure import StructureEncoder
from MemorizationIndexLib.index.control import balanced_sample
from MemorizationIndexLib.index.poses import FLIPS
from MemorizationIndexLib.index.similarity import Layers
from MemorizationIndexLib.index.verdict import find_thresholds

SAMPLES = SIDE // 2
"""Places along a side where the correlation is measured."""

SMOOTHING = 1.5
"""Standard deviation of the Gaussian window of one local correlation, in samples."""

WINDOW = 24
"""Side of the window over which correlations are averaged, in samples.

A pasted quarter of a slice is 28 samples wide; the two at each edge see beyond it.
"""

MARGIN = 2
"""Samples by which a pasted part reaches beyond the window on each side."""

NOISE = 4e-4
"""Variance, of a slice from 0 to 1, below which two places do not correlate but are flat."""

CONTENT = 0.05
"""Local mean above which a place shows tissue rather than air."""

LEAST_CONTENT = 0.25
"""Share of a window that must show tissue in one of both slices."""

NULL_SLICES = 2000
"""Most slices that form the null, so that a large cohort is calibrated in minutes."""

KNOWN_PARTS = 100
"""Known copies of a part that are tried."""

CLEARANCE = 3.0
"""Standard deviations above the null's mean that a part must reach besides the level.

The largest of a handful of null slices is no firm ground, and copies of a part lie far above it.
``Testing/benchmarks/partial_copies.py`` measures what that costs and saves.
"""

_CLOSE = 0.999
"""Similarity above which Fisher's z tells nothing more."""


@dataclass(frozen=True)
class PartMatches:
    """The best match of a part of each of Q queries.

    Attributes:
        similarity: Mean local correlation over the window, in [0, 1], shape (Q,).
        rows: Reference slice, shape (Q,).
        flips: Flip under which the query was seen, numbered as ``poses.FLIPS``, shape (Q,).
        windows: Top, bottom, left and right of the part in the query, as shares of its side,
            shape (Q, 4).
    """

    similarity: NDArray[np.float64]
    rows: NDArray[np.int64]
    flips: NDArray[np.int64]
    windows: NDArray[np.float64]


@dataclass(frozen=True)
class KnownParts:
    """Slices into which a quarter of another subject's slice was pasted.

    Attributes:
        features: From ``encode_parts``, one (m, D) array per layer.
        pictures: From ``part_pictures``, uint8, shape (m, ``SIDE``, ``SIDE``).
        subjects: Subject code of the slice that it was pasted into, shape (m,).
    """

    features: Layers
    pictures: NDArray[np.uint8]
    subjects: NDArray[np.int64]


@dataclass(frozen=True)
class PartThreshold:
    """Similarity above which a part is suspicious.

    Attributes:
        level: The level used: alpha, or 1 / (n + 1) where n null slices cannot reach it.
        similarity: The null's (1 − level) quantile, or what ``CLEARANCE`` asks if that is higher.
    """

    level: float
    similarity: float


def encode_parts(pixels: Sequence[NDArray[np.float32]], encoder: StructureEncoder) -> Layers:
    """Return the features of normalised slices, each of shape (S, S) for any S."""
    side = encoder.input_size
    fitting = [
        one if one.shape == (side, side) else _resized(one, side, Image.Resampling.BILINEAR)
        for one in pixels
    ]
    return encoder.encode(np.stack(fitting) if fitting else np.zeros((0, side, side), np.float32))


def part_pictures(pixels: Sequence[NDArray[np.float32]]) -> NDArray[np.uint8]:
    """Reduce normalised slices to uint8, shape (N, ``SIDE``, ``SIDE``)."""
    pictures = np.zeros((len(pixels), SIDE, SIDE), np.uint8)
    for number, one in enumerate(pixels):
        small = _resized(one, SIDE, Image.Resampling.BOX)
        pictures[number] = (small.clip(0, 1) * 255).round().astype(np.uint8)
    return pictures


def with_part(
    host: NDArray[np.float32], source: NDArray[np.float32], rng: np.random.Generator
) -> NDArray[np.float32]:
    """Paste a quarter of one slice into another, in place, at random.

    Args:
        host: Normalised slice, shape (S, S).
        source: Normalised slice of the same shape.
        rng: Source of the place.
    """
    side = len(host) // 2
    top, left = rng.integers(0, len(host) - side + 1, 2)
    pasted = host.copy()
    pasted[top : top + side, left : left + side] = source[top : top + side, left : left + side]
    low, high = float(pasted.min()), float(pasted.max())
    return (pasted - low) / (high - low) if high > low else np.zeros_like(pasted)


def find_parts(
    reference: PartReference,
    encoder: StructureEncoder,
    features: Layers,
    pictures: NDArray[np.uint8],
) -> PartMatches:
    """Find the part of each query that is most like the same part of a reference slice.

    Args:
        reference: The reference.
        encoder: From ``part_encoder``.
        features: Of Q queries, from ``encode_parts``.
        pictures: Of the queries, from ``part_pictures``.
    """
    views = flipped_views(features, encoder)
    return _lay_over(pictures, reference.pictures, candidates(reference.windows, views))


def calibrate_parts(
    features: Layers,
    pictures: NDArray[np.uint8],
    subjects: NDArray[np.int64],
    fold_of_subject: NDArray[np.int64],
    known: KnownParts,
    encoder: StructureEncoder,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Search parts of reference slices, and known copies of parts, in the other folds.

    For each fold the windows are whitened without it: a slice that took part in the whitening of a
    small cohort is nearly orthogonal to all others and would find worse candidates than a query.

    Args:
        features: Of the reference, from ``encode_parts``, one (N, D) array per layer.
        pictures: Of the reference.
        subjects: Subject code of each slice, shape (N,).
        fold_of_subject: See ``index.null.subject_folds``.
        known: Known copies; what was pasted must come from another fold.
        encoder: From ``part_encoder``.
        rng: Source of the draw of the null's slices.
        progress: Called with the number of finished folds and of all folds.

    Returns:
        Similarities of the null, at most ``NULL_SLICES``, and of the known copies.
    """
    drawn = balanced_sample(subjects, NULL_SLICES, rng)
    fold_of_slice, fold_of_known = fold_of_subject[subjects], fold_of_subject[known.subjects]
    null, found = np.zeros(len(drawn)), np.zeros(len(known.subjects))
    folds = int(fold_of_subject.max()) + 1
    for fold in range(folds):
        outside = np.flatnonzero(fold_of_slice != fold)
        inside = np.flatnonzero(fold_of_slice[drawn] == fold)
        pasted = np.flatnonzero(fold_of_known == fold)
        queries = [
            np.concatenate([layer[drawn[inside]], of_known[pasted]])
            for layer, of_known in zip(features, known.features, strict=True)
        ]
        likely = candidates_among(features, outside, flipped_views(queries, encoder))
        shown = np.concatenate([pictures[drawn[inside]], known.pictures[pasted]])
        matches = _lay_over(shown, pictures, likely)
        null[inside] = matches.similarity[: len(inside)]
        found[pasted] = matches.similarity[len(inside) :]
        progress(fold + 1, folds)
    return null, found


def part_threshold(null: NDArray[np.float64], alpha: float) -> PartThreshold:
    """Find the similarity above which a part is suspicious.

    The larger of the null's quantile and of what the next slice of the null exceeds as seldom as a
    normal variable its mean by ``CLEARANCE`` standard deviations: Student's prediction bound on
    the scale of Fisher's z, wider where the null is small.

    Args:
        null: Null similarities, shape (n,), n ≥ 2.
        alpha: Significance level, above 0 and below 1.

    Raises:
        CalibrationError: ``alpha`` is out of range.
    """
    from scipy.special import ndtr, stdtrit

    quantile = find_thresholds(null, {}, alpha)
    count = len(null)
    z = np.arctanh(np.clip(null, 0, _CLOSE))
    factor = float(stdtrit(count - 1, ndtr(CLEARANCE))) * np.sqrt(1 + 1 / count)
    clear = float(np.tanh(z.mean() + factor * z.std(ddof=1)))
    return PartThreshold(quantile.level, max(quantile.suspicious, clear))


def flipped(picture: NDArray[np.uint8], flip: int) -> NDArray[np.uint8]:
    """Return a picture, shape (S, S), under a flip numbered as ``poses.FLIPS``."""
    pose = FLIPS[flip]
    return picture[:: -1 if pose.vertical else 1, :: -1 if pose.horizontal else 1]


def flipped_window(window: Sequence[float], flip: int) -> tuple[float, float, float, float]:
    """Return where a window of a query lies in the reference slice that it matched, or back."""
    top, bottom, left, right = window
    if FLIPS[flip].vertical:
        top, bottom = 1 - bottom, 1 - top
    if FLIPS[flip].horizontal:
        left, right = 1 - right, 1 - left
    return top, bottom, left, right


class Places:
    """Pictures with what their local correlation needs, at ``SAMPLES`` places along a side."""

    def __init__(self, pictures: NDArray[np.uint8]) -> None:
        """Measure pictures, uint8, shape (n, ``SIDE``, ``SIDE``)."""
        self.pixels = pictures.astype(np.float32) / np.float32(255)
        self.mean = _smooth(self.pixels)
        self.variance = np.maximum(_smooth(self.pixels**2) - self.mean**2, 0)


def window_similarity(one: Places, other: Places) -> NDArray[np.float32]:
    """Return the mean local correlation over every window, 0 where there is little to see.

    Args:
        one: 1 or n pictures.
        other: n pictures.

    Returns:
        Shape (n, P, P) for P places of the window along a side, values in [0, 1].
    """
    covariance = _smooth(one.pixels * other.pixels) - one.mean * other.mean
    spread = np.sqrt(one.variance * other.variance + np.float32(NOISE**2))
    shown = ((one.mean > CONTENT) | (other.mean > CONTENT)).astype(np.float32)
    content = _boxes(shown)
    total = _boxes(np.clip(covariance / spread, 0, 1) * shown)
    similarity = np.where(content > LEAST_CONTENT, total / np.maximum(content, LEAST_CONTENT), 0)
    return np.minimum(similarity, np.float32(1))


def _lay_over(
    pictures: NDArray[np.uint8], references: NDArray[np.uint8], likely: NDArray[np.int64]
) -> PartMatches:
    """Lay the likely reference slices, shape (V, W, Q), over queries and note the best window."""
    count = len(pictures)
    matches = PartMatches(
        np.zeros(count), np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros((count, 4))
    )
    for number in range(count):
        for flip in range(len(FLIPS)):
            rows = np.unique(likely[flip, :, number])
            turned = Places(flipped(pictures[number], flip)[None])
            similarity = window_similarity(turned, Places(references[rows]))
            best = int(similarity.argmax())
            # The first of all is noted even if it is 0, so that every query has a window.
            if flip and similarity.flat[best] <= matches.similarity[number]:
                continue
            which, down, right = np.unravel_index(best, similarity.shape)
            matches.similarity[number] = similarity.flat[best]
            matches.rows[number] = rows[which]
            matches.flips[number] = flip
            matches.windows[number] = flipped_window(_shares(int(down), int(right)), flip)
    return matches


def _shares(down: int, right: int) -> tuple[float, float, float, float]:
    side = WINDOW + 2 * MARGIN
    top, left = (min(max(first - MARGIN, 0), SAMPLES - side) for first in (down, right))
    return top / SAMPLES, (top + side) / SAMPLES, left / SAMPLES, (left + side) / SAMPLES


def _smooth(pictures: NDArray[np.float32]) -> NDArray[np.float32]:
    rows = pictures[:, ::2] + pictures[:, 1::2]
    return _GAUSSIANS @ ((rows[:, :, ::2] + rows[:, :, 1::2]) @ _GAUSSIANS.T)


def _boxes(places: NDArray[np.float32]) -> NDArray[np.float32]:
    return _BOXES @ (places @ _BOXES.T)


def _gaussians() -> NDArray[np.float32]:
    """Return a matrix that smooths along one side the sums of two pixels."""
    place = np.arange(SAMPLES)
    distance = np.abs(place[:, None] - place) / SMOOTHING
    weights = np.where(distance <= 3, np.exp(-(distance**2) / 2), 0.0)
    return (weights / (2 * weights.sum(1, keepdims=True))).astype(np.float32)


def _running_means() -> NDArray[np.float32]:
    first = np.arange(SAMPLES - WINDOW + 1)[:, None]
    inside = (np.arange(SAMPLES) >= first) & (np.arange(SAMPLES) < first + WINDOW)
    return (inside / WINDOW).astype(np.float32)


_GAUSSIANS = _gaussians()
_BOXES = _running_means()


def _resized(pixels: NDArray[np.float32], side: int, how: Image.Resampling) -> NDArray[np.float32]:
    picture = Image.fromarray(np.ascontiguousarray(pixels, dtype=np.float32))
    return np.asarray(picture.resize((side, side), how), dtype=np.float32)
