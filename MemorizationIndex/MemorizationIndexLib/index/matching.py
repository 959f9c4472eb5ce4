"""Raw query features to matches, under whichever protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.index import published
from MemorizationIndexLib.index.protocols import Protocol
from MemorizationIndexLib.index.reference import Reference, Views
from MemorizationIndexLib.index.similarity import NEAREST_SUBJECTS, Layers, Matches

Matcher = Callable[[Layers], Matches]
"""Raw features, one (Q, D) array per layer, to their matches."""


def make_matcher(
    reference: Reference,
    features: Sequence[NDArray[np.float32]],
    protocol: Protocol,
    views: Views,
) -> Matcher:
    """Return the function that finds the matches of queries.

    Args:
        reference: Whitened rows and whiteners.
        features: Raw reference features, one (P, N, D) array per layer; only the released code's
            arithmetic needs them, as it whitens the reference at every call.
        protocol: The choices of aggregation.
        views: The poses in which a query is seen.
    """
    if protocol.whitening != "clip":
        return lambda queries: reference.match(queries, protocol, views)
    stored = [np.asarray(layer[0]) for layer in features]
    with np.errstate(all="ignore"):
        calibration = published.calibrate(stored)

    def match(queries: Layers) -> Matches:
        with np.errstate(all="ignore"):
            scores = published.score(queries, stored, calibration)
        return _as_matches(scores, reference.subjects)

    return match


def _as_matches(scores: published.PublishedScores, subject_of: NDArray[np.int64]) -> Matches:
    count = len(scores.similarity)
    layer_subjects = subject_of[scores.layer_rows]
    subjects = np.full((count, NEAREST_SUBJECTS), -1, np.int64)
    subjects[:, 0] = layer_subjects[:, 0]
    similarity = np.zeros((count, NEAREST_SUBJECTS))
    # The released code knows no subjects: its margin is to the second-nearest slice, per layer.
    similarity[:, 0] = scores.layer_margin.mean(axis=1)
    return Matches(
        similarity=scores.similarity,
        layer_similarity=scores.layer_similarity,
        layer_rows=scores.layer_rows,
        layer_subjects=layer_subjects,
        rows=scores.layer_rows[:, 0],
        subjects=subjects,
        subject_similarity=similarity,
        poses=np.zeros(count, np.int64),
    )
