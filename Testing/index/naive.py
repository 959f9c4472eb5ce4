"""The index as one would write it without thinking of time or memory, in float64."""

from __future__ import annotations

import numpy as np


def zca(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return mean, W = C^(-1/2) and shrinkage, C by OAS (Chen et al. 2010) without terms in 2/D."""
    rows = np.asarray(rows, np.float64)
    count, width = rows.shape
    mean = rows.mean(0)
    sample = (rows - mean).T @ (rows - mean) / count
    trace, square = np.trace(sample), np.trace(sample @ sample)
    share = min(1.0, (square + trace**2) / ((count + 1) * (square - trace**2 / width)))
    shrunk = (1 - share) * sample + share * trace / width * np.eye(width)
    values, vectors = np.linalg.eigh(shrunk)
    return mean, vectors @ np.diag(values**-0.5) @ vectors.T, share


def whiten(rows: np.ndarray, mean: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    white = (np.asarray(rows, np.float64) - mean) @ matrix
    return white / np.linalg.norm(white, axis=1, keepdims=True)


def similarity(queries: list[np.ndarray], reference: list[np.ndarray], floor: float = 1e-6):
    """Return the geometric mean of the largest cosines of whitened rows, one array per layer."""
    best = np.stack([(q @ r.T).max(1) for q, r in zip(queries, reference, strict=True)], 1)
    return np.exp(np.log(np.clip(best, 0, None) + floor).mean(1))
