"""PNG, JPEG and TIFF files through Pillow."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from MemorizationIndexLib.images.normalizing import MAX_PIXELS, check_dtype, check_pixel_count
from MemorizationIndexLib.images.volume import ImageError

SUFFIXES = {".png", ".jpg", ".jpeg", ".tif", ".tiff"}

_GREY = {"1", "L", "I", "F", "I;16", "I;16B", "I;16L", "I;16N"}

_SAME_GREY = 2
"""Levels by which the channels of a gray JPEG may differ after its color transform."""


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    try:
        with warnings.catch_warnings():
            # The size is checked below, against a limit of our own.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            warnings.filterwarnings("ignore", module="PIL")
            with Image.open(path) as picture:
                check_pixel_count(picture.height, picture.width, str(path))
                yield picture
    except ImageError:
        raise
    except Image.DecompressionBombError as error:
        raise ImageError(
            f"{path} has more than the {MAX_PIXELS // 1_000_000} megapixels allowed; crop or "
            "downsample it."
        ) from error
    # Pillow answers damage with any of these.
    except (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        struct.error,
        IndexError,
        KeyError,
        TypeError,
        OverflowError,
        MemoryError,
    ) as error:
        raise ImageError(
            f"{path} cannot be read as an image; it is truncated, damaged or of another format."
        ) from error


def _gray(picture: Image.Image, path: Path) -> NDArray[np.generic]:
    if picture.mode in _GREY:
        array = np.asarray(picture)
    elif picture.mode in ("LA", "La"):
        array = np.asarray(picture.getchannel(0))
    else:
        if picture.mode in ("P", "PA", "CMYK", "YCbCr", "HSV"):
            picture = picture.convert("RGB")
        if picture.mode not in ("RGB", "RGBA", "RGBX", "RGBa"):
            raise ImageError(f"{path} has the color mode {picture.mode}; save it as gray.")
        red, green, blue = (np.asarray(picture.getchannel(band)) for band in range(3))
        spread = np.maximum(np.maximum(red, green), blue) - np.minimum(np.minimum(red, green), blue)
        if spread.max(initial=0) > _SAME_GREY:
            raise ImageError(f"{path} is a colored image; only gray images can be scored.")
        array = green
    check_dtype(array.dtype, str(path))
    return array


def page_count(path: Path) -> int:
    """Return the number of pages of an image file from its header; 1 if it cannot be read."""
    if path.suffix.lower() not in (".tif", ".tiff"):
        return 1
    try:
        with _opened(path) as picture:
            return int(getattr(picture, "n_frames", 1))
    except ImageError:
        # Reading will say what is wrong with it.
        return 1


def read_picture(path: Path) -> NDArray[np.generic]:
    """Read one gray image; color modes are taken if their channels are equal.

    Returns:
        Shape (H, W), bool, 8, 16 or 32 bits a pixel.

    Raises:
        ImageError: Unreadable, truncated, colored, or too large (checked before decoding).
    """
    with _opened(path) as picture:
        return _gray(picture, path)


def read_pages(path: Path) -> Iterator[NDArray[np.generic]]:
    """Read the pages of a TIFF file one after another, each as :func:`read_picture`."""
    for page in range(page_count(path)):
        with _opened(path) as picture:
            picture.seek(page)
            check_pixel_count(picture.height, picture.width, f"{path}, page {page}")
            array = _gray(picture, path)
        yield array
