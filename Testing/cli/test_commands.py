from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import ARGUMENTS
from MemorizationIndexLib import load_cohort
from MemorizationIndexLib.cli import commands, main
from MemorizationIndexLib.encoders.cache import cache_state
from phantom_files import phantom, phantom_file
from shared_data import ROOT

COLUMNS = [
    "volume",
    "subject",
    "slice",
    "similarity",
    "mi",
    "oni",
    "p_value",
    "q_value",
    "verdict",
    "reason",
    "nearest_subject",
    "nearest_slice",
    "margin",
    "consensus",
    "similarity_fine",
    "similarity_middle",
    "similarity_coarse",
]
VERDICTS = {"copy", "suspicious", "no evidence", "not scored"}


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "slices.csv").open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def score(inputs, cohort: Path, out: Path, *more: str) -> int:
    given = [inputs] if isinstance(inputs, (str, Path)) else inputs
    arguments = [*map(str, given), "--cohort", str(cohort), "--out", str(out), "--no-verify"]
    return main(["score", *arguments, *more])


def one_sentence(capsys, *words: str) -> str:
    """Return what was said of a failure, after seeing that it is one sentence for a person."""
    said = capsys.readouterr().err
    lines = [line for line in said.splitlines() if line.startswith("memorization-index: ")]
    lines = [line for line in lines if not line.startswith("memorization-index: note:")]
    assert len(lines) == 1, said
    assert "Traceback" not in said
    assert lines[0].rstrip().endswith("."), lines[0]
    for word in words:
        assert word in lines[0], lines[0]
    return lines[0]


@pytest.fixture(scope="module")
def copied(small_audit, tmp_path_factory) -> Path:
    """Results of scoring two strangers and one patient of the cohort."""
    out = tmp_path_factory.mktemp("results")
    inputs = [small_audit.queries, small_audit.reference / "p3"]
    assert score(inputs, small_audit.cohort, out, "--quiet") == 0
    return out


def test_build_says_who_is_who_and_what_it_can_certify(small_audit, tmp_path, capsys):
    path = tmp_path / "c.micohort"
    assert main(["build", str(small_audit.reference), "--cohort", str(path), *ARGUMENTS]) == 0
    said = capsys.readouterr().out
    assert "6 subjects, identified by their parent folder" in said
    assert "24 slices of 6 subjects" in said
    assert "0.143" in said
    assert "for trying out" in said
    assert load_cohort(path).slice_count == 24


def test_score_finds_the_copied_patient_and_no_other(copied):
    rows = rows_of(copied)
    assert len(rows) == 12
    for row in rows:
        copy = row["subject"] == "p3"
        assert (row["verdict"] == "copy") == copy
        assert row["verdict"] in VERDICTS
        if copy:
            assert row["nearest_subject"] == "p3"
            assert row["nearest_slice"] == row["slice"]
            assert float(row["oni"]) == pytest.approx(-1, abs=0.01)
            assert row["consensus"] == "3"


def test_columns_come_in_the_order_promised(copied):
    header = (copied / "slices.csv").read_text(encoding="utf-8-sig").splitlines()[0].split(",")
    assert header[: len(COLUMNS)] == COLUMNS


def test_every_number_is_finite_everywhere(copied):
    for row in rows_of(copied):
        for name in COLUMNS[3:8] + COLUMNS[12:]:
            assert np.isfinite(float(row[name]))

    def walk(value):
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            for part in value:
                walk(part)
        elif isinstance(value, float):
            assert np.isfinite(value)

    walk(json.loads((copied / "summary.json").read_text()))
    assert "NaN" not in (copied / "summary.json").read_text()


def test_all_four_files_are_there(copied):
    assert {path.name for path in copied.iterdir()} == {
        "slices.csv",
        "volumes.csv",
        "summary.json",
        "report.html",
    }
    summary = json.loads((copied / "summary.json").read_text())
    for name in ("alpha", "power", "reference_slices", "reference_subjects", "widths", "shrinkage"):
        assert name in summary
    for name in ("exact_copy_mi", "null_mean", "null_sd", "null_size"):
        assert name in summary
    assert (
        "never" in (copied / "report.html").read_text()
        or "not" in (copied / "report.html").read_text()
    )


