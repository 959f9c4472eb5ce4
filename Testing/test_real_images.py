"""Issue 2, "What must hold", lines 3 and 4: real slices, and every real volume and series."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from MemorizationIndexLib import (
    AuditOptions,
    CohortOptions,
    Verdict,
    build_cohort,
    score,
    score_volumes,
)
from MemorizationIndexLib.cohort.pictures import reference_pixels
from MemorizationIndexLib.images.volume import ImageError, Volume
from MemorizationIndexLib.transformations import get_transformation
from shared_data import shared

DISGUISES = (
    "exact",
    "noise_0.01",
    "noise_0.02",
    "intensity",
    "gamma",
    "blur",
    "rotation_3",
    "rotation_5",
)
BARE = AuditOptions(pictures=False, verify=False)


def area(copies: np.ndarray, clean: np.ndarray) -> float:
    return float((copies[:, None] > clean).mean() + 0.5 * (copies[:, None] == clean).mean())


@pytest.mark.parametrize("anatomy", ["brain", "knee", "spine"])
def test_copies_are_found_and_clean_patients_are_not_accused(anatomy, tmp_path):
    folders = sorted(path for path in shared("data", "slices", anatomy).iterdir() if path.is_dir())
    order = np.random.default_rng(0).permutation(len(folders))
    half = len(folders) // 2
    reference = [folders[number] for number in order[:half]]
    others = [folders[number] for number in order[half:]]
    cohort = build_cohort(reference, tmp_path / "c", options=CohortOptions(encoder="builtin"))
    assert cohort.subject_count == half

    clean = score(others, cohort, options=BARE)
    scored = [one for one in clean.slices if one.similarity is not None]
    assert len(scored) > 0.9 * len(clean.slices)
    called = np.mean([one.verdict is Verdict.COPY for one in scored])
    assert called <= 0.01, f"{called:.1%} of clean slices are called a copy"

    # At most 50 copied slices, spread over the subjects, so that the test stays fast.
    rows = np.unique(np.linspace(0, cohort.slice_count - 1, 50).astype(int))
    pixels = reference_pixels(cohort, rows.tolist())
    truth = [cohort.facts.subjects[cohort.reference.subjects[row]] for row in rows]
    for step, name in enumerate(DISGUISES):
        rng = np.random.default_rng([1, step])
        change = get_transformation(name)
        planted = np.stack([change.apply(pixels[row], rng) for row in rows])
        found = score_volumes(
            [Volume(name, "fake", planted, np.eye(4), "", planar=True)], cohort, options=BARE
        )
        auc = area(found.statistics, clean.statistics)
        flagged = np.mean(
            [one.verdict in (Verdict.COPY, Verdict.SUSPICIOUS) for one in found.slices]
        )
        copies = np.mean([one.verdict is Verdict.COPY for one in found.slices])
        named = np.mean(
            [one.nearest_subject == who for one, who in zip(found.slices, truth, strict=True)]
        )
        told = f"{anatomy} {name}: AUC {auc:.4f}, flagged {flagged:.3f}, copy {copies:.3f}"
        assert auc >= 0.999, told
        assert flagged >= 0.98, told
        assert copies >= 0.95, told
        assert named >= 0.95, told
        for one in found.slices:
            numbers = [one.similarity, one.mi, one.oni, one.p_value, one.q_value, one.margin]
            assert np.isfinite(numbers).all()


def images() -> list[str]:
    try:
        volumes = [f"volumes/{path.name}" for path in shared("data", "volumes").iterdir()]
        series = [f"dicom/{path.name}" for path in shared("data", "dicom").iterdir()]
    except pytest.skip.Exception:
        return ["volumes"]
    return sorted(name for name in volumes + series if not name.endswith(".csv"))


@pytest.mark.parametrize("name", images())
def test_every_real_image_is_scored_or_refused_with_a_sentence(small_audit, name):
    try:
        found = score(shared("data", *name.split("/")), small_audit.cohort, options=BARE)
    except ImageError as error:
        assert "\n" not in str(error)
        assert str(error).endswith(".")
        assert Path(name).name in str(error)
        return
    assert found.slices
    for one in found.slices:
        if one.verdict is Verdict.NOT_SCORED:
            assert one.reason
        else:
            assert np.isfinite([one.similarity, one.mi, one.oni, one.p_value]).all()


@pytest.mark.parametrize("name", ["negative_ct", "edge_rgb_mr"])
def test_what_is_no_grey_mr_is_refused(small_audit, name):
    with pytest.raises(ImageError, match=name):
        score(shared("data", "dicom", name), small_audit.cohort)


def test_six_transfer_syntaxes_of_one_slice_get_one_score(small_audit):
    files = sorted(shared("data", "dicom", "pydicom_mr_small_syntaxes").glob("*.dcm"))
    assert len(files) == 6
    values = [
        [one.similarity for one in score(file, small_audit.cohort, options=BARE).slices]
        for file in files
    ]
    assert all(len(one) == 1 for one in values)
    assert len({round(one[0], 6) for one in values}) == 1
