"""Authenticity: the share of generated samples that no training sample explains."""

from __future__ import annotations

from numpy.typing import ArrayLike

from MemorizationIndexLib.evaluation.features import checked, nearest, neighbor_distance


def authenticity(reference: ArrayLike, generated: ArrayLike) -> float:
    """Return AuthPct: 100 · mean[d(g, r*) > d(r*, its nearest other reference)].

    r* is the reference nearest to the generated sample g. Alaa et al. 2022 (How Faithful is your
    Synthetic Data?), authenticity; in percent as Stein et al. 2023 (Exposing flaws of generative
    model evaluation metrics); METHOD.md section 7.

    Args:
        reference: Training features, shape (N, D).
        generated: Generated features, shape (M, D).

    Returns:
        Percent of authentic samples: 0 where all are copies.

    Raises:
        EvaluationError: Fewer than 2 reference rows, no generated row, or widths that differ.
    """
    training, samples = checked(1, reference=reference, generated=generated)
    checked(2, reference=training)
    distance, row = nearest(samples, training)
    return float(100.0 * (distance > neighbor_distance(training)[row]).mean())
