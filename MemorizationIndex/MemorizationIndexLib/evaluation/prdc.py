"""Precision, recall, density and coverage of a generated set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from MemorizationIndexLib.evaluation.features import (
    EvaluationError,
    checked,
    nearest,
    neighbor_distance,
)

_NEIGHBORS = 5
_BLOCK_ROWS = 1024


@dataclass(frozen=True)
class Prdc:
    """How well a generated set and a real one cover each other.

    Attributes:
        precision: Share of generated samples inside the real manifold.
        recall: Share of real samples inside the generated manifold.
        density: Mean number of real balls around a generated sample, over k; may exceed 1.
        coverage: Share of real samples with a generated one inside their ball.
    """

    precision: float
    recall: float
    density: float
    coverage: float


def precision_recall_density_coverage(
    real: ArrayLike, generated: ArrayLike, k: int = _NEIGHBORS
) -> Prdc:
    """Return PRDC with balls that reach each sample's k-th nearest other sample of its set.

    Kynkäänniemi et al. 2019 (Improved Precision and Recall Metric) for precision and recall; Naeem
    et al. 2020 (Reliable Fidelity and Diversity Metrics) for density and coverage. Balls are open:
    a sample on the border is outside.

    Args:
        real: Features, shape (N, D).
        generated: Features, shape (M, D).
        k: Neighbors that set the radius.

    Raises:
        EvaluationError: k < 1, a set with no more than k rows, or sets that do not fit each other.
    """
    from scipy.spatial.distance import cdist

    if k < 1:
        raise EvaluationError(f"PRDC was asked for {k} neighbors; give at least 1.")
    originals, samples = checked(k + 1, real=real, generated=generated)
    real_radius, generated_radius = neighbor_distance(originals, k), neighbor_distance(samples, k)
    balls_around = np.zeros(len(samples))
    recalled = 0
    for start in range(0, len(originals), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        between = cdist(originals[block], samples)
        balls_around += (between < real_radius[block, None]).sum(axis=0)
        recalled += int((between < generated_radius).any(axis=1).sum())
    return Prdc(
        precision=float((balls_around > 0).mean()),
        recall=recalled / len(originals),
        density=float(balls_around.mean() / k),
        coverage=float((nearest(originals, samples)[0] < real_radius).mean()),
    )
