"""What similarity looks like with copying: reference slices in every disguise, scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONTROL_SLICES = 100
"""Known copies per transformation."""


@dataclass(frozen=True)
class Control:
    """Similarities of known copies.

    Attributes:
        similarity: By transformation name, each of shape (m,).
        subjects: Code of the copied subject, the same order under every transformation, shape (m,).
        rightly_named: By transformation name, the share whose nearest subject is the copied one.
    """

    similarity: dict[str, NDArray[np.float64]]
    subjects: NDArray[np.int64]
    rightly_named: dict[str, float]


def balanced_sample(
    subjects: Sequence[int] | NDArray[np.integer], size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw slices so that every subject gives as equal a number as it can.

    Args:
        subjects: Subject code of each slice, shape (N,).
        size: Number of slices to draw; all are drawn if there are fewer.
        rng: Source of the draw.

    Returns:
        Sorted indices of the drawn slices, shape (min(size, N),).
    """
    codes = np.asarray(subjects)
    order = rng.permutation(len(codes))
    # Rank each slice within its subject, in shuffled order; taking the lowest ranks first deals
    # the sample round the subjects.
    by_subject = order[np.argsort(codes[order], kind="stable")]
    sorted_codes = codes[by_subject]
    starts = np.flatnonzero(np.diff(sorted_codes, prepend=sorted_codes[:1] - 1))
    rank = np.arange(len(codes)) - np.repeat(starts, np.diff([*starts, len(codes)]))
    ties = rng.random(len(codes))
    return np.sort(by_subject[np.lexsort((ties, rank))][:size])
