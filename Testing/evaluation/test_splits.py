"""Who is in the reference, and where copies are planted."""

from __future__ import annotations

import numpy as np
import pytest

from MemorizationIndexLib.evaluation.features import EvaluationError
from MemorizationIndexLib.evaluation.splits import plant, plant_by_chance, split_subjects


@pytest.mark.parametrize(("count", "size"), [(10, None), (38, None), (38, 5), (38, 20), (55, 20)])
def test_no_subject_is_on_both_sides(count, size):
    split = split_subjects(count, 3, size)
    assert len(split.reference) == (size or count // 2)
    assert not set(split.reference) & set(split.test)
    assert set(split.reference) | set(split.test) <= set(range(count))
    assert (np.diff(split.reference) > 0).all()
    assert (np.diff(split.test) > 0).all()


def test_the_whole_set_is_used_and_the_seed_decides():
    split = split_subjects(11, 0)
    assert len(split.reference) + len(split.test) == 11
    np.testing.assert_array_equal(split.test, split_subjects(11, 0).test)
    assert any(list(split_subjects(11, seed).test) != list(split.test) for seed in range(1, 5))


def test_small_cohorts_are_tested_on_the_same_people():
    full, small = split_subjects(30, 1), split_subjects(30, 1, 5)
    assert set(small.reference) <= set(full.reference)
    np.testing.assert_array_equal(small.test, full.test)


@pytest.mark.parametrize(("count", "size"), [(9, None), (20, 4), (20, 16)])
def test_too_few_subjects_are_refused(count, size):
    with pytest.raises(EvaluationError, match="subjects cannot be split"):
        split_subjects(count, 0, size)


@pytest.mark.parametrize("level", [0.0, 0.001, 0.05, 0.45])
def test_planting_replaces_the_share_without_repeating_a_slice(level):
    subjects = np.repeat(np.arange(8), 5)
    planted = plant(60, subjects, level, 2)
    expected = max(1, round(level * 60)) if level else 0
    assert len(planted.replaced) == len(planted.copied) == expected
    assert len(set(planted.replaced)) == len(set(planted.copied)) == expected
    assert all(0 <= place < 60 for place in planted.replaced)
    assert all(0 <= row < 40 for row in planted.copied)
    again = plant(60, subjects, level, 2)
    np.testing.assert_array_equal(planted.copied, again.copied)


def test_planting_by_chance_keeps_the_rate_but_not_the_number():
    rng = np.random.default_rng(0)
    counts = [len(plant_by_chance(60, 7, 0.3, rng).replaced) for _ in range(200)]
    assert np.mean(counts) == pytest.approx(18, abs=1)
    assert np.var(counts) == pytest.approx(60 * 0.3 * 0.7, rel=0.3)
    planted = plant_by_chance(60, 7, 1.0, rng)
    assert set(planted.copied) == set(range(7)) and len(planted.replaced) == 60
    assert len(plant_by_chance(60, 7, 0.0, rng).replaced) == 0


def test_copies_are_dealt_round_the_subjects():
    subjects = np.repeat(np.arange(4), [1, 2, 30, 30])
    copied = plant(40, subjects, 0.2, 0).copied
    counts = np.bincount(subjects[copied], minlength=4)
    assert (counts >= [1, 2, 2, 2]).all()


def test_more_copies_than_reference_slices_are_refused():
    with pytest.raises(EvaluationError, match="45 of 100 test slices"):
        plant(100, np.arange(20), 0.45, 0)
