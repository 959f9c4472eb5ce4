"""The ``reference`` protocol against the released code's own numbers; ``calibrated`` on them."""

from __future__ import annotations

import numpy as np
import pytest

from MemorizationIndexLib.index import published
from MemorizationIndexLib.index.matching import make_matcher
from MemorizationIndexLib.index.null import cross_fitted_null
from MemorizationIndexLib.index.poses import Pose
from MemorizationIndexLib.index.protocols import PROTOCOLS
from MemorizationIndexLib.index.reference import Reference, as_stored
from MemorizationIndexLib.index.scores import memorization_index, null_spread, oni
from shared_data import reference

LAYERS = ("block3", "block7", "block11")
WEIGHTS = {"geom": (), "min": (), "weighted": (1, 2, 3)}


def cases() -> list[str]:
    try:
        return sorted(path.stem for path in reference("index").glob("*.npz")) or ["none found"]
    except pytest.skip.Exception:
        return ["none found"]


def load(case: str):
    with np.load(reference("index", f"{case}.npz"), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def same_where_finite(found, expected) -> None:
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    assert found.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-6)
    assert not np.isfinite(found[~finite]).any()


def compute(case: dict, aggregation: str):
    train = [case[f"train_{layer}"] for layer in LAYERS]
    queries = [case[f"query_{layer}"] for layer in LAYERS]
    with np.errstate(all="ignore"):
        calibration = published.calibrate(train, aggregation, WEIGHTS[aggregation])
        return calibration, published.score(queries, train, calibration)


@pytest.mark.parametrize("aggregation", list(WEIGHTS))
@pytest.mark.parametrize("name", cases())
def test_reference_protocol_is_the_released_code(name, aggregation):
    case = load(name)
    calibration, scores = compute(case, aggregation)
    same_where_finite(calibration.null, case[f"{aggregation}_null_samples"])
    same_where_finite(calibration.mean, case[f"{aggregation}_mu_null"])
    same_where_finite(scores.similarity, case[f"{aggregation}_similarity"])
    same_where_finite(scores.mi, case[f"{aggregation}_mi"])
    same_where_finite(scores.oni, case[f"{aggregation}_oni"])
    sigma = case[f"{aggregation}_sigma_null"]
    if np.isfinite(sigma):
        assert calibration.scale == pytest.approx(float(sigma), rel=1e-6)


@pytest.mark.parametrize("name", cases())
def test_nearest_rows_are_the_released_codes(name):
    case = load(name)
    _, scores = compute(case, "geom")
    for number, layer in enumerate(LAYERS):
        assert np.array_equal(scores.layer_rows[:, number], case[f"nn_{layer}"])
        np.testing.assert_allclose(
            scores.layer_similarity[:, number], case[f"top1_{layer}"], rtol=1e-6
        )
        np.testing.assert_allclose(
            scores.layer_margin[:, number], case[f"margin_{layer}"], rtol=1e-6, atol=1e-10
        )
    assert np.array_equal(scores.consensus, case["consensus"])


@pytest.mark.parametrize("name", cases())
def test_matcher_of_the_reference_protocol_gives_the_same_similarity(name):
    case = load(name)
    layers = [case[f"train_{layer}"][None] for layer in LAYERS]
    codes = np.arange(layers[0].shape[1])
    protocol = PROTOCOLS["reference"]
    fitted = Reference.fit(layers, codes, len(codes), protocol)
    matches = make_matcher(fitted, layers, protocol, as_stored)(
        [case[f"query_{layer}"] for layer in LAYERS]
    )
    same_where_finite(matches.similarity, case["geom_similarity"])


@pytest.mark.parametrize("name", cases())
def test_calibrated_protocol_is_finite_and_ordered(name):
    case = load(name)
    layers = [case[f"train_{layer}"][None] for layer in LAYERS]
    # These rows have no subjects: each stands for its own.
    codes = np.arange(layers[0].shape[1])
    protocol = PROTOCOLS["calibrated"]
    null = cross_fitted_null(layers, codes, len(codes), protocol, 0).similarity
    fitted = Reference.fit(layers, codes, len(codes), protocol)
    matches = fitted.match([case[f"query_{layer}"] for layer in LAYERS], protocol)
    spread = null_spread(null, protocol)
    values = oni(memorization_index(matches.similarity, spread))
    assert spread.defined
    assert np.isfinite(values).all()
    by_kind = {kind: values[case["kind"] == kind] for kind in set(case["kind"].tolist())}
    raw = {
        kind: memorization_index(matches.similarity[case["kind"] == kind], spread)
        for kind in by_kind
    }
    # ONI saturates at -1; MI tells an exact copy from a near one.
    assert by_kind["exact"].max() <= by_kind["near"].min() + 1e-9
    assert np.median(raw["exact"]) > np.median(raw["near"]) > np.median(raw["novel"])
    assert by_kind["near"].max() < by_kind["novel"].min()
    copied = np.isin(case["kind"], ["exact", "near"])
    assert np.array_equal(matches.rows[copied], case["source_row"][copied])


def test_an_odd_number_of_slices_is_halved_as_the_released_code_does():
    rng = np.random.default_rng(0)
    for count in (4, 5, 7, 9):
        first, second = published._halves(count, max(1, round(count / 2)), rng)
        assert len(first) == len(second)
        assert not set(first) & set(second) or count % 2


def test_a_pose_says_what_it_does():
    assert Pose().label == ""
    assert Pose(4.0, horizontal=True).label == "flipped left–right, rotated by +4°"
    assert Pose(horizontal=True, vertical=True).label == "turned by 180°"
