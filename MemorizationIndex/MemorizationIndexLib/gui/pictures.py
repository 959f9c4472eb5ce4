"""Thumbnails → pixmaps."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import qt
import slicer
from numpy.typing import NDArray


def pixmap(picture: NDArray[np.uint8], side: int) -> Any:
    """Return a picture as a pixmap that fits a square.

    Through a file, because PythonQt takes no image from memory.

    Args:
        picture: Gray, shape (rows, columns), or in color, shape (rows, columns, 3).
        side: Of the square, in pixels of the screen.
    """
    rows, columns = picture.shape[:2]
    kind, suffix = (b"P5", ".pgm") if picture.ndim == 2 else (b"P6", ".ppm")
    handle, name = tempfile.mkstemp(suffix=suffix, dir=slicer.app.temporaryPath)
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(b"%s %d %d 255\n" % (kind, columns, rows))
            file.write(np.ascontiguousarray(picture, np.uint8).tobytes())
        loaded = qt.QPixmap(name)
    finally:
        path.unlink(missing_ok=True)
    return loaded.scaled(side, side, qt.Qt.KeepAspectRatio, qt.Qt.SmoothTransformation)
