"""Vendi score: how many different samples a set amounts to."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from MemorizationIndexLib.evaluation.features import EvaluationError, checked


def vendi_score(features: ArrayLike, q: float = 1.0) -> float:
    """Return the Vendi score of order q under the cosine kernel.

    The exponential of the Rényi entropy of the eigenvalues of K / n, with K the cosine kernel:
    Friedman and Dieng 2023 (The Vendi Score, arXiv 2210.02410) for q = 1, exp(−Σ λ log λ);
    Pasarkar and Dieng 2024 (Cousins of the Vendi Score, arXiv 2310.12952) for other orders,
    (Σ λ^q)^(1/(1−q)); METHOD.md section 7. The kernel's
    diagonal is 1, without which the score has no meaning (METHOD.md section 2, fault 10).

    Args:
        features: Shape (N, D).
        q: Order > 0: 1 is Shannon, ``math.inf`` counts only the most frequent kind.

    Returns:
        Effective number of samples, from 1 (all alike) to N.

    Raises:
        EvaluationError: No rows, a row of zeros, which has no direction, or q ≤ 0.
    """
    (rows,) = checked(1, scored=features)
    lengths = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    if not lengths.all():
        raise EvaluationError(
            f"Row {int(np.flatnonzero(lengths[:, 0] == 0.0)[0])} of the scored features is all "
            "zero and has no cosine; leave that slice out."
        )
    # Squared singular values of X are the eigenvalues of X Xᵀ, without its rounding noise.
    singular = np.linalg.svd(rows / lengths, compute_uv=False)
    return _effective_number(singular**2 / len(rows), q)


def vendi_score_of_kernel(kernel: ArrayLike, q: float = 1.0) -> float:
    """Return the Vendi score of order q of a kernel matrix.

    Args:
        kernel: Symmetric, positive semi-definite, shape (N, N); a diagonal of 1 for a score that
            counts samples.
        q: As in :func:`vendi_score`.

    Raises:
        EvaluationError: Not a square matrix, not symmetric, no positive eigenvalue, or q ≤ 0.
    """
    (matrix,) = checked(1, kernel=kernel)
    if matrix.shape[0] != matrix.shape[1] or not np.allclose(matrix, matrix.T):
        raise EvaluationError(
            f"The kernel has shape {matrix.shape}; give a symmetric matrix of shape (N, N)."
        )
    return _effective_number(np.linalg.eigvalsh(matrix / len(matrix)), q)


def _effective_number(eigenvalues: NDArray[np.floating], q: float) -> float:
    if not q > 0:
        raise EvaluationError(f"The order of a Vendi score is {q}; give a number above 0.")
    weights = eigenvalues[eigenvalues > 0.0]
    if not weights.size:
        raise EvaluationError("The kernel has no positive eigenvalue; it is not a kernel.")
    if q == 1:
        return float(np.exp(-(weights * np.log(weights)).sum()))
    if math.isinf(q):
        return float(1.0 / weights.max())
    return float((weights**q).sum() ** (1.0 / (1.0 - q)))
