"""What similarity looks like without copying: slices against a cohort that lacks their subject."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.index.protocols import (
    FOLDS,
    HALVINGS,
    LEAST_SUBJECTS,
    Protocol,
    TooFewSubjectsError,
)
from MemorizationIndexLib.index.reference import Reference, Views, as_stored
from MemorizationIndexLib.index.similarity import (
    QUERIES,
    REFERENCES,
    Block,
    blocks_of,
    search,
)
from MemorizationIndexLib.index.whitening import (
    Moments,
    Whitener,
    fit_whitener,
    fit_whitener_to_moments,
)


@dataclass(frozen=True)
class Null:
    """Similarities of slices that cannot be copies.

    Attributes:
        similarity: Shape (n,). NaN only where the protocol is undefined.
        subjects: Subject code of each of these slices, shape (n,).
    """

    similarity: NDArray[np.float64]
    subjects: NDArray[np.int64]


def subject_folds(
    subject_count: int, rng: np.random.Generator, folds: int = FOLDS
) -> NDArray[np.int64]:
    """Deal subjects into folds of nearly equal size.

    Args:
        subject_count: Number of subjects.
        rng: Source of the shuffle.
        folds: Number of folds; the number of subjects if that is smaller.

    Returns:
        The fold of each subject code, shape (subject_count,).

    Raises:
        TooFewSubjectsError: There are fewer than ``LEAST_SUBJECTS`` subjects.
    """
    if subject_count < LEAST_SUBJECTS:
        raise TooFewSubjectsError(subject_count)
    fold = np.empty(subject_count, np.int64)
    fold[rng.permutation(subject_count)] = np.arange(subject_count) % min(folds, subject_count)
    return fold


def cross_fitted_null(
    layers: Sequence[NDArray[np.floating]],
    subjects: NDArray[np.int64],
    subject_count: int,
    protocol: Protocol,
    seed: int,
    *,
    views: Views = as_stored,
    progress: Callable[[int, int], None] = lambda done, total: None,
    fold_of_subject: NDArray[np.int64] | None = None,
) -> Null:
    """Score every reference slice against the other folds' subjects (METHOD.md section 3).

    For each fold the whitener is fitted on the other folds, and the fold's slices are compared
    with them: no slice meets its own subject, neither in the whitening nor in the search.

    Args:
        layers: Raw features, one (P, N, D) array per layer: P poses of N slices, the stored pose
            first; may be memory-mapped.
        subjects: Subject code of each slice, non-decreasing, shape (N,).
        subject_count: Number of subjects.
        protocol: The choices of whitening and aggregation.
        seed: Of the dealing into folds.
        views: The poses in which a query is seen.
        progress: Called with the number of finished slices and of all slices, between any two
            steps of the work, many times in a fold; what it raises ends the work.
        fold_of_subject: See ``subject_folds``; dealt by ``seed`` if None.

    Raises:
        TooFewSubjectsError: There are fewer than five subjects.
    """
    if fold_of_subject is None:
        fold_of_subject = subject_folds(subject_count, np.random.default_rng(seed))
    fold_of_slice = fold_of_subject[subjects]
    folds = int(fold_of_subject.max()) + 1
    similarity = np.empty(len(subjects))
    done = 0

    def tell(part: float = 0.0, of: int = 0) -> None:
        progress(done + int(part * of), len(subjects))

    fitters = [_Fitter(layer, fold_of_slice, folds, protocol.whitening, tell) for layer in layers]
    for fold in range(folds):
        inside = np.flatnonzero(fold_of_slice == fold)
        outside = np.flatnonzero(fold_of_slice != fold)
        whiteners = []
        for fitter in fitters:
            tell()
            whiteners.append(fitter.without(fold))
        queries = [np.asarray(layer[0][inside]) for layer in layers]
        seen = [
            [w.whiten(f) for w, f in zip(whiteners, view, strict=True)] for view in views(queries)
        ]
        blocks = _told_blocks(
            partial(_blocks_outside, layers, subjects, outside, whiteners),
            len(layers[0]) * -(-len(outside) // REFERENCES) * -(-len(inside) // QUERIES),
            partial(tell, of=len(inside)),
        )
        similarity[inside] = search(
            seen, blocks, subject_count, floor=protocol.floor, clamp=protocol.clamp
        ).similarity
        done += len(inside)
        tell()
    return Null(similarity, np.asarray(subjects, np.int64))


def _blocks_outside(
    layers: Sequence[NDArray[np.floating]],
    subjects: NDArray[np.int64],
    outside: NDArray[np.int64],
    whiteners: Sequence[Whitener],
) -> Iterator[Block]:
    """Give the slices outside a fold, whitened, block by block, pose after pose."""
    for pose in range(len(layers[0])):
        for start in range(0, len(outside), REFERENCES):
            part = outside[start : start + REFERENCES]
            rows = [w.whiten(layer[pose][part]) for w, layer in zip(whiteners, layers, strict=True)]
            yield from blocks_of(rows, subjects[part])


def _told_blocks(
    blocks: Callable[[], Iterator[Block]], total: int, tell: Callable[[float], None]
) -> Callable[[], Iterator[Block]]:
    """Tell, after each block that a search has compared, which part of all blocks that makes."""
    compared = 0

    def told() -> Iterator[Block]:
        nonlocal compared
        for block in blocks():
            yield block
            compared += 1
            tell(compared / total)

    return told


class _Fitter:
    """Fits the whitener of one layer without one fold, sharing moments between folds."""

    def __init__(
        self,
        layer: NDArray[np.floating],
        fold_of_slice: NDArray[np.int64],
        folds: int,
        method: str,
        tell: Callable[[], None],
    ) -> None:
        self.layer, self.fold_of_slice, self.method = layer, fold_of_slice, method
        poses, count, width = layer.shape
        self.moments: list[Moments] = []
        # Below this size the Gram matrix of the rows is cheaper than the moments of the features.
        if poses * (count - np.bincount(fold_of_slice).max()) > width:
            for fold in range(folds):
                tell()
                inside = np.flatnonzero(fold_of_slice == fold)
                self.moments.append(
                    reduce(Moments.merge, (Moments.of(layer[p][inside]) for p in range(poses)))
                )
            self.whole = reduce(Moments.merge, self.moments)

    def without(self, fold: int) -> Whitener:
        if self.moments:
            return fit_whitener_to_moments(self.whole.without(self.moments[fold]), self.method)
        outside = np.flatnonzero(self.fold_of_slice != fold)
        rows = np.concatenate([pose[outside] for pose in self.layer])
        return fit_whitener(rows, self.method)


def half_split_null(
    reference: Reference,
    protocol: Protocol,
    seed: int,
    order: NDArray[np.int64] | None = None,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Null:
    """Score random halves of the slices against each other (paper, section 3.3).

    Kept for the ``paper`` protocol only: neighbors of one subject stand on both sides, so it is
    biased where subjects have several slices (METHOD.md section 2, faults 3 and 4).

    Args:
        reference: Whitened rows.
        protocol: The choice of aggregation.
        seed: Of the halving.
        order: The rows in the order in which they are halved, shape (N,); as they lie if None.
        progress: As for ``cross_fitted_null``.
    """
    rng = np.random.default_rng(seed)
    count = reference.slice_count
    rows = np.arange(count) if order is None else order
    half = count // 2
    found = []

    def tell(part: float, done: int) -> None:
        progress(done + int(part * half), HALVINGS * half)

    for halving in range(HALVINGS):
        drawn = rng.permutation(rows)
        queries, others = np.sort(drawn[:half]), np.sort(drawn[half : 2 * half])
        compared_with = [layer[0][others] for layer in reference.rows]
        blocks = _told_blocks(
            partial(blocks_of, compared_with, reference.subjects[others]),
            -(-half // REFERENCES) * -(-half // QUERIES),
            partial(tell, done=halving * half),
        )
        matches = search(
            [[layer[0][queries] for layer in reference.rows]],
            blocks,
            reference.subject_count,
            floor=protocol.floor,
            clamp=protocol.clamp,
        )
        found.append((matches.similarity, reference.subjects[queries]))
    return Null(np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found]))
