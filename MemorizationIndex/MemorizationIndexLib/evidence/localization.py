"""Where in a slice the match is: similarity between query and registered match, place by place.

A copy of a part (a lesion, half a slice) is like its source there and nowhere else; one number for
the whole slice hides that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.evidence.agreement import content
from MemorizationIndexLib.evidence.errors import EvidenceError
from MemorizationIndexLib.evidence.registration import Pixels, Registration, flipped

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
    sigma = WINDOW * len(query)
    step = max(1, round(sigma / 2))
    x = query.astype(np.float64)
    mean_x, variance_x = _moments(x, sigma)
    y = np.where(known, other, 0.0).astype(np.float64)
    mean_y, variance_y = _moments(y, sigma)
    shown = content(other) & known
    best = np.zeros(query.shape)
    for down in range(-REACH * step, REACH * step + 1, step):
        for right in range(-REACH * step, REACH * step + 1, step):
            moved = _moved(y, down, right)
            covariance = _blurred(x * moved, sigma) - mean_x * _moved(mean_y, down, right)
            variance = variance_x * _moved(variance_y, down, right)
            correlation = covariance / np.sqrt(variance + _NOISE**4)
            np.maximum(best, np.where(_moved(shown, down, right), correlation, 0.0), out=best)
    return np.where(content(query), np.clip(best, 0.0, 1.0), 0.0).astype(np.float32)


def _moments(
    pixels: NDArray[np.float64], sigma: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mean = _blurred(pixels, sigma)
    return mean, np.maximum(_blurred(pixels * pixels, sigma) - mean**2, 0.0)


def _blurred(pixels: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
    from scipy import ndimage

    return ndimage.gaussian_filter(pixels, sigma, mode="nearest", truncate=3.0)


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
