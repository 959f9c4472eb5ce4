"""How well two aligned pictures agree: SSIM and NCC where both show something.

Air and padding are equal in any two slices and would lift both measures, so they count only where
at least one picture has content.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.comparison.smoothing import smoothed

SSIM_RADIUS = 5
"""Pixels on each side of the center: the 11 × 11 window of Wang et al. 2004."""

_SIGMA = 1.5
_C1 = 0.01**2
_C2 = 0.03**2
CONTENT = 0.05
"""Share of the range above which a pixel shows tissue rather than air."""

FLAT = 1e-6
"""Standard deviation below which a picture is constant and tells nothing."""


@dataclass(frozen=True)
class Agreement:
    """How well two pictures agree over their content.

    Attributes:
        ssim: Mean SSIM, in [−1, 1]; see :func:`mean_ssim`.
        ncc: Normalised cross-correlation, in [−1, 1]; see :func:`ncc`.
    """

    ssim: float
    ncc: float


def measure(
    query: NDArray[np.float32], registered: NDArray[np.float32], overlap: NDArray[np.bool_]
) -> Agreement:
    """Return SSIM and NCC where a query or the picture laid over it has content.

    Args:
        query: Shape (H, W), values in [0, 1].
        registered: The same shape.
        overlap: Where both pictures are known.
    """
    moments = _moments(query, registered)
    where = overlap & ((moments[0] > CONTENT) | (moments[1] > CONTENT))
    return Agreement(
        _mean_where(_ssim(moments), _eroded(overlap) & where), ncc(query, registered, where)
    )


def ssim_map(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the structural similarity around each pixel (Wang et al. 2004, equation 13).

    Gaussian window of 11 × 11 pixels with sigma 1.5, K1 = 0.01, K2 = 0.03, population covariance.
    The outer ``SSIM_RADIUS`` pixels see mirrored data; the paper leaves them out.

    Args:
        one: Shape (H, W), values in [0, 1].
        other: The same shape, values in [0, 1].

    Returns:
        Shape (H, W), values in [−1, 1].
    """
    return _ssim(_moments(one, other))


def _moments(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return local means of both pictures, their squares and their product, (5, H, W)."""
    stack = np.empty((5, *one.shape), np.float32)
    stack[0], stack[1] = one, other
    np.multiply(one, one, out=stack[2])
    np.multiply(other, other, out=stack[3])
    np.multiply(one, other, out=stack[4])
    return smoothed(stack, _SIGMA, SSIM_RADIUS)


def _ssim(moments: NDArray[np.float32]) -> NDArray[np.float32]:
    x, y, xx, yy, xy = moments
    product, squares = x * y, x * x + y * y
    spread = np.maximum(xx + yy - squares, np.float32(0.0))
    covariance = xy - product
    return ((2 * product + _C1) * (2 * covariance + _C2)) / ((squares + _C1) * (spread + _C2))


def content(pixels: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return where a slice shows tissue: its local mean is above 5 % of the range.

    The local mean, because the noise of air passes 5 % in single pixels.
    """
    return smoothed(np.asarray(pixels, np.float32), _SIGMA, SSIM_RADIUS) > CONTENT


def mean_ssim(
    one: NDArray[np.float32],
    other: NDArray[np.float32],
    overlap: NDArray[np.bool_],
    where: NDArray[np.bool_],
) -> float:
    """Return the mean SSIM over content whose whole window lies in the overlap; 0 if there is none.

    Args:
        one: Shape (H, W), values in [0, 1].
        other: The same shape.
        overlap: Where both pictures are known.
        where: Where at least one has content.
    """
    return _mean_where(ssim_map(one, other), _eroded(overlap) & where)


def _mean_where(values: NDArray[np.float32], counted: NDArray[np.bool_]) -> float:
    number = np.count_nonzero(counted)
    return float((values * counted).sum(dtype=np.float64) / number) if number else 0.0


def ncc(one: NDArray[np.float32], other: NDArray[np.float32], where: NDArray[np.bool_]) -> float:
    """Return the normalised cross-correlation (Pearson's r) over some pixels.

    0 where it is undefined: no pixels, or one picture is constant there and so tells nothing.
    """
    x, y = one[where].astype(np.float64), other[where].astype(np.float64)
    if not x.size:
        return 0.0
    x -= x.mean()
    y -= y.mean()
    # No matrix products: BLAS would wake all its threads for these few numbers, many times over.
    spread_x, spread_y = np.sqrt((x * x).sum()), np.sqrt((y * y).sum())
    if min(spread_x, spread_y) <= FLAT * np.sqrt(x.size):
        return 0.0
    return float(np.clip((x * y).sum() / (spread_x * spread_y), -1.0, 1.0))


def _eroded(overlap: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Leave only pixels whose window holds nothing but overlap; beyond the border there is none."""
    for _ in range(2):
        left = np.zeros_like(overlap)
        left[SSIM_RADIUS:-SSIM_RADIUS] = True
        for offset in range(2 * SSIM_RADIUS + 1):
            left[SSIM_RADIUS:-SSIM_RADIUS] &= overlap[
                offset : len(overlap) - 2 * SSIM_RADIUS + offset
            ]
        overlap = np.ascontiguousarray(left.T)
    return overlap
