"""Feature sets as the baselines take them: checked once, with distances between them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Features = NDArray[np.float64]

_BLOCK_ROWS = 1024


class EvaluationError(ValueError):
    """A measure cannot be computed; the message is one sentence: what is wrong and what to do."""


class EvaluationWarning(UserWarning):
    """A measure was computed but stands on too little; the message says why."""


def checked(least_rows: int = 1, **sets: ArrayLike) -> tuple[Features, ...]:
    """Return the named feature sets as float64 arrays of one common width.

    Args:
        least_rows: Rows that every set must have.
        sets: Features by the name used in messages, each of shape (N, D).

    Returns:
        The arrays in the order given.

    Raises:
        EvaluationError: A set is not two-dimensional, has too few rows, no column, values that are
            not finite, or another width than the first.
    """
    arrays: list[Features] = []
    for name, values in sets.items():
        array = np.asarray(values, dtype=np.float64)
        if array.ndim != 2 or array.shape[1] == 0:
            raise EvaluationError(
                f"The {name} features have shape {array.shape}; give one row per slice, (N, D)."
            )
        if len(array) < least_rows:
            raise EvaluationError(
                f"The {name} features have {len(array)} rows; at least {least_rows} are needed."
            )
        if not np.isfinite(array).all():
            raise EvaluationError(
                f"The {name} features hold values that are not finite; leave those slices out."
            )
        if arrays and array.shape[1] != arrays[0].shape[1]:
            raise EvaluationError(
                f"The {name} features are {array.shape[1]} wide and the {next(iter(sets))} features"
                f" {arrays[0].shape[1]}; take both from one encoder and layer."
            )
        arrays.append(array)
    return tuple(arrays)


def nearest(queries: Features, references: Features) -> tuple[Features, NDArray[np.intp]]:
    """Euclidean distance to, and row of, the nearest reference of every query.

    Args:
        queries: Shape (M, D).
        references: Shape (N, D), N ≥ 1.

    Returns:
        Distances, shape (M,), and rows of ``references``, shape (M,).
    """
    from scipy.spatial.distance import cdist

    distances = np.empty(len(queries))
    rows = np.empty(len(queries), dtype=np.intp)
    for start in range(0, len(queries), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        # Differences, not the expanded square: a copy's distance must come out as exactly 0.
        between = cdist(queries[block], references)
        rows[block] = between.argmin(axis=1)
        distances[block] = between.min(axis=1)
    return distances, rows


def neighbor_distance(features: Features, k: int = 1) -> Features:
    """Euclidean distance of every row to its k-th nearest other row, shape (N,); N > k.

    Args:
        features: Shape (N, D).
        k: Which neighbor; 1 is the nearest.
    """
    from scipy.spatial.distance import cdist

    distances = np.empty(len(features))
    for start in range(0, len(features), _BLOCK_ROWS):
        block = features[start : start + _BLOCK_ROWS]
        between = cdist(block, features)
        between[np.arange(len(block)), start + np.arange(len(block))] = np.inf
        distances[start : start + len(block)] = np.partition(between, k - 1, axis=1)[:, k - 1]
    return distances