@pytest.mark.parametrize(("level", "code"), [("copy", 3), ("suspicious", 3)])
def test_fail_on_gives_three(small_audit, tmp_path, level, code):
    patient = small_audit.reference / "p1"
    out = tmp_path / "out"
    assert score(patient, small_audit.cohort, out, "--quiet", "--fail-on", level) == code
    assert (out / "report.html").exists()


def test_fail_on_gives_zero_without_a_find(small_audit, tmp_path):
    out = tmp_path / "out"
    assert score(small_audit.queries, small_audit.cohort, out, "--quiet", "--fail-on", "copy") == 0


def test_quiet_says_nothing(small_audit, tmp_path, capfd):
    path = tmp_path / "c.micohort"
    given = ["--cohort", str(path), *ARGUMENTS, "--quiet"]
    assert main(["build", str(small_audit.reference), *given]) == 0
    assert score(small_audit.queries, path, tmp_path / "out", "--quiet") == 0
    assert capfd.readouterr() == ("", "")


def test_quiet_does_not_hide_what_was_refused(small_audit, tmp_path, capsys):
    folder = tmp_path / "images"
    phantom_file(folder / "good" / "a.nii.gz", 50)
    (folder / "bad.nii.gz").write_bytes(b"nothing")
    assert score(folder, small_audit.cohort, tmp_path / "out", "--quiet") == 0
    assert "bad.nii.gz cannot be read" in capsys.readouterr().err


