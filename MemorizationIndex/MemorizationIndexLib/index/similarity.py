"""Exact nearest-reference search, blocked so that no queries × references matrix ever exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

QUERIES = 512
"""Queries compared at once."""

REFERENCES = 4096
"""Largest number of reference rows in a block."""

NEAREST_SUBJECTS = 6
"""Subjects kept per query: the nearest and the next five."""

Layers = Sequence[NDArray[np.float32]]
"""One array of whitened unit rows per layer."""


@dataclass(frozen=True)
class Block:
    """Some reference rows, ready to be compared.

    Attributes:
        layers: Whitened unit rows, one (B, D) array per layer.
        subjects: Subject code of each row, non-decreasing, shape (B,).
        first: Number of the first row in the whole reference.
    """

    layers: tuple[NDArray[np.float32], ...]
    subjects: NDArray[np.int64]
    first: int


@dataclass(frozen=True)
class Matches:
    """What a search found for Q queries in L layers.

    Attributes:
        similarity: Geometric mean over layers of the largest cosine per layer, float64, (Q,).
        layer_similarity: Largest cosine per layer, float64, (Q, L).
        layer_rows: Reference row of it, int64, (Q, L).
        layer_subjects: Subject code of that row, int64, (Q, L).
        rows: Reference row nearest over all layers together, int64, (Q,).
        subjects: Codes of the nearest subjects, nearest first, −1 where there are fewer, int64,
            (Q, NEAREST_SUBJECTS).
        subject_similarity: Similarity of the nearest row of each of them, 0 where there are fewer,
            float64, (Q, NEAREST_SUBJECTS).
        poses: Which of the query's poses matched best, int64, (Q,).
    """

    similarity: NDArray[np.float64]
    layer_similarity: NDArray[np.float64]
    layer_rows: NDArray[np.int64]
    layer_subjects: NDArray[np.int64]
    rows: NDArray[np.int64]
    subjects: NDArray[np.int64]
    subject_similarity: NDArray[np.float64]
    poses: NDArray[np.int64]

    @property
    def margin(self) -> NDArray[np.float64]:
        """Similarity to the nearest subject minus that to the second-nearest, (Q,)."""
        return self.subject_similarity[:, 0] - self.subject_similarity[:, 1]

    @property
    def consensus(self) -> NDArray[np.int64]:
        """How many layers name the subject of the nearest row as theirs, (Q,)."""
        return np.sum(self.layer_subjects == self.subjects[:, :1], axis=1)


def geometric_mean(
    layer_similarity: NDArray[np.floating], floor: float, *, clamp: bool
) -> NDArray[np.float64]:
    """Aggregate cosines over layers, exp(mean(log(s + floor))) (paper, section 3).

    Args:
        layer_similarity: Shape (..., L).
        floor: Added before the logarithm.
        clamp: Whether negative cosines become 0 first, and what the floor and rounding lift above
            1 becomes 1; otherwise negative ones give NaN.
    """
    cosines = np.asarray(layer_similarity, dtype=np.float64)
    if clamp:
        cosines = np.clip(cosines, 0.0, None)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.exp(np.mean(np.log(cosines + floor), axis=-1))
    return np.minimum(mean, 1.0) if clamp else mean


def blocks_of(layers: Layers, subjects: NDArray[np.integer], first: int = 0) -> Iterator[Block]:
    """Cut whitened rows (N, D) per layer into blocks; the rows may be memory-mapped."""
    for start in range(0, len(subjects), REFERENCES):
        part = slice(start, start + REFERENCES)
        yield Block(
            tuple(np.asarray(layer[part]) for layer in layers),
            np.asarray(subjects[part], dtype=np.int64),
            first + start,
        )


def search(
    poses: Sequence[Layers],
    blocks: Callable[[], Iterator[Block]],
    subject_count: int,
    *,
    floor: float,
    clamp: bool = True,
) -> Matches:
    """Find the nearest reference rows of every query.

    Args:
        poses: The queries under each pose they are seen in; per pose one (Q, D) array of
            whitened unit rows per layer. The pose with the highest similarity is kept.
        blocks: Gives the reference anew, block by block, each time it is called.
        subject_count: Number of subjects; codes run from 0.
        floor: See ``geometric_mean``.
        clamp: See ``geometric_mean``.

    Returns:
        The matches. Peak memory beside queries and results is that of one block of queries times
        one block of references, and of one block of queries times the number of subjects.
    """
    count = len(poses[0][0])
    parts = []
    for start in range(0, count, QUERIES):
        part = slice(start, start + QUERIES)
        seen = [[layer[part] for layer in pose] for pose in poses]
        parts.append(_search_queries(seen, blocks, subject_count, floor, clamp))
    if not parts:
        seen = [[layer[:0] for layer in pose] for pose in poses]
        parts.append(_search_queries(seen, blocks, subject_count, floor, clamp))
    return Matches(
        *(np.concatenate([getattr(p, name) for p in parts]) for name in Matches.__annotations__)
    )


@dataclass
class _Running:
    """The best seen so far of one block of queries in one pose."""

    cosine: NDArray[np.float32]  # (Q, L)
    cosine_row: NDArray[np.int64]
    cosine_subject: NDArray[np.int64]
    joint: NDArray[np.float32]  # (Q,)
    joint_row: NDArray[np.int64]
    by_subject: NDArray[np.float32]  # (Q, S)


def _search_queries(
    poses: Sequence[Layers],
    blocks: Callable[[], Iterator[Block]],
    subject_count: int,
    floor: float,
    clamp: bool,
) -> Matches:
    count, layer_count = len(poses[0][0]), len(poses[0])
    running = [
        _Running(
            np.full((count, layer_count), -np.inf, np.float32),
            np.full((count, layer_count), -1, np.int64),
            np.full((count, layer_count), -1, np.int64),
            np.full(count, -np.inf, np.float32),
            np.full(count, -1, np.int64),
            np.zeros((count, subject_count), np.float32),
        )
        for _ in poses
    ]
    if count:
        scratch = np.empty((2, count * REFERENCES), np.float32)
        for block in blocks():
            for pose, state in zip(poses, running, strict=True):
                _compare(pose, block, state, scratch)
    similarity = np.stack([geometric_mean(s.cosine, floor, clamp=clamp) for s in running])
    best = np.argmax(np.nan_to_num(similarity, nan=-1.0), axis=0)
    at = (best, np.arange(count))

    def chosen(name: str) -> NDArray:
        return np.stack([getattr(s, name) for s in running])[at]

    by_subject = chosen("by_subject")
    kept = min(NEAREST_SUBJECTS, subject_count)
    order = np.argsort(-by_subject, axis=1, kind="stable")[:, :kept]
    subjects = np.full((count, NEAREST_SUBJECTS), -1, np.int64)
    subjects[:, :kept] = order
    products = np.zeros((count, NEAREST_SUBJECTS))
    products[:, :kept] = np.take_along_axis(by_subject, order, axis=1)
    return Matches(
        similarity=similarity[at],
        layer_similarity=chosen("cosine").astype(np.float64),
        layer_rows=chosen("cosine_row"),
        layer_subjects=chosen("cosine_subject"),
        rows=chosen("joint_row"),
        subjects=subjects,
        subject_similarity=products ** (1.0 / layer_count),
        poses=best.astype(np.int64),
    )


def _compare(queries: Layers, block: Block, state: _Running, scratch: NDArray[np.float32]) -> None:
    everyone = np.arange(len(state.joint))
    size = len(everyone) * len(block.subjects)
    shape = (len(everyone), len(block.subjects))
    # Fresh arrays of this size would cost a page fault every 4 KiB, more than their use.
    joint, cosine = (part[:size].reshape(shape) for part in scratch)
    for index, (query, reference) in enumerate(zip(queries, block.layers, strict=True)):
        found = cosine if index else joint
        np.matmul(query, reference.T, out=found)
        nearest = found.argmax(axis=1)
        value = found[everyone, nearest]
        better = value > state.cosine[:, index]
        state.cosine[better, index] = value[better]
        state.cosine_row[better, index] = block.first + nearest[better]
        state.cosine_subject[better, index] = block.subjects[nearest[better]]
        # The product of clamped cosines orders rows as their geometric mean does, without a
        # logarithm per pair.
        np.maximum(found, 0.0, out=found)
        if index:
            np.multiply(joint, cosine, out=joint)
    nearest = joint.argmax(axis=1)
    value = joint[everyone, nearest]
    better = value > state.joint
    state.joint[better] = value[better]
    state.joint_row[better] = block.first + nearest[better]
    starts = np.flatnonzero(np.diff(block.subjects, prepend=-1))
    codes = block.subjects[starts]
    nearest_of_each = np.maximum.reduceat(joint, starts, axis=1)
    state.by_subject[:, codes] = np.maximum(state.by_subject[:, codes], nearest_of_each)
