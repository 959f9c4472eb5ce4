from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from MemorizationIndexLib.index.protocols import PROTOCOLS, CalibrationError, get_protocol
from MemorizationIndexLib.index.scores import (
    memorization_index,
    null_spread,
    oni,
    p_values,
    q_values,
)

few = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.5000001, 1.0]), min_size=1, max_size=30)


@given(statistic=few, null=few)
def test_p_values_count_the_null(statistic, null):
    found = p_values(np.array(statistic), np.array(null))
    expected = [(1 + sum(n >= s for n in null)) / (len(null) + 1) for s in statistic]
    assert np.allclose(found, expected)
    assert (found > 0).all()


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=40))
def test_q_values_are_those_of_benjamini_and_hochberg(values):
    found = q_values(np.array(values))
    count = len(values)
    for p, q in zip(values, found, strict=True):
        bounds = [r * count / sum(o <= r for o in values) for r in values if r >= p]
        assert q == pytest.approx(min(1.0, *bounds, 1.0))
    assert (found >= np.array(values) - 1e-12).all()


@given(st.lists(st.floats(1e-6, 1), min_size=2, max_size=40), st.randoms())
def test_q_values_do_not_depend_on_the_order(values, random):
    order = list(range(len(values)))
    random.shuffle(order)
    array = np.array(values)
    assert np.allclose(q_values(array)[order], q_values(array[order]))


def test_index_is_a_z_score_and_oni_its_negative_tangent():
    null = np.array([0.1, 0.2, 0.3, 0.4])
    spread = null_spread(null, PROTOCOLS["calibrated"])
    assert spread.mean == pytest.approx(0.25)
    mi = memorization_index(np.array([0.25, 1.0]), spread)
    assert mi[0] == pytest.approx(0)
    assert mi[1] == pytest.approx(0.75 / np.sqrt(np.var(null) + 1e-8))
    assert np.allclose(oni(mi), -np.tanh(mi))
    assert (np.abs(oni(np.array([-1e300, 0.0, 1e300]))) <= 1).all()


@pytest.mark.parametrize("null", [np.full(9, 0.3), np.array([0.1, np.nan])])
def test_a_null_without_spread_or_with_gaps_is_undefined(null):
    assert not null_spread(null, PROTOCOLS["calibrated"]).defined


def test_an_unknown_protocol_is_refused_with_the_known_ones():
    with pytest.raises(CalibrationError, match=r"'strict'.*calibrated, paper, reference"):
        get_protocol("strict")
