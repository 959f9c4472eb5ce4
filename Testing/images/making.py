"""Small image files for the tests of this room."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import SimpleITK as sitk  # noqa: N813
from PIL import Image


def gray(seed: int = 0, shape: tuple[int, ...] = (24, 20)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, shape).astype(np.uint8)


def png(path: Path, seed: int = 0, shape: tuple[int, ...] = (24, 20)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(gray(seed, shape)).save(path)
    return path


def nifti(path: Path, seed: int = 0, shape: tuple[int, ...] = (18, 20, 22)) -> Path:
    """Write any format of SimpleITK's by its suffix; spacing 1 × 1 × 2 mm."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = sitk.GetImageFromArray(gray(seed, shape).astype(np.int16), isVector=False)
    image.SetSpacing((1.0, 1.0, 2.0, 3.0)[: len(shape)])
    sitk.WriteImage(image, str(path))
    return path


def dicom_slice(
    path: Path,
    array: np.ndarray,
    *,
    series: str = "1.2.3",
    position: tuple[float, float, float] | None = (0.0, 0.0, 0.0),
    orientation: str = "1\\0\\0\\0\\1\\0",
    instance: int = 1,
    **tags: str,
) -> Path:
    """Write one MR file; ``tags`` are named as in ``names`` below."""
    names = {
        "modality": "0008|0060",
        "patient": "0010|0020",
        "description": "0008|103e",
        "number": "0020|0011",
        "temporal": "0020|0100",
        "photometric": "0028|0004",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    image = sitk.GetImageFromArray(array, isVector=array.ndim == 3)
    values = {"modality": "MR", "patient": "P1", "number": "1"} | tags
    image.SetMetaData("0008|0016", "1.2.840.10008.5.1.4.1.1.4")
    image.SetMetaData("0020|000e", series)
    image.SetMetaData("0020|0013", str(instance))
    if position is not None:
        image.SetMetaData("0020|0032", "\\".join(map(str, position)))
        image.SetMetaData("0020|0037", orientation)
    for name, value in values.items():
        image.SetMetaData(names[name], value)
    writer = sitk.ImageFileWriter()
    writer.KeepOriginalImageUIDOn()
    writer.SetImageIO("GDCMImageIO")
    writer.SetFileName(str(path))
    writer.Execute(image)
    data = path.read_bytes()
    if position is None:
        # GDCM always writes a position: turn the two tags into ones that nobody reads.
        data = data.replace(b"\x20\x00\x32\x00", b"\x20\x00\x33\x00", 1)
        data = data.replace(b"\x20\x00\x37\x00", b"\x20\x00\x38\x00", 1)
    if tags.get("photometric") == "MONOCHROME1":
        data = data.replace(b"MONOCHROME2", b"MONOCHROME1")
    path.write_bytes(data)
    return path
