from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from MemorizationIndexLib.index.protocols import CalibrationError
from MemorizationIndexLib.index.scores import p_values
from MemorizationIndexLib.index.verdict import (
    CLEARANCE,
    MISSED,
    _binomial,
    find_thresholds,
    lowest_of_copies,
    power,
    rule_sentence,
    verdicts,
)
from MemorizationIndexLib.results import Verdict

values = st.lists(st.floats(0, 1).map(lambda x: round(x, 3)), min_size=5, max_size=60)


@settings(deadline=None)
@given(null=values, copies=values, asked=values, alpha=st.floats(0.001, 0.999))
def test_the_rule_holds_for_every_slice(null, copies, asked, alpha):
    null, asked = np.array(null), np.array(asked)
    thresholds = find_thresholds(null, {"exact": np.array(copies)}, alpha)
    level = max(alpha, 1 / (len(null) + 1))
    assert thresholds.level == level
    for value, p, verdict in zip(
        asked, p_values(asked, null), verdicts(asked, null, thresholds), strict=True
    ):
        flagged = p <= level * (1 + 1e-9)
        assert (verdict is not Verdict.NO_EVIDENCE) == flagged
        assert flagged == (value > thresholds.suspicious)
        reaches = thresholds.copy is not None and value >= thresholds.copy
        assert (verdict is Verdict.COPY) == (flagged and reaches)


def test_no_more_than_alpha_of_the_null_itself_is_suspicious():
    null = np.random.default_rng(0).random(999)
    found = verdicts(null, null, find_thresholds(null, {}, 0.01))
    assert sum(v is Verdict.SUSPICIOUS for v in found) <= 10


def test_without_a_clearly_seen_control_nothing_is_a_copy():
    null = np.linspace(0.1, 0.3, 200)
    for control in (
        {},
        {"exact": np.full(100, 0.31)},
        {"exact": np.zeros(100)},
        {"x": np.array([])},
    ):
        thresholds = find_thresholds(null, control, 0.01)
        assert thresholds.copy is None
        assert thresholds.clearly_seen == ()
        found = verdicts(np.array([0.2, 0.9, 1.0]), null, thresholds)
        assert found == [Verdict.NO_EVIDENCE, Verdict.SUSPICIOUS, Verdict.SUSPICIOUS]
        assert "none is called a copy" in rule_sentence(thresholds)


def test_copy_begins_at_the_weakest_clearly_seen_control():
    null = np.linspace(0.1, 0.3, 200)
    control = {
        "exact": np.full(100, 1.0),
        "rotation_3": np.full(100, 0.6),
        "horizontal_flip": np.full(100, 0.25),
    }
    thresholds = find_thresholds(null, control, 0.01)
    assert thresholds.copy == 0.6
    assert thresholds.clearly_seen == ("exact", "rotation_3")
    least = null.mean() + CLEARANCE * (thresholds.suspicious - null.mean())
    assert thresholds.copy >= least
    assert "0.6000" in rule_sentence(thresholds)


def test_the_bound_on_copies_is_the_order_statistic_of_wilks():
    rng = np.random.default_rng(0)
    for count, rank in ((5, 1), (92, 1), (93, 2), (100, 2)):
        sample = rng.random(count)
        assert lowest_of_copies(sample) == np.sort(sample)[rank - 1]
    # Held in 95 % of draws: below it lie at most 5 % of all copies.
    held = [lowest_of_copies(rng.random(100)) <= 0.05 for _ in range(2000)]
    assert 0.94 <= np.mean(held) <= 0.98


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 2.0, float("nan")])
def test_alpha_out_of_range_is_refused(alpha):
    with pytest.raises(CalibrationError, match=r"alpha is .* above 0 and below 1"):
        find_thresholds(np.arange(10.0), {}, alpha)


def test_alpha_beyond_the_null_falls_back_to_what_it_can_tell():
    null = np.arange(10.0)
    thresholds = find_thresholds(null, {}, 1e-9)
    assert thresholds.level == pytest.approx(1 / 11)
    assert thresholds.suspicious == 9.0


def test_power_counts_verdicts_of_known_copies():
    null = np.linspace(0.1, 0.3, 200)
    control = {
        "exact": np.array([1.0] * 98 + [0.2] * 2),
        "rotation_3": np.array([0.2] * 60 + [0.9] * 40),
        "horizontal_flip": np.array([]),
    }
    thresholds = find_thresholds(null, control, 0.01)
    rows = {row.name: row for row in power(null, control, thresholds)}
    assert set(rows) == {"exact", "rotation_3"}
    assert rows["rotation_3"].power_suspicious == pytest.approx(0.4)
    assert not rows["rotation_3"].seen
    assert rows["exact"].seen
    assert rows["exact"].samples == 100
    assert rows["exact"].power_copy <= rows["exact"].power_suspicious == pytest.approx(0.98)


def test_undefined_known_copies_are_not_counted_as_found():
    null = np.linspace(0.1, 0.3, 200)
    control = {"exact": np.array([np.nan] * 50 + [1.0] * 50)}
    thresholds = find_thresholds(null, control, 0.01)
    (row,) = power(null, control, thresholds)
    assert row.power_suspicious == pytest.approx(0.5)
    assert np.isfinite([row.power_copy, row.power_suspicious]).all()


@pytest.mark.parametrize("count", [1, 20, 93, 100, 5000])
def test_the_binomial_distribution_is_that_of_scipy(count):
    for most in {0, 1, count // 20, count}:
        expected = special.bdtr(most, count, MISSED)
        assert _binomial(most, count, MISSED) == pytest.approx(expected, rel=1e-9, abs=1e-300)
