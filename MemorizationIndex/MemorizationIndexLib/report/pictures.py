"""Thumbnails as images inside the page."""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray

from .errors import ReportError


def png_data_uri(picture: NDArray[np.uint8]) -> str:
    """Return a uint8 (H, W) picture as a PNG ``data:`` address.

    Raises:
        ReportError: the picture is not a gray uint8 image, or Pillow is missing.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ReportError(
            "pictures in the report need Pillow, which is not installed; install it with "
            "'pip install pillow'"
        ) from error

    if picture.ndim != 2 or picture.dtype != np.uint8 or 0 in picture.shape:
        raise ReportError(
            f"a thumbnail must be uint8 of shape (P, P), not {picture.dtype} {picture.shape}"
        )
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
