"""Thumbnails as images inside the page."""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray

from ..colors import SIMILARITY_FROM, Color, similarity_color
from .errors import ReportError

STRENGTH = 0.7
"""Opacity of the color of full similarity."""

LINE, DASH = 2, 4
"""Width of an outline and length of its dashes, in pixels."""


def overlay(picture: NDArray[np.uint8], similarity: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Color a slice where its match is like it.

    Args:
        picture: uint8 (P, P).
        similarity: float32 (P, P) in [0, 1].

    Returns:
        uint8 (P, P, 3); gray as it was up to ``colors.SIMILARITY_FROM``.
    """
    steps = np.array([similarity_color(value) for value in np.linspace(0, 1, 101)], np.float64)
    colors = steps[np.rint(100 * np.clip(similarity, 0, 1)).astype(int)]
    share = np.clip((similarity - SIMILARITY_FROM) / (1 - SIMILARITY_FROM), 0, 1)
    weight = STRENGTH * np.sqrt(share)[..., None]
    return np.rint((1 - weight) * picture[..., None] + weight * colors).astype(np.uint8)


def outlined(
    picture: NDArray[np.uint8], window: tuple[float, float, float, float], color: Color
) -> NDArray[np.uint8]:
    """Draw the outline of a part on a slice.

    Args:
        picture: uint8 (P, P).
        window: Top, bottom, left and right of the part, as shares of the side.
        color: Of every other dash. Those between are black, so that the line is seen on any
            tissue and by people who see no colors.

    Returns:
        uint8 (P, P, 3).
    """
    drawn = np.repeat(picture[..., None], 3, axis=2)
    side = len(picture)
    top, bottom, left, right = (min(max(round(share * side), 0), side) for share in window)
    line = np.zeros((side, side), bool)
    line[top:bottom, left:right] = True
    line[top + LINE : max(bottom - LINE, 0), left + LINE : max(right - LINE, 0)] = False
    rows, columns = np.indices((side, side))
    bright = (rows + columns) // DASH % 2 == 0
    drawn[line & bright] = color
    drawn[line & ~bright] = 0
    return drawn


def png_data_uri(picture: NDArray[np.uint8], *, color: bool = False) -> str:
    """Return a uint8 (H, W) picture, or (H, W, 3) if in color, as a PNG ``data:`` address.

    Raises:
        ReportError: the picture is no such image, or Pillow is missing.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ReportError(
            "pictures in the report need Pillow, which is not installed; install it with "
            "'pip install pillow'"
        ) from error

    expected = (*picture.shape[:2], 3) if color else picture.shape[:2]
    if len(expected) != 2 + color or picture.shape != expected or picture.dtype != np.uint8:
        raise ReportError(
            f"a picture must be uint8 of shape {'(P, P, 3)' if color else '(P, P)'}, not "
            f"{picture.dtype} {picture.shape}"
        )
    if 0 in picture.shape:
        raise ReportError(f"a picture of shape {picture.shape} has no pixels")
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(buffer, format="PNG", compress_level=4)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
