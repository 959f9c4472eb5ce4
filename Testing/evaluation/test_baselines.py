"""Every stored case of the peers' packages, to the tolerance that is written beside it."""

from __future__ import annotations

import json
import math
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from MemorizationIndexLib.evaluation.authenticity import authenticity
from MemorizationIndexLib.evaluation.data_copying import (
    data_copying,
    data_copying_in_cells,
    data_copying_z,
    projected,
)
from MemorizationIndexLib.evaluation.features import EvaluationWarning
from MemorizationIndexLib.evaluation.frechet import frechet_distance
from MemorizationIndexLib.evaluation.kernel_distance import (
    kernel_distance,
    kernel_distance_of_subsets,
)
from MemorizationIndexLib.evaluation.prdc import precision_recall_density_coverage
from MemorizationIndexLib.evaluation.vendi import vendi_score, vendi_score_of_kernel
from shared_data import ROOT, reference

FOLDER = Path(os.environ.get("MI_REFERENCE_DIR", ROOT.parent / "shared" / "reference"), "baselines")


def stored(name: str) -> dict:
    path = FOLDER / name
    return json.loads(path.read_text()) if path.exists() else {}


EXPECTED = stored("baseline_expected.json")
EXPECTED_CT = stored("ct_expected.json")


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    with np.load(reference("baselines", "baseline_cases.npz")) as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(params=sorted(EXPECTED) or ["missing"])
def case(request, arrays):
    name = request.param
    return EXPECTED[name], *(arrays[f"{name}__{part}"] for part in ("train", "test", "gen"))


@pytest.fixture(params=sorted(EXPECTED_CT) or ["missing"])
def ct_case(request, arrays):
    name = request.param
    if "skipped" in EXPECTED_CT[name]:
        pytest.skip(f"no peer value: {EXPECTED_CT[name]['skipped']}")
    suffix = "64" if f"{name}__ct_train64" in arrays else ""
    parts = [
        arrays[f"{name}__ct_{part}64" if suffix else f"{name}__{part}"]
        for part in ("train", "test", "gen")
    ]
    labels = [arrays[f"{name}__ct_labels_{part}"] for part in "TPQ"]
    whole = [arrays[f"{name}__{part}"] for part in ("train", "test", "gen")]
    return EXPECTED_CT[name], parts, labels, whole


def test_frechet_distance(case):
    expected, train, test, gen = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvaluationWarning)
        found = {
            "fid_train_gen": frechet_distance(train, gen),
            "fid_test_gen": frechet_distance(test, gen),
        }
    for pair, value in found.items():
        for peer, peer_value in expected[pair].items():
            assert value == pytest.approx(peer_value, rel=1e-6), (pair, peer)


def test_full_kernel_distance(case):
    expected, train, _, gen = case
    rows = min(len(train), len(gen))
    value = kernel_distance(train[:rows], gen[:rows])
    peers = {
        peer: peer_value
        for peer, peer_value in expected["kid_train_gen"].items()
        if "first m" in peer
    }
    assert peers
    for peer, peer_value in peers.items():
        assert value == pytest.approx(peer_value, rel=1e-9, abs=1e-9), peer


def test_kernel_distance_of_subsets(case):
    expected, train, _, gen = case
    for peer, peer_value in expected["kid_train_gen"].items():
        if peer.startswith("torch_fidelity"):
            found = kernel_distance_of_subsets(train, gen, np.random.RandomState(2020))
            wanted = [
                peer_value["kernel_inception_distance_mean"],
                peer_value["kernel_inception_distance_std"],
            ]
        elif peer.startswith("dgm_eval.compute_mmd"):
            found = kernel_distance_of_subsets(train, gen, np.random.RandomState(0))
            wanted = [peer_value["mean"], peer_value["std"]]
        elif peer.startswith("cleanfid"):
            # This package draws the rows of the generated set first.
            found = kernel_distance_of_subsets(gen, train, np.random.RandomState(0))
            wanted = [peer_value, found.sd]
        else:
            continue
        assert [found.mean, found.sd] == pytest.approx(wanted, rel=1e-9, abs=1e-9), peer


ORDERS = {"q=0.5": 0.5, "q=1": 1.0, "q=2": 2.0, "q=inf": math.inf, "linear": 1.0}


def test_vendi_score(case):
    expected, train, _, gen = case
    for peer, peer_value in expected["vendi"].items():
        features = train if "(train" in peer or "cosine(train" in peer else gen
        if "polynomial" in peer:
            rows = features / np.linalg.norm(features, axis=1, keepdims=True)
            value = vendi_score_of_kernel((rows @ rows.T / rows.shape[1] + 1.0) ** 3)
        else:
            value = vendi_score(features, next(q for text, q in ORDERS.items() if text in peer))
        # At q = 0.5, which the method does not use, the peers count the root of the rounding noise
        # of every zero eigenvalue; no other machine repeats those digits.
        assert value == pytest.approx(peer_value, rel=1e-6 if "q=0.5" in peer else 1e-9), peer


def test_authenticity(case):
    expected, train, test, gen = case
    for peer, peer_value in expected["authpct"].items():
        if peer.startswith("dgm_eval"):
            samples = test if "train,test" in peer else gen
            one_sample = 100.0 / len(samples)
            assert authenticity(train, samples) == pytest.approx(peer_value, abs=one_sample + 1e-4)
        elif "INDEX BUG" in peer:
            assert abs(authenticity(train, gen) - 100.0 * peer_value) > 100.0 / len(gen)


def test_precision_recall_density_coverage(case):
    expected, train, _, gen = case
    value = precision_recall_density_coverage(train, gen, k=5)
    for peer in ("prdc_pkg(nearest_k=5)", "dgm_eval.prdc(nearest_k=5)"):
        for measure, peer_value in expected[peer].items():
            assert getattr(value, measure) == pytest.approx(peer_value, abs=1e-12), (peer, measure)


def test_data_copying_with_the_stored_cells(ct_case):
    expected, parts, labels, _ = ct_case
    found = data_copying_in_cells(*parts, *labels)
    assert found.score == pytest.approx(
        expected["meehan.C_T(stored labels,tau=20/len(gen))"], rel=1e-9, abs=1e-9
    )
    assert found.cell_scores == pytest.approx(
        expected["meehan.Zu_cells(stored labels)"], rel=1e-9, abs=1e-9
    )
    assert data_copying_z(*parts) == pytest.approx(
        expected["meehan.Zu(global)"], rel=1e-9, abs=1e-9
    )


def test_data_copying_projection_keeps_the_stored_distances(ct_case):
    _, parts, _, whole = ct_case
    for found, wanted in zip(projected(*whole), parts, strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found @ found.T, wanted @ wanted.T, rtol=1e-9, atol=1e-6)


def test_data_copying_with_own_cells_lies_among_the_peers_seeds(ct_case):
    expected, _, _, whole = ct_case
    seeds = expected["dgm_eval.compute_CTscore(np.random.seed(s)), s=0..9"]
    spread = max(seeds) - min(seeds)
    found = data_copying(*whole, seed=0).score
    assert min(seeds) - spread / 2 - 1e-9 <= found <= max(seeds) + spread / 2 + 1e-9
