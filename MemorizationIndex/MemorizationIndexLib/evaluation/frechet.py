"""Fréchet distance between two feature sets (FID on any encoder's features)."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike

from MemorizationIndexLib.evaluation.features import EvaluationWarning, Features, checked


def frechet_distance(first: ArrayLike, second: ArrayLike) -> float:
    """Return |μ1 − μ2|² + Tr(S1 + S2 − 2 (S1 S2)^½), covariances with ddof 1.

    Heusel et al. 2017 (GANs Trained by a Two Time-Scale Update Rule), equation 6; METHOD.md
    section 7. With S = RᵀR, Tr (S1 S2)^½ is the sum of the singular values of R1 R2ᵀ: symmetric in
    the two sets, real, and exact for covariances without full rank.

    Args:
        first: Features, shape (N, D).
        second: Features, shape (M, D).

    Returns:
        The distance, in squared units of the features; 0 for equal sets.

    Raises:
        EvaluationError: A set has fewer than 2 rows, or the sets do not fit each other.

    Warns:
        EvaluationWarning: A set has no more rows than columns, so that its covariance is singular
            and the distance too large by an amount that depends on the number of rows.
    """
    one, two = checked(2, first=first, second=second)
    fewest, width = min(len(one), len(two)), one.shape[1]
    if fewest <= width:
        warnings.warn(
            f"The Fréchet distance rests on {fewest} slices for {width} features and is biased "
            "upwards; compare it only with values from as many slices.",
            EvaluationWarning,
            stacklevel=2,
        )
    root_one, root_two = _covariance_root(one), _covariance_root(two)
    shift = one.mean(axis=0) - two.mean(axis=0)
    cross = np.linalg.svd(root_one @ root_two.T, compute_uv=False).sum()
    distance = shift @ shift + (root_one**2).sum() + (root_two**2).sum() - 2.0 * cross
    return max(float(distance), 0.0)


def _covariance_root(features: Features) -> Features:
    """R of shape (min(N, D), D) with RᵀR the covariance."""
    centered = features - features.mean(axis=0)
    return np.asarray(np.linalg.qr(centered / np.sqrt(len(features) - 1), mode="r"))
