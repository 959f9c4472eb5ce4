"""Volume files through SimpleITK: NIfTI, NRRD, MetaImage; and what DICOM shares with them."""

from __future__ import annotations

import os
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.images.normalizing import check_pixel_count
from MemorizationIndexLib.images.volume import ImageError

IMAGE_IO = {
    ".nii": "NiftiImageIO",
    ".nii.gz": "NiftiImageIO",
    ".nrrd": "NrrdImageIO",
    ".nhdr": "NrrdImageIO",
    ".mha": "MetaImageIO",
    ".mhd": "MetaImageIO",
}
"""Suffix to SimpleITK's name of the reader."""

_PERMISSIVE = "ITK_NIFTI_SFORM_PERMISSIVE"


@dataclass(frozen=True)
class VolumeHeader:
    """What a volume file says about itself.

    Attributes:
        size: Voxels along i, j, k and time points.
        affine: Index to RAS millimetres, shape (4, 4).
    """

    size: tuple[int, int, int, int]
    affine: NDArray[np.float64]


def simpleitk() -> ModuleType:
    """Import SimpleITK with its warnings off: they are about files, not for the user's screen.

    Raises:
        ImageError: SimpleITK is not installed.
    """
    try:
        import SimpleITK
    except ImportError:
        raise ImageError(
            "Medical image files need SimpleITK; install it with: pip install SimpleITK."
        ) from None
    SimpleITK.ProcessObject.GlobalWarningDisplayOff()
    return SimpleITK


class _Silence:
    """The terminal's error stream, put aside while any thread is in ``quiet``."""

    lock = threading.Lock()
    depth = 0
    saved = -1


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what C++ libraries print from the terminal; their errors arrive as exceptions."""
    with _Silence.lock:
        if _Silence.depth == 0:
            with suppress(AttributeError, OSError, ValueError):
                sys.stderr.flush()
            try:
                _Silence.saved = os.dup(2)
            except OSError:
                # No such stream, as in a program without a console.
                _Silence.saved = -1
            else:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 2)
                os.close(null)
        _Silence.depth += 1
    try:
        yield
    finally:
        with _Silence.lock:
            _Silence.depth -= 1
            if _Silence.depth == 0 and _Silence.saved >= 0:
                os.dup2(_Silence.saved, 2)
                os.close(_Silence.saved)


@contextmanager
def _permissive_sform() -> Iterator[None]:
    before = os.environ.get(_PERMISSIVE)
    os.environ[_PERMISSIVE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_PERMISSIVE]
        else:
            os.environ[_PERMISSIVE] = before


def ras_affine(
    spacing: tuple[float, ...], origin: tuple[float, ...], direction: tuple[float, ...]
) -> NDArray[np.float64]:
    """Return the index-to-RAS affine, shape (4, 4), of an ITK geometry (LPS) of any dimension."""
    count = len(spacing)
    matrix, offset = np.eye(3), np.zeros(3)
    kept = min(count, 3)
    cosines = np.asarray(direction, np.float64).reshape(count, count)[:kept, :kept]
    matrix[:kept, :kept] = cosines * np.asarray(spacing, np.float64)[:kept]
    offset[:kept] = origin[:kept]
    affine = np.eye(4)
    to_ras = np.array([-1.0, -1.0, 1.0])
    affine[:3, :3] = to_ras[:, None] * matrix
    affine[:3, 3] = to_ras * offset
    return affine


def _sform(reader: Any) -> NDArray[np.float64] | None:
    """Return the sform as stored: ITK rounds a sheared one to the nearest rotation."""
    keys = ("srow_x", "srow_y", "srow_z")
    if not all(reader.HasMetaDataKey(key) for key in keys):
        return None
    rows = [[float(number) for number in reader.GetMetaData(key).split()] for key in keys]
    if any(len(row) != 4 for row in rows):
        return None
    return np.array([*rows, [0.0, 0.0, 0.0, 1.0]])


def suffix_of(path: Path) -> str:
    """Return the suffix that tells the format, lower case; ``.nii.gz`` counts as one."""
    name = path.name.lower()
    return ".nii.gz" if name.endswith(".nii.gz") else Path(name).suffix


def itk_name(path: Path) -> str:
    """Return the name under which ITK opens a file.

    Raises:
        ImageError: The name is not valid Unicode; ITK would end the process over it.
    """
    name = str(path)
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ImageError(
            f"{path} cannot be opened: its name holds bytes that are not UTF-8; rename it."
        ) from error
    return name


def _open(path: Path) -> tuple[Any, bool]:
    """Return a reader that has read the header, and whether ITK had to bend the directions."""
    reader = simpleitk().ImageFileReader()
    reader.SetImageIO(IMAGE_IO[suffix_of(path)])
    reader.SetFileName(itk_name(path))
    try:
        with quiet():
            reader.ReadImageInformation()
    except RuntimeError as error:
        if "orthonormal" not in str(error):
            raise ImageError(
                f"{path} cannot be read as {suffix_of(path)}; it is damaged or of another format."
            ) from error
    else:
        return reader, False
    try:
        with _permissive_sform(), quiet():
            reader.ReadImageInformation()
    except RuntimeError as error:
        raise ImageError(
            f"{path} has a direction matrix that cannot be used; save it again with a valid one."
        ) from error
    return reader, True


def _holds(path: Path, expected: int) -> bool:
    """Tell from its ends whether a file, gzip or not, may have its ``expected`` bytes."""
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            return path.stat().st_size >= expected
        file.seek(-4, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
    # The length at the end is that of the last member only, and padding may follow it.
    return length == expected % 2**32 or _inflates(path, 0, 31) >= expected


def _inflates(path: Path, start: int, window: int) -> int:
    """Return how many bytes come out of the zlib or gzip members of a file, checksums checked.

    ITK takes a damaged stream for what it could read of it, and zeros for the rest.

    Args:
        path: The file.
        start: Where the first member starts.
        window: As for zlib: 15 for zlib, 31 for gzip.

    Returns:
        The bytes of the whole members; those of a damaged one do not count.
    """
    whole, current, rest = 0, 0, b""
    engine = zlib.decompressobj(window)
    with path.open("rb") as file:
        file.seek(start)
        while chunk := rest or file.read(1 << 20):
            try:
                current += len(engine.decompress(chunk))
            except zlib.error:
                return whole
            rest = engine.unused_data
            if engine.eof:
                whole, current = whole + current, 0
                engine = zlib.decompressobj(window)
    return whole


def _metaimage_stream(path: Path) -> tuple[Path, int] | None:
    """Return the file and offset of a MetaImage's compressed voxels; None if not compressed."""
    compressed = False
    with path.open("rb") as file:
        for _ in range(200):
            key, _, value = file.readline(4096).decode("latin-1").partition("=")
            if key.strip() == "CompressedData":
                compressed = value.strip().lower() == "true"
            if key.strip() == "ElementDataFile":
                if not compressed:
                    return None
                if value.strip().upper() == "LOCAL":
                    return path, file.tell()
                other = path.with_name(value.strip())
                return (other, 0) if other.is_file() else None
    return None


