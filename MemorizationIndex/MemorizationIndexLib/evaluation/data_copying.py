"""C_T: are generated samples nearer to the training set than real, unseen ones are?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from MemorizationIndexLib.evaluation.features import EvaluationError, Features, checked, nearest

_DIMENSIONS = 64
_CELLS = 3
_LEAST_GENERATED_IN_CELL = 20
_RESTARTS = 10
_ITERATIONS = 300

Labels = NDArray[np.integer]


@dataclass(frozen=True)
class DataCopying:
    """The data-copying test over the cells of a partition.

    Attributes:
        score: C_T: far below 0 means copying, far above 0 underfitting.
        cell_scores: Z per cell; 0 where generated or test samples are missing.
        cell_weights: Share of the test samples per cell.
        cell_used: Whether the cell enters the score.
    """

    score: float
    cell_scores: tuple[float, ...]
    cell_weights: tuple[float, ...]
    cell_used: tuple[bool, ...]


def data_copying_z(reference: ArrayLike, test: ArrayLike, generated: ArrayLike) -> float:
    """Return the Z-scored Mann–Whitney U of distances to the nearest reference.

    Meehan, Chaudhuri and Dasgupta 2020 (A Non-Parametric Test to Detect Data-Copying in Generative
    Models, arXiv 2004.05675), Z_U: U counts the pairs in which the generated sample is farther than
    the test sample (ties half); its mean is MN/2, with a continuity correction of 1/2, its variance
    MN(M + N + 1)/12.

    Args:
        reference: Training features, shape (T, D).
        test: Held-out real features, shape (N, D).
        generated: Generated features, shape (M, D).

    Returns:
        Z: far below 0 where generated samples are nearer than real ones.

    Raises:
        EvaluationError: An empty set, or sets that do not fit each other.
    """
    training, unseen, samples = checked(1, reference=reference, test=test, generated=generated)
    return _z(nearest(samples, training)[0], nearest(unseen, training)[0])


def data_copying(
    reference: ArrayLike,
    test: ArrayLike,
    generated: ArrayLike,
    seed: int = 0,
    cells: int = _CELLS,
) -> DataCopying:
    """Return C_T with cells from k-means on the reference.

    Meehan et al. 2020, C_T = Σ P(cell) Z(cell) / Σ P(cell), P the share of test samples; METHOD.md
    section 7: PCA to 64 dimensions if there are more, k-means on the reference, Z per cell against
    the cell's references. Cells with fewer than 20 generated samples are left out.

    Args:
        reference: Training features, shape (T, D).
        test: Held-out real features, shape (N, D).
        generated: Generated features, shape (M, D).
        seed: Seed of the k-means starts.
        cells: Number of cells.

    Raises:
        EvaluationError: Sets that do not fit each other, fewer different reference rows than
            cells, or no cell with enough generated and any test samples.
    """
    if cells < 1:
        raise EvaluationError(f"C_T was asked for {cells} cells; give at least 1.")
    training, unseen, samples = checked(1, reference=reference, test=test, generated=generated)
    training, unseen, samples = projected(training, unseen, samples)
    centers = _k_means(training, cells, np.random.default_rng(seed))
    return data_copying_in_cells(
        training,
        unseen,
        samples,
        nearest(training, centers)[1],
        nearest(unseen, centers)[1],
        nearest(samples, centers)[1],
    )


def data_copying_in_cells(
    reference: ArrayLike,
    test: ArrayLike,
    generated: ArrayLike,
    reference_cells: Labels,
    test_cells: Labels,
    generated_cells: Labels,
) -> DataCopying:
    """Return C_T for a given partition, as :func:`data_copying` does for its own.

    Args:
        reference: Training features, shape (T, D).
        test: Held-out real features, shape (N, D).
        generated: Generated features, shape (M, D).
        reference_cells: Cell of each reference row, 0, 1, 2…, shape (T,).
        test_cells: Cell of each test row, shape (N,).
        generated_cells: Cell of each generated row, shape (M,).

    Raises:
        EvaluationError: Labels that do not fit the features, a cell to be scored that holds no
            reference, or no cell with enough generated and any test samples.
    """
    training, unseen, samples = checked(1, reference=reference, test=test, generated=generated)
    named = {
        "reference": (training, np.asarray(reference_cells)),
        "test": (unseen, np.asarray(test_cells)),
        "generated": (samples, np.asarray(generated_cells)),
    }
    for name, (rows, labels) in named.items():
        if labels.shape != (len(rows),) or labels.dtype.kind not in "iu" or labels.min() < 0:
            raise EvaluationError(
                f"The {name} cells do not fit {len(rows)} rows of features; give one cell number "
                "from 0 for each row."
            )
    count = 1 + max(int(labels.max()) for _, labels in named.values())
    scores, weights, used = [], [], []
    for cell in range(count):
        training_here, unseen_here, samples_here = (
            rows[labels == cell] for rows, labels in named.values()
        )
        comparable = len(unseen_here) > 0 and len(samples_here) > 0
        scores.append(
            data_copying_z(training_here, unseen_here, samples_here) if comparable else 0.0
        )
        weights.append(len(unseen_here) / len(unseen))
        used.append(comparable and len(samples_here) >= _LEAST_GENERATED_IN_CELL)
    if not any(used):
        raise EvaluationError(
            f"C_T needs a cell with {_LEAST_GENERATED_IN_CELL} generated samples and a test "
            f"sample, and none of the {count} cells has them; give more samples or fewer cells."
        )
    score = float(np.average(scores, weights=np.where(used, weights, 0.0)))
    return DataCopying(score, tuple(scores), tuple(weights), tuple(used))


def projected(
    reference: Features, *others: Features, dimensions: int = _DIMENSIONS
) -> tuple[Features, ...]:
    """Return all sets in the leading principal components of the reference.

    Args:
        reference: Shape (T, D); the components are its own.
        others: Shape (·, D).
        dimensions: Components to keep; sets that are no wider come back unchanged, and a reference
            of fewer rows has fewer components.

    Returns:
        ``reference`` and ``others``, each of shape (·, min(D, dimensions, T)).
    """
    if reference.shape[1] <= dimensions:
        return (reference, *others)
    mean = reference.mean(axis=0)
    components = np.linalg.svd(reference - mean, full_matrices=False)[2][:dimensions]
    return tuple((rows - mean) @ components.T for rows in (reference, *others))


def _z(generated: Features, test: Features) -> float:
    m, n = len(generated), len(test)
    ordered = np.sort(test)
    farther = np.searchsorted(ordered, generated, side="left").sum()
    not_nearer = np.searchsorted(ordered, generated, side="right").sum()
    u = 0.5 * (farther + not_nearer)
    return float((u - m * n / 2 + 0.5) / np.sqrt(m * n * (m + n + 1) / 12))


def _k_means(rows: Features, cells: int, rng: np.random.Generator) -> Features:
    """Centers of the best of several Lloyd runs from k-means++ starts, shape (cells, D)."""
    different = len(np.unique(rows, axis=0))
    if different < cells:
        raise EvaluationError(
            f"C_T needs {cells} different reference rows for its cells and there are {different}; "
            "give more reference slices or ask for fewer cells."
        )
    best, best_spread = rows[:cells], np.inf
    for _ in range(_RESTARTS):
        centers = _spread_start(rows, cells, rng)
        for _ in range(_ITERATIONS):
            labels = nearest(rows, centers)[1]
            # A cell that lost its last row keeps its center.
            moved = np.stack(
                [
                    rows[labels == cell].mean(axis=0) if (labels == cell).any() else centers[cell]
                    for cell in range(cells)
                ]
            )
            if np.array_equal(moved, centers):
                break
            centers = moved
        spread = float((nearest(rows, centers)[0] ** 2).sum())
        if spread < best_spread:
            best, best_spread = centers, spread
    return best


def _spread_start(rows: Features, cells: int, rng: np.random.Generator) -> Features:
    """k-means++ of Arthur and Vassilvitskii 2007: far rows are likelier to start a cell."""
    chosen = [int(rng.integers(len(rows)))]
    while len(chosen) < cells:
        weight = nearest(rows, rows[chosen])[0] ** 2
        chosen.append(int(rng.choice(len(rows), p=weight / weight.sum())))
    return rows[chosen]
