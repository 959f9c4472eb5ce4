"""Flagged slices of an audit are laid over their matches, where those are at hand."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest

from conftest import INPUT_SIZE
from MemorizationIndexLib import (
    AuditOptions,
    CohortOptions,
    Verdict,
    build_cohort,
    load_cohort,
    score,
    score_volumes,
)
from MemorizationIndexLib.comparison.nearest_pairs import nearest_pairs
from MemorizationIndexLib.encoders.registry import get_encoder
from MemorizationIndexLib.evidence import flagged as room
from MemorizationIndexLib.evidence.flagged import FlaggedSlice, reduced, verify_flagged
from MemorizationIndexLib.images.volume import Volume
from MemorizationIndexLib.index.poses import Pose, query_views, reference_poses
from MemorizationIndexLib.progress import CancelledError, never, quiet
from phantom_files import phantom, phantom_file


@pytest.fixture(scope="module")
def encoder():
    return get_encoder("builtin", input_size=INPUT_SIZE)


@pytest.fixture(scope="module")
def flipped(small_audit):
    """Score flipped slices of one patient among those of a stranger."""
    head = np.concatenate([phantom(3)[:, :, ::-1], phantom(101)])
    fake = Volume("fake", "fake", head, np.eye(4), "", planar=True)
    return score_volumes([fake], small_audit.cohort)


def test_copies_are_verified_with_their_pose(flipped) -> None:
    copies = [one for one in flipped.slices if one.verdict is Verdict.COPY]
    assert len(copies) >= 3 and {one.nearest_subject for one in copies} == {"p3"}
    for one in copies:
        assert one.pose == "flipped left–right"
        assert one.verified is True and one.ncc > 0.95 and one.ssim > 0.9
        pictures = flipped.match_pictures[one.volume, one.slice]
        assert pictures.query.dtype == pictures.difference.dtype == np.uint8
        assert pictures.query.shape == pictures.match.shape == pictures.checkerboard.shape
        assert np.abs(pictures.query.astype(int) - pictures.match).mean() < 5
        assert np.median(pictures.similarity[pictures.query > 25]) > 0.9
    others = [one for one in flipped.slices if one.verdict is Verdict.NO_EVIDENCE]
    assert others and all((one.ssim, one.ncc, one.verified) == (None,) * 3 for one in others)
    assert flipped.summary.verification.startswith("Verified: ")


def test_a_share_that_cannot_be_estimated_says_why(flipped) -> None:
    summary = flipped.summary
    assert (summary.share, summary.share_low, summary.share_high) == (None, None, None)
    assert "at least 2" in summary.share_note


def test_the_share_of_copies_lies_in_its_interval(small_audit) -> None:
    result = score([small_audit.reference / "p2", small_audit.queries], small_audit.cohort)
    summary = result.summary
    assert summary.share_note == ""
    assert 0 <= summary.share_low <= summary.share <= summary.share_high <= 1
    assert summary.share_low <= 1 / 3 <= summary.share_high
    assert summary.share == pytest.approx(1 / 3, abs=0.1)


def test_switched_off_nothing_is_registered(small_audit, monkeypatch) -> None:
    monkeypatch.setattr(room, "register", None, raising=False)
    monkeypatch.setattr(room, "lay_apart", None)
    result = score(
        small_audit.reference / "p2", small_audit.cohort, options=AuditOptions(verify=False)
    )
    assert {one.verdict for one in result.slices} == {Verdict.COPY}
    assert all(one.verified is None for one in result.slices) and not result.match_pictures


def test_without_pictures_matches_are_verified_but_not_shown(small_audit) -> None:
    result = score(
        small_audit.reference / "p2", small_audit.cohort, options=AuditOptions(pictures=False)
    )
    assert all(one.verified for one in result.slices) and not result.match_pictures


def test_a_stranger_laid_over_a_patient_does_not_hold(small_audit, encoder) -> None:
    cohort = load_cohort(small_audit.cohort)
    rows = [int(np.flatnonzero(cohort.reference.subjects == code)[1]) for code in range(6)]
    pixels = room._pixels(cohort, rows, never)
    strangers = [
        FlaggedSlice(pixels[row], other, Pose())
        for row, other in zip(rows, rows[1:] + rows[:1], strict=True)
    ]
    found = verify_flagged(strangers, cohort, encoder, alpha=0.01, progress=quiet, cancelled=never)
    assert len(found.slices) == 6
    assert sum(one.verified for one in found.slices.values()) == 0


def test_pairs_are_the_nearest_of_other_subjects(small_audit, encoder) -> None:
    cohort = load_cohort(small_audit.cohort)
    poses, views = reference_poses(encoder, robust=True), query_views(encoder, robust=True)
    pairs = nearest_pairs(cohort.reference, cohort.features, cohort.facts.seed, poses, views)
    subjects = cohort.reference.subjects
    assert len(pairs) == 20 and len({pair.slice for pair in pairs}) == 20
    assert pairs == nearest_pairs(
        cohort.reference, cohort.features, cohort.facts.seed, poses, views
    )
    for pair in pairs:
        assert subjects[pair.slice] != subjects[pair.nearest]
        # Against a search of everything, one slice and pose at a time.
        best = -1.0
        for view in views([np.asarray(layer[0][[pair.slice]]) for layer in cohort.features]):
            white = cohort.reference.whiten(view)
            for pose in range(len(poses)):
                product = np.prod(
                    [
                        np.clip(one @ layer[pose].T, 0, None)
                        for one, layer in zip(white, cohort.reference.rows, strict=True)
                    ],
                    axis=0,
                )[0]
                product[subjects == subjects[pair.slice]] = -1
                if product.max() > best + 1e-7:
                    best, row = product.max(), int(product.argmax())
        assert row == pair.nearest


def test_the_null_comes_with_the_cohort_or_is_made_once(small_audit, encoder, monkeypatch) -> None:
    """Made when it is needed, it is the one that was stored."""
    stored = load_cohort(small_audit.cohort)
    older = dataclasses.replace(stored, patients_apart=None, memory={})
    row = 5
    one = FlaggedSlice(room._pixels(stored, [row], never)[row], row, Pose())

    def verify(cohort) -> room.Verified:
        return verify_flagged([one], cohort, encoder, alpha=0.01, progress=quiet, cancelled=never)

    made = verify(older)
    assert np.array_equal(older.memory[room.STAGE].ssim, stored.patients_apart.ssim)
    assert np.array_equal(older.memory[room.STAGE].ncc, stored.patients_apart.ncc)
    monkeypatch.setattr(room, "nearest_pairs", None)
    for again in (verify(older), verify(stored)):
        assert again.sentence == made.sentence and again.slices[0].ssim == made.slices[0].ssim


def test_a_cohort_without_paths_says_why_nothing_was_verified(small_audit, encoder) -> None:
    cohort = load_cohort(small_audit.cohort)
    nowhere = dataclasses.replace(cohort, sources=("",) * cohort.slice_count)
    one = FlaggedSlice(np.zeros((INPUT_SIZE,) * 2, np.float32), 0, Pose())
    found = verify_flagged([one], nowhere, encoder, alpha=0.01, progress=quiet, cancelled=never)
    assert not found.slices and "does not know where its images are" in found.sentence


def test_images_that_are_gone_are_said_to_be(tmp_path) -> None:
    for number in range(5):
        phantom_file(tmp_path / "reference" / f"p{number}" / "head.nii.gz", number)
    options = CohortOptions(encoder="builtin", input_size=INPUT_SIZE)
    cohort = build_cohort(tmp_path / "reference", tmp_path / "c.micohort", options=options)
    shutil.copytree(tmp_path / "reference" / "p1", tmp_path / "fake")
    shutil.rmtree(tmp_path / "reference")
    result = score(tmp_path / "fake", cohort)
    assert {one.verdict for one in result.slices} == {Verdict.COPY}
    assert all(one.verified is None for one in result.slices)
    assert "gone, changed or not readable" in result.summary.verification


def test_verification_can_be_cancelled(small_audit) -> None:
    asked = []

    def progress(now) -> None:
        if now.stage == "Verifying":
            asked.append(now)

    with pytest.raises(CancelledError):
        score(
            small_audit.reference / "p2",
            small_audit.cohort,
            progress=progress,
            cancelled=lambda: len(asked) > 3,
        )
    assert len(asked) <= 5


def test_only_the_most_similar_are_kept(small_audit, monkeypatch) -> None:
    from MemorizationIndexLib import gallery

    monkeypatch.setattr(gallery, "MOST_VERIFIED", 3)
    head = np.concatenate([phantom(1), phantom(2)])
    result = score_volumes(
        [Volume("fake", "fake", head, np.eye(4), "", planar=True)], small_audit.cohort
    )
    tried = sorted(
        (one for one in result.slices if one.verified is not None), key=lambda o: o.slice
    )
    by_similarity = sorted(result.slices, key=lambda one: -one.similarity)[:3]
    assert {one.slice for one in tried} == {one.slice for one in by_similarity}
    assert "Only the 3 most suspicious slices were tried." in result.summary.verification


def test_large_slices_are_reduced() -> None:
    large = np.random.default_rng(0).random((448, 448), np.float32)
    small = reduced(large)
    assert small.shape == (224, 224) and small.dtype == np.float32
    assert np.allclose(small, large.reshape(224, 2, 224, 2).mean((1, 3)), atol=1e-5)
    assert reduced(small) is small
