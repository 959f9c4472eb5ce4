"""From what was found to volumes, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.images import dicom, itk
from MemorizationIndexLib.images.pictures import read_pages, read_picture
from MemorizationIndexLib.images.source import ImageSource
from MemorizationIndexLib.images.stacks import read_stack
from MemorizationIndexLib.images.volume import ImageError, Volume


def _planar(
    source: ImageSource, array: NDArray[np.generic], labels: tuple[int, ...], path: Path
) -> Volume:
    return Volume(
        source.name,
        source.subject,
        array,
        np.eye(4),
        str(path),
        planar=True,
        slice_indices=labels,
    )


def _unreadable(source: ImageSource, label: int, path: Path, problem: str) -> Volume:
    return Volume(
        source.name,
        source.subject,
        np.empty((0, 0, 0), np.uint8),
        np.eye(4),
        str(path),
        planar=True,
        slice_indices=(label,),
        problem=problem,
    )


def _read_images(source: ImageSource) -> Iterator[Volume]:
    unreadable: list[Volume] = []
    readable = False
    for path, label in zip(source.paths, source.labels, strict=True):
        try:
            volume = _planar(source, read_picture(path)[None], (label,), path)
        except ImageError as error:
            volume = _unreadable(source, label, path, str(error))
        if volume.problem and not readable:
            unreadable.append(volume)
            continue
        if not readable:
            readable = True
            yield from unreadable
        yield volume
    if not readable:
        others = len(unreadable) - 1
        more = f", and so with the {others} other images of its folder." if others else "."
        raise ImageError(unreadable[0].problem.removesuffix(".") + more)


def _read_pages(source: ImageSource) -> Iterator[Volume]:
    for page, array in enumerate(read_pages(source.paths[0])):
        if source.selected is None or page in source.selected:
            yield _planar(source, array[None], (page,), source.paths[0])


def _read_stack(source: ImageSource) -> Iterator[Volume]:
    path = source.paths[0]
    for first, block in read_stack(path, source.member):
        labels = range(first, first + len(block))
        selected = None
        if source.selected is not None:
            selected = tuple(index - first for index in source.selected if index in labels)
            if not selected:
                continue
        yield Volume(
            source.name,
            source.subject,
            block,
            np.eye(4),
            str(path),
            planar=True,
            slice_indices=tuple(labels),
            selected=selected,
        )


def _timepoint_name(source: ImageSource, index: int, count: int) -> str:
    return source.name if count == 1 else f"{source.name} [t={index}]"


def _read_volume(source: ImageSource, *, checked: bool = True) -> Iterator[Volume]:
    path = source.paths[0]
    array, affine = itk.read_voxels(path, checked=checked)
    for index, voxels in enumerate(array):
        yield Volume(
            _timepoint_name(source, index, len(array)),
            source.subject,
            voxels,
            affine,
            str(path),
            selected=source.selected,
        )


def _read_dicom(source: ImageSource) -> Iterator[Volume]:
    where = source.paths[0] if len(source.paths) == 1 else source.paths[0].parent
    for index, indices in enumerate(source.timepoints):
        paths = [source.paths[position] for position in indices]
        array, affine = dicom.read_timepoint(paths, planar=source.planar)
        yield Volume(
            _timepoint_name(source, index, len(source.timepoints)),
            source.subject,
            array,
            affine,
            str(where if len(paths) > 1 else paths[0]),
            planar=source.planar,
            selected=source.selected,
        )


_READERS = {
    "images": _read_images,
    "pages": _read_pages,
    "stack": _read_stack,
    "dicom": _read_dicom,
}


def read_source(source: ImageSource, *, checked: bool = True) -> Iterator[Volume]:
    """Read a source, holding as little as its format allows at a time.

    A folder of 2D images and a multi-page TIFF give one planar volume an image, a stack in an
    npy file one memory-mapped volume, one in an npz file a volume a block (all under one name);
    a volume with several time points gives one named ``NAME [t=3]`` for each.

    An image of a folder that cannot be read gives a volume with a ``problem``, so that the
    others are not lost with it.

    Args:
        source: What to read.
        checked: Whether damage in the stream of a compressed volume is looked for; a reader who
            knows what it must show need not.

    Raises:
        ImageError: Unreadable, truncated, colored, of several components, or too large; for a
            folder of images, if that is so for each of them.
    """
    if source.kind == "volume":
        yield from _read_volume(source, checked=checked)
    else:
        yield from _READERS[source.kind](source)
