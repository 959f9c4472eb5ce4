"""Which reference slices may hold a part of a query: features of windows, whitened and compared.

The built-in encoder's cells know where they lie, so that a window of a slice is a block of cells.
A part that was copied in place is found by comparing equal windows; flips of the query are other
views of its features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.comparison.part_reference import PartWindows
from MemorizationIndexLib.encoders.structure import ORIENTATIONS, SCALES, StructureEncoder
from MemorizationIndexLib.index.poses import FLIPS
from MemorizationIndexLib.index.similarity import Layers
from MemorizationIndexLib.index.whitening import Whitener, fit_whitener

STEPS = 3
"""Windows along a side; each is half the slice's side, so that they overlap by half."""

WINDOWS = tuple((down, right) for down in range(STEPS) for right in range(STEPS))
"""Place of each window, in quarters of the slice's side."""

WIDTH = sum(ORIENTATIONS * (scale.grid // 2) ** 2 for scale in SCALES)
"""Features of a window."""

REFERENCES = 4096
"""Reference slices compared at once, so that memory-mapped rows never lie in memory together."""


def window_features(features: Layers, window: int) -> NDArray[np.float32]:
    """Cut one window out of the features of slices.

    Args:
        features: From the built-in encoder, one (N, D) array per layer.
        window: Number of the window, as in ``WINDOWS``.

    Returns:
        Shape (N, ``WIDTH``).
    """
    down, right = WINDOWS[window]
    cut = []
    for layer, scale in zip(features, SCALES, strict=True):
        side, steps = scale.grid // 2, STEPS - 1
        top, left = down * (scale.grid - side) // steps, right * (scale.grid - side) // steps
        cells = layer.reshape(-1, ORIENTATIONS, scale.grid, scale.grid)
        block = cells[:, :, top : top + side, left : left + side]
        cut.append(block.reshape(len(layer), ORIENTATIONS * side**2))
    return np.concatenate(cut, axis=1)


def flipped_views(features: Layers, encoder: StructureEncoder) -> list[Layers]:
    """Return the features of slices under every flip, in the order of ``poses.FLIPS``."""
    return [
        encoder.flip(tuple(features), horizontal=pose.horizontal, vertical=pose.vertical)
        for pose in FLIPS
    ]


def whiten_windows(features: Layers, rows: NDArray[np.float32] | None = None) -> PartWindows:
    """Whiten the windows of reference slices.

    Args:
        features: From the built-in encoder, one (N, D) array per layer; may be memory-mapped.
        rows: Where to put the whitened rows, shape (W, N, ``WIDTH``); in memory if None.
    """
    if rows is None:
        rows = np.empty((len(WINDOWS), len(features[0]), WIDTH), np.float32)
    whiteners = [
        _whiten(window_features(features, window), rows[window]) for window in range(len(WINDOWS))
    ]
    return PartWindows(rows, tuple(whiteners))


def candidates(reference: PartWindows, views: Sequence[Layers]) -> NDArray[np.int64]:
    """Find the nearest reference slice of every window of queries.

    Args:
        reference: The reference.
        views: Features of Q queries under V flips; see ``flipped_views``.

    Returns:
        Rows of reference slices, shape (V, W, Q).
    """
    found = [
        _nearest(whitener, rows, views, window)
        for window, (whitener, rows) in enumerate(
            zip(reference.whiteners, reference.rows, strict=True)
        )
    ]
    return np.stack(found, axis=1)


def candidates_among(
    features: Layers, chosen: NDArray[np.int64], views: Sequence[Layers]
) -> NDArray[np.int64]:
    """Find the same among some slices, whose windows are whitened for this, one after another.

    Args:
        features: From the built-in encoder, one (N, D) array per layer; may be memory-mapped.
        chosen: Rows of the slices that are the reference.
        views: As for ``candidates``.

    Returns:
        Rows of reference slices in ``features``, shape (V, W, Q).
    """
    found = []
    for window in range(len(WINDOWS)):
        raw = window_features(features, window)[chosen]
        found.append(chosen[_nearest(_whiten(raw, raw), raw, views, window)])
    return np.stack(found, axis=1)


def _whiten(raw: NDArray[np.float32], rows: NDArray[np.float32]) -> Whitener:
    """Fit a whitener to raw features and put the whitened ones into ``rows``."""
    whitener = fit_whitener(raw, "oas")
    for start in range(0, len(raw), REFERENCES):
        part = slice(start, start + REFERENCES)
        rows[part] = whitener.whiten(raw[part])
    return whitener


def _nearest(
    whitener: Whitener, rows: NDArray[np.float32], views: Sequence[Layers], window: int
) -> NDArray[np.int64]:
    """Find the nearest rows of one window, shape (V, Q)."""
    queries = np.concatenate([whitener.whiten(window_features(view, window)) for view in views])
    best = np.full(len(queries), -np.inf, np.float32)
    nearest = np.zeros(len(queries), np.int64)
    for start in range(0, len(rows), REFERENCES):
        cosine = queries @ rows[start : start + REFERENCES].T
        place = cosine.argmax(1)
        value = cosine[np.arange(len(queries)), place]
        better = value > best
        best[better], nearest[better] = value[better], start + place[better]
    return nearest.reshape(len(views), -1)
