from __future__ import annotations

import numpy as np
import pytest

from index import naive
from MemorizationIndexLib.index.null import cross_fitted_null, half_split_null, subject_folds
from MemorizationIndexLib.index.protocols import PROTOCOLS, CalibrationError
from MemorizationIndexLib.index.reference import Reference

CALIBRATED = PROTOCOLS["calibrated"]


def near_twins(
    subjects: int,
    slices: int,
    width: int = 24,
    layers: int = 2,
    spread: float = 0.05,
    seed: int = 0,
):
    """Features where slices of one subject are all but equal, and subjects are unrelated."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(subjects), slices)
    rows = [
        rng.standard_normal((subjects, width))[codes]
        + spread * rng.standard_normal((len(codes), width))
        for _ in range(layers)
    ]
    return [layer.astype(np.float32)[None] for layer in rows], codes


def test_no_slice_meets_its_own_subject():
    layers, codes = near_twins(30, 4)
    null = cross_fitted_null(layers, codes, 30, CALIBRATED, 0)
    # With its own subject on the other side a slice would be at nearly 1, as the halves show.
    reference = Reference.fit(layers, codes, 30, CALIBRATED)
    halves = half_split_null(reference, CALIBRATED, 0)
    assert np.median(halves.similarity) > 0.9
    assert null.similarity.max() < 0.8
    assert np.array_equal(null.subjects, codes)


def test_no_slice_meets_its_own_subject_under_any_pose_either():
    layers, codes = near_twins(20, 3)
    posed = [np.concatenate([layer, layer + 0.01]) for layer in layers]
    assert cross_fitted_null(posed, codes, 20, CALIBRATED, 0).similarity.max() < 0.8


@pytest.mark.parametrize(("subjects", "slices", "width"), [(7, 2, 40), (12, 9, 10), (12, 9, 100)])
@pytest.mark.parametrize("poses", [1, 2])
def test_equals_naive_cross_fitting(subjects, slices, width, poses):
    layers, codes = near_twins(subjects, slices, width, spread=1.0)
    if poses == 2:
        more, _ = near_twins(subjects, slices, width, spread=1.0, seed=1)
        layers = [np.concatenate(pair) for pair in zip(layers, more, strict=True)]
    found = cross_fitted_null(layers, codes, subjects, CALIBRATED, 3).similarity
    fold = subject_folds(subjects, np.random.default_rng(3))[codes]
    for number in np.unique(fold):
        inside, outside = fold == number, fold != number
        queries, rows = [], []
        for layer in layers:
            others = layer[:, outside].reshape(-1, width)
            mean, matrix, _ = naive.zca(others)
            queries.append(naive.whiten(layer[0, inside], mean, matrix))
            rows.append(naive.whiten(others, mean, matrix))
        assert np.allclose(found[inside], naive.similarity(queries, rows), atol=1e-3)


def test_whitening_leaves_the_fold_out(monkeypatch):
    from MemorizationIndexLib.index import null as room

    layers, codes = near_twins(6, 2, width=50)
    seen = []
    original = room.fit_whitener
    monkeypatch.setattr(
        room, "fit_whitener", lambda rows, method: (seen.append(rows), original(rows, method))[1]
    )
    cross_fitted_null(layers, codes, 6, CALIBRATED, 0)
    assert len(seen) == 6 * len(layers)
    assert {len(rows) for rows in seen} == {10}


@pytest.mark.parametrize("count", [5, 9, 10, 11, 37])
def test_folds_are_nearly_equal_and_hold_every_subject(count):
    folds = subject_folds(count, np.random.default_rng(0))
    sizes = np.bincount(folds)
    assert len(folds) == count
    assert len(sizes) == min(10, count)
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("count", [0, 1, 4])
def test_fewer_than_five_subjects_are_refused(count):
    with pytest.raises(CalibrationError, match=rf"has {count} subjects? and .* at least 5"):
        subject_folds(count, np.random.default_rng(0))


@pytest.mark.parametrize("subjects", [5, 10, 20])
def test_one_slice_a_subject_is_enough(subjects):
    layers, codes = near_twins(subjects, 1, width=300)
    null = cross_fitted_null(layers, codes, subjects, CALIBRATED, 0)
    assert null.similarity.shape == (subjects,)
    assert np.isfinite(null.similarity).all()


def test_identical_slices_stay_finite():
    layers = [np.ones((1, 10, 6), np.float32)]
    assert np.isfinite(cross_fitted_null(layers, np.arange(10), 10, CALIBRATED, 0).similarity).all()


def test_one_seed_gives_one_null_and_another_seed_another():
    layers, codes = near_twins(25, 2, spread=1.0)
    first, again, other = (
        cross_fitted_null(layers, codes, 25, CALIBRATED, seed).similarity for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


@pytest.mark.parametrize("width", [6, 300])
def test_progress_is_told_within_a_fold_and_a_cancel_is_heard_there(monkeypatch, width):
    from MemorizationIndexLib.index import null as room
    from MemorizationIndexLib.index import similarity

    for module in (room, similarity):
        monkeypatch.setattr(module, "REFERENCES", 7)
        monkeypatch.setattr(module, "QUERIES", 3)
    layers, codes = near_twins(10, 4, width=width, spread=1.0)
    told = []

    def tell(done, total):
        told.append((done, total))

    null = cross_fitted_null(layers, codes, 10, CALIBRATED, 0, progress=tell)
    done = [one for one, _ in told]
    assert done == sorted(done) and done[0] == 0 and told[-1] == (40, 40)
    # 10 folds of 4 slices: 2 blocks of queries by 6 of references each.
    assert len(told) > 10 * 12 and set(done) == set(range(41))
    monkeypatch.undo()
    whole = cross_fitted_null(layers, codes, 10, CALIBRATED, 0)
    np.testing.assert_allclose(null.similarity, whole.similarity, rtol=1e-5)

    class Cancelled(Exception):  # noqa: N818
        pass

    def cancel(done, total):
        if done == 6:  # in the middle of the second fold
            raise Cancelled

    monkeypatch.setattr(room, "REFERENCES", 7)
    with pytest.raises(Cancelled):
        cross_fitted_null(layers, codes, 10, CALIBRATED, 0, progress=cancel)


def test_halving_tells_its_progress_too():
    layers, codes = near_twins(10, 4, width=20)
    told = []
    reference = Reference.fit(layers, codes, 10, CALIBRATED)
    half_split_null(reference, CALIBRATED, 0, progress=lambda *now: told.append(now))
    assert told == [(20 * n, 200) for n in range(1, 11)]


def test_an_unequal_number_of_slices_is_borne():
    layers, _ = near_twins(6, 5, spread=1.0)
    codes = np.sort(np.random.default_rng(0).choice(6, 30, p=[0.5, 0.3, 0.05, 0.05, 0.05, 0.05]))
    codes = np.unique(codes, return_inverse=True)[1]
    found = cross_fitted_null(layers, codes, int(codes.max()) + 1, CALIBRATED, 0)
    assert np.isfinite(found.similarity).all()
