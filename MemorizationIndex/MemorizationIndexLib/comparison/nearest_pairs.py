"""Pairs of different patients that look most alike: what a match must stand out from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.index.control import balanced_sample
from MemorizationIndexLib.index.poses import FLIPS, Pose, seen_pose
from MemorizationIndexLib.index.reference import Reference, Views

LEAST_PAIRS, MOST_PAIRS = 20, 99
"""One pair per subject between these: slices of one subject are not independent, so more would not
certify a smaller level."""


@dataclass(frozen=True)
class NearestPair:
    """A reference slice and the nearest one of another subject.

    Attributes:
        slice: Number of the slice, taken as a query.
        nearest: Number of its nearest slice of another subject.
        pose: How the first stands to the second.
    """

    slice: int
    nearest: int
    pose: Pose


def nearest_pairs(
    reference: Reference,
    features: Sequence[NDArray[np.float32]],
    seed: int,
    poses: Sequence[Pose],
    views: Views,
) -> list[NearestPair]:
    """Draw reference slices and find the nearest slice of another subject, as the audit searches.

    Args:
        reference: The reference.
        features: Its raw features, one (P, N, D) array per layer.
        seed: Draws the slices, balanced over subjects.
        poses: Of the cohort's stored rows.
        views: The poses in which a query is seen.

    Returns:
        As many pairs as there are subjects, 20 to 99; fewer where there are fewer slices.
    """
    size = int(np.clip(reference.subject_count, LEAST_PAIRS, MOST_PAIRS))
    rng = np.random.default_rng([seed, 4])
    chosen = balanced_sample(reference.subjects, size, rng)
    own = reference.subjects[chosen]
    queries = [np.asarray(layer[0][chosen]) for layer in features]
    seen = [reference.whiten(view) for view in views(queries)]
    best = np.full(len(chosen), -1.0)
    rows: NDArray[np.int64] = np.zeros(len(chosen), np.int64)
    turned: NDArray[np.int64] = np.zeros(len(chosen), np.int64)
    for block in reference.blocks():
        same = own[:, None] == block.subjects[None]
        for number, view in enumerate(seen):
            joint = np.ones(same.shape, np.float32)
            for query, layer in zip(view, block.layers, strict=True):
                joint *= np.maximum(query @ layer.T, 0.0)
            joint[same] = -1.0
            at = joint.argmax(axis=1)
            value = joint[np.arange(len(chosen)), at]
            better = value > best
            best[better], turned[better] = value[better], number
            rows[better] = block.first + at[better]
    return [
        NearestPair(
            int(query),
            int(row % reference.slice_count),
            seen_pose(poses[int(row // reference.slice_count)], FLIPS[view]),
        )
        for query, row, view, found in zip(chosen, rows, turned, best, strict=True)
        if found >= 0
    ]
