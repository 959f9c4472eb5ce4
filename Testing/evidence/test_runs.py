"""Runs of flagged slices through one reference subject."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from MemorizationIndexLib.evidence.errors import EvidenceError
from MemorizationIndexLib.evidence.runs import Run, longest_run


def run(matches: str) -> Run:
    """``a3 a4 - b1``: subject and slice of flagged slices, ``-`` for one not flagged."""
    words = matches.split()
    return longest_run(
        [word != "-" for word in words],
        [None if word == "-" else word[0] for word in words],
        [None if word == "-" else int(word[1:]) for word in words],
    )


@pytest.mark.parametrize(
    ("matches", "expected"),
    [
        ("", Run(0, 0, None, 0)),
        ("- - -", Run(0, 0, None, 0)),
        ("- a7 -", Run(1, 1, "a", 0)),
        ("a1 a2 a3 a4", Run(0, 4, "a", 1)),
        ("a9 a8 a7", Run(0, 3, "a", -1)),
        ("a1 a3 a5 a9", Run(0, 4, "a", 1)),
        # An unflagged slice and another subject both end a run.
        ("a1 a2 - a3 a4 a5", Run(3, 3, "a", 1)),
        ("a1 a2 b3 b4 b5", Run(2, 3, "b", 1)),
        # A step back of one is a toss-up between neighbors; of two it is not.
        ("a1 a3 a2 a4", Run(0, 4, "a", 1)),
        ("a1 a5 a3 a6", Run(0, 2, "a", 1)),
        ("a9 a7 a8 a6", Run(0, 4, "a", -1)),
        # A query cut finer than the reference repeats its matches.
        ("a1 a1 a1 a2 a2 a2 a3", Run(0, 7, "a", 1)),
        # One slice over and over does not advance, and a tail that does not is left out.
        ("a5 a5 a5 a5", Run(0, 1, "a", 0)),
        ("a5 a5 a5 a5 a5 a5 a6 a7", Run(1, 7, "a", 1)),
        ("a1 a2 a2", Run(0, 2, "a", 1)),
        # Back and forth between neighbors is no advance beyond the first step.
        ("a4 a5 a4 a5 a4 a5", Run(0, 2, "a", 1)),
        # The first of equals.
        ("a1 a2 - b1 b2", Run(0, 2, "a", 1)),
        # The longer one, wherever it starts within a jumble.
        ("a9 a2 a3 a4 a1", Run(1, 3, "a", 1)),
    ],
)
def test_cases(matches: str, expected: Run) -> None:
    assert run(matches) == expected


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_reversing_the_query_reverses_a_strict_run(indices: list[int]) -> None:
    flags, names = [True] * len(indices), ["a"] * len(indices)
    forward = longest_run(flags, names, indices, tolerance=0, longest_stall=0)
    backward = longest_run(flags, names, indices[::-1], tolerance=0, longest_stall=0)
    assert forward.length == backward.length
    steps = np.diff(indices[forward.start : forward.start + forward.length])
    assert (np.sign(steps) == forward.direction).all()


def test_a_slice_without_match_ends_a_run() -> None:
    assert longest_run([True] * 3, ["a", None, "a"], [1, 2, 3]).length == 1
    assert longest_run([True] * 3, ["a", "a", "a"], [1, None, 3]).length == 1


def test_refusals() -> None:
    with pytest.raises(EvidenceError, match="2 flags, 1 subjects and 2 slice"):
        longest_run([True, True], ["a"], [1, 2])
    with pytest.raises(EvidenceError, match="negative"):
        longest_run([True], ["a"], [1], tolerance=-1)