def test_show_tells_the_facts(small_audit, capsys):
    assert main(["show", str(small_audit.cohort)]) == 0
    said = capsys.readouterr().out
    for word in ("24", "6 subjects", "builtin-96-", "calibrated", "96 pixels", "fine (2048"):
        assert word in said
    assert main(["show", str(small_audit.cohort), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["slices"] == 24
    assert facts["subjects"] == [f"p{number}" for number in range(6)]


def test_show_lists_subjects_and_says_poses_once(small_audit, capsys, monkeypatch):
    assert main(["show", str(small_audit.cohort)]) == 0
    said = capsys.readouterr().out
    assert said.endswith("Slices by subject\n" + "".join(f"  p{n}  4\n" for n in range(6)))
    assert said.count("cropped to 90%") == 1
    assert "as they are, rotated by +4°, rotated by -4°, cropped to 90% in 4 places" in said
    monkeypatch.setattr(commands, "LISTED", 2)
    assert main(["show", str(small_audit.cohort)]) == 0
    assert capsys.readouterr().out.endswith("  p1  4\n  and 4 more subjects; --all lists them\n")
    assert main(["show", str(small_audit.cohort), "--all"]) == 0
    assert capsys.readouterr().out.endswith("  p5  4\n")
    assert main(["show", str(small_audit.cohort), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["poses"].count("cropped to 90%") == 1 and facts["pose_count"] == 7
    assert facts["slices_of_subjects"] == {f"p{n}": 4 for n in range(6)}


def test_help_lists_every_command_and_option(capsys):
    options = {
        (): ["build", "score", "show", "demo", "weights", "cache", "--version"],
        ("build",): [
            "--cohort",
            "--encoder",
            "--protocol",
            "--plane",
            "--subjects",
            "--seed",
            "--anonymize",
            "--thumbnails",
            "--any-modality",
            "--quiet",
            "calibrated",
            "examples",
        ],
        ("score",): ["--cohort", "--out", "--alpha", "--fail-on", "--quiet", "exit codes", "copy"],
        ("show",): ["C.micohort", "--json"],
        ("demo",): ["--out", "phantom"],
        ("cache",): ["--clear"],
        ("weights",): ["--fetch", "--file"],
    }
    for command, words in options.items():
        with pytest.raises(SystemExit) as ended:
            main([*command, "--help"])
        assert ended.value.code == 0
        said = capsys.readouterr().out
        for word in words:
            assert word in said, (command, word)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["build"],
        ["build", "x"],
        ["score", "x", "--cohort", "c"],
        ["build", "x", "--cohort", "c", "--protocol", "mine"],
        ["build", "x", "--cohort", "c", "--input-size", "0"],
        ["score", "x", "--cohort", "c", "--out", "o", "--alpha", "much"],
    ],
)
def test_wrong_arguments_end_with_two(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "usage: memorization-index" in said
    assert said.endswith("--help' explains.\n")


def test_weights_are_told_with_their_license(capsys):
    assert main(["weights"]) == 0
    said = capsys.readouterr().out
    assert "license: Apache-2.0" in said and "github.com/mazurowski-lab/mri_foundation" in said


def test_an_option_without_its_partner_is_not_passed_over(capsys):
    for option, partner in (("--yes", "--fetch"), ("--forget", "--remove")):
        assert main(["weights", option]) == 2
        one_sentence(capsys, option, f"only with {partner}")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f: f / "none.nii.gz", ["none.nii.gz does not exist"]),
        (lambda f: (f / "empty").mkdir() or f / "empty", ["empty holds no image"]),
        (lambda f: (f / "a.txt").write_text("x") and f / "a.txt", ["a.txt is not an image"]),
        (lambda f: (f / "a.nii.gz").write_bytes(b"x") and f / "a.nii.gz", ["a.nii.gz cannot be"]),
        (lambda f: (f / "a.png").write_bytes(b"x") and f / "a.png", ["a.png cannot be read"]),
        (lambda f: (f / "a.npy").write_bytes(b"x") and f / "a.npy", ["a.npy"]),
        (lambda f: (f / "m.csv").write_text("a,b\n1,2\n") and f / "m.csv", ["m.csv", "path"]),
    ],
)
def test_an_input_that_cannot_be_used_ends_with_two(small_audit, tmp_path, capsys, make, words):
    given = make(tmp_path)
    assert score(given, small_audit.cohort, tmp_path / "out") == 2
    one_sentence(capsys, *words)
    assert main(["build", str(given), "--cohort", str(tmp_path / "c"), *ARGUMENTS]) == 2
    # A picture is not opened before the subjects are counted.
    one_sentence(capsys, *(words if given.suffix != ".png" else ["1 subject"]))
    assert not (tmp_path / "c.micohort").exists()


@pytest.mark.parametrize("kept", [0.2, 0.9])
@pytest.mark.parametrize("name", ["a.nii.gz", "a.png", "a.npy", "a.nrrd", "a.mha"])
def test_a_truncated_image_is_refused(small_audit, tmp_path, capsys, name, kept):
    path = tmp_path / name
    if name.endswith(".png"):
        Image.fromarray((phantom(1)[1] / 4).astype(np.uint8)).save(path)
    elif name.endswith(".npy"):
        np.save(path, phantom(1))
    else:
        phantom_file(path, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    assert score(path, small_audit.cohort, tmp_path / "out") == 2
    one_sentence(capsys, name)


def test_one_bad_input_among_good_ones_is_said_and_ends_with_two(small_audit, tmp_path, capsys):
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"x")
    out = tmp_path / "out"
    assert score([small_audit.queries, bad], small_audit.cohort, out) == 2
    one_sentence(capsys, "nothing in", "bad.png")
    assert len(rows_of(out)) == 8


def test_fewer_than_five_subjects_are_refused(small_audit, tmp_path, capsys):
    given = [str(small_audit.reference / f"p{number}") for number in range(4)]
    assert main(["build", *given, "--cohort", str(tmp_path / "c"), *ARGUMENTS]) == 2
    one_sentence(capsys, "4 subjects", "at least 5", "--subjects")


