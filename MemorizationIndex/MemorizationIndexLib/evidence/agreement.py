"""How well two aligned pictures agree: SSIM and NCC where both show something.

Air and padding are equal in any two slices and would lift both measures, so they count only where
at least one picture has content.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SSIM_RADIUS = 5
"""Pixels on each side of the center: the 11 × 11 window of Wang et al. 2004."""

_SIGMA = 1.5
_C1 = 0.01**2
_C2 = 0.03**2
CONTENT = 0.05
"""Share of the range above which a pixel shows tissue rather than air."""

_FLAT = 1e-6


def ssim_map(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the structural similarity around each pixel (Wang et al. 2004, equation 13).

    Gaussian window of 11 × 11 pixels with sigma 1.5, K1 = 0.01, K2 = 0.03, population covariance.
    The outer ``SSIM_RADIUS`` pixels see mirrored data; the paper leaves them out.

    Args:
        one: Shape (H, W), values in [0, 1].
        other: The same shape, values in [0, 1].

    Returns:
        Shape (H, W), values in [−1, 1].
    """
    x, y = one.astype(np.float64), other.astype(np.float64)
    mean_x, mean_y = _local_mean(x), _local_mean(y)
    var_x = np.maximum(_local_mean(x * x) - mean_x**2, 0.0)
    var_y = np.maximum(_local_mean(y * y) - mean_y**2, 0.0)
    covariance = _local_mean(x * y) - mean_x * mean_y
    return ((2 * mean_x * mean_y + _C1) * (2 * covariance + _C2)) / (
        (mean_x**2 + mean_y**2 + _C1) * (var_x + var_y + _C2)
    )


def content(pixels: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return where a slice shows tissue: its local mean is above 5 % of the range.

    The local mean, because the noise of air passes 5 % in single pixels.
    """
    return _local_mean(pixels.astype(np.float64)) > CONTENT


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
    counted = _eroded(overlap) & where
    if not counted.any():
        return 0.0
    return float(ssim_map(one, other)[counted].mean())


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
    if min(spread_x, spread_y) <= _FLAT * np.sqrt(x.size):
        return 0.0
    return float(np.clip((x * y).sum() / (spread_x * spread_y), -1.0, 1.0))


def _local_mean(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy import ndimage

    return ndimage.gaussian_filter(pixels, _SIGMA, radius=SSIM_RADIUS, mode="reflect")


def _eroded(overlap: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Leave only pixels whose window holds nothing but overlap; beyond the border there is none."""
    from scipy import ndimage

    side = 2 * SSIM_RADIUS + 1
    return ndimage.minimum_filter(overlap, size=side, mode="constant", cval=False)
