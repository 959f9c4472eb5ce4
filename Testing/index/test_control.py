from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from MemorizationIndexLib.index.control import balanced_sample


@given(
    counts=st.lists(st.integers(1, 20), min_size=1, max_size=12),
    size=st.integers(0, 60),
    seed=st.integers(0, 99),
)
def test_sample_is_balanced_without_repetition(counts, size, seed):
    codes = np.repeat(np.arange(len(counts)), counts)
    drawn = balanced_sample(codes, size, np.random.default_rng(seed))
    assert len(drawn) == min(size, len(codes)) == len(set(drawn.tolist()))
    assert (np.diff(drawn) > 0).all()
    per_subject = np.bincount(codes[drawn], minlength=len(counts))
    # Nobody gives two fewer than another unless all his slices are drawn.
    for code, given_ in enumerate(per_subject):
        assert given_ >= min(counts[code], per_subject.max() - 1)


def test_sample_varies_with_the_seed_and_not_otherwise():
    codes = np.repeat(np.arange(10), 10)
    first, again, other = (balanced_sample(codes, 20, np.random.default_rng(s)) for s in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