def test_no_damaged_and_foreign_cohorts_are_refused(small_audit, tmp_path, capsys):
    assert score(small_audit.queries, tmp_path / "none", tmp_path / "out") == 2
    one_sentence(capsys, "There is no cohort")
    damaged = Path(shutil.copytree(small_audit.cohort, tmp_path / "d.micohort"))
    content = bytearray((damaged / "rows.coarse.npy").read_bytes())
    content[-5] ^= 1
    (damaged / "rows.coarse.npy").write_bytes(content)
    assert score(small_audit.queries, damaged, tmp_path / "out") == 2
    one_sentence(capsys, "is damaged", "rows.coarse.npy")
    assert main(["show", str(damaged)]) == 2
    one_sentence(capsys, "is damaged")


def test_an_output_that_cannot_be_written_is_said_before_the_work(small_audit, tmp_path, capsys):
    taken = tmp_path / "taken"
    taken.write_text("x")
    for out in (taken, taken / "deeper"):
        assert score(small_audit.queries, small_audit.cohort, out) == 2
        one_sentence(capsys, "is not a folder", "--out")
    assert score(small_audit.queries, small_audit.cohort, tmp_path / ("x" * 300)) == 2
    one_sentence(capsys, "File name too long")
    assert taken.read_text() == "x"


