"""Kernel distance: squared MMD with the cubic polynomial kernel (KID on any encoder's features)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from MemorizationIndexLib.evaluation.features import EvaluationError, Features, checked

_BLOCK_ROWS = 1024


@dataclass(frozen=True)
class SubsetEstimate:
    """The kernel distance over random subsets.

    Attributes:
        mean: Mean over the subsets.
        sd: Standard deviation over the subsets (ddof 0).
    """

    mean: float
    sd: float


def kernel_distance(first: ArrayLike, second: ArrayLike) -> float:
    """Return the unbiased squared MMD with k(x, y) = (x·y / D + 1)³, over all rows.

    Gretton et al. 2012 (A Kernel Two-Sample Test), equation 3, with the kernel of Bińkowski et al.
    2018 (Demystifying MMD GANs), section 4; METHOD.md section 7. The full U-statistic: no random
    subsets, so the same features always give the same number. It may be negative.

    Args:
        first: Features, shape (N, D).
        second: Features, shape (M, D).

    Raises:
        EvaluationError: A set has fewer than 2 rows, or the sets do not fit each other.
    """
    one, two = checked(2, first=first, second=second)
    return _unbiased_mmd(one, two)


def kernel_distance_of_subsets(
    first: ArrayLike,
    second: ArrayLike,
    rng: np.random.Generator | np.random.RandomState,
    subsets: int = 100,
    subset_size: int = 50,
) -> SubsetEstimate:
    """Return the kernel distance as Bińkowski et al. 2018 print it: over random subsets.

    For comparison with published numbers only; :func:`kernel_distance` uses every pair.

    Args:
        first: Features, shape (N, D).
        second: Features, shape (M, D).
        rng: Draws the rows of ``first``, then of ``second``, without replacement, subset by subset.
            A ``RandomState`` gives the numbers of older packages.
        subsets: Number of subsets.
        subset_size: Rows of each set in a subset.

    Raises:
        EvaluationError: A set has fewer rows than a subset, or the sets do not fit each other.
    """
    if subsets < 1 or subset_size < 2:
        raise EvaluationError(
            f"Got {subsets} subsets of {subset_size} rows; give at least 1 subset of 2 rows."
        )
    one, two = checked(subset_size, first=first, second=second)
    values = [
        _unbiased_mmd(
            one[rng.choice(len(one), subset_size, replace=False)],
            two[rng.choice(len(two), subset_size, replace=False)],
        )
        for _ in range(subsets)
    ]
    return SubsetEstimate(float(np.mean(values)), float(np.std(values)))


def _unbiased_mmd(one: Features, two: Features) -> float:
    return _mean_within(one) + _mean_within(two) - 2.0 * _mean_between(one, two)


def _mean_within(features: Features) -> float:
    """Mean kernel over pairs of different rows."""
    rows = len(features)
    diagonal = ((features**2).sum(axis=1) / features.shape[1] + 1.0) ** 3
    return float((_mean_between(features, features) * rows - diagonal.mean()) / (rows - 1))


def _mean_between(one: Features, two: Features) -> float:
    total = 0.0
    for start in range(0, len(one), _BLOCK_ROWS):
        kernel = (one[start : start + _BLOCK_ROWS] @ two.T / one.shape[1] + 1.0) ** 3
        total += float(kernel.sum())
    return total / (len(one) * len(two))
