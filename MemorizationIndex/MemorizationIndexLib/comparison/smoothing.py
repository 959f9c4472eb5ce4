"""Gaussian smoothing of small pictures by matrix products, many times as fast as ``scipy``'s."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_PRODUCT = 1 << 17
"""Multiplications of one product, at most. A product with the whole matrix would multiply zeros;
and small ones run on one thread, where larger ones would wake all of them for a moment's work."""


def smoothed(
    pixels: NDArray[np.float32], sigma: float, radius: int, *, every: int = 1
) -> NDArray[np.float32]:
    """Smooth pictures; beyond the border they are mirrored, the pixel at the border twice.

    Args:
        pixels: Shape (..., H, W).
        sigma: Standard deviation in pixels.
        radius: Pixels on each side of the center that the window holds, from 1 to H and W.
        every: Return every so manieth pixel of each row and column, from the first.

    Returns:
        float32, shape (..., ceil(H / every), ceil(W / every)).
    """
    across = _down(np.swapaxes(pixels, -1, -2), sigma, radius, every)
    return _down(np.swapaxes(across, -1, -2), sigma, radius, every)


def _down(
    pixels: NDArray[np.float32], sigma: float, radius: int, every: int
) -> NDArray[np.float32]:
    *others, height, width = pixels.shape
    places = -(-height // every)
    block = 16
    while block > 1 and block * (block * every + 2 * radius) * width > _PRODUCT:
        block //= 2
    hop = block * every
    blocks = -(-places // block)
    # By hand: numpy's pad takes longer than the products.
    padded = np.zeros((*others, blocks * hop + 2 * radius, width), np.float32)
    padded[..., radius : radius + height, :] = pixels
    padded[..., :radius, :] = pixels[..., radius - 1 :: -1, :]
    padded[..., radius + height : height + 2 * radius, :] = pixels[..., : -radius - 1 : -1, :]
    band = _band(sigma, radius, every, block)
    # Overlapping windows of rows, a view; numpy's own ways to it take longer than the products.
    windows = np.ndarray(
        (*others, blocks, band.shape[1], width),
        np.float32,
        padded,
        strides=(*padded.strides[:-2], hop * padded.strides[-2], *padded.strides[-2:]),
    )
    smooth = band @ windows
    return smooth.reshape(*others, blocks * block, width)[..., :places, :]


@lru_cache(maxsize=16)
def _band(sigma: float, radius: int, every: int, block: int) -> NDArray[np.float32]:
    """Weights of one block: a row for each place, the window moving along it."""
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    weights /= weights.sum()
    band = np.zeros((block, (block - 1) * every + 2 * radius + 1), np.float32)
    for place in range(block):
        band[place, place * every : place * every + 2 * radius + 1] = weights
    return band
