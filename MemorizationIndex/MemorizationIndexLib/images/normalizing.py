"""From the gray values of one slice to the square an encoder takes, or to why it cannot be one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from MemorizationIndexLib.images.volume import ImageError

MAX_PIXELS = 100_000_000
"""Larger slices are refused: no MR slice comes near, a damaged header or a bomb does."""

MIN_SIDE = 16
"""Pixels; a shorter side holds no anatomy to compare."""

MAX_ASPECT = 10.0
"""Ratio of the sides in millimetres above which a slice would be a line in the square."""

MIN_GREY_LEVELS = 8
"""Integer slices that span fewer levels are rounding noise, not an image (bool excepted)."""

MIN_SHARE_OF_RANGE = 0.01
"""Of the slice's full range, the least that its central 99 % of pixels must span."""

MIN_SHARE_OF_VOLUME = 0.10
"""Of the volume's range, the least that a slice must span: air carries noise of a few percent."""

_TAIL = 0.005
_SAMPLE = 1_000_000


def check_dtype(dtype: np.dtype, where: str) -> None:
    """Refuse what is not one real number per voxel.

    Raises:
        ImageError: Complex, structured, text or object arrays.
    """
    if dtype.kind == "c":
        raise ImageError(
            f"{where} holds complex numbers; save the magnitude (absolute value) instead."
        )
    if dtype.kind not in "biuf":
        raise ImageError(f"{where} holds {dtype} values, not numbers; save it as a plain array.")


def check_pixel_count(height: int, width: int, where: str) -> None:
    """Refuse a slice that is too large to be an MR slice, before it is decoded.

    Raises:
        ImageError: More than ``MAX_PIXELS`` pixels.
    """
    if int(height) * int(width) > MAX_PIXELS:
        raise ImageError(
            f"{where} has slices of {width} × {height} pixels, more than the "
            f"{MAX_PIXELS // 1_000_000} megapixels allowed; crop or downsample it."
        )


def robust_range(pixels: NDArray[np.generic]) -> tuple[float, float]:
    """Return the range that holds the central 99 % of the finite values; (0, 0) if there is none.

    Order statistics without interpolation: no overflow at the ends of float64, and the same for
    any order of the pixels.
    """
    values = np.asarray(pixels).ravel()
    if values.dtype.kind == "f":
        values = values[np.isfinite(values)]
    if not values.size:
        return 0.0, 0.0
    low, high = int(_TAIL * values.size), int((1 - _TAIL) * (values.size - 1) + 0.5)
    ordered = np.partition(values, (low, high))
    return float(ordered[low]), float(ordered[high])


