"""Disguises of a copy: what a generator may do to a training slice and still have copied it.

METHOD.md section 5: the eight conditions of the paper (Deo et al. 2026, arXiv 2602.13066), then
eight more. Every one maps a normalised slice to a normalised slice, as a query would arrive.
Lengths in pixels are meant at the encoder's 224 px and grow with the slice.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.float32]
Change = Callable[[Pixels, np.random.Generator], Pixels]

_REFERENCE_SIZE = 224
_SHIFT = 4.0
_ELASTIC_DISPLACEMENT = 3.0
_ELASTIC_NODES = 6
_BIAS_NODES = 3
_BIAS_AMPLITUDE = (0.2, 0.3)
_CROP_SIDE = 0.9
_JPEG_QUALITY = 50


class TransformationError(ValueError):
    """No such transformation, or a slice that cannot be transformed."""


@dataclass(frozen=True)
class Transformation:
    """One disguise.

    Attributes:
        name: The name in tables and results.
        description: The disguise in words, with its strength.
        apply: Slice, shape (H, W), float32 in [0, 1], and a random generator → slice of the same
            shape, min–max normalised to [0, 1] (all zero if the slice is blank). The input is not
            changed. Raises TransformationError if the slice is not a finite, two-dimensional
            image.
    """

    name: str
    description: str
    apply: Change


def get_transformation(name: str) -> Transformation:
    """Return the transformation of that name.

    Raises:
        TransformationError: There is none.
    """
    for transformation in TRANSFORMATIONS:
        if transformation.name == name:
            return transformation
    known = ", ".join(transformation.name for transformation in TRANSFORMATIONS)
    raise TransformationError(f"There is no transformation {name!r}; choose one of: {known}.")


def _disguise(change: Change, pixels: Pixels, rng: np.random.Generator) -> Pixels:
    pixels = np.asarray(pixels, dtype=np.float32)
    if pixels.ndim != 2 or pixels.size == 0:
        raise TransformationError(
            f"A slice to transform has shape {pixels.shape}; give one image of shape (H, W)."
        )
    if not np.isfinite(pixels).all():
        raise TransformationError(
            "A slice to transform holds values that are not finite; normalise it first."
        )
    changed = change(pixels, rng)
    low, high = changed.min(), changed.max()
    if high <= low:
        return np.zeros_like(pixels)
    # No in-place arithmetic: `changed` may be the caller's own array.
    return np.ascontiguousarray((changed - low) / (high - low), dtype=np.float32)


def _scale(pixels: Pixels) -> float:
    return max(pixels.shape) / _REFERENCE_SIZE


def _resized(pixels: Pixels, height: int, width: int, filter_: Image.Resampling) -> Pixels:
    resized = Image.fromarray(pixels).resize((width, height), filter_)
    return np.asarray(resized, dtype=np.float32)


def _smooth_field(
    shape: tuple[int, ...], nodes: int, largest: float, rng: np.random.Generator
) -> Pixels:
    """Random field of that shape whose largest absolute value is ``largest``."""
    coarse = rng.uniform(-1.0, 1.0, (nodes, nodes)).astype(np.float32)
    field = _resized(coarse, shape[0], shape[1], Image.Resampling.BICUBIC)
    return field * np.float32(largest / max(float(np.abs(field).max()), 1e-6))


def _exact(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    return pixels


def _noise(pixels: Pixels, rng: np.random.Generator, sd: float) -> Pixels:
    noise = rng.standard_normal(pixels.shape, dtype=np.float32) * np.float32(sd)
    return np.clip(pixels + noise, 0.0, 1.0)


def _intensity(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    # A factor below 1 is undone by the normalisation; above 1 the bright end is lost to clipping.
    return np.clip(pixels * np.float32(rng.uniform(0.9, 1.1)), 0.0, 1.0)


def _rotation(pixels: Pixels, rng: np.random.Generator, degrees: float) -> Pixels:
    from scipy import ndimage

    angle = rng.uniform(-degrees, degrees)
    return ndimage.rotate(pixels, angle, reshape=False, order=1, mode="constant", cval=0.0)


def _horizontal_flip(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    return pixels[:, ::-1]


def _vertical_flip(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    return pixels[::-1, :]


def _gamma(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    # Nearly symmetric in the logarithm: 1 / 0.7 = 1.43, so darker and brighter are alike likely.
    return np.clip(pixels, 0.0, 1.0) ** np.float32(rng.uniform(0.7, 1.4))


def _blur(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    from scipy import ndimage

    return ndimage.gaussian_filter(pixels, sigma=_scale(pixels))


def _shift(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    from scipy import ndimage

    angle = rng.uniform(0.0, 2.0 * np.pi)
    offset = _SHIFT * _scale(pixels) * np.array([np.sin(angle), np.cos(angle)])
    return ndimage.shift(pixels, offset, order=1, mode="constant", cval=0.0)


def _crop(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    height, width = pixels.shape
    kept_height = max(1, round(height * _CROP_SIDE))
    kept_width = max(1, round(width * _CROP_SIDE))
    top = int(rng.integers(height - kept_height + 1))
    left = int(rng.integers(width - kept_width + 1))
    kept = np.ascontiguousarray(pixels[top : top + kept_height, left : left + kept_width])
    return _resized(kept, height, width, Image.Resampling.BILINEAR)


def _jpeg(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    grey = np.round(np.clip(pixels, 0.0, 1.0) * 255.0).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(grey).save(stream, format="JPEG", quality=_JPEG_QUALITY)
    stream.seek(0)
    with Image.open(stream) as decoded:
        return np.asarray(decoded, dtype=np.float32) / np.float32(255.0)


def _resample(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    height, width = pixels.shape
    half = _resized(pixels, max(1, height // 2), max(1, width // 2), Image.Resampling.BILINEAR)
    return _resized(half, height, width, Image.Resampling.BILINEAR)


def _elastic(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    from scipy import ndimage

    largest = _ELASTIC_DISPLACEMENT * _scale(pixels)
    rows, columns = np.indices(pixels.shape, dtype=np.float32)
    rows += _smooth_field(pixels.shape, _ELASTIC_NODES, largest, rng)
    columns += _smooth_field(pixels.shape, _ELASTIC_NODES, largest, rng)
    return ndimage.map_coordinates(pixels, [rows, columns], order=1, mode="constant", cval=0.0)


def _bias_field(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    amplitude = rng.uniform(*_BIAS_AMPLITUDE)
    return pixels * (np.float32(1.0) + _smooth_field(pixels.shape, _BIAS_NODES, amplitude, rng))


def _row(name: str, description: str, change: Change) -> Transformation:
    # A partial of module functions, not a closure: the table can be sent to worker processes.
    return Transformation(name, description, partial(_disguise, change))


TRANSFORMATIONS: tuple[Transformation, ...] = (
    _row("exact", "unchanged", _exact),
    _row("noise_0.01", "Gaussian noise, sd 0.01", partial(_noise, sd=0.01)),
    _row("noise_0.02", "Gaussian noise, sd 0.02", partial(_noise, sd=0.02)),
    _row("intensity", "intensity times 0.9 to 1.1, clipped", _intensity),
    _row("rotation_3", "rotation by up to ±3°", partial(_rotation, degrees=3.0)),
    _row("rotation_5", "rotation by up to ±5°", partial(_rotation, degrees=5.0)),
    _row("horizontal_flip", "left and right exchanged", _horizontal_flip),
    _row("vertical_flip", "top and bottom exchanged", _vertical_flip),
    _row("gamma", "gamma 0.7 to 1.4", _gamma),
    _row("blur", "Gaussian blur, sigma 1 px at 224 px", _blur),
    _row("shift", "shift by 4 px at 224 px, any direction", _shift),
    _row("crop", "crop to 90 % of each side at a random place, enlarged to the old size", _crop),
    _row("jpeg", "JPEG, quality 50", _jpeg),
    _row("resample", "resampled to half size and back", _resample),
    _row("elastic", "smooth deformation, up to 3 px per axis at 224 px", _elastic),
    _row("bias_field", "smooth bias field of ±20 to ±30 %", _bias_field),
)

PAPER_CONDITIONS: tuple[Transformation, ...] = TRANSFORMATIONS[:8]
"""The paper's eight (its Table 4), here with EVERY copy flipped under the two flips."""
