"""Files to volumes to slices: finding, reading, identity, slicing and normalising."""

from MemorizationIndexLib.images.finding import find_images
from MemorizationIndexLib.images.reading import read_source
from MemorizationIndexLib.images.slicing import INPUT_SIZE, PLANES, slice_volume
from MemorizationIndexLib.images.source import ImageSet, ImageSource
from MemorizationIndexLib.images.volume import ImageError, Slice, Volume

__all__ = [
    "INPUT_SIZE",
    "PLANES",
    "ImageError",
    "ImageSet",
    "ImageSource",
    "Slice",
    "Volume",
    "find_images",
    "read_source",
    "slice_volume",
]
