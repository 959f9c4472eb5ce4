"""The arithmetic of the paper's released code, faults included: the ``reference`` protocol.

Its known faults are listed in METHOD.md section 2; they are kept here on purpose, so that
published numbers can be compared with. Nothing else uses this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.index.protocols import HALVINGS, PROTOCOLS, PUBLISHED_SEED
from MemorizationIndexLib.index.similarity import geometric_mean
from MemorizationIndexLib.index.whitening import CLIP, UNIT

Layers = Sequence[NDArray[np.floating]]


@dataclass(frozen=True)
class PublishedCalibration:
    """Whiteners and null of the released code.

    Attributes:
        whiteners: Mean (D,) and matrix (D, D) per layer.
        null: Null similarities, shape (n,).
        mean: Their mean.
        scale: Their standard deviation + 1e-8.
        aggregation: ``geom``, ``min`` or ``weighted``.
        weights: One per layer, for ``weighted``.
    """

    whiteners: tuple[tuple[NDArray[np.floating], NDArray[np.float64]], ...]
    null: NDArray[np.float64]
    mean: float
    scale: float
    aggregation: str
    weights: tuple[float, ...]


@dataclass(frozen=True)
class PublishedScores:
    """What the released code says of M queries in L layers.

    Attributes:
        similarity: Shape (M,).
        mi: Shape (M,).
        oni: Shape (M,).
        layer_similarity: Shape (M, L).
        layer_rows: Nearest reference row per layer, shape (M, L).
        layer_margin: Nearest minus second-nearest row per layer, shape (M, L).
        consensus: Number of layers that name the first layer's row, shape (M,).
    """

    similarity: NDArray[np.float64]
    mi: NDArray[np.float64]
    oni: NDArray[np.float64]
    layer_similarity: NDArray[np.float64]
    layer_rows: NDArray[np.int64]
    layer_margin: NDArray[np.float64]
    consensus: NDArray[np.int64]


def calibrate(
    reference: Layers, aggregation: str = "geom", weights: Sequence[float] = ()
) -> PublishedCalibration:
    """Fit whiteners on all slices and a null on ten random halvings of the same slices.

    Args:
        reference: Raw features, one (N, D) array per layer.
        aggregation: ``geom``, ``min`` or ``weighted``.
        weights: One per layer, for ``weighted``.
    """
    whiteners = tuple(_fit(layer) for layer in reference)
    rng = np.random.default_rng(PUBLISHED_SEED)
    count = len(reference[0])
    half = max(1, round(count * 0.5))
    found = []
    for _ in range(HALVINGS):
        first, second = _halves(count, half, rng)
        cosines, _, _ = _nearest(
            [layer[first] for layer in reference], [layer[second] for layer in reference], whiteners
        )
        found.append(_aggregate(cosines, aggregation, weights))
    null = np.concatenate(found)
    return PublishedCalibration(
        whiteners, null, float(null.mean()), float(null.std() + 1e-8), aggregation, tuple(weights)
    )


def score(queries: Layers, reference: Layers, calibration: PublishedCalibration) -> PublishedScores:
    """Score queries against the reference; NaN where the released code gives NaN."""
    cosines, rows, margin = _nearest(queries, reference, calibration.whiteners)
    similarity = _aggregate(cosines, calibration.aggregation, calibration.weights)
    mi = (similarity - calibration.mean) / calibration.scale
    return PublishedScores(
        similarity,
        mi,
        -np.tanh(mi),
        cosines,
        rows,
        margin,
        np.sum(rows == rows[:, :1], axis=1),
    )


def _fit(layer: NDArray[np.floating]) -> tuple[NDArray[np.floating], NDArray[np.float64]]:
    mean = layer.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(layer - mean, rowvar=False))
    gains = 1.0 / np.sqrt(np.clip(values, CLIP, None))
    return mean, (vectors * gains) @ vectors.T


def _halves(
    count: int, half: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = rng.permutation(count)
    first, rest = order[:half], order[half:]
    while len(rest) < half:
        # An odd count leaves one slice too few: the released code tops up from a new permutation.
        extra = rng.permutation(count)
        rest = np.concatenate([rest, extra[~np.isin(extra, first)]])
    return first, rest[:half]


def _nearest(
    queries: Layers,
    reference: Layers,
    whiteners: Sequence[tuple[NDArray[np.floating], NDArray[np.float64]]],
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    cosines, rows, margins = [], [], []
    for query, layer, (mean, matrix) in zip(queries, reference, whiteners, strict=True):
        similarity = _unit((query - mean) @ matrix) @ _unit((layer - mean) @ matrix).T
        two = np.argpartition(similarity, -2, axis=1)[:, -2:]
        values = np.take_along_axis(similarity, two, axis=1)
        first = values.argmax(axis=1)[:, None]
        best = np.take_along_axis(values, first, axis=1)[:, 0]
        cosines.append(best)
        rows.append(np.take_along_axis(two, first, axis=1)[:, 0])
        margins.append(best - values.min(axis=1))
    return np.stack(cosines, 1), np.stack(rows, 1), np.stack(margins, 1)


def _unit(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    return rows / (np.linalg.norm(rows, axis=1, keepdims=True) + UNIT)


def _aggregate(
    cosines: NDArray[np.float64], aggregation: str, weights: Sequence[float]
) -> NDArray[np.float64]:
    if aggregation == "min":
        return cosines.min(axis=1)
    if aggregation == "weighted":
        shares = np.asarray(weights) / np.sum(weights)
        return cosines @ shares
    return geometric_mean(cosines, PROTOCOLS["reference"].floor, clamp=False)
