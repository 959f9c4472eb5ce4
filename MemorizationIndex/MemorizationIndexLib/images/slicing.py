"""Which plane a volume is cut in, how its slices are turned, and the cutting itself."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.images.normalizing import (
    MAX_ASPECT,
    MIN_SIDE,
    check_dtype,
    check_pixel_count,
    fit_to_square,
    intensity_range,
    normalize,
    why_not_scorable,
)
from MemorizationIndexLib.images.volume import ImageError, Slice, Volume

PLANES = {"auto": -1, "axial": 2, "coronal": 1, "sagittal": 0}
"""Name of a plane to the RAS axis it is cut along; -1 where the volume decides."""

INPUT_SIZE = 224
"""Side of a slice in pixels: one full window of MRI-CORE and the size of its pre-training."""

COARSER = 1.01
"""An axis is the acquisition axis when its spacing exceeds the others' by this factor."""

_DECIMALS = 4
"""Direction cosines are compared to this many decimals: files hold them in float32 or as text."""

_TIE = 1e-4

_ROWS_AND_COLUMNS = {2: (1, 0), 1: (2, 0), 0: (2, 1)}


def anatomical_axes(
    affine: NDArray[np.float64],
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Assign each RAS axis the index axis that runs nearest to it.

    The assignment is the one-to-one match with the largest sum of direction cosines. It depends
    on the lines in space only: ties (an exact 45° rotation) go to the match whose lines,
    superior first, come last in lexicographic order, which no storage order can change.

    Args:
        affine: Index (i, j, k, 1) to RAS millimetres, shape (4, 4).

    Returns:
        For R, A, S: the index axis (0 for i, 1 for j, 2 for k), and +1 where the index grows
        towards R, A, S or -1 where it falls.

    Raises:
        ImageError: The affine is singular or not finite.
    """
    matrix = np.asarray(affine, np.float64)[:3, :3]
    lengths = np.sqrt((matrix**2).sum(axis=0)) if np.isfinite(matrix).all() else np.zeros(3)
    if lengths.min() <= 0 or abs(np.linalg.det(matrix / lengths)) < 1e-4:
        raise ImageError("its direction matrix is singular; save it again with a valid geometry")
    directions = matrix / lengths
    rounded = np.round(directions, _DECIMALS) + 0.0
    # A vector and its opposite lie on one line, written with its first component positive.
    heads = [np.sign(column[np.flatnonzero(column)[0]]) for column in rounded.T]
    lines = [tuple(column * head + 0.0) for column, head in zip(rounded.T, heads, strict=True)]
    totals = {
        match: sum(abs(directions[world, axis]) for world, axis in enumerate(match))
        for match in permutations(range(3))
    }
    best = [match for match in totals if totals[match] > max(totals.values()) - _TIE]
    match = max(best, key=lambda match: [lines[axis] for axis in reversed(match)])
    signs = [int(np.sign(rounded[world, axis]) or heads[axis]) for world, axis in enumerate(match)]
    return (match[0], match[1], match[2]), (signs[0], signs[1], signs[2])


def slice_axis(size: tuple[int, int, int], affine: NDArray[np.float64], plane: str = "auto") -> int:
    """Return the RAS axis (0, 1, 2) along which a volume is cut.

    For ``auto``: the axis with a single voxel if exactly one has; else the acquisition axis,
    which has the coarsest spacing; else the axis nearest superior. An axis whose slices would
    all be too small or too elongated to score, as across a thin slab, yields to the others.

    Args:
        size: Voxels along i, j, k.
        affine: Index to RAS millimetres, shape (4, 4).
        plane: A key of ``PLANES``.

    Raises:
        ImageError: Unknown plane, or an unusable affine.
    """
    if plane not in PLANES:
        raise ImageError(f"there is no plane {plane!r}; choose one of {', '.join(PLANES)}")
    axes, _ = anatomical_axes(affine)
    if plane != "auto":
        return PLANES[plane]
    single = [axis for axis in range(3) if size[axis] == 1]
    if len(single) == 1:
        return axes.index(single[0])
    spacing = np.linalg.norm(np.asarray(affine)[:3, :3], axis=0)
    usable = [axis for axis in range(3) if _has_scorable_shape(size, spacing, axis)]
    coarsest = int(np.argmax(spacing))
    coarser = spacing[coarsest] > COARSER * np.delete(spacing, coarsest).max()
    if coarser and (coarsest in usable or not usable):
        return axes.index(coarsest)
    return next(world for world in (2, 1, 0) if not usable or axes[world] in usable)


def _has_scorable_shape(
    size: tuple[int, int, int], spacing: NDArray[np.float64], along: int
) -> bool:
    sides = [axis for axis in range(3) if axis != along]
    extents = sorted(size[axis] * spacing[axis] for axis in sides)
    return min(size[axis] for axis in sides) >= MIN_SIDE and (extents[1] <= MAX_ASPECT * extents[0])


def count_slices(
    size: tuple[int, int, int], affine: NDArray[np.float64], plane: str = "auto"
) -> int:
    """Return how many slices a plane cuts a volume into.

    Args:
        size: Voxels along i, j, k.
        affine: Index to RAS millimetres, shape (4, 4).
        plane: A key of ``PLANES``.

    Raises:
        ImageError: Unknown plane, or an unusable affine.
    """
    axes, _ = anatomical_axes(affine)
    return size[axes[slice_axis(size, affine, plane)]]


def canonical_stack(
    volume: Volume, plane: str = "auto"
) -> tuple[NDArray[np.generic], NDArray[np.intp], tuple[float, float]]:
    """View a volume as slices in canonical order and orientation, without copying it.

    Slices run towards R, A or S. Axial
    slices have anterior at the top, coronal and sagittal ones superior; axial and coronal ones
    have the patient's right at the left, sagittal ones anterior.

    Returns:
        The view, shape (N, H, W); the storage index of each slice along the slice axis, shape
        (N,); the spacing of rows and columns in millimetres.

    Raises:
        ImageError: Not a stack of slices, or a plane or geometry that cannot be used.
    """
    where = volume.source or volume.name
    if volume.array.ndim != 3 or 0 in volume.array.shape:
        raise ImageError(f"{where} has the shape {volume.array.shape}, not three axes.")
    if volume.planar:
        if plane not in PLANES:
            raise ImageError(f"there is no plane {plane!r}; choose one of {', '.join(PLANES)}.")
        if plane != "auto":
            raise ImageError(
                f"{where} holds 2D images without a place in space, so that no {plane} "
                "plane can be cut from it; use the plane auto."
            )
        return volume.array, np.arange(volume.array.shape[0]), (1.0, 1.0)
    depth, height, width = volume.array.shape
    try:
        along = slice_axis((width, height, depth), volume.affine, plane)
        axes, signs = anatomical_axes(volume.affine)
    except ImageError as error:
        raise ImageError(f"{where}: {error}.") from None
    down, across = _ROWS_AND_COLUMNS[along]
    # Array axes are (k, j, i): the reverse of the index axes.
    view = volume.array.transpose(2 - axes[along], 2 - axes[down], 2 - axes[across])
    view = view[
        :: signs[along],
        :: -signs[down],
        :: -signs[across],
    ]
    storage = np.arange(view.shape[0])[:: signs[along]]
    spacing = np.linalg.norm(volume.affine[:3, :3], axis=0)
    return view, storage, (float(spacing[axes[down]]), float(spacing[axes[across]]))


def slice_volume(volume: Volume, *, plane: str = "auto", size: int = INPUT_SIZE) -> Iterator[Slice]:
    """Cut a volume into normalised slices, one at a time.

    The slices of the same physical image are the same whatever axis order, flip or handedness
    it is stored in; only their ``index`` follows the storage.

    Args:
        volume: What to cut.
        plane: ``auto`` (see :func:`slice_axis`), ``axial``, ``coronal`` or ``sagittal``; 2D
            images have no other than ``auto``.
        size: Side S of the slices in pixels.

    Yields:
        Slices in canonical order; those that cannot be scored say why.

    Raises:
        ImageError: The volume has no such plane, is not real-valued, or is too large.
    """
    if volume.problem:
        for label in volume.slice_indices or (0,):
            yield Slice(volume.name, volume.subject, label, None, volume.problem, volume.source)
        return
    where = volume.source or volume.name
    check_dtype(volume.array.dtype, where)
    stack, storage, spacing = canonical_stack(volume, plane)
    check_pixel_count(stack.shape[1], stack.shape[2], where)
    wanted = None if volume.selected is None else set(volume.selected)
    if wanted and not wanted <= set(storage.tolist()):
        raise ImageError(
            f"{where} has {len(storage)} slices, numbered from 0, so that the slice_index "
            f"{min(wanted - set(storage.tolist()))} of the manifest names none of them."
        )
    volume_range = intensity_range(stack) if stack.shape[0] > 1 else None
    for position, stored in enumerate(storage.tolist()):
        if wanted is not None and stored not in wanted:
            continue
        label = stored
        if volume.planar and volume.slice_indices is not None:
            label = volume.slice_indices[stored]
        # A copy in machine byte order: the view may be memory-mapped, strided or big-endian.
        pixels = np.array(stack[position], dtype=stack.dtype.newbyteorder("="), order="C")
        reason = why_not_scorable(pixels, spacing, volume_range)
        image = None if reason else fit_to_square(normalize(pixels), spacing, size)
        yield Slice(volume.name, volume.subject, label, image, reason, volume.source)
