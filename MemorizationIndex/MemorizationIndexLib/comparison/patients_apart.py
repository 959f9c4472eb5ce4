"""How well slices of different patients agree when laid over each other: the null of verification.

It is made while a cohort is built and stored in it; cohorts of older libraries, and those whose
images could not be read then, have it made when the first slice is flagged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from PIL import Image

from MemorizationIndexLib.comparison.apart import PatientsApart
from MemorizationIndexLib.comparison.nearest_pairs import NearestPair
from MemorizationIndexLib.comparison.placement import Pixels
from MemorizationIndexLib.comparison.verification import verification_null
from MemorizationIndexLib.index.poses import Pose
from MemorizationIndexLib.progress import CancelFunction, Progress, ProgressFunction, check

SIDE = 224
"""Largest side at which slices are compared; finer ones are reduced."""

Read = Callable[[Sequence[int]], dict[int, Pixels]]
"""Rows of reference slices → the pixels of those that can be read."""


def reduced(pixels: Pixels) -> Pixels:
    """Return a slice at the side it is compared at, float32 in [0, 1]."""
    if len(pixels) <= SIDE:
        return pixels
    picture = Image.fromarray(np.ascontiguousarray(pixels, dtype=np.float32))
    small = picture.resize((SIDE, SIDE), Image.Resampling.BOX)
    return np.clip(np.asarray(small, dtype=np.float32), 0.0, 1.0)


def lay_apart(
    pairs: Sequence[NearestPair],
    read: Read,
    *,
    stage: str,
    progress: ProgressFunction,
    cancelled: CancelFunction,
) -> PatientsApart:
    """Lay pairs of different patients over each other.

    Args:
        pairs: From ``nearest_pairs.nearest_pairs``.
        read: Gives their pixels; pairs that cannot be read are left out.
        stage: Name of the progress.
        progress: Told of the progress.
        cancelled: Asked between pairs.

    Raises:
        ComparisonError: Fewer than 10 pairs can be read.
        CancelledError: ``cancelled`` said so.
    """
    progress(Progress(stage, 0, 0, "pairs"))
    found = read(sorted({row for pair in pairs for row in (pair.slice, pair.nearest)}))
    pixels = {row: reduced(one) for row, one in found.items()}
    pairs = [pair for pair in pairs if pair.slice in pixels and pair.nearest in pixels]

    def seen() -> Iterator[tuple[Pixels, Pixels]]:
        for done, pair in enumerate(pairs):
            check(cancelled)
            progress(Progress(stage, done, len(pairs), "pairs"))
            yield pixels[pair.slice], pixels[pair.nearest]

    null = verification_null(seen(), starts=[registration_start(pair.pose) for pair in pairs])
    progress(Progress(stage, len(pairs), len(pairs), "pairs"))
    return PatientsApart(null.ssim, null.ncc)


def registration_start(pose: Pose) -> tuple[str, float]:
    """Return the pose as a start for ``registration.register``."""
    flip = {
        (False, False): "none",
        (True, False): "horizontal",
        (False, True): "vertical",
        (True, True): "both",
    }
    return flip[pose.horizontal, pose.vertical], pose.rotation
