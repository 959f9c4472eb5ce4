from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from conftest import INPUT_SIZE
from MemorizationIndexLib import (
    AuditOptions,
    CohortOptions,
    Verdict,
    build_cohort_from_volumes,
    load_cohort,
    score,
    score_volumes,
)
from MemorizationIndexLib.images.volume import ImageError, Volume
from MemorizationIndexLib.index.protocols import CalibrationError
from MemorizationIndexLib.index.scores import p_values, q_values
from MemorizationIndexLib.progress import CancelledError, Progress
from MemorizationIndexLib.summary import finding_sentence
from MemorizationIndexLib.transformations import get_transformation
from phantom_files import phantom

BARE = AuditOptions(pictures=False, verify=False)


def volume(seed: int, slices: int = 4, name: str = "", subject: str = "") -> Volume:
    return Volume(
        name or f"v{seed}", subject or f"s{seed}", phantom(seed, slices), np.eye(4), "", planar=True
    )


@pytest.fixture(scope="module")
def result(small_audit):
    return score([small_audit.reference / "p2", small_audit.queries], small_audit.cohort)


def test_scores_follow_from_similarity_and_null(result, small_audit):
    null = load_cohort(small_audit.cohort).null.similarity
    scored = [one for one in result.slices if one.verdict is not Verdict.NOT_SCORED]
    similarity = np.array([one.similarity for one in scored])
    p = p_values(similarity, null)
    assert np.allclose([one.p_value for one in scored], p)
    assert np.allclose([one.q_value for one in scored], q_values(p))
    mi = (similarity - null.mean()) / np.sqrt(null.var() + 1e-8)
    assert np.allclose([one.mi for one in scored], mi)
    assert np.allclose([one.oni for one in scored], -np.tanh(mi))
    assert np.array_equal(result.statistics, similarity)
    for one in scored:
        flagged = one.similarity > result.summary.suspicious_threshold
        assert (one.verdict is not Verdict.NO_EVIDENCE) == flagged
        if one.verdict is Verdict.COPY:
            assert one.similarity >= result.summary.copy_threshold
        expected = np.exp(np.log(np.clip(one.layer_similarity, 0, None) + 1e-6).mean())
        assert one.similarity == pytest.approx(expected, rel=1e-5)
        assert 0 <= one.consensus <= 3
        assert one.margin >= 0


def test_nearest_row_subject_and_slice_name_one_slice(result, small_audit):
    cohort = load_cohort(small_audit.cohort)
    for one in result.slices:
        row = one.nearest_row
        assert cohort.facts.subjects[cohort.reference.subjects[row]] == one.nearest_subject
        assert cohort.indices[row] == one.nearest_slice
        assert cohort.facts.volumes[cohort.volume_codes[row]] == one.nearest_volume
        assert one.nearest_source == "head.nii.gz"


def test_volumes_sum_up_their_slices(result):
    assert [one.volume for one in result.volumes] == list(
        dict.fromkeys(one.volume for one in result.slices)
    )
    for whole in result.volumes:
        members = [one for one in result.slices if one.volume == whole.volume]
        assert whole.slices == len(members)
        copies = sum(one.verdict is Verdict.COPY for one in members)
        assert whole.copies == copies
        assert whole.lowest_oni == min(one.oni for one in members)
        assert whole.mean_oni == pytest.approx(np.mean([one.oni for one in members]))
    copied = result.volumes[0]
    assert copied.verdict is Verdict.COPY
    assert (copied.copies, copied.nearest_subject, copied.longest_run) == (4, "p2", 4)


def test_summary_holds_what_must_stand_beside_a_result(result):
    summary = result.summary
    assert (summary.alpha, summary.protocol, summary.encoder) == (0.01, "calibrated", "builtin")
    assert (summary.reference_slices, summary.reference_subjects) == (24, 6)
    assert summary.widths == (2048, 800, 288)
    assert len(summary.shrinkage) == 3
    assert all(0 < value <= 1 for value in summary.shrinkage)
    assert summary.null_size == 24
    assert summary.certifiable_alpha == pytest.approx(1 / 7)
    assert any("cannot certify" in sentence for sentence in summary.warnings)
    assert summary.exact_copy_mi > 10
    assert {row.name for row in summary.power} >= {"exact", "noise_0.01", "rotation_5", "gamma"}
    assert next(row for row in summary.power if row.name == "exact").power_copy == 1
    assert (
        summary.finding == "4 of 12 scored slices in 3 volumes are copies of 1 reference patient."
    )
    assert "private" not in summary.finding


def test_the_same_audit_twice_is_the_same(result, small_audit):
    again = score([small_audit.reference / "p2", small_audit.queries], small_audit.cohort)
    assert again.slices == result.slices
    assert again.volumes == result.volumes
    assert dataclasses.replace(again.summary, created="") == dataclasses.replace(
        result.summary, created=""
    )


def test_a_slice_is_scored_alike_alone_and_among_others(small_audit, result):
    alone = score(small_audit.queries / "q1", small_audit.cohort, options=BARE)
    among = [one for one in result.slices if one.subject == "q1"]
    for one, other in zip(alone.slices, among, strict=True):
        assert one.similarity == pytest.approx(other.similarity, rel=1e-5)
        assert one.p_value == other.p_value
        assert one.verdict is other.verdict


