"""What a volume and a slice carry, and nothing else.

Arrays in memory become volumes like this; ``training`` holds the slices of each patient by name::

    import numpy as np

    from MemorizationIndexLib import Volume, build_cohort_from_volumes, score_volumes


    def volume(name, images):  # images: a NumPy array (N, H, W), N slices of one subject
        return Volume(name, subject=name, array=images, affine=np.eye(4), source="", planar=True)


    build_cohort_from_volumes([volume(*one) for one in training.items()], "training.micohort")
    result = score_volumes([volume("synthetic", synthetic)], "training.micohort")
    print(result.summary.finding)

For a scan with a place in space, leave ``planar`` out and give its affine, from voxel (i, j, k) to
RAS millimeters, with the array in the order (k, j, i).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


class ImageError(ValueError):
    """An image cannot be used; the message is one sentence: what is wrong, where, what to do."""


@dataclass(frozen=True)
class Volume:
    """A scalar image with its place in the patient and its identity.

    Attributes:
        name: Unique within a run; the name of the volume in every result.
        subject: The person (or generated sample) the volume comes from.
        array: Voxels, shape (K, J, I), any real dtype; may hold non-finite values.
        affine: Index (i, j, k, 1) to RAS millimetres, shape (4, 4). Of no meaning if ``planar``.
        source: The file or folder the voxels came from, as the user would name it.
        planar: True for a stack of 2D images without a place in space: sliced along axis 0, the
            in-plane orientation is the stored one.
        slice_indices: Labels of the slices along array axis 0 (a manifest's ``slice_index``, or
            the position of an image file in its folder); None for 0, 1, 2…
        selected: Positions along the slice axis to use (a manifest's ``slice_index``); None for
            all.
        problem: Empty, or why the image could not be read; ``array`` is then of no meaning. Lets
            one bad file in a folder of images be reported without losing the others.
    """

    name: str
    subject: str
    array: NDArray[np.generic]
    affine: NDArray[np.float64]
    source: str
    planar: bool = False
    slice_indices: tuple[int, ...] | None = None
    selected: tuple[int, ...] | None = None
    problem: str = ""


@dataclass(frozen=True)
class Slice:
    """One 2D image, ready for an encoder or with the reason why it is not.

    Attributes:
        volume: Name of the volume it was cut from.
        subject: Subject of that volume.
        index: Index along the slice axis as stored in the volume, or the manifest's label.
        pixels: float32, shape (S, S), min–max normalised to [0, 1], canonical orientation;
            None where the slice cannot be scored.
        reason: Empty, or why the slice cannot be scored.
        source: The file the slice came from.
    """

    volume: str
    subject: str
    index: int
    pixels: NDArray[np.float32] | None
    reason: str
    source: str
