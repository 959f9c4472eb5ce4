"""The baselines on sets whose answer is known, and on what they refuse."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings

import numpy as np
import pytest

from MemorizationIndexLib.evaluation.authenticity import authenticity
from MemorizationIndexLib.evaluation.data_copying import (
    data_copying,
    data_copying_in_cells,
    data_copying_z,
)
from MemorizationIndexLib.evaluation.features import (
    EvaluationError,
    EvaluationWarning,
    nearest,
    neighbor_distance,
)
from MemorizationIndexLib.evaluation.frechet import frechet_distance
from MemorizationIndexLib.evaluation.kernel_distance import (
    kernel_distance,
    kernel_distance_of_subsets,
)
from MemorizationIndexLib.evaluation.prdc import precision_recall_density_coverage
from MemorizationIndexLib.evaluation.vendi import vendi_score, vendi_score_of_kernel

TWO_SETS = [
    frechet_distance,
    kernel_distance,
    lambda first, second: kernel_distance_of_subsets(first, second, np.random.default_rng(0)),
    authenticity,
    precision_recall_density_coverage,
    lambda first, second: data_copying(first, first, second),
    lambda first, second: data_copying_z(first, first, second),
]


def gaussian(rows: int, width: int = 6, seed: int = 0, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, width)) + shift


@pytest.mark.parametrize("measure", TWO_SETS)
@pytest.mark.parametrize(
    ("second", "message"),
    [
        (gaussian(80)[:, 0], r"shape \(80,\)"),
        (gaussian(80, 5), "5 wide"),
        (np.full((80, 6), np.nan), "not finite"),
        (np.empty((0, 6)), "0 rows"),
        (np.empty((80, 0)), r"shape \(80, 0\)"),
    ],
)
def test_what_is_no_feature_set_is_refused(measure, second, message):
    with pytest.raises(EvaluationError, match=message):
        measure(gaussian(80), second)


class TestNearest:
    def test_agrees_with_brute_force_over_blocks(self):
        queries, references = gaussian(2100, 3, 1), gaussian(50, 3, 2)
        between = np.linalg.norm(queries[:, None] - references[None], axis=2)
        distance, row = nearest(queries, references)
        np.testing.assert_array_equal(row, between.argmin(axis=1))
        np.testing.assert_allclose(distance, between.min(axis=1), rtol=1e-12)

    def test_a_neighbor_is_another_row(self):
        features = gaussian(2100, 3)
        for k in (1, 4):
            between = np.sort(np.linalg.norm(features[:40, None] - features[None], axis=2), axis=1)
            np.testing.assert_allclose(neighbor_distance(features, k)[:40], between[:, k])

    def test_a_far_copy_is_at_distance_zero(self):
        features = gaussian(40, 64, shift=1e4)
        assert nearest(features, features)[0].max() == 0.0


class TestFrechet:
    def test_of_a_shift_is_its_square(self):
        features = gaussian(200)
        assert frechet_distance(features, features + 0.5) == pytest.approx(6 * 0.25, rel=1e-10)

    def test_of_a_scaling_is_the_closed_form(self):
        features = gaussian(200) - gaussian(200).mean(axis=0)
        trace = np.trace(np.cov(features.T))
        assert frechet_distance(features, 3 * features) == pytest.approx(4 * trace, rel=1e-10)

    def test_is_symmetric_and_zero_for_equal_sets_of_any_rank(self):
        for rows in (100, 5):
            one, two = gaussian(rows, seed=1), gaussian(rows + 7, seed=2, shift=0.2)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", EvaluationWarning)
                assert frechet_distance(one, two) == pytest.approx(frechet_distance(two, one))
                assert frechet_distance(one, one) == pytest.approx(0.0, abs=1e-12)

    def test_says_when_it_has_too_few_slices(self):
        with pytest.warns(EvaluationWarning, match=r"6 slices for 6 features.*biased"):
            frechet_distance(gaussian(60), gaussian(6, seed=1))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            frechet_distance(gaussian(7), gaussian(60, seed=1))

    def test_needs_two_rows(self):
        with pytest.raises(EvaluationError, match="1 rows"):
            frechet_distance(gaussian(1), gaussian(9))


class TestKernelDistance:
    def test_is_the_u_statistic_pair_by_pair(self):
        one, two = gaussian(7, 3, 1), gaussian(5, 3, 2)

        def kernel(x, y):
            return (x @ y / 3 + 1) ** 3

        within = [
            np.mean([kernel(s[i], s[j]) for i in range(len(s)) for j in range(len(s)) if i != j])
            for s in (one, two)
        ]
        between = np.mean([kernel(x, y) for x in one for y in two])
        assert kernel_distance(one, two) == pytest.approx(sum(within) - 2 * between, rel=1e-12)

    def test_blocks_change_nothing(self):
        one, two = gaussian(1500, 3, 1), gaussian(1100, 3, 2)
        kernel = [(a @ b.T / 3 + 1) ** 3 for a, b in ((one, one), (two, two), (one, two))]
        within = [(k.sum() - np.trace(k)) / (len(k) * (len(k) - 1)) for k in kernel[:2]]
        assert kernel_distance(one, two) == pytest.approx(
            sum(within) - 2 * kernel[2].mean(), rel=1e-9
        )

    def test_is_unbiased(self):
        values = [
            kernel_distance(gaussian(30, 3, 2 * s), gaussian(30, 3, 2 * s + 1)) for s in range(300)
        ]
        assert abs(np.mean(values)) < 3 * np.std(values) / np.sqrt(len(values))
        assert min(values) < 0

    def test_subsets_follow_their_generator_and_center_on_the_full_value(self):
        one, two = gaussian(300, 4, 1), gaussian(300, 4, 2, shift=0.5)
        first = kernel_distance_of_subsets(one, two, np.random.default_rng(3))
        assert first == kernel_distance_of_subsets(one, two, np.random.default_rng(3))
        assert first != kernel_distance_of_subsets(one, two, np.random.default_rng(4))
        assert first.mean == pytest.approx(kernel_distance(one, two), abs=4 * first.sd / 10)

    def test_subsets_must_fit(self):
        with pytest.raises(EvaluationError, match="30 rows"):
            kernel_distance_of_subsets(gaussian(30), gaussian(60), np.random.default_rng(0))
        with pytest.raises(EvaluationError, match="0 subsets"):
            kernel_distance_of_subsets(
                gaussian(60), gaussian(60), np.random.default_rng(0), subsets=0
            )


class TestAuthenticity:
    def test_counts_samples_nearer_than_the_training_set_is_to_itself(self):
        reference = np.array([[0.0], [1.0], [10.0]])
        generated = np.array([[0.2], [-3.0], [10.5], [25.0]])
        # 0.2 and 10.5 are explained; −3 is 3 from 0, whose neighbor is 1 away; 25 is 15 from 10.
        assert authenticity(reference, generated) == 50.0

    def test_copies_are_not_authentic(self):
        assert authenticity(gaussian(50), gaussian(50)[:20] + 1e-6) == 0.0

    def test_needs_two_references(self):
        with pytest.raises(EvaluationError, match="reference features have 1 rows"):
            authenticity(gaussian(1), gaussian(5))


class TestVendi:
    @pytest.mark.parametrize("q", [0.5, 1, 2, math.inf])
    def test_counts_the_different_samples(self, q):
        assert vendi_score(np.repeat(np.eye(5), 4, axis=0), q) == pytest.approx(5.0)
        assert vendi_score(np.ones((9, 3)), q) == pytest.approx(1.0)

    def test_falls_with_the_order_and_ignores_length(self):
        features = gaussian(40)
        scores = [vendi_score(features, q) for q in (0.5, 1, 1.5, 2, math.inf)]
        assert scores == sorted(scores, reverse=True)
        lengths = np.random.default_rng(1).uniform(0.1, 9, (40, 1))
        assert vendi_score(features * lengths) == pytest.approx(vendi_score(features))

    def test_is_the_entropy_of_the_kernel(self):
        rows = gaussian(30) / np.linalg.norm(gaussian(30), axis=1, keepdims=True)
        for q in (1, 2, math.inf):
            assert vendi_score_of_kernel(rows @ rows.T, q) == pytest.approx(vendi_score(rows, q))

    @pytest.mark.parametrize("q", [0, -1, math.nan])
    def test_refuses_an_order_that_is_none(self, q):
        with pytest.raises(EvaluationError, match="order"):
            vendi_score(gaussian(10), q)

    def test_refuses_a_row_without_direction(self):
        features = gaussian(10)
        features[3] = 0
        with pytest.raises(EvaluationError, match="Row 3"):
            vendi_score(features)

    def test_refuses_what_is_no_kernel(self):
        for kernel, message in (
            (gaussian(5, 4), "symmetric"),
            (gaussian(5, 5), "symmetric"),
            (-np.eye(4), "no positive eigenvalue"),
        ):
            with pytest.raises(EvaluationError, match=message):
                vendi_score_of_kernel(kernel)


class TestDataCopying:
    def test_copies_are_below_zero_and_far_samples_above(self):
        reference, test = gaussian(300, seed=1), gaussian(200, seed=2)
        copies = reference[:150] + 0.05 * gaussian(150, seed=3)
        assert data_copying(reference, test, copies).score < -5
        assert data_copying(reference, test, 3 * gaussian(150, seed=4)).score > 5

    def test_fresh_samples_are_near_zero(self):
        scores = [
            data_copying(
                gaussian(200, seed=3 * s),
                gaussian(150, seed=3 * s + 1),
                gaussian(150, seed=3 * s + 2),
            ).score
            for s in range(30)
        ]
        assert abs(np.mean(scores)) < 0.5
        assert np.std(scores) < 1.5

    def test_z_is_mann_whitneys(self):
        from scipy.stats import mannwhitneyu

        reference = gaussian(50, seed=1)
        test, generated = (
            gaussian(40, seed=2),
            np.concatenate([gaussian(30, seed=3), reference[:4]]),
        )
        d_test, d_generated = nearest(test, reference)[0], nearest(generated, reference)[0]
        u = mannwhitneyu(d_generated, d_test, alternative="less").statistic
        z = (u - 34 * 40 / 2 + 0.5) / np.sqrt(34 * 40 * 75 / 12)
        assert data_copying_z(reference, test, generated) == pytest.approx(z, rel=1e-12)

    def test_the_seed_decides(self):
        sets = gaussian(200, seed=1), gaussian(120, seed=2), gaussian(120, seed=3)
        assert data_copying(*sets, seed=4) == data_copying(*sets, seed=4)
        assert len({data_copying(*sets, seed=seed).score for seed in range(5)}) > 1

    def test_finds_clear_clusters_whatever_the_seed(self):
        centers = 40 * np.eye(6)[:3]
        reference = np.concatenate([gaussian(90, seed=s) + c for s, c in enumerate(centers)])
        test = np.concatenate(
            [gaussian(n, seed=9) + c for n, c in zip((10, 20, 30), centers, strict=True)]
        )
        for seed in range(5):
            found = data_copying(reference, test, reference[::2], seed=seed)
            assert sorted(found.cell_weights) == pytest.approx([1 / 6, 1 / 3, 1 / 2])

    def test_thin_cells_are_left_out(self):
        reference = np.concatenate([gaussian(60, seed=1), gaussian(60, seed=2, shift=50)])
        test = np.concatenate([gaussian(30, seed=3), gaussian(10, seed=4, shift=50)])
        generated = np.concatenate([gaussian(40, seed=5), gaussian(19, seed=6, shift=50)])
        labels = [(rows[:, 0] > 25).astype(int) for rows in (reference, test, generated)]
        found = data_copying_in_cells(reference, test, generated, *labels)
        assert found.cell_used == (True, False)
        assert found.score == pytest.approx(found.cell_scores[0], rel=1e-12)
        assert found.cell_weights == (0.75, 0.25)

    def test_wide_features_are_projected(self):
        reference, test, copies = (gaussian(n, 200, s) for n, s in ((150, 1), (80, 2), (60, 1)))
        assert data_copying(reference, test, reference[:60] + 0.1 * copies).score < -5
        few = data_copying(reference[:30], test, reference[:30], cells=1)
        assert few.score < -5

    def test_refuses_what_it_cannot_test(self):
        reference = gaussian(60)
        with pytest.raises(EvaluationError, match="20 generated samples"):
            data_copying(reference, gaussian(30, seed=1), gaussian(10, seed=2))
        with pytest.raises(EvaluationError, match="3 different reference rows"):
            data_copying(np.ones((60, 6)), gaussian(30, seed=1), gaussian(30, seed=2))
        with pytest.raises(EvaluationError, match="0 cells"):
            data_copying(reference, reference, reference, cells=0)
        with pytest.raises(EvaluationError, match="test cells do not fit 60 rows"):
            data_copying_in_cells(
                reference,
                reference,
                reference,
                np.zeros(60, int),
                np.zeros(59, int),
                np.zeros(60, int),
            )
        ones = np.ones(60, int)
        with pytest.raises(EvaluationError, match="reference features have 0 rows"):
            data_copying_in_cells(reference, reference, reference, 0 * ones, ones, ones)


class TestPrdc:
    def test_equal_sets_cover_each_other(self):
        found = precision_recall_density_coverage(gaussian(60), gaussian(60))
        assert (found.precision, found.recall, found.coverage) == (1.0, 1.0, 1.0)

    def test_sets_apart_do_not(self):
        found = precision_recall_density_coverage(gaussian(60), gaussian(60, seed=1, shift=90))
        assert (found.precision, found.recall, found.density, found.coverage) == (0, 0, 0, 0)

    def test_blocks_change_nothing(self):
        real, generated = gaussian(1100, 3, 1), gaussian(200, 3, 2)
        between = np.linalg.norm(real[:, None] - generated[None], axis=2)
        inside = between < neighbor_distance(real, 5)[:, None]
        found = precision_recall_density_coverage(real, generated)
        assert found.precision == inside.any(axis=0).mean()
        assert found.density == pytest.approx(inside.sum(axis=0).mean() / 5)
        assert found.coverage == inside.any(axis=1).mean()
        assert found.recall == (between < neighbor_distance(generated, 5)).any(axis=1).mean()

    def test_refuses_too_few_rows(self):
        with pytest.raises(EvaluationError, match="at least 6"):
            precision_recall_density_coverage(gaussian(5), gaussian(60))
        with pytest.raises(EvaluationError, match="0 neighbors"):
            precision_recall_density_coverage(gaussian(60), gaussian(60), k=0)


def test_import_is_light():
    rooms = "authenticity bootstrap data_copying features frechet kernel_distance prdc roc vendi"
    code = (
        "import importlib, sys\n"
        f"for room in '{rooms}'.split():"
        " importlib.import_module('MemorizationIndexLib.evaluation.' + room)\n"
        "print([m for m in ('torch', 'scipy', 'SimpleITK', 'sklearn') if m in sys.modules])"
    )
    # `python -c` does not see pytest's pythonpath setting.
    package = next(path for path in sys.path if path.endswith("MemorizationIndex"))
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=package
    )
    assert output.stdout.strip() == "[]"