def intensity_range(stack: NDArray[np.generic]) -> tuple[float, float]:
    """Return the robust range of a whole stack of slices, from an even sample of its voxels.

    Args:
        stack: Shape (N, H, W) in canonical order, so that the sample does not depend on how the
            volume is stored.
    """
    steps = [1, 1, 1]
    while np.prod([-(-n // s) for n, s in zip(stack.shape, steps, strict=True)]) > _SAMPLE:
        widest = int(np.argmax([n / s for n, s in zip(stack.shape, steps, strict=True)]))
        steps[widest] += 1
    a, b, c = steps
    return robust_range(stack[::a, ::b, ::c])


def normalize(pixels: NDArray[np.generic]) -> NDArray[np.float32]:
    """Min–max normalise to [0, 1] on the finite values; the others become 0.

    Exact for 64-bit integers and free of overflow for floats up to 1e308.

    Args:
        pixels: Any real dtype, at least two different finite values.

    Returns:
        float32, the same shape.
    """
    if pixels.dtype.kind in "ui" and pixels.dtype.itemsize == 8:
        # float64 cannot tell large neighbours apart; differences modulo 2^64 are exact.
        whole = pixels.astype(np.int64 if pixels.dtype.kind == "i" else np.uint64)
        shifted = (whole.view(np.uint64) - whole.min().view(np.uint64)).astype(np.float64)
        return (shifted / shifted.max()).astype(np.float32)
    values = pixels.astype(np.float64)
    if pixels.dtype.kind == "f" and not (finite := np.isfinite(values)).all():
        # The least finite value becomes 0, and so do these.
        values[~finite] = values[finite].min()
    low, high = values.min(), values.max()
    if high * 0.5 - low * 0.5 > np.finfo(np.float64).max / 4:
        values, low, high = values * 0.25, low * 0.25, high * 0.25
    values -= low
    values /= high - low
    return values.astype(np.float32)


def why_not_scorable(
    pixels: NDArray[np.generic],
    spacing: tuple[float, float],
    volume_range: tuple[float, float] | None = None,
) -> str:
    """Return why a slice cannot be scored, or an empty string.

    Args:
        pixels: Shape (H, W), any real dtype.
        spacing: Millimetres between rows and between columns.
        volume_range: Robust range of the volume the slice is from, if it is from one.
    """
    height, width = pixels.shape
    if min(height, width) < MIN_SIDE:
        return f"too small: {width} × {height} pixels, at least {MIN_SIDE} are needed in each side"
    sides = sorted((height * spacing[0], width * spacing[1]))
    if sides[1] > MAX_ASPECT * sides[0]:
        return f"too elongated: one side is {sides[1] / sides[0]:.0f} times the other"
    values = pixels[np.isfinite(pixels)] if pixels.dtype.kind == "f" else pixels
    if not values.size:
        return "no finite value"
    least, most = values.min(), values.max()
    if least == most:
        return "constant: every finite pixel has the same value"
    if pixels.dtype.kind in "iu" and int(most) - int(least) + 1 < MIN_GREY_LEVELS:
        return f"nearly constant: spans only {int(most) - int(least) + 1} gray levels"
    # Quarters, because the difference of two float64 can overflow.
    full = float(most) / 4 - float(least) / 4
    if full <= 1e-6 * max(abs(float(most)), abs(float(least))) / 4 and pixels.dtype.kind == "f":
        return "nearly constant: its values differ by less than a millionth"
    low, high = robust_range(values)
    span = high / 4 - low / 4
    if span < MIN_SHARE_OF_RANGE * full:
        return "nearly constant: a few pixels apart, it has no contrast"
    if volume_range is not None:
        volume_span = volume_range[1] / 4 - volume_range[0] / 4
        if span < MIN_SHARE_OF_VOLUME * volume_span:
            return (
                f"blank: its contrast is {100 * span / volume_span:.1f} % of its volume's "
                f"(at least {100 * MIN_SHARE_OF_VOLUME:.0f} % is needed)"
            )
    return ""


def fit_to_square(
    pixels: NDArray[np.float32], spacing: tuple[float, float], size: int
) -> NDArray[np.float32]:
    """Resize to a square of ``size`` pixels, physical aspect kept, padded with 0 on both sides.

    The resized image has the parity of ``size`` in both sides, so that it lies exactly in the
    middle; this moves the aspect by at most one pixel.

    Args:
        pixels: float32, shape (H, W), values in [0, 1].
        spacing: Millimetres between rows and between columns.
        size: Side S of the square in pixels.

    Returns:
        float32, shape (S, S), values in [0, 1].
    """
    extents = (pixels.shape[0] * spacing[0], pixels.shape[1] * spacing[1])
    margins = [round(size * (1 - extent / max(extents)) / 2) for extent in extents]
    top, left = (min(margin, (size - 1) // 2) for margin in margins)
    height, width = size - 2 * top, size - 2 * left
    resized = Image.fromarray(np.ascontiguousarray(pixels)).resize(
        (width, height), Image.Resampling.BILINEAR
    )
    square = np.zeros((size, size), np.float32)
    square[top : top + height, left : left + width] = np.asarray(resized).clip(0.0, 1.0)
    return square
