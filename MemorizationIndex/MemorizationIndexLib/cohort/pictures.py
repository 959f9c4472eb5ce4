"""The pictures behind a cohort's rows, read again from the images it was built from."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.cohort.building import pixel_digest
from MemorizationIndexLib.cohort.cohort import Cohort
from MemorizationIndexLib.images.finding import find_images
from MemorizationIndexLib.images.reading import read_source
from MemorizationIndexLib.images.slicing import slice_volume
from MemorizationIndexLib.images.volume import ImageError


def reference_pixels(cohort: Cohort, rows: Iterable[int]) -> dict[int, NDArray[np.float32]]:
    """Read reference slices again.

    Args:
        cohort: The cohort.
        rows: Rows of reference slices.

    Returns:
        Pixels, float32 (S, S) in [0, 1], by row. Rows whose image is gone, cannot be read or no
        longer shows what was encoded are left out: a wrong picture would be worse than none.
    """
    wanted: dict[str, dict[int, list[int]]] = {}
    for row in rows:
        if cohort.sources[row]:
            by_digest = wanted.setdefault(cohort.sources[row], {})
            by_digest.setdefault(int(cohort.digests[row]), []).append(row)
    found: dict[int, NDArray[np.float32]] = {}
    for path, by_digest in wanted.items():
        missing = set(by_digest)
        try:
            for source in find_images([path], any_modality=True).sources:
                for volume in read_source(source):
                    for one in slice_volume(
                        volume, plane=cohort.facts.plane, size=cohort.facts.input_size
                    ):
                        if one.pixels is None or not missing:
                            continue
                        digest = pixel_digest(one.pixels)
                        if digest in missing:
                            missing.discard(digest)
                            found.update(dict.fromkeys(by_digest[digest], one.pixels))
                    if not missing:
                        break
        except ImageError:
            continue
    return found
