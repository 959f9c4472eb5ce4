"""The pictures behind a cohort's rows, read again from the images it was built from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.cohort.cohort import Cohort
from MemorizationIndexLib.images.finding import find_images
from MemorizationIndexLib.images.reading import read_source
from MemorizationIndexLib.images.slicing import slice_volume
from MemorizationIndexLib.images.volume import ImageError

_MEMORY = "reference pixels"
_REMEMBERED = 64 << 20
"""Bytes of pictures that are kept while a cohort is loaded: a match is verified, then pictured."""


@dataclass(frozen=True)
class PictureSources:
    """Where the pictures of reference slices are.

    Attributes:
        sources: File of each slice; empty where it is not known.
        digests: ``pixel_digest`` of each slice.
        indices: Index of each slice in its volume.
        plane: How volumes were sliced.
        size: Side of the slices in pixels.
    """

    sources: Sequence[str]
    digests: NDArray[np.uint64]
    indices: NDArray[np.int64]
    plane: str
    size: int


def pixel_digest(pixels: NDArray[np.float32]) -> int:
    """Return a number that tells whether two normalised slices are the same picture."""
    return int.from_bytes(hashlib.sha256(pixels.tobytes()).digest()[:8], "little")


def reference_pixels(
    cohort: Cohort, rows: Iterable[int], *, between_files: Callable[[], None] = lambda: None
) -> dict[int, NDArray[np.float32]]:
    """Read reference slices again; see :func:`read_pictures`. Some are remembered."""
    memory: dict[int, NDArray[np.float32]] = cohort.memory.setdefault(_MEMORY, {})
    rows = list(rows)
    found = {row: memory[row] for row in rows if row in memory}
    facts = cohort.facts
    where = PictureSources(
        cohort.sources, cohort.digests, cohort.indices, facts.plane, facts.input_size
    )
    read = read_pictures(
        where, [row for row in rows if row not in found], between_files=between_files
    )
    memory.update(read)
    for row in list(memory)[: max(0, len(memory) - _REMEMBERED // (4 * facts.input_size**2))]:
        del memory[row]
    return found | read


def read_pictures(
    where: PictureSources,
    rows: Iterable[int],
    *,
    between_files: Callable[[], None] = lambda: None,
) -> dict[int, NDArray[np.float32]]:
    """Read reference slices again.

    Args:
        where: Where they are.
        rows: Rows of reference slices.
        between_files: Called before each file.

    Returns:
        Pixels, float32 (S, S) in [0, 1], by row. Rows whose image is gone, cannot be read or no
        longer shows what was encoded are left out: a wrong picture would be worse than none.
    """
    by_source: dict[str, list[int]] = {}
    for row in rows:
        if where.sources[row]:
            by_source.setdefault(where.sources[row], []).append(row)
    found: dict[int, NDArray[np.float32]] = {}
    for path, together in by_source.items():
        between_files()
        _read(path, together, where, found, only_there=True)
        missing = [row for row in together if row not in found]
        if missing:
            _read(path, missing, where, found, only_there=False)
    return found


def _read(
    path: str,
    rows: Sequence[int],
    where: PictureSources,
    found: dict[int, NDArray[np.float32]],
    *,
    only_there: bool,
) -> None:
    """Look for rows in a file, at their places in its volumes only or everywhere."""
    by_digest: dict[int, list[int]] = {}
    for row in rows:
        by_digest.setdefault(int(where.digests[row]), []).append(row)
    places = tuple(sorted({int(where.indices[row]) for row in rows}))
    try:
        for source in find_images([path], any_modality=True, beside=False).sources:
            # Unchecked: the digest tells what a damaged stream would show.
            for volume in read_source(source, checked=False):
                if only_there and not volume.planar:
                    volume = replace(volume, selected=places)
                for one in slice_volume(volume, plane=where.plane, size=where.size):
                    if one.pixels is None or not by_digest:
                        continue
                    for row in by_digest.pop(pixel_digest(one.pixels), ()):
                        found[row] = one.pixels
                if not by_digest:
                    return
    except ImageError:
        return
