"""Copied parts from pictures to verdict, tables, report and exchange, and what a cohort keeps."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil

import numpy as np
import pytest

from conftest import ARGUMENTS, INPUT_SIZE
from MemorizationIndexLib import (
    AuditOptions,
    CohortOptions,
    Verdict,
    build_cohort_from_volumes,
    load_cohort,
    score_volumes,
)
from MemorizationIndexLib.cohort.store import _checksum
from MemorizationIndexLib.exchange import read_result, write_result
from MemorizationIndexLib.images.volume import Volume
from MemorizationIndexLib.index.protocols import CalibrationError
from MemorizationIndexLib.joining import join
from MemorizationIndexLib.outputs import write_outputs
from MemorizationIndexLib.phantoms import make_patient
from MemorizationIndexLib.progress import CancelledError
from shared_data import shared

SUBJECTS, SLICES, SIDE = 12, 3, 96
BARE = AuditOptions(pictures=False, verify=False)
OPTIONS = CohortOptions(encoder="builtin", input_size=INPUT_SIZE, robust=False, parts=True)


def phantom(seed: int) -> np.ndarray:
    volume = make_patient(seed, slices=SLICES + 2, size=SIDE)[1:-1].astype(np.float32)
    low, high = volume.min((1, 2), keepdims=True), volume.max((1, 2), keepdims=True)
    return (volume - low) / (high - low)


def volume(name: str, slices: np.ndarray) -> Volume:
    return Volume(name, name, slices, np.eye(4), "", planar=True)


def patients() -> list[Volume]:
    return [volume(f"p{seed}", phantom(seed)) for seed in range(SUBJECTS)]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    return build_cohort_from_volumes(patients(), folder / "c", options=OPTIONS).path


@pytest.fixture(scope="module")
def fake():
    """Slices of nobody; into every second a quarter of a patient was pasted."""
    slices = np.concatenate([phantom(100 + seed) for seed in range(4)])
    half = SIDE // 2
    for number in range(0, len(slices), 2):
        source = phantom(number % SUBJECTS)[number % SLICES]
        slices[number, half // 2 :, half // 2 :][:half, :half] = source[
            half // 2 : 3 * half // 2, half // 2 : 3 * half // 2
        ]
    return volume("fake", slices)


@pytest.fixture(scope="module")
def result(path, fake):
    return score_volumes([fake], path)


def test_a_pasted_quarter_is_suspicious_and_named_where_the_whole_is_not(result):
    for number, one in enumerate(result.slices):
        assert 0 < one.part_p_value <= 1
        assert 0 <= one.part_similarity <= 1
        if number % 2:
            continue
        assert one.verdict is Verdict.SUSPICIOUS
        assert "part" in one.flagged_by
        assert one.part_subject == f"p{number % SUBJECTS}"
        assert one.part_volume == f"p{number % SUBJECTS}"
        assert one.part_slice == number % SLICES
        assert one.part_similarity > result.summary.part_threshold
        assert np.allclose(one.part_window, (0.25, 0.75, 0.25, 0.75), atol=0.08)
    untouched = [one.verdict for one in result.slices[1::2]]
    assert untouched.count(Verdict.NO_EVIDENCE) >= len(untouched) - 1


def test_parts_never_make_a_copy_and_change_nothing_else(result, path, fake):
    without = score_volumes([fake], path, options=AuditOptions(parts=False))
    assert without.summary.part_threshold is None
    assert without.summary.part_note == "not asked for"
    for one, bare in zip(result.slices, without.slices, strict=True):
        assert bare.part_p_value is None
        assert (one.verdict is Verdict.COPY) == (bare.verdict is Verdict.COPY)
        assert one.similarity == bare.similarity
        assert one.q_value == bare.q_value
    assert result.summary.share == without.summary.share


def test_blank_slices_alone_are_not_scored(path):
    blank = volume("blank", np.zeros((3, SIDE, SIDE), np.float32))
    result = score_volumes([blank], path, options=BARE)
    assert {one.verdict for one in result.slices} == {Verdict.NOT_SCORED}
    assert result.summary.part_suspicious == 0


def test_nothing_stands_out_where_the_reference_shows_too_little_to_compare(tmp_path):
    def scan(name: str, seed: int, spike: float) -> Volume:
        slices = 0.25 + 0.75 * phantom(seed) * (phantom(seed) > 0.05)
        slices[:, 2, 3 + seed] = spike
        return volume(name, slices.astype(np.float32))

    # One bright pixel a slice, so that all tissue is near 0 of its range.
    spiked = [scan(f"p{seed}", seed, 40.0) for seed in range(6)]
    path = build_cohort_from_volumes(spiked, tmp_path / "c", options=OPTIONS).path
    cohort = load_cohort(path)
    assert not cohort.parts.null.any()
    result = score_volumes([scan("other", 50, 1.0)], cohort, options=BARE)
    assert "do not stand out" in result.summary.part_note
    assert not any("part" in one.flagged_by for one in result.slices)


def test_the_volume_names_whom_the_parts_are_of(result):
    alone = [one for one in result.slices if one.flagged_by == "part"]
    assert alone
    assert result.summary.part_suspicious == len(alone)
    assert f"{len(alone)} for a part only" in result.summary.finding or (
        "all for a part only" in result.summary.finding
    )
    flagged = [one for one in result.slices if one.flagged_by]
    assert result.volumes[0].suspicious + result.volumes[0].copies == len(flagged)
    assert result.volumes[0].nearest_subject in {one.part_subject for one in flagged} | {
        one.nearest_subject for one in flagged
    }


def test_rule_and_power_of_parts_stand_beside_the_result(result):
    assert f"{result.summary.part_threshold:.4f}" in result.summary.rule
    assert "never called a copy" in result.summary.rule
    row = result.summary.power[-1]
    assert row.name == "part"
    assert row.power_copy == 0
    assert row.power_suspicious > 0.8
    assert row.samples == 100


def test_tables_and_report_show_the_part(result, tmp_path):
    write_outputs(result, tmp_path)
    with (tmp_path / "slices.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row, one in zip(rows, result.slices, strict=True):
        window = tuple(float(row[f"part_{edge}"]) for edge in ("top", "bottom", "left", "right"))
        assert window == one.part_window
        assert row["part_subject"] == one.part_subject
        assert row["flagged_by"] == one.flagged_by
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Parts that stand out" in page
    assert page.count('<section class="match">') >= len(result.part_pictures)
    assert "Copied parts were searched" in page
    write_outputs(result, tmp_path, hide_subjects=True)
    hidden = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Parts that stand out" not in hidden
    assert not any(f">p{number}<" in hidden or f"p{number}," in hidden for number in range(12))


def test_another_process_gets_all_of_it(result, tmp_path):
    write_result(result, tmp_path / "r")
    read = read_result(tmp_path / "r")
    assert read.slices == result.slices
    assert read.summary == result.summary
    assert set(read.part_pictures) == set(result.part_pictures)
    for key, part in result.part_pictures.items():
        assert np.array_equal(read.part_pictures[key].reference, part.reference)


def test_volumes_scored_one_by_one_join_to_the_same(path, fake):
    cohort = load_cohort(path)
    volumes = [fake, volume("other", phantom(200))]
    together = score_volumes(volumes, cohort, options=BARE)
    joined = join([score_volumes([one], cohort, options=BARE) for one in volumes], cohort)
    for one, other in zip(joined.slices, together.slices, strict=True):
        for name in ("verdict", "flagged_by", "part_subject", "part_window", "part_p_value"):
            assert getattr(one, name) == getattr(other, name)
        assert one.part_similarity == pytest.approx(other.part_similarity, abs=1e-5)
    assert joined.summary.part_suspicious == together.summary.part_suspicious
    assert joined.summary.rule == together.summary.rule
    assert joined.summary.warnings == together.summary.warnings
    assert set(joined.part_pictures) == set(together.part_pictures)


def test_many_slices_that_stand_out_for_a_part_raise_a_doubt(path, fake):
    cohort = load_cohort(path)
    marked = dataclasses.replace(fake, array=fake.array[::2])
    result = score_volumes([marked], cohort, options=BARE)
    alone = result.summary.part_suspicious
    doubt = f"{alone} of {len(marked.array)} scored slices are suspicious for a part only"
    assert alone >= 3
    assert any(one.startswith(doubt) for one in result.summary.warnings)
    assert join([result], cohort).summary.warnings == result.summary.warnings
    clean = score_volumes([volume("other", phantom(200))], cohort, options=BARE)
    assert not any("for a part only" in one for one in clean.summary.warnings)


def test_large_arrays_of_parts_are_memory_mapped(path):
    parts = load_cohort(path).parts
    assert isinstance(parts.windows.rows, np.memmap)
    assert isinstance(parts.pictures, np.memmap)
    assert parts.pictures.shape == (SUBJECTS * SLICES, 112, 112)
    assert len(parts.null) == SUBJECTS * SLICES


def test_a_second_build_gives_the_same_parts(path, tmp_path):
    again = build_cohort_from_volumes(patients(), tmp_path / "again", options=OPTIONS)
    first = load_cohort(path)
    assert np.array_equal(first.parts.null, again.parts.null)
    assert np.array_equal(first.parts.known, again.parts.known)


def test_hashed_names_change_no_null_of_parts(path, tmp_path):
    options = dataclasses.replace(OPTIONS, anonymize=True)
    hashed = build_cohort_from_volumes(patients(), tmp_path / "hashed", options=options)
    assert np.allclose(np.sort(load_cohort(path).parts.null), np.sort(hashed.parts.null), atol=1e-3)


def test_without_asking_no_picture_is_kept_and_the_report_says_so(tmp_path, fake):
    options = dataclasses.replace(OPTIONS, parts=False)
    cohort = build_cohort_from_volumes(patients(), tmp_path / "c", options=options)
    assert cohort.parts is None
    assert not list(cohort.path.glob("parts*"))
    result = score_volumes([fake], cohort, options=BARE)
    assert "--parts" in result.summary.part_note
    assert all(one.part_p_value is None for one in result.slices)
    write_outputs(result, tmp_path / "out")
    assert "--parts" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def changed_facts(path, target, change):
    shutil.copytree(path, target)
    content = json.loads((target / "cohort.json").read_text())
    del content["sha256"]
    change(content["facts"])
    (target / "cohort.json").write_text(json.dumps({**content, "sha256": _checksum(content)}))
    return target


def test_a_cohort_of_an_older_library_loads_without_parts(path, tmp_path, fake):
    older = changed_facts(path, tmp_path / "o.micohort", lambda facts: facts.pop("parts"))
    assert load_cohort(older).parts is None


def test_parts_of_another_version_are_left_alone_with_a_sentence(path, tmp_path, fake):
    other = changed_facts(path, tmp_path / "o.micohort", lambda facts: facts.update(parts="else"))
    result = score_volumes([fake], other, options=BARE)
    assert "another version" in result.summary.part_note


def test_a_protocol_without_subjects_refuses_parts(tmp_path):
    options = dataclasses.replace(OPTIONS, protocol="paper")
    with pytest.raises(CalibrationError, match="--parts"):
        build_cohort_from_volumes(patients(), tmp_path / "c", options=options)


def test_another_encoder_is_helped_by_the_built_in_one(tmp_path, fake):
    # At 64 pixels the cohort's features are other ones than those of parts.
    options = dataclasses.replace(OPTIONS, input_size=64)
    cohort = build_cohort_from_volumes(patients(), tmp_path / "c", options=options)
    result = score_volumes([fake], cohort, options=BARE)
    found = [one for one in result.slices[::2] if "part" in one.flagged_by]
    assert len(found) >= 5
    assert all(one.part_subject == f"p{one.slice % SUBJECTS}" for one in found)


def test_blank_slices_are_left_out_of_the_search(path, fake):
    slices = np.concatenate([np.zeros_like(fake.array[:1]), fake.array[:2]])
    blank, pasted, _ = score_volumes([volume("v", slices)], path, options=BARE).slices
    assert blank.verdict is Verdict.NOT_SCORED
    assert blank.part_p_value is None
    assert "part" in pasted.flagged_by


def test_a_build_is_cancelled_while_parts_are_calibrated(tmp_path):
    stages = []

    def progress(state):
        stages.append(state.stage)

    with pytest.raises(CancelledError):
        build_cohort_from_volumes(
            patients(),
            tmp_path / "c",
            options=OPTIONS,
            progress=progress,
            cancelled=lambda: "Calibrating copied parts" in stages,
        )
    assert not (tmp_path / "c.micohort").exists()


def test_partial_copies_of_real_slices_are_found(tmp_path):
    from PIL import Image

    folder = shared("data", "slices", "knee")
    volumes = []
    for subject in sorted(one for one in folder.iterdir() if one.is_dir()):
        pictures = [
            np.asarray(Image.open(file).convert("L").resize((224, 224)), np.float32) / 255
            for file in sorted(subject.glob("*.png"))
        ]
        if pictures:
            volumes.append(Volume(subject.name, subject.name, np.stack(pictures), np.eye(4), ""))
    volumes = [dataclasses.replace(one, planar=True) for one in volumes]
    half = len(volumes) // 2
    options = dataclasses.replace(OPTIONS, input_size=224)
    cohort = build_cohort_from_volumes(volumes[:half], tmp_path / "c", options=options)
    rng = np.random.default_rng(0)
    clean, pasted = [], []
    for host in volumes[half:]:
        source = volumes[rng.integers(half)].array[0]
        top, left = rng.integers(0, 113, 2)
        changed = host.array[:1].copy()
        changed[0, top : top + 112, left : left + 112] = source[top : top + 112, left : left + 112]
        pasted.append(changed)
        clean.append(host.array[:1])
    found = score_volumes([volume("v", np.concatenate(pasted))], cohort, options=BARE).slices
    assert np.mean([one.verdict in (Verdict.SUSPICIOUS, Verdict.COPY) for one in found]) >= 0.8
    alone = score_volumes([volume("v", np.concatenate(clean))], cohort, options=BARE).slices
    assert np.mean([one.flagged_by == "part" for one in alone]) <= 0.08


def test_the_command_line_builds_shows_and_leaves_parts_out(small_images, tmp_path, capsys):
    from MemorizationIndexLib.cli import main

    reference, queries = small_images
    cohort = str(tmp_path / "c.micohort")
    built = ["build", str(reference), "--cohort", cohort, *ARGUMENTS, "--no-robust", "--parts"]
    assert main([*built, "--quiet"]) == 0
    assert main(["show", cohort]) == 0
    assert "pictures of 112 pixels of all slices are stored" in capsys.readouterr().out
    for given, searched in (([], True), (["--no-parts"], False)):
        out = tmp_path / f"out{searched}"
        assert main(["score", str(queries), "--cohort", cohort, "--out", str(out), *given]) == 0
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        assert (summary["part_threshold"] is not None) == searched
        assert bool(summary["part_note"]) != searched
