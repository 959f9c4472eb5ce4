"""Stacks of 2D images in numpy files: what their shape means, and reading them block by block."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.images.normalizing import check_dtype, check_pixel_count
from MemorizationIndexLib.images.volume import ImageError

SUFFIXES = {".npy", ".npz"}

BLOCK_BYTES = 64 * 2**20
"""An array in an npz file, which cannot be memory-mapped, is read in blocks of this size."""


def stack_shape(shape: tuple[int, ...], where: str) -> tuple[int, int, int]:
    """Tell which axes are slices, rows and columns.

    Args:
        shape: (H, W), (N, H, W), (N, H, W, 1) or (N, 1, H, W).
        where: The file, for the sentence.

    Returns:
        (N, H, W).

    Raises:
        ImageError: Colored, ambiguous, empty, or of another shape.
    """
    text = f"{where} has the shape {shape}"
    if 0 in shape:
        raise ImageError(f"{text}, which holds no pixel.")
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    if len(shape) == 3:
        if shape[2] in (3, 4) and min(shape[:2]) > 4:
            raise ImageError(f"{text}, which is one colored image; only gray images can be scored.")
        if shape[2] == 1 and min(shape[:2]) > 1:
            raise ImageError(
                f"{text}, which can be one image or many that are one pixel wide; "
                f"save one image as {shape[:2]}."
            )
        return shape[0], shape[1], shape[2]
    if len(shape) == 4:
        last, second = shape[3] == 1, shape[1] == 1
        if last and second and shape[2] > 1:
            raise ImageError(f"{text}, where either axis can be the channel; save it as (N, H, W).")
        if last:
            return shape[0], shape[1], shape[2]
        if second:
            return shape[0], shape[2], shape[3]
        if shape[3] in (3, 4) or shape[1] in (3, 4):
            raise ImageError(
                f"{text}, which is a stack of colored images; only gray images can be scored."
            )
    raise ImageError(
        f"{text}; a stack must be (N, H, W), (N, H, W, 1) or (N, 1, H, W), and a volume with "
        "its geometry a NIfTI or NRRD file."
    )


def _check(shape: tuple[int, ...], dtype: np.dtype, where: str) -> tuple[int, int, int]:
    if dtype.hasobject:
        raise ImageError(
            f"{where} holds Python objects, which are not read for safety; save plain numbers."
        )
    check_dtype(dtype, where)
    count, height, width = stack_shape(shape, where)
    check_pixel_count(height, width, where)
    return count, height, width


def _read_array_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"version {version}")


def _damaged(path: Path, error: Exception) -> ImageError:
    return ImageError(
        f"{path} cannot be read as {path.suffix.lower()}; it is truncated or damaged "
        f"({str(error).splitlines()[0] if str(error) else type(error).__name__})."
    )


def find_stacks(path: Path) -> list[tuple[str, int]]:
    """Return the arrays of a numpy file: member name (empty for npy) and number of slices.

    Reads the headers only.

    Raises:
        ImageError: Damaged, not plain numbers, or of a shape that is no stack.
    """
    if path.suffix.lower() == ".npy":
        return [("", _check_npy(path)[0])]
    found = []
    try:
        with zipfile.ZipFile(path) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
            for name in members:
                with archive.open(name) as file:
                    shape, _, dtype = _read_array_header(file)
                key = name[:-4]
                found.append((key, _check(shape, dtype, f"{path}:{key}")[0]))
    except ImageError:
        raise
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise _damaged(path, error) from error
    if not found:
        raise ImageError(f"{path} holds no array.")
    return found


def _check_npy(path: Path) -> tuple[int, int, int]:
    try:
        with path.open("rb") as file:
            shape, _, dtype = _read_array_header(file)
            start = file.tell()
    except (ValueError, OSError, EOFError) as error:
        raise _damaged(path, error) from error
    shape_of_stack = _check(shape, dtype, str(path))
    if path.stat().st_size < start + prod(shape) * dtype.itemsize:
        raise ImageError(f"{path} is truncated: it ends before its last voxel; copy it again.")
    return shape_of_stack


def read_stack(path: Path, member: str = "") -> Iterator[tuple[int, NDArray[np.generic]]]:
    """Read a stack: an npy file memory-mapped and whole, an array of an npz file block by block.

    Yields:
        Position of the first slice, and slices of shape (n, H, W).

    Raises:
        ImageError: As :func:`find_stacks`.
    """
    if path.suffix.lower() == ".npy":
        shape = _check_npy(path)
        try:
            yield 0, np.load(path, mmap_mode="r", allow_pickle=False).reshape(shape)
        except (ValueError, OSError) as error:
            raise _damaged(path, error) from error
        return
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{member}.npy") as file:
            stored, fortran, dtype = _read_array_header(file)
            count, height, width = _check(stored, dtype, f"{path}:{member}")
            slice_bytes = height * width * dtype.itemsize
            # Column-major arrays have their slices interleaved: they can only be read whole.
            step = count if fortran else max(1, BLOCK_BYTES // slice_bytes)
            for first in range(0, count, step):
                wanted = min(step, count - first)
                data = file.read(wanted * slice_bytes)
                if len(data) < wanted * slice_bytes:
                    raise ImageError(f"{path} is truncated: {member} ends before its last voxel.")
                block = np.frombuffer(data, dtype)
                if fortran:
                    yield first, block.reshape(stored, order="F").reshape(count, height, width)
                else:
                    yield first, block.reshape(wanted, height, width)
    except ImageError:
        raise
    except (ValueError, OSError, EOFError, KeyError, MemoryError, zipfile.BadZipFile) as error:
        raise _damaged(path, error) from error
