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
    """Return a grey picture, shape (rows, columns), as a pixmap that fits a square.

    Through a file, because PythonQt takes no image from memory.
    """
    rows, columns = picture.shape
    handle, name = tempfile.mkstemp(suffix=".pgm", dir=slicer.app.temporaryPath)
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(b"P5 %d %d 255\n" % (columns, rows))
            file.write(np.ascontiguousarray(picture, np.uint8).tobytes())
        loaded = qt.QPixmap(name)
    finally:
        path.unlink(missing_ok=True)
    return loaded.scaled(side, side, qt.Qt.KeepAspectRatio, qt.Qt.SmoothTransformation)