def _check_stream(path: Path, reader: Any) -> None:
    """Refuse a compressed file whose stream is damaged."""
    damaged = False
    if (expected := _nifti_bytes(reader)) is not None:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        damaged = zipped and _inflates(path, 0, 31) < expected
    elif suffix_of(path) in (".mha", ".mhd") and (stream := _metaimage_stream(path)):
        damaged = _inflates(*stream, 15) < prod(reader.GetSize())
    if damaged:
        raise ImageError(f"{path} is damaged: its compressed voxels fail their checksum.")


def _nifti_bytes(reader: Any) -> int | None:
    """Return how long a NIfTI file must be by its header, uncompressed; None for other formats."""
    keys = [f"dim[{axis}]" for axis in range(8)]
    if not all(reader.HasMetaDataKey(key) for key in [*keys, "bitpix", "vox_offset"]):
        return None
    dims = [int(reader.GetMetaData(key)) for key in keys]
    voxels = prod(max(count, 1) for count in dims[1 : dims[0] + 1])
    bits = int(reader.GetMetaData("bitpix"))
    return int(float(reader.GetMetaData("vox_offset"))) + (voxels * bits + 7) // 8


def _check_whole(path: Path, reader: Any) -> None:
    expected = _nifti_bytes(reader)
    if expected is not None and not _holds(path, expected):
        raise ImageError(f"{path} is truncated: it ends before its last voxel; copy it again.")


def _header(path: Path, reader: Any, bent: bool) -> VolumeHeader:
    itk = simpleitk()
    if reader.GetPixelIDValue() in (itk.sitkComplexFloat32, itk.sitkComplexFloat64):
        raise ImageError(f"{path} holds complex numbers; save the magnitude instead.")
    if reader.GetNumberOfComponents() > 1:
        raise ImageError(
            f"{path} has {reader.GetNumberOfComponents()} components a voxel (colors, vectors or "
            "channels); save each as a file with one."
        )
    if reader.GetPixelIDValue() < 0:
        raise ImageError(f"{path} has a voxel type that SimpleITK does not know; convert it.")
    size = list(reader.GetSize())
    if len(size) > 4 and any(count > 1 for count in size[4:]):
        raise ImageError(
            f"{path} has {len(size)} axes; save it as volumes with three axes or with four."
        )
    size = [*size, 1, 1, 1][:4]
    if min(size) < 1:
        raise ImageError(f"{path} has no voxels (size {' × '.join(map(str, size))}).")
    widest = sorted(size[:3])[1:]
    check_pixel_count(widest[0], widest[1], str(path))
    affine = ras_affine(reader.GetSpacing(), reader.GetOrigin(), reader.GetDirection())
    stored = _sform(reader) if bent else None
    return VolumeHeader((size[0], size[1], size[2], size[3]), affine if stored is None else stored)


def read_header(path: Path) -> VolumeHeader:
    """Read what a volume file says about itself, without its voxels.

    Raises:
        ImageError: Unreadable, truncated, complex, of several components, or too large.
    """
    reader, bent = _open(path)
    header = _header(path, reader, bent)
    _check_whole(path, reader)
    return header


def read_voxels(
    path: Path, *, checked: bool = True
) -> tuple[NDArray[np.generic], NDArray[np.float64]]:
    """Read a volume file.

    Args:
        path: The file.
        checked: Whether damage in a compressed stream is looked for, at the cost of inflating it
            once more: ITK does not notice.

    Returns:
        Voxels, shape (T, K, J, I); index-to-RAS affine, shape (4, 4).

    Raises:
        ImageError: As :func:`read_header`, or the voxels cannot be had.
    """
    reader, bent = _open(path)
    header = _header(path, reader, bent)
    _check_whole(path, reader)
    if checked:
        _check_stream(path, reader)
    try:
        if bent:
            with _permissive_sform(), quiet():
                image = reader.Execute()
        else:
            with quiet():
                image = reader.Execute()
        array = simpleitk().GetArrayFromImage(image)
    except MemoryError as error:
        raise ImageError(
            f"{path} does not fit into memory ({' × '.join(map(str, header.size))} voxels)."
        ) from error
    except RuntimeError as error:
        raise ImageError(
            f"The voxels of {path} cannot be read; it is truncated or damaged."
        ) from error
    return array.reshape(header.size[::-1]), header.affine
