"""Who is in the reference, who is in the test, and where copies are planted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.evaluation.features import EvaluationError
from MemorizationIndexLib.index.control import balanced_sample
from MemorizationIndexLib.index.protocols import LEAST_SUBJECTS

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Subjects of one trial; no subject is on both sides.

    Attributes:
        reference: Subject codes of the reference, rising.
        test: Subject codes of the test, rising.
    """

    reference: Codes
    test: Codes


def split_subjects(subject_count: int, seed: int, size: int | None = None) -> Split:
    """Split subjects at random into reference and test (METHOD.md section 5).

    The seed fixes one order of the subjects. The reference is its beginning, the test its second
    half, so that cohorts of different sizes are tested on the same people as far as they can be.

    Args:
        subject_count: Number of subjects.
        seed: Of the order.
        size: Subjects in the reference; half of them if None.

    Raises:
        EvaluationError: Reference or test would have fewer than five subjects.
    """
    half = subject_count // 2
    size = half if size is None else size
    start = max(half, size)
    if size < LEAST_SUBJECTS or subject_count - start < LEAST_SUBJECTS:
        raise EvaluationError(
            f"{subject_count} subjects cannot be split into a reference of {size} and a test: both "
            f"need at least {LEAST_SUBJECTS}; add subjects, or say with --subjects or a "
            "manifest.csv whose image is whose."
        )
    order = np.random.default_rng([seed, 5]).permutation(subject_count)
    return Split(np.sort(order[:size]), np.sort(order[start:]))


@dataclass(frozen=True)
class Planted:
    """A set in which some slices were replaced by copies.

    Attributes:
        replaced: Positions in the test that hold a copy, rising, shape (m,).
        copied: Positions in the reference that they copy, shape (m,).
    """

    replaced: NDArray[np.int64]
    copied: NDArray[np.int64]


def plant(
    test_count: int, reference_subjects: NDArray[np.integer], level: float, seed: int
) -> Planted:
    """Replace a share of the test slices by reference slices, as evenly over subjects as can be.

    Args:
        test_count: Number of test slices.
        reference_subjects: Subject of each reference slice, shape (N,).
        level: Share to replace, in [0, 1]; at least one slice is replaced if it is above 0.
        seed: Of the draw; the same for all conditions, so that they are compared on equal copies.

    Raises:
        EvaluationError: The reference has fewer slices than are to be replaced.
    """
    count = max(1, round(level * test_count)) if level > 0 else 0
    if count > len(reference_subjects):
        raise EvaluationError(
            f"{count} of {test_count} test slices cannot be replaced by copies of "
            f"{len(reference_subjects)} reference slices; ask for a lower share."
        )
    rng = np.random.default_rng([seed, 6, round(1000 * level)])
    copied = balanced_sample(reference_subjects, count, rng)
    replaced = np.sort(rng.permutation(test_count)[:count])
    return Planted(replaced, rng.permutation(copied))


def plant_by_chance(
    test_count: int, reference_count: int, rate: float, rng: np.random.Generator
) -> Planted:
    """Replace each test slice by a reference slice with one probability.

    Args:
        test_count: Number of test slices.
        reference_count: Number of reference slices, drawn from with replacement.
        rate: Probability, in [0, 1].
        rng: Source of chance.
    """
    replaced = np.flatnonzero(rng.random(test_count) < rate)
    return Planted(replaced, rng.integers(reference_count, size=len(replaced)))
