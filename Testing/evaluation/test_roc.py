"""AUC, TPR at a given FPR, and intervals that respect subjects."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from MemorizationIndexLib.evaluation.bootstrap import bootstrap_interval
from MemorizationIndexLib.evaluation.features import EvaluationError
from MemorizationIndexLib.evaluation.roc import auc, roc_curve, tpr_at_fpr

scores = st.lists(st.integers(-4, 4), min_size=1, max_size=25)


@given(scores, scores)
def test_auc_is_the_share_of_ordered_pairs(positive, negative):
    pairs = [(p > n) + 0.5 * (p == n) for p in positive for n in negative]
    assert auc(positive, negative) == pytest.approx(np.mean(pairs))
    assert auc(negative, positive) == pytest.approx(1 - np.mean(pairs))


@given(scores, scores, st.sampled_from([0.0, 0.01, 0.07, 0.25, 0.29, 0.5, 1.0]))
def test_tpr_is_the_best_over_all_thresholds(positive, negative, fpr):
    copies, clean = np.array(positive), np.array(negative)
    best = max(
        (copies >= threshold).mean()
        for threshold in [*copies, *clean, 99]
        if (clean >= threshold).mean() <= fpr + 1e-12
    )
    assert tpr_at_fpr(positive, negative, fpr) == pytest.approx(best)


@given(scores, scores)
def test_the_curve_runs_from_corner_to_corner_with_the_area_of_auc(positive, negative):
    curve = roc_curve(positive, negative)
    assert (curve.fpr[0], curve.tpr[0], curve.fpr[-1], curve.tpr[-1]) == (0, 0, 1, 1)
    assert (np.diff(curve.fpr) >= 0).all()
    assert (np.diff(curve.tpr) >= 0).all()
    assert (np.diff(curve.thresholds) < 0).all()
    area = (np.diff(curve.fpr) * (curve.tpr[1:] + curve.tpr[:-1]) / 2).sum()
    assert area == pytest.approx(auc(positive, negative))


def test_one_percent_of_a_hundred_is_one_and_of_ninety_nine_none():
    clean = np.arange(100.0)
    assert tpr_at_fpr([98.5], clean, 0.01) == 1.0
    assert tpr_at_fpr([98.0], clean, 0.01) == 0.0
    assert tpr_at_fpr([97.5], clean[:99], 0.01) == 0.0
    assert tpr_at_fpr([21.0], np.arange(29.0)[:29], 7 / 29) == 0.0
    assert tpr_at_fpr([71.5], clean, 0.29) == 1.0 - (71.5 < 70)
    assert tpr_at_fpr([70.5], clean, 0.29) == 1.0
    assert tpr_at_fpr([70.0], clean, 0.29) == 0.0


@pytest.mark.parametrize("measure", [auc, tpr_at_fpr, roc_curve])
def test_scores_that_are_none_are_refused(measure):
    with pytest.raises(EvaluationError, match="clean slices have shape"):
        measure([1.0], [])
    with pytest.raises(EvaluationError, match="copies hold NaN"):
        measure([np.nan], [1.0])
    with pytest.raises(EvaluationError, match=r"copies have shape \(1, 2\)"):
        measure([[1.0, 2.0]], [1.0])


@pytest.mark.parametrize("fpr", [-0.1, 1.1, np.nan])
def test_a_rate_out_of_range_is_refused(fpr):
    with pytest.raises(EvaluationError, match="rate"):
        tpr_at_fpr([1.0], [0.0], fpr)


def clustered(subjects: int, slices: int, rng: np.random.Generator, shift: float = 0.0):
    """Slices of a subject share most of their score."""
    values = shift + np.repeat(rng.standard_normal(subjects), slices)
    return values + 0.2 * rng.standard_normal(len(values)), np.repeat(np.arange(subjects), slices)


def test_interval_follows_its_seed_and_holds_the_estimate():
    rng = np.random.default_rng(0)
    (positive, p_subject), (negative, n_subject) = clustered(12, 5, rng, 1.0), clustered(15, 5, rng)
    found = bootstrap_interval(auc, [positive, negative], 3, [p_subject, n_subject])
    assert found == bootstrap_interval(auc, [positive, negative], 3, [p_subject, n_subject])
    assert found != bootstrap_interval(auc, [positive, negative], 4, [p_subject, n_subject])
    assert found.estimate == auc(positive, negative)
    assert found.low < found.estimate < found.high


def test_clusters_give_honest_coverage_and_slices_do_not():
    covered = {"subjects": 0, "slices": 0}
    trials = 150
    for trial in range(trials):
        values, subject = clustered(25, 8, np.random.default_rng(trial))
        for name, clusters in (("subjects", [subject]), ("slices", None)):
            found = bootstrap_interval(np.mean, [values], trial, clusters, replicates=200)
            covered[name] += found.low <= 0.0 <= found.high
    assert 0.86 <= covered["subjects"] / trials <= 0.99
    assert covered["slices"] / trials < 0.7


def test_strata_keep_their_size_and_clusters_stay_whole():
    sizes = []

    def measure(first, second):
        sizes.append((len(first), len(second)))
        assert all((first == value).sum() % 3 == 0 for value in np.unique(first))
        return float(second.mean())

    first = np.repeat([1.0, 2.0, 3.0], 3)
    names = np.repeat(["b", "a", "c"], 3)
    bootstrap_interval(measure, [first, np.arange(7.0)], 0, [names, None], replicates=50)
    assert set(sizes) == {(9, 7)}


def test_rows_of_features_are_resampled_whole():
    features = np.random.default_rng(0).standard_normal((40, 3))
    found = bootstrap_interval(lambda rows: float(rows[:, 1].mean()), [features], 0, replicates=100)
    assert found.estimate == pytest.approx(features[:, 1].mean())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strata": []}, "0 strata"),
        ({"replicates": 0}, "0 replicates"),
        ({"level": 1.0}, r"level 1\.0"),
        ({"clusters": [None, None]}, "2 lists of clusters"),
        ({"clusters": [["a", "b"]]}, "3 values and clusters of shape"),
        ({"clusters": [["a", "a", "a"]]}, "1 clusters"),
        ({"strata": [[]]}, "0 clusters"),
        ({"strata": [1.0]}, "single number"),
    ],
)
def test_what_cannot_be_resampled_is_refused(arguments, message):
    with pytest.raises(EvaluationError, match=message):
        bootstrap_interval(np.mean, **{"strata": [[1.0, 2.0, 3.0]], "seed": 0, **arguments})
