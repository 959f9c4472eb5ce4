"""All slices of a run, one after the other, so that never more than one volume is in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from MemorizationIndexLib.images.reading import read_source
from MemorizationIndexLib.images.slicing import slice_volume
from MemorizationIndexLib.images.source import ImageSet
from MemorizationIndexLib.images.volume import ImageError, Slice, Volume

Refuse = Callable[[str, str], None]
"""Called with the input and the sentence for each source that cannot be used."""


def stream_images(images: ImageSet, plane: str, size: int, refuse: Refuse) -> Iterator[Slice]:
    """Read and cut every source; one that fails is refused and the others go on.

    Args:
        images: What was found.
        plane: A key of ``slicing.PLANES``.
        size: Side of the slices in pixels.
        refuse: Told of each source that fails.
    """
    for source in images.sources:
        place = str(source.paths[0]) if len(source.paths) == 1 else str(source.paths[0].parent)
        try:
            for volume in read_source(source):
                yield from slice_volume(volume, plane=plane, size=size)
        except ImageError as error:
            refuse(place, str(error))


def stream_volumes(
    volumes: Iterable[Volume], plane: str, size: int, refuse: Refuse
) -> Iterator[Slice]:
    """Cut volumes that are in memory already; see ``stream_images``."""
    for volume in volumes:
        try:
            yield from slice_volume(volume, plane=plane, size=size)
        except ImageError as error:
            refuse(volume.name, str(error))
