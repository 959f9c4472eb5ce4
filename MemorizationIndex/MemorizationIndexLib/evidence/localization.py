"""Where in a slice the match is: similarity between query and registered match, place by place.

A copy of a part (a lesion, half a slice) is like its source there and nowhere else; one number for
the whole slice hides that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.comparison.agreement import content
from MemorizationIndexLib.comparison.registration import Pixels, Registration, flipped
from MemorizationIndexLib.comparison.smoothing import smoothed
from MemorizationIndexLib.evidence.errors import EvidenceError

WINDOW = 0.03
"""Standard deviation of the window, as a share of the slice's side."""

REACH = 2
"""Steps, of half a window's standard deviation, by which a place may lie off: what one
registration of the whole slice leaves over where only a part was copied."""

_NOISE = 0.02
"""Standard deviation, as a share of the range, below which a window shows nothing to compare."""


def similarity_map(query: Pixels, reference: Pixels, registration: Registration) -> Pixels:
    """Return how alike query and match are around each pixel.

    The normalised cross-correlation under a Gaussian window, negative values as 0, the best over
    small displacements. The match is tried as registered and as it lies in the registered flip: a
    copied part need not follow the whole slice, and often was pasted in place. 0 where nothing can
    be compared: outside the overlap, in air, and where both are even.

    Args:
        query: float32, shape (S, S), values in [0, 1].
        reference: The match as read, the same shape.
        registration: The match laid over the query.

    Returns:
        float32, shape (S, S), values in [0, 1]; 1 is the same but for brightness and contrast.

    Raises:
        EvidenceError: The shapes differ.
    """
    if not query.shape == reference.shape == registration.pixels.shape:
        raise EvidenceError(
            f"The query has shape {query.shape}, the match {reference.shape} and the registered "
            f"match {registration.pixels.shape}; give all three at one size."
        )
    known = np.ones(query.shape, bool)
    in_place = np.ascontiguousarray(flipped(reference, registration.flip))
    return np.maximum(
        _local_correlation(query, registration.pixels, registration.overlap),
        _local_correlation(query, in_place, known),
    )


def _local_correlation(query: Pixels, other: Pixels, known: NDArray[np.bool_]) -> Pixels:
    """Correlate around every so manieth pixel, a step apart, and fill in between.

    Windows are much wider than a step. Places lie as far apart as displacements, so that the
    moments of a displaced picture are those of another place.
    """
    size = len(query)
    sigma = WINDOW * size
    step, radius = max(1, round(sigma / 2)), max(1, round(3 * sigma))
    y = np.where(known, other, np.float32(0.0))
    mean_x, mean_y, square_x, square_y = smoothed(
        np.stack([query, y, query * query, y * y]), sigma, radius, every=step
    )
    variance_x = np.maximum(square_x - mean_x**2, 0.0)
    variance_y = np.maximum(square_y - mean_y**2, 0.0)
    showing = (content(other) & known).astype(np.float32)
    shown = smoothed(showing, float(step), step, every=step) > 0.5
    best = np.zeros_like(mean_x)
    for down in range(-REACH, REACH + 1):
        for right in range(-REACH, REACH + 1):
            product = query * _moved(y, down * step, right * step)
            covariance = smoothed(product, sigma, radius, every=step)
            covariance -= mean_x * _moved(mean_y, down, right)
            variance = variance_x * _moved(variance_y, down, right)
            correlation = covariance / np.sqrt(variance + np.float32(_NOISE**4))
            correlation *= _moved(shown, down, right)
            np.maximum(best, correlation, out=best)
    filled = _filled(_filled(best, size, step).T, size, step).T
    return np.where(content(query), np.clip(filled, 0.0, 1.0), np.float32(0.0))


def _filled(rows: Pixels, size: int, step: int) -> Pixels:
    """Return ``size`` rows, linear between given ones that lie a step apart."""
    place = np.minimum(np.arange(size) / step, len(rows) - 1)
    above = place.astype(int)
    share = (place - above).astype(np.float32)[:, None]
    below = np.minimum(above + 1, len(rows) - 1)
    return rows[above] * (1 - share) + rows[below] * share


def _moved(pixels: NDArray, down: int, right: int) -> NDArray:
    """Move a picture; what comes into view is 0."""
    moved = np.zeros_like(pixels)
    height, width = pixels.shape
    to = (slice(max(down, 0), height + min(down, 0)), slice(max(right, 0), width + min(right, 0)))
    source = (
        slice(max(-down, 0), height + min(-down, 0)),
        slice(max(-right, 0), width + min(-right, 0)),
    )
    moved[to] = pixels[source]
    return moved
