"""ZCA whitening of one layer's features, with analytic shrinkage where the cohort is small."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CHUNK = 4096
"""Rows handled at once, so that memory-mapped features never lie in memory together."""

RIDGE = 1e-6
"""Added to the covariance by the paper's equation."""

CLIP = 1e-8
"""Smallest eigenvalue kept by the released code."""

UNIT = 1e-12
"""Added to a row's norm before the division; a row of zeros stays zeros."""


@dataclass(frozen=True)
class Moments:
    """Count, mean and scatter of feature rows; moments of disjoint rows can be merged.

    Attributes:
        count: Number of rows n.
        mean: float64, shape (D,).
        scatter: Sum of outer products of the centered rows, float64, shape (D, D).
    """

    count: int
    mean: NDArray[np.float64]
    scatter: NDArray[np.float64]

    @classmethod
    def of(cls, features: NDArray[np.floating]) -> Moments:
        """Accumulate the moments of rows, shape (n, D), chunk by chunk."""
        width = features.shape[1]
        total = cls(0, np.zeros(width), np.zeros((width, width)))
        for chunk in _chunks(features):
            mean = chunk.mean(0)
            centered = chunk - mean
            total = total.merge(cls(len(chunk), mean, centered.T @ centered))
        return total

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows together (Chan et al. 1979)."""
        if self.count == 0 or other.count == 0:
            return other if self.count == 0 else self
        count = self.count + other.count
        step = other.mean - self.mean
        weight = self.count * other.count / count
        return Moments(
            count,
            self.mean + step * (other.count / count),
            self.scatter + other.scatter + weight * np.outer(step, step),
        )

    def without(self, part: Moments) -> Moments:
        """Return the moments of the rows that are not in ``part``, a subset of these rows."""
        count = self.count - part.count
        if count == 0:
            return Moments(0, np.zeros_like(self.mean), np.zeros_like(self.scatter))
        mean = (self.count * self.mean - part.count * part.mean) / count
        step = part.mean - mean
        weight = count * part.count / self.count
        return Moments(count, mean, self.scatter - part.scatter - weight * np.outer(step, step))


@dataclass(frozen=True)
class Whitener:
    """A fitted symmetric whitening, W = V diag(gains) Vᵀ + floor (I − V Vᵀ).

    Attributes:
        mean: float64, shape (D,).
        vectors: Principal directions with their own gain, float32, shape (R, D), R ≤ D.
        gains: Gain along each of them, float64, shape (R,).
        floor: Gain in all other directions.
        shrinkage: Shrinkage intensity, 0 none to 1 full.
    """

    mean: NDArray[np.float64]
    vectors: NDArray[np.float32]
    gains: NDArray[np.float64]
    floor: float
    shrinkage: float

    def whiten(self, features: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return whitened rows of length 1, float32, shape (n, D)."""
        centered = np.asarray(features - self.mean, dtype=np.float32)
        along = centered @ self.vectors.T
        along *= (self.gains - self.floor).astype(np.float32)
        white = along @ self.vectors
        white += np.float32(self.floor) * centered
        norm = np.sqrt(np.einsum("nd,nd->n", white, white))
        white /= (norm + np.float32(UNIT))[:, None]
        return white


def oas_shrinkage(trace: float, trace_of_square: float, count: int, width: int) -> float:
    """Return the oracle-approximating shrinkage intensity (Chen et al. 2010, equation 23).

    The terms in 2/D are left out, as is usual for wide features.

    Args:
        trace: Trace of the sample covariance.
        trace_of_square: Trace of its square.
        count: Number of rows.
        width: Number of features.
    """
    average = trace_of_square / width**2
    excess = average - (trace / width) ** 2 / width
    if excess <= 0:
        return 1.0
    return float(min(1.0, (average + (trace / width) ** 2) / ((count + 1) * excess)))


def fit_whitener(features: NDArray[np.floating], method: str) -> Whitener:
    """Fit a whitener to reference rows.

    Args:
        features: Shape (n, D), n ≥ 2; may be memory-mapped.
        method: ``oas``, ``ridge`` or ``clip``, see ``protocols.Protocol.whitening``.

    Returns:
        The whitener; with fewer rows than features it is found from the Gram matrix of the rows,
        which gives the same W without a D × D decomposition.
    """
    count, width = features.shape
    if count > width:
        return fit_whitener_to_moments(Moments.of(features), method)
    mean = np.asarray(np.mean(features, axis=0, dtype=np.float64))
    centered = np.asarray(features, dtype=np.float64) - mean
    values, left = np.linalg.eigh(centered @ centered.T)
    keep = values > max(values[-1], 0.0) * 1e-10
    values, left = values[keep][::-1], left[:, keep][:, ::-1]
    vectors = (left / np.sqrt(values)).T @ centered
    return _whitener(mean, vectors, values, count, width, method)


def fit_whitener_to_moments(moments: Moments, method: str) -> Whitener:
    """Fit a whitener to the moments of reference rows; see ``fit_whitener``."""
    values, vectors = np.linalg.eigh(moments.scatter)
    return _whitener(
        moments.mean,
        vectors[:, ::-1].T,
        np.clip(values[::-1], 0.0, None),
        moments.count,
        len(moments.mean),
        method,
    )


def _whitener(
    mean: NDArray[np.float64],
    vectors: NDArray[np.float64],
    scatter: NDArray[np.float64],
    count: int,
    width: int,
    method: str,
) -> Whitener:
    shrinkage = 0.0
    if method == "oas":
        values = scatter / count
        trace, square = float(values.sum()), float((values**2).sum())
        shrinkage = oas_shrinkage(trace, square, count, width)
        base = shrinkage * trace / width
        values = (1 - shrinkage) * values + base
    elif method == "ridge":
        values, base = scatter / (count - 1) + RIDGE, RIDGE
    elif method == "clip":
        values, base = np.clip(scatter / (count - 1), CLIP, None), CLIP
    else:
        raise ValueError(f"unknown whitening '{method}'")
    # Identical rows have no spread in any direction; any gain whitens them, 1 keeps numbers finite.
    floor = base**-0.5 if base > 0 else 1.0
    gains = np.where(values > 0, 1.0 / np.sqrt(np.where(values > 0, values, 1.0)), floor)
    return Whitener(mean, np.asarray(vectors, np.float32), gains, float(floor), shrinkage)


def _chunks(features: NDArray[np.floating]) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(features), CHUNK):
        yield np.asarray(features[start : start + CHUNK], dtype=np.float64)
