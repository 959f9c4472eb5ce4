"""Draws the PNG icons: the module's from its SVG, the sample data's from a phantom.

``python Testing/gui/draw_icons.py``; needs PySide6-Essentials, Pillow and NumPy.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ICONS = ROOT / "MemorizationIndex" / "Resources" / "Icons"
SIDE = 128


def draw_module_icon() -> None:
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6.QtGui import QGuiApplication, QImage, QPainter
    from PySide6.QtSvg import QSvgRenderer

    application = QGuiApplication([])
    image = QImage(SIDE, SIDE, QImage.Format.Format_ARGB32)
    image.fill(0)
    painter = QPainter(image)
    QSvgRenderer(str(ICONS / "MemorizationIndex.svg")).render(painter)
    painter.end()
    image.save(str(ICONS / "MemorizationIndex.png"))
    application.quit()


def draw_phantom_icon() -> None:
    import numpy as np
    from PIL import Image

    sys.path.insert(0, str(ROOT / "MemorizationIndex"))
    from MemorizationIndexLib.phantoms import MAXIMUM, make_patient

    head = make_patient(3, slices=8, size=SIDE)[4] / MAXIMUM
    Image.fromarray((np.clip(head, 0, 1) * 255).astype(np.uint8)).save(
        ICONS / "MemorizationIndexPhantoms.png", optimize=True
    )


if __name__ == "__main__":
    draw_module_icon()
    draw_phantom_icon()