def test_a_run_that_fails_leaves_no_empty_folder(small_audit, tmp_path, capsys):
    out = tmp_path / "a" / "out"
    assert score(small_audit.queries, tmp_path / "none", out) == 2
    one_sentence(capsys, "There is no cohort")
    assert not (tmp_path / "a").exists()
    assert score(tmp_path / "none.nii", small_audit.cohort, out) == 2
    assert main(["duplicates", str(tmp_path / "none.nii"), "--out", str(out)]) == 2
    assert main(["evaluate", str(small_audit.reference), "--out", str(out)]) == 2
    assert not (tmp_path / "a").exists()
    out.parent.mkdir()
    (out.parent / "thesis.txt").write_text("precious")
    assert score(small_audit.queries, tmp_path / "none", out) == 2
    assert [path.name for path in out.parent.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("cohort", ["", ".", "..", "x" * 300, "missing/c"])
def test_a_place_where_no_cohort_can_be_put_is_said(
    small_audit, tmp_path, capsys, monkeypatch, cohort
):
    monkeypatch.chdir(tmp_path)
    assert main(["build", str(small_audit.reference), "--cohort", cohort, *ARGUMENTS]) == 2
    one_sentence(capsys)


@pytest.mark.parametrize("alpha", ["0", "1", "-1", "nan", "inf"])
def test_alpha_out_of_range_is_refused(small_audit, tmp_path, capsys, alpha):
    given = score(small_audit.queries, small_audit.cohort, tmp_path / "out", f"--alpha={alpha}")
    assert given == 2
    one_sentence(capsys, "alpha is", "above 0 and below 1")


def test_a_device_that_is_not_used_or_not_there_is_said(small_audit, tmp_path, capsys):
    out = tmp_path / "out"
    assert score(small_audit.queries, small_audit.cohort, out, "--device", "cuda") == 0
    assert "note: The built-in encoder uses the CPU only" in capsys.readouterr().err
    assert score(small_audit.queries, small_audit.cohort, out, "--device", "gpu") == 2
    one_sentence(capsys, "Unknown device 'gpu'", "cuda:N")


def test_a_negative_seed_is_refused(small_audit, tmp_path, capsys):
    given = ["build", str(small_audit.reference), "--cohort", str(tmp_path / "c"), "--seed", "-3"]
    assert main([*given, *ARGUMENTS]) == 2
    one_sentence(capsys, "seed is -3")


NAMES = [
    "with space",
    "Jörg Müller",
    "患者 一",
    "<script>alert(1)<",
    "a'b\"c&d",
    "=1+1",
    "-rf",
    "%s{0}",
]


def test_any_name_is_borne_from_files_to_report(small_audit, tmp_path, capsys):
    folder, out = tmp_path / "eingang äöü", tmp_path / "Ausgang <b>漢"
    for number, name in enumerate(NAMES):
        phantom_file(folder / name / f"{name}.nii.gz", 60 + number, slices=1)
    assert score(folder, small_audit.cohort, out) == 0
    assert "8 subjects" in capsys.readouterr().out
    rows = rows_of(out)
    assert {row["subject"].lstrip("'") for row in rows} == {name.lstrip("'") for name in NAMES}
    report = (out / "report.html").read_text(encoding="utf-8")
    assert "<script>alert(1)<" not in report
    assert "&lt;script&gt;alert(1)&lt;" in report
    path = tmp_path / "c ü <i>"
    assert main(["build", str(folder), "--cohort", str(path), *ARGUMENTS]) == 0
    assert set(load_cohort(path).facts.subjects) == set(NAMES)


@pytest.mark.skipif(sys.platform != "linux", reason="needs file names that are any bytes")
def test_names_that_are_not_text_are_refused_or_borne(small_audit, tmp_path, capsys):
    folder = os.fsencode(tmp_path / "images")
    odd = folder + b"/odd\xff"
    Path(os.fsdecode(odd)).mkdir(parents=True)
    shutil.copy(small_audit.queries / "q0" / "head.nii.gz", odd + b"/v\xfe.nii.gz")
    picture = (phantom(1)[2] / 4).astype(np.uint8)
    Image.fromarray(picture).save(Path(os.fsdecode(odd + b"/\xfd.png")))
    assert score(os.fsdecode(folder), small_audit.cohort, tmp_path / "out") == 0
    assert "bytes that are not UTF-8; rename it" in capsys.readouterr().err
    assert len(rows_of(tmp_path / "out")) == 1
    assert score(os.fsdecode(odd + b"/v\xfe.nii.gz"), small_audit.cohort, tmp_path / "out") == 2
    one_sentence(capsys, "rename it")


def test_an_output_that_knows_only_ascii_is_borne(small_audit, tmp_path):
    phantom_file(tmp_path / "患者" / "ü.nii.gz", 1)
    done = run_command(
        [
            "score",
            str(tmp_path / "患者"),
            "--cohort",
            str(small_audit.cohort),
            "--out",
            str(tmp_path / "漢"),
        ],
        PYTHONIOENCODING="ascii:strict",
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_two_files_of_one_name_are_two_volumes(small_audit, tmp_path):
    for folder in ("a", "b"):
        phantom_file(tmp_path / "in" / folder / "head.nii.gz", 70 + ord(folder), slices=2)
        np.save(tmp_path / "in" / folder / "head.npy", phantom(80 + ord(folder), 2))
    assert score(tmp_path / "in", small_audit.cohort, tmp_path / "out", "--quiet") == 0
    rows = rows_of(tmp_path / "out")
    assert len(rows) == 8
    assert len({(row["volume"], row["slice"]) for row in rows}) == 8


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 1), (2, 2), (1, 20_000)])
def test_tiny_and_thin_images_are_refused_or_not_scored(small_audit, tmp_path, capsys, shape):
    path = tmp_path / "thin.png"
    pixels = np.random.default_rng(0).integers(0, 255, shape).astype(np.uint8)
    Image.fromarray(pixels).save(path)
    code = score(path, small_audit.cohort, tmp_path / "out")
    if code == 0:
        (row,) = rows_of(tmp_path / "out")
        assert np.isfinite(float(row["similarity"]))
    else:
        assert code == 2
        one_sentence(capsys)


def test_a_huge_image_is_scored_or_refused_with_a_sentence(small_audit, tmp_path, capsys):
    path = tmp_path / "huge.png"
    picture = Image.new("L", (20_000, 20_000))
    picture.paste(Image.fromarray((phantom(1)[2] / 4).astype(np.uint8)), (5000, 5000))
    picture.save(path, compress_level=1)
    code = score(path, small_audit.cohort, tmp_path / "out")
    if code == 0:
        (row,) = rows_of(tmp_path / "out")
        assert row["verdict"] in VERDICTS
    else:
        assert code == 2
        one_sentence(capsys, "huge.png")


