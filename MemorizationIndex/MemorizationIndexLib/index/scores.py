"""Similarity to numbers that compare: MI, ONI, p and q."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.index.protocols import Protocol

LEAST_SPREAD = 1e-6
"""Standard deviation of the null below which MI has no meaning (METHOD.md section 1)."""


@dataclass(frozen=True)
class NullSpread:
    """Where the null lies.

    Attributes:
        mean: Mean of the null similarities; NaN where some are undefined.
        sd: Their standard deviation, without any floor.
        scale: What MI is divided by: ``sd`` with the protocol's floors.
    """

    mean: float
    sd: float
    scale: float

    @property
    def defined(self) -> bool:
        """Whether MI means anything on this null."""
        return bool(np.isfinite(self.mean) and self.sd >= LEAST_SPREAD)


def null_spread(null: NDArray[np.float64], protocol: Protocol) -> NullSpread:
    """Return mean, standard deviation and scale of a null, shape (n,)."""
    mean, variance = float(np.mean(null)), float(np.var(null))
    scale = np.sqrt(variance + protocol.variance_floor) + protocol.sd_floor
    return NullSpread(mean, float(np.sqrt(variance)), float(scale))


def memorization_index(similarity: NDArray[np.float64], spread: NullSpread) -> NDArray[np.float64]:
    """Return MI = (s − μ0) / σ0 (paper, equation 4)."""
    return (similarity - spread.mean) / spread.scale


def oni(mi: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ONI = −tanh(MI): −1 copy, 0 typical, +1 novel (paper, equation 5)."""
    return -np.tanh(mi)


def p_values(statistic: NDArray[np.float64], null: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return p = (1 + #{null ≥ s}) / (n + 1), never 0 (Phipson and Smyth 2010)."""
    ordered = np.sort(null)
    at_least = len(ordered) - np.searchsorted(ordered, statistic, side="left")
    return (1 + at_least) / (len(ordered) + 1)


def q_values(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Benjamini–Hochberg q-values of p-values, shape (m,) (Benjamini, Hochberg 1995)."""
    count = len(p)
    order = np.argsort(p)[::-1]
    scaled = p[order] * count / np.arange(count, 0, -1)
    q = np.empty(count)
    q[order] = np.minimum(np.minimum.accumulate(scaled), 1.0)
    return q
