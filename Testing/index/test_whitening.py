from __future__ import annotations

import itertools
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index import naive
from MemorizationIndexLib.index import whitening
from MemorizationIndexLib.index.whitening import (
    Moments,
    fit_whitener,
    fit_whitener_to_moments,
    oas_shrinkage,
)


def features(count: int, width: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((width, width)) * np.linspace(0.1, 3, width)
    return (rng.standard_normal((count, width)) @ mixing + rng.uniform(-5, 5, width)).astype("f4")


@settings(max_examples=40, deadline=None)
@given(count=st.integers(4, 60), width=st.integers(2, 40), seed=st.integers(0, 999))
def test_equals_naive_zca_with_more_rows_than_features_and_with_fewer(count, width, seed):
    rows, others = features(count, width, seed), features(7, width, seed + 1)
    whitener = fit_whitener(rows, "oas")
    mean, matrix, share = naive.zca(rows)
    assert whitener.shrinkage == pytest.approx(share, rel=1e-6)
    for some in (rows, others):
        assert np.allclose(whitener.whiten(some), naive.whiten(some, mean, matrix), atol=2e-4)


@settings(max_examples=40, deadline=None)
@given(count=st.integers(3, 40), width=st.integers(2, 40), seed=st.integers(0, 999))
def test_gram_matrix_and_moments_give_one_whitener(count, width, seed):
    rows, others = features(count, width, seed), features(5, width, seed + 1)
    gram = fit_whitener(rows, "oas")
    moments = fit_whitener_to_moments(Moments.of(rows), "oas")
    assert gram.shrinkage == pytest.approx(moments.shrinkage, rel=1e-6)
    assert np.allclose(gram.whiten(others), moments.whiten(others), atol=2e-4)


def test_shrinkage_is_full_for_white_noise_and_small_for_many_rows():
    rng = np.random.default_rng(0)
    assert fit_whitener(rng.standard_normal((20, 300)), "oas").shrinkage > 0.9
    assert fit_whitener(features(3000, 10), "oas").shrinkage < 0.05
    assert oas_shrinkage(10.0, 10.0, 50, 10) == 1.0  # a multiple of the identity


def test_ridge_is_the_papers_equation():
    rows, others = features(200, 12), features(6, 12, 1)
    centered = rows.astype(np.float64) - rows.mean(0, dtype=np.float64)
    covariance = centered.T @ centered / (len(rows) - 1) + 1e-6 * np.eye(12)
    values, vectors = np.linalg.eigh(covariance)
    expected = naive.whiten(
        others, rows.mean(0, dtype=np.float64), vectors @ np.diag(values**-0.5) @ vectors.T
    )
    assert np.allclose(fit_whitener(rows, "ridge").whiten(others), expected, atol=1e-4)


def test_white_rows_have_unit_covariance_before_they_are_scaled():
    rows = features(4000, 8)
    whitener = fit_whitener(rows, "ridge")
    matrix = (
        whitener.floor * np.eye(8)
        + whitener.vectors.T @ np.diag(whitener.gains - whitener.floor) @ whitener.vectors
    )
    white = (rows - whitener.mean) @ matrix
    assert np.allclose(np.cov(white, rowvar=False), np.eye(8), atol=1e-2)


@pytest.mark.parametrize("method", ["oas", "ridge", "clip"])
@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((5, 4)),
        np.full((3, 8), 7.0),
        np.eye(6)[[0, 0, 0, 1]],
        np.full((4, 3), 1e-30),
        np.array([[1e8, 1, 0], [1e8, 2, 0], [1e8, 3, 1], [1e8, 4, 1.0]]),
    ],
)
def test_degenerate_rows_stay_finite(rows, method):
    white = fit_whitener(rows.astype(np.float32), method).whiten(rows.astype(np.float32))
    assert np.isfinite(white).all()
    assert (np.linalg.norm(white, axis=1) < 1 + 1e-5).all()


def test_rows_are_of_length_one():
    white = fit_whitener(features(30, 50), "oas").whiten(features(9, 50, 3))
    assert white.dtype == np.float32
    assert np.allclose(np.linalg.norm(white, axis=1), 1, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(0, 9), min_size=2, max_size=5), seed=st.integers(0, 99))
def test_moments_merge_in_any_grouping_and_can_be_taken_away(sizes, seed):
    rows = features(sum(sizes) + 2, 5, seed)
    edges = np.cumsum([0, *sizes[:-1], sizes[-1] + 2])
    parts = [Moments.of(rows[a:b]) for a, b in itertools.pairwise(edges)]
    whole = Moments.of(rows)

    def same(one: Moments, other: Moments) -> bool:
        return (
            one.count == other.count
            and np.allclose(one.mean, other.mean, atol=1e-9)
            and np.allclose(one.scatter, other.scatter, atol=1e-6)
        )

    assert same(reduce(Moments.merge, parts), whole)
    assert same(reduce(Moments.merge, parts[::-1]), whole)
    assert same(whole.without(parts[0]), reduce(Moments.merge, parts[1:]))
    assert np.allclose(whole.scatter / whole.count, np.cov(rows, rowvar=False, ddof=0), atol=1e-4)


def test_taking_all_rows_away_leaves_no_rows():
    whole = Moments.of(features(6, 3))
    nothing = whole.without(whole)
    assert nothing.count == 0
    assert np.isfinite(nothing.mean).all()
    assert whole.merge(nothing).count == 6


def test_moments_do_not_depend_on_the_chunk(monkeypatch):
    rows = features(50, 4)
    whole = Moments.of(rows)
    monkeypatch.setattr(whitening, "CHUNK", 7)
    pieces = Moments.of(rows)
    assert np.allclose(whole.mean, pieces.mean)
    assert np.allclose(whole.scatter, pieces.scatter)


def test_moments_bear_a_large_offset():
    rows = features(100, 3).astype(np.float64)
    far = Moments.of(rows + 1e6)
    assert np.allclose(far.scatter, Moments.of(rows).scatter, rtol=1e-6)
