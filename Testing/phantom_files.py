"""Phantom heads as small files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from MemorizationIndexLib.phantoms import make_patient

SIZE = 64


def phantom(seed: int, slices: int = 4) -> np.ndarray:
    """Return a phantom head, int16, shape (slices, SIZE, SIZE)."""
    return np.rint(make_patient(seed, slices=slices, size=SIZE)).astype(np.int16)


def phantom_file(path: Path, seed: int, slices: int = 4) -> Path:
    """Write a phantom head by the suffix of the path, axial, slices 7 mm apart."""
    import SimpleITK as sitk  # noqa: N813

    path.parent.mkdir(parents=True, exist_ok=True)
    image = sitk.GetImageFromArray(phantom(seed, slices))
    image.SetSpacing((3.6, 3.6, 7.0))
    sitk.WriteImage(image, str(path), useCompression=True)
    return path