def test_blank_slices_are_not_scored_and_alone_end_with_two(small_audit, tmp_path, capsys):
    stack = np.stack([np.zeros((40, 40)), phantom(5)[2][:40, :40], np.full((40, 40), np.nan)])
    np.save(tmp_path / "s.npy", stack)
    assert score(tmp_path / "s.npy", small_audit.cohort, tmp_path / "out", "--quiet") == 0
    verdicts = [row["verdict"] for row in rows_of(tmp_path / "out")]
    assert [verdict == "not scored" for verdict in verdicts] == [True, False, True]
    assert all(row["reason"] for row in rows_of(tmp_path / "out") if row["oni"] == "")
    np.save(tmp_path / "s.npy", stack[[0, 2]])
    assert score(tmp_path / "s.npy", small_audit.cohort, tmp_path / "out", "--quiet") == 2
    one_sentence(capsys, "None of the 2 slices could be scored")


def test_a_cohort_among_the_images_is_not_taken_for_images(small_audit, tmp_path, capsys):
    shutil.copytree(small_audit.reference, tmp_path / "in")
    cohort = str(tmp_path / "in" / "c.micohort")
    for _ in range(2):
        assert main(["build", str(tmp_path / "in"), "--cohort", cohort, *ARGUMENTS]) == 0
        assert load_cohort(cohort).slice_count == 24
    capsys.readouterr()
    assert score(cohort, cohort, tmp_path / "out") == 2
    one_sentence(capsys, "is a cohort, not a folder of images")


def test_files_of_one_series_given_by_name_all_count(small_audit, tmp_path):
    from shared_data import shared

    files = sorted(shared("data", "dicom", "studyforrest_t1_defaced").iterdir())[:4]
    assert score(files, small_audit.cohort, tmp_path / "out", "--quiet") == 0
    assert len(rows_of(tmp_path / "out")) == 4


def test_manifest_labels_and_subjects_reach_the_table(small_audit, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    np.save(folder / "stack.npy", phantom(61, 4))
    (folder / "manifest.csv").write_text(
        "path,subject_id,slice_index\nstack.npy,fake-1,1\nstack.npy,fake-2,3\n"
    )
    assert score(folder / "manifest.csv", small_audit.cohort, tmp_path / "out", "--quiet") == 0
    assert [(row["subject"], row["slice"]) for row in rows_of(tmp_path / "out")] == [
        ("fake-1", "1"),
        ("fake-2", "3"),
    ]


def test_the_order_of_inputs_changes_only_the_order_of_rows(small_audit, tmp_path):
    inputs = [small_audit.queries / "q0", small_audit.reference / "p2", small_audit.queries / "q1"]

    def found(name: str, given: list[Path]) -> dict:
        assert score(given, small_audit.cohort, tmp_path / name, "--quiet") == 0
        return {
            (row["source"], row["slice"]): [row["verdict"], row["nearest_subject"]]
            + [float(f"{float(row[name]):.4g}") for name in ("similarity", "p_value", "q_value")]
            for row in rows_of(tmp_path / name)
        }

    assert found("a", inputs) == found("b", inputs[::-1])


def test_a_volume_stored_along_other_axes_gives_the_same_scores(small_audit, tmp_path):
    import SimpleITK as sitk  # noqa: N813

    image = sitk.ReadImage(str(phantom_file(tmp_path / "plain.nii.gz", 33)))
    others = {
        "plain": image,
        "turned": sitk.PermuteAxes(image, [2, 0, 1]),
        "flipped": sitk.Flip(image, [True, False, True]),
        "both": sitk.Flip(sitk.PermuteAxes(image, [1, 2, 0]), [False, True, True]),
    }
    scores = {}
    for name, one in others.items():
        sitk.WriteImage(one, str(tmp_path / f"{name}.nii.gz"))
        out = tmp_path / name
        assert score(tmp_path / f"{name}.nii.gz", small_audit.cohort, out, "--quiet") == 0
        scores[name] = sorted(float(row["similarity"]) for row in rows_of(out))
    for name, values in scores.items():
        assert values == pytest.approx(scores["plain"], rel=1e-4), name


def run_command(arguments: list[str], **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "MemorizationIndexLib", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "MemorizationIndex"), **environment},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )


