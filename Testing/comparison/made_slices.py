"""Made slices: a textured ellipse in air, another texture for every seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage


def made_slice(seed: int, size: int = 112) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    texture = sum(
        ndimage.gaussian_filter(rng.standard_normal((size, size)), size * scale) * scale
        for scale in (0.01, 0.03, 0.08)
    )
    down, right = (np.indices((size, size)) - (size - 1) / 2) / size
    inside = (down / 0.42) ** 2 + (right / 0.34) ** 2 < 1
    texture = (texture - texture.min()) / np.ptp(texture)
    return np.where(inside, 0.15 + 0.85 * texture, 0.0).astype(np.float32)


def posed(
    pixels: NDArray[np.float32],
    degrees: float = 0.0,
    scale: float = 1.0,
    translation: tuple[float, float] = (0.0, 0.0),
) -> NDArray[np.float32]:
    """Turn counter-clockwise as displayed, enlarge, and move (right, down): each from its words."""
    center = (len(pixels) - 1) / 2
    turned = ndimage.rotate(pixels, degrees, reshape=False, order=1)
    zoomed = ndimage.affine_transform(
        turned, np.eye(2) / scale, center * (1 - 1 / scale) * np.ones(2), order=1
    )
    return ndimage.shift(zoomed, translation[::-1], order=1)
