"""The whole way with MRI-CORE's architecture: weights registered, cohort built, images scored.

The weights are made up (a recipe or random numbers), which is enough to see that everything fits
together and nothing about how well MRI-CORE sees copies.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from encoders.made_vit import dinov2, small_state
from encoders.test_mri_core import made_weights, save_dinov2
from MemorizationIndexLib.cli import main
from MemorizationIndexLib.cohort import building, load_cohort
from MemorizationIndexLib.encoders import weights
from MemorizationIndexLib.phantoms import write_phantom_cohort
from shared_data import shared


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "data_folder", lambda: tmp_path / "data")
    monkeypatch.setenv("MEMORIZATION_INDEX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(weights.WEIGHTS_VARIABLE, raising=False)
    # Every known copy is encoded in 16 disguises: a hundred would take minutes.
    monkeypatch.setattr(building, "CONTROL_SLICES", 4)


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("patients")
    write_phantom_cohort(folder, patients=6, slices=3, size=64)
    return folder


def small_weights(folder: Path, seed: int = 0) -> Path:
    path = folder / f"small-{seed}.pth"
    torch.save({"teacher": dinov2(small_state(width=48, grid=14, seed=seed))}, path)
    return path


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def rows(results: Path) -> list[dict[str, str]]:
    with (results / "slices.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_planted_copies_of_real_slices_are_found_with_a_vit_b(tmp_path: Path):
    subjects = sorted(shared("data", "slices", "knee").iterdir())
    reference, fresh = subjects[::4], subjects[1::4][:8]
    for subject in reference:
        shutil.copytree(subject, tmp_path / "training" / subject.name)
    generated = tmp_path / "generated"
    for subject in fresh:
        shutil.copytree(subject, generated / subject.name)
    copied = {"copy-exact": reference[3], "copy-noise": reference[8]}
    for name, noise in (("copy-exact", 0.0), ("copy-noise", 1.5)):
        picture = np.asarray(Image.open(next(copied[name].iterdir())).convert("L"), np.float32)
        picture = picture + noise * np.random.default_rng(0).standard_normal(picture.shape)
        (generated / name).mkdir()
        Image.fromarray(picture.clip(0, 255).round().astype(np.uint8)).save(
            generated / name / "0.png"
        )
    file = save_dinov2(made_weights(768, 31), tmp_path / "vit_b.pth")
    cohort, out = tmp_path / "knee.micohort", tmp_path / "results"

    assert run("weights", "--file", file) == 0
    assert build(tmp_path / "training", cohort, "--encoder", "mri-core") == 0
    assert run("score", generated, "--cohort", cohort, "--out", out, "--device", "cpu") == 0

    facts = load_cohort(cohort).facts
    assert (facts.encoder, facts.input_size, facts.widths) == ("mri-core", 224, (768,) * 3)
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    count = len(reference)
    assert (summary["reference_subjects"], summary["null_size"]) == (count, count)
    assert summary["certifiable_alpha"] == pytest.approx(1 / (count + 1))
    assert 0 < summary["null_sd"] < summary["null_mean"] < 0.2
    assert summary["exact_copy_mi"] > 10
    found = {row["subject"]: row for row in rows(out)}
    assert set(found) == {*copied, *(subject.name for subject in fresh)}
    for row in found.values():
        for column in ("similarity", "mi", "oni", "p_value", "q_value", "margin"):
            assert np.isfinite(float(row[column])), row
    for name, subject in copied.items():
        row = found[name]
        assert (row["verdict"], row["nearest_subject"]) == ("copy", subject.name)
        # The null of so few subjects can give no smaller one.
        assert float(row["p_value"]) == pytest.approx(1 / (count + 1))
        assert float(row["oni"]) < -0.999
    clean = [found[subject.name] for subject in fresh]
    assert {row["verdict"] for row in clean} <= {"no evidence", "suspicious"}
    assert abs(np.mean([float(row["mi"]) for row in clean])) < 1
    assert sum(row["verdict"] == "suspicious" for row in clean) <= 1


def build(patients: Path, cohort: Path, *options: object) -> int:
    return run("build", patients, "--cohort", cohort, "--device", "cpu", *options)


def test_auto_is_mri_core_where_its_weights_are_registered(
    patients: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert build(patients, tmp_path / "without.micohort") == 0
    said = capsys.readouterr().err
    assert load_cohort(tmp_path / "without.micohort").facts.encoder == "builtin"
    assert "Encoder: builtin, chosen automatically: MRI-CORE's weights are not on this" in said
    assert "weights --fetch" in said

    file = small_weights(tmp_path)
    assert run("weights", "--file", file) == 0
    capsys.readouterr()
    assert build(patients, tmp_path / "with.micohort") == 0
    said = capsys.readouterr().err
    assert load_cohort(tmp_path / "with.micohort").facts.encoder == "mri-core"
    assert f"Encoder: mri-core, chosen automatically: MRI-CORE's weights are {file}" in said
    assert "Device: cpu; cpu (" in said
    assert "was asked for and ran a test computation." in said


def test_nothing_but_errors_is_said_under_quiet(
    patients: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert build(patients, tmp_path / "quiet", "--encoder", "builtin", "--quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_a_cohort_remakes_its_encoder_and_refuses_another(
    patients: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    first, second = small_weights(tmp_path), small_weights(tmp_path, seed=1)
    cohort, out = tmp_path / "c.micohort", tmp_path / "out"
    options = ("--pooling", "rows", "--position-embedding", "none", "--input-size", "224")
    assert run("weights", "--file", first) == 0
    assert build(patients, cohort, "--encoder", "mri-core", "--precision", "auto", *options) == 0
    facts = load_cohort(cohort).facts
    # What "auto" meant on the machine that built it, or another machine could not score.
    assert facts.encoder_options == {
        "position_embedding": "none",
        "pooling": "rows",
        "precision": "float32",
    }
    assert run("score", patients, "--cohort", cohort, "--out", out) == 0
    for row in rows(out):
        assert float(row["similarity"]) == pytest.approx(1, abs=1e-4)
        assert row["nearest_subject"] == row["subject"]
    said = capsys.readouterr().err
    assert "Encoder: mri-core. Device: cpu" in said

    assert run("score", patients, "--cohort", cohort, "--out", out, "--encoder", "builtin") == 2
    assert "was built with the encoder mri-core, and --encoder asks for builtin" in (
        capsys.readouterr().err
    )

    # Another file is registered only once the first is forgotten, and refused even then.
    assert run("weights", "--file", second) == 2
    assert "--remove --forget" in capsys.readouterr().err
    assert run("weights", "--remove", "--forget") == 0
    assert run("weights", "--file", second) == 0
    assert run("score", patients, "--cohort", cohort, "--out", out) == 2
    assert "score with the same encoder, or build the cohort again" in capsys.readouterr().err

    assert run("weights", "--remove") == 0
    capsys.readouterr()
    assert run("score", patients, "--cohort", cohort, "--out", out) == 2
    said = capsys.readouterr().err
    assert "MRI-CORE's weights are not on this machine; get them with" in said
    assert "Traceback" not in said


def test_options_of_mri_core_are_refused_with_the_built_in_encoder(
    patients: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    given = ("--encoder", "builtin", "--pooling", "rows")
    assert build(patients, tmp_path / "c.micohort", *given) == 2
    assert "The built-in encoder has no option pooling" in capsys.readouterr().err


def test_published_features_under_the_reference_protocol(
    patients: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    cohort, out = tmp_path / "c.micohort", tmp_path / "out"
    assert run("weights", "--file", small_weights(tmp_path)) == 0
    published = ("--protocol", "reference", "--position-embedding", "none", "--pooling", "rows")
    assert build(patients, cohort, "--encoder", "mri-core", *published, "--input-size", "240") == 0
    said = capsys.readouterr().err
    assert "At 240 px the 15 x 15 tokens lie in windows of 28 x 28" in said
    found = load_cohort(cohort)
    assert (found.facts.input_size, found.facts.widths) == (240, (15, 15, 15))
    assert found.facts.protocol == "reference"
    assert found.slice_count > 15
    code = run("score", patients, "--cohort", cohort, "--out", out)
    said = capsys.readouterr().err
    verdicts = {row["verdict"] for row in rows(out)}
    if found.facts.warnings:
        assert (code, verdicts) == (2, {"not scored"})
        assert "The protocol reference is undefined here" in said
    else:
        assert code == 0


def test_a_second_run_encodes_nothing_again(
    patients: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from MemorizationIndexLib.encoders.mri_core import MriCoreEncoder

    encoded = []
    encode = MriCoreEncoder.encode
    monkeypatch.setattr(
        MriCoreEncoder,
        "encode",
        lambda self, pixels: encoded.append(len(pixels)) or encode(self, pixels),
    )
    assert run("weights", "--file", small_weights(tmp_path)) == 0
    assert build(patients, tmp_path / "c.micohort") == 0
    first = sum(encoded)
    assert first > 18
    assert build(patients, tmp_path / "c.micohort") == 0
    assert sum(encoded) == first
    assert run("score", patients, "--cohort", tmp_path / "c", "--out", tmp_path / "out") == 0
    assert sum(encoded) == first
    assert build(patients, tmp_path / "c.micohort", "--no-cache") == 0
    assert sum(encoded) >= 2 * first