def test_as_a_program_it_gives_its_exit_codes(small_audit, tmp_path):
    assert run_command(["--version"]).stdout.startswith("memorization-index ")
    bad = run_command(["show", str(tmp_path / "none")])
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == (
        f"memorization-index: There is no cohort at {tmp_path / 'none'}: build one, or check the "
        "path.\n"
    )
    found = run_command(
        [
            "score",
            str(small_audit.reference / "p0"),
            "--cohort",
            str(small_audit.cohort),
            "--out",
            str(tmp_path / "out"),
            "--fail-on",
            "copy",
            "--quiet",
        ]
    )
    assert (found.returncode, found.stdout, found.stderr) == (3, "", "")


@pytest.mark.skipif(os.name != "posix", reason="needs a shell's pipe")
def test_a_reader_that_leaves_is_no_error(small_audit):
    done = subprocess.run(
        f"'{sys.executable}' -m MemorizationIndexLib show '{small_audit.cohort}' | true;"
        "exit ${PIPESTATUS[0]}",
        shell=True,
        executable=shutil.which("bash"),
        env={**os.environ, "PYTHONPATH": str(ROOT / "MemorizationIndex"), "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT")
def test_an_interrupted_build_says_so_and_the_next_uses_what_it_encoded(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMORIZATION_INDEX_CACHE", str(tmp_path / "cache"))
    for number in range(6):
        phantom_file(tmp_path / "in" / f"p{number}" / "head.nii.gz", number, slices=60)
    arguments = ["build", str(tmp_path / "in"), "--cohort", str(tmp_path / "c"), "--no-robust"]
    process = subprocess.Popen(
        [sys.executable, "-m", "MemorizationIndexLib", *arguments, *ARGUMENTS],
        env={**os.environ, "PYTHONPATH": str(ROOT / "MemorizationIndex")},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    until = time.monotonic() + 120
    while not any(path.stat().st_size for path in tmp_path.glob(".c.micohort-*/new/spool/0")):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode == 130
    assert "memorization-index: interrupted" in said
    assert "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir() if "micohort" in path.name] == []
    kept = cache_state().rows
    assert kept
    assert main([*arguments, *ARGUMENTS, "--quiet"]) == 0
    assert load_cohort(tmp_path / "c").slice_count == 360


def test_the_cache_command_shows_and_clears(tmp_path, monkeypatch, small_audit, capsys):
    monkeypatch.setenv("MEMORIZATION_INDEX_CACHE", str(tmp_path / "cache"))
    assert score(small_audit.queries, small_audit.cohort, tmp_path / "out", "--quiet") == 0
    assert main(["cache"]) == 0
    assert "features of 8 slices" in capsys.readouterr().out
    assert main(["cache", "--clear"]) == 0
    capsys.readouterr()
    assert main(["cache"]) == 0
    assert "features of 0 slices" in capsys.readouterr().out


def test_the_cache_command_tells_the_limit(monkeypatch, capsys):
    name = "MEMORIZATION_INDEX_CACHE_LIMIT"
    for told, words in (("300", "at most 300 MiB"), ("0", "turned off"), ("", "at most 4096 MiB")):
        monkeypatch.setenv(name, told)
        assert main(["cache"]) == 0
        said = capsys.readouterr()
        assert words in said.out and not said.err
    monkeypatch.setenv(name, "much")
    assert main(["cache"]) == 0
    said = capsys.readouterr()
    assert "at most 4096 MiB" in said.out
    assert f"note: {name} is 'much', not a whole number of MiB" in said.err


def test_no_cache_keeps_nothing(tmp_path, monkeypatch, small_audit):
    monkeypatch.setenv("MEMORIZATION_INDEX_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "out"
    assert score(small_audit.queries, small_audit.cohort, out, "--quiet", "--no-cache") == 0
    assert not list((tmp_path / "cache").glob("*")) if (tmp_path / "cache").exists() else True
