"""Intervals for measures on slices that are not independent: resample subjects, not slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from MemorizationIndexLib.evaluation.features import EvaluationError

_LEVEL = 0.95
_REPLICATES = 1000


@dataclass(frozen=True)
class Interval:
    """A measure with its interval.

    Attributes:
        estimate: The measure on the data itself.
        low: Lower end.
        high: Upper end.
        level: Nominal coverage.
    """

    estimate: float
    low: float
    high: float
    level: float


def bootstrap_interval(
    measure: Callable[..., float],
    strata: Sequence[ArrayLike],
    seed: int,
    clusters: Sequence[ArrayLike | None] | None = None,
    level: float = _LEVEL,
    replicates: int = _REPLICATES,
) -> Interval:
    """Return the percentile bootstrap interval of a measure, stratified and clustered.

    Each stratum is resampled on its own, so a rare class keeps its place; within a stratum whole
    clusters (subjects or volumes) are drawn, since slices of one subject rise and fall together.
    Efron and Tibshirani 1993, section 13.3; Field and Welsh 2007 for clusters. A measure at its
    bound (AUC 1, no false positive) gets an interval of width 0: the bootstrap cannot see what the
    sample does not hold, so report the number of clusters beside it.

    Args:
        measure: ``measure(*strata)``, such as :func:`roc.auc` of positives and negatives.
        strata: Values of each stratum, of shape (n, …).
        seed: Seed of the resampling.
        clusters: For each stratum the cluster of every value, shape (n,), any type that sorts;
            None where values are independent.
        level: Nominal coverage in (0, 1).
        replicates: Number of resamples.

    Raises:
        EvaluationError: No stratum, clusters that do not fit the values, a stratum with fewer than
            two clusters, or a level or number of replicates out of range.
    """
    values = [np.asarray(stratum) for stratum in strata]
    if not values or replicates < 1 or not 0.0 < level < 1.0:
        raise EvaluationError(
            f"A bootstrap of {len(values)} strata, {replicates} replicates and level {level} is "
            "not defined; give at least one stratum and replicate, and a level between 0 and 1."
        )
    labels: Sequence[ArrayLike | None] = [None] * len(values) if clusters is None else clusters
    if len(labels) != len(values):
        raise EvaluationError(
            f"There are {len(values)} strata and {len(labels)} lists of clusters; give one each."
        )
    members = [_members(*pair) for pair in zip(values, labels, strict=True)]
    rng = np.random.default_rng(seed)
    drawn = np.empty(replicates)
    for replicate in range(replicates):
        drawn[replicate] = measure(
            *(stratum[_resampled(rows, rng)] for stratum, rows in zip(values, members, strict=True))
        )
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(measure(*values)), float(low), float(high), level)


def _members(values: NDArray[np.generic], labels: ArrayLike | None) -> list[NDArray[np.intp]]:
    """Rows of each cluster."""
    if values.ndim == 0:
        raise EvaluationError("A stratum of the bootstrap is a single number; give an array.")
    names = np.arange(len(values)) if labels is None else np.asarray(labels)
    if names.shape != (len(values),):
        raise EvaluationError(
            f"A stratum has {len(values)} values and clusters of shape {names.shape}; give one "
            "cluster for each value."
        )
    cluster = np.unique(names, return_inverse=True)[1]
    count = int(cluster.max()) + 1 if len(cluster) else 0
    if count < 2:
        raise EvaluationError(
            f"A stratum of the bootstrap has {count} clusters, and nothing varies between them; "
            "give values of at least 2 subjects or volumes."
        )
    ordered = np.argsort(cluster, kind="stable")
    return np.split(ordered, np.cumsum(np.bincount(cluster))[:-1])


def _resampled(members: list[NDArray[np.intp]], rng: np.random.Generator) -> NDArray[np.intp]:
    chosen = rng.integers(len(members), size=len(members))
    return np.concatenate([members[cluster] for cluster in chosen])