@pytest.mark.parametrize(
    "name", ["noise_0.02", "gamma", "rotation_3", "horizontal_flip", "vertical_flip", "crop"]
)
def test_a_disguised_copy_names_its_patient(small_audit, name):
    head = phantom(4, 4).astype(np.float32)
    rng = np.random.default_rng(0)
    change = get_transformation(name)
    disguised = np.stack([change.apply(one / one.max(), rng) for one in head])
    copy = Volume("fake", "fake", disguised, np.eye(4), "", planar=True)
    found = score_volumes([copy], small_audit.cohort, options=BARE).slices
    assert [one.nearest_subject for one in found] == ["p4"] * 4
    assert all(one.verdict is not Verdict.NO_EVIDENCE for one in found)


def test_blank_and_unusable_slices_keep_their_place_with_a_reason(small_audit):
    stack = phantom(50, 6).astype(np.float32)
    stack[0], stack[3] = 0, np.nan
    found = score_volumes([Volume("v", "s", stack, np.eye(4), "", planar=True)], small_audit.cohort)
    assert [one.slice for one in found.slices] == list(range(6))
    for number, one in enumerate(found.slices):
        if number in (0, 3):
            assert one.verdict is Verdict.NOT_SCORED
            assert one.reason
            assert one.oni is one.p_value is one.nearest_subject is None
    assert found.summary.slices == 6
    assert len(found.statistics) == found.summary.scored < 6


def test_only_blank_slices_say_so_without_a_number(small_audit):
    blank = Volume("v", "s", np.zeros((3, 50, 50)), np.eye(4), "", planar=True)
    found = score_volumes([blank], small_audit.cohort)
    assert found.summary.finding == "None of the 3 slices could be scored."
    assert found.summary.mean_oni is None
    assert found.volumes[0].verdict is Verdict.NOT_SCORED
    assert found.volumes[0].share_flagged is None


def test_no_volume_at_all_is_refused(small_audit):
    with pytest.raises(ImageError, match="no image"):
        score_volumes([], small_audit.cohort)


def test_more_slices_than_a_batch_come_in_order(small_audit):
    many = volume(70, 140)
    found = score_volumes([many, volume(71, 5)], small_audit.cohort, options=BARE)
    assert [one.slice for one in found.slices] == [*range(140), *range(5)]
    assert all(np.isfinite(one.similarity) for one in found.slices if not one.reason)


def test_no_similarity_exceeds_one(small_audit):
    found = score(small_audit.reference / "p2", small_audit.cohort, options=BARE)
    assert max(one.similarity for one in found.slices if one.similarity is not None) == 1.0


@pytest.mark.parametrize("alpha", [0.0, 1.0, float("nan")])
def test_alpha_out_of_range_is_refused(small_audit, alpha):
    with pytest.raises(CalibrationError, match="above 0 and below 1"):
        score_volumes([volume(1)], small_audit.cohort, options=AuditOptions(alpha=alpha))


def test_a_larger_alpha_flags_no_fewer(small_audit):
    volumes = [volume(seed) for seed in range(60, 64)]

    def flagged(alpha: float) -> int:
        options = AuditOptions(alpha=alpha, pictures=False, verify=False)
        found = score_volumes(volumes, small_audit.cohort, options=options)
        return sum(one.verdict is not Verdict.NO_EVIDENCE for one in found.slices)

    counts = [flagged(alpha) for alpha in (0.001, 0.05, 0.2, 0.6, 0.99)]
    assert counts == sorted(counts)


def test_cancelling_stops_the_run(small_audit):
    told: list[Progress] = []
    with pytest.raises(CancelledError):
        score_volumes(
            [volume(seed, 64) for seed in range(90, 96)],
            small_audit.cohort,
            progress=told.append,
            cancelled=lambda: any(one.stage == "Scoring" for one in told),
        )
    assert told[-1].done < told[-1].total


def test_pictures_are_kept_only_if_wanted(small_audit, result):
    assert result.pictures
    assert set(result.reference_pictures) == {one.nearest_row for one in result.slices}
    bare = score_volumes([volume(1)], small_audit.cohort, options=BARE)
    assert bare.pictures == {}
    assert bare.reference_pictures == {}


def test_no_copy_can_be_called_where_no_control_is_clear(tmp_path):
    # Every subject holds the same pictures: the null is full of what only copies should reach.
    same = [volume(1, 3, name=f"v{number}", subject=f"s{number}") for number in range(6)]
    options = CohortOptions(encoder="builtin", input_size=INPUT_SIZE, robust=False)
    cohort = build_cohort_from_volumes(same, tmp_path / "c", options=options)
    found = score_volumes([volume(1, 3), volume(2, 3)], cohort, options=BARE)
    assert found.summary.copies == 0
    for one in found.slices:
        assert one.verdict is not Verdict.COPY
        assert one.oni is None or np.isfinite([one.similarity, one.mi, one.oni]).all()
    told = " ".join(found.summary.warnings)
    assert "no slice can be called a copy" in told or "undefined" in told


def test_finding_counts_in_words_that_fit():
    assert finding_sentence([], []) == "None of the 0 slices could be scored."
