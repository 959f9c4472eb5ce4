"""A cleaned set holds what the rule says, and the source stays as it was."""

from __future__ import annotations

import csv
import errno
import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from MemorizationIndexLib.cli import main
from MemorizationIndexLib.curation import DROPPED, UNFINISHED, CurationError, curate
from MemorizationIndexLib.images import find_images, read_source
from MemorizationIndexLib.progress import CancelledError
from MemorizationIndexLib.report.tables import guard
from MemorizationIndexLib.results import Verdict
from shared_data import shared

COLUMNS = (
    "volume", "subject", "slice", "similarity", "mi", "oni", "p_value", "q_value", "verdict",
    "reason", "nearest_subject", "nearest_slice", "margin", "consensus", "similarity_fine",
    "nearest_volume", "source",
)  # fmt: skip
COPY, SUSPICIOUS, CLEAN, NOT_SCORED = (one.value for one in (
    Verdict.COPY, Verdict.SUSPICIOUS, Verdict.NO_EVIDENCE, Verdict.NOT_SCORED,
))  # fmt: skip


def result(folder: Path, rows) -> Path:
    """Write the slices.csv of an audit; rows are (source, volume, slice, verdict)."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "slices.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        for source, volume, index, verdict in rows:
            cells = {"nearest_subject": "P9", "nearest_volume": "V9", "nearest_slice": "3"}
            cells |= {"similarity": "0.9", "p_value": "0.001"}
            writer.writerow({
                "volume": guard(volume), "subject": "S", "slice": index, "verdict": verdict,
                "source": guard(str(source)), **cells,
            })  # fmt: skip
    return folder


def picture(path: Path, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (20, 24)).astype(np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def volume(path: Path) -> Path:
    import SimpleITK as sitk  # noqa: N813

    path.parent.mkdir(parents=True, exist_ok=True)
    array = np.random.default_rng(0).integers(0, 99, (4, 12, 14)).astype(np.int16)
    sitk.WriteImage(sitk.GetImageFromArray(array), str(path))
    return path


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def state(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def images(tmp_path):
    data = tmp_path / "data"
    paths = [picture(data / "a" / f"{n}.png", n) for n in range(3)]
    paths.append(picture(data / "b" / "0.png", 9))
    verdicts = [COPY, CLEAN, SUSPICIOUS, NOT_SCORED]
    rows = [(p, p.parent.name, n, verdicts[n]) for n, p in enumerate(paths)]
    return data, paths, result(tmp_path / "results", rows)


@pytest.mark.parametrize("link", [False, True])
def test_images_with_a_dropped_verdict_are_left_out(images, tmp_path, link):
    data, paths, results = images
    before = state(data)
    found = curate(results, tmp_path / "clean", link=link)
    assert state(data) == before
    assert (found.kept, found.dropped, found.dropped_innocent, found.files) == (2, 2, 0, 2)
    kept = sorted(path.relative_to(found.folder) for path in found.folder.rglob("*.png"))
    assert kept == [Path("a/1.png"), Path("b/0.png")]
    assert (found.folder / "a" / "1.png").read_bytes() == paths[1].read_bytes()
    assert (found.folder / "a" / "1.png").samefile(paths[1]) is link
    assert [row["path"] for row in table(found.folder / "manifest.csv")] == ["a/1.png", "b/0.png"]
    dropped = table(found.folder / DROPPED)
    assert [(row["verdict"], row["slice"]) for row in dropped] == [(COPY, "0"), (SUSPICIOUS, "2")]
    assert dropped[0]["reason"] == "copy: most similar to slice 3 of V9"
    assert dropped[0]["source"] == str(paths[0])


def test_the_user_says_what_is_dropped(images, tmp_path):
    _, _, results = images
    only = curate(results, tmp_path / "one", drop=[Verdict.COPY])
    assert (only.kept, only.dropped) == (3, 1)
    blank = curate(results, tmp_path / "two", drop=[Verdict.NOT_SCORED])
    assert (blank.kept, blank.dropped) == (3, 1)
    assert table(blank.folder / DROPPED)[0]["reason"] == "not scored"
    with pytest.raises(CurationError, match="Nothing is to be dropped"):
        curate(results, tmp_path / "three", drop=[])


def test_the_cleaned_set_can_be_read_again(images, tmp_path):
    _, _, results = images
    found = curate(results, tmp_path / "clean", drop=[Verdict.COPY])
    again = find_images([found.folder])
    assert [source.subject for source in again.sources] == ["S", "S"]
    assert sum(source.slice_count for source in again.sources) == 3
    assert not again.warnings


@pytest.mark.parametrize("name", ["slices.npy", "slices.npz"])
def test_a_stack_loses_its_slices_and_keeps_the_others(tmp_path, name):
    path = tmp_path / "data" / name
    path.parent.mkdir()
    stack = np.random.default_rng(0).random((5, 8, 9)).astype(np.float32)
    np.save(path, stack) if name.endswith("npy") else np.savez(path, images=stack)
    verdicts = [CLEAN, COPY, CLEAN, SUSPICIOUS, NOT_SCORED]
    results = result(tmp_path / "r", [(path, "v", n, v) for n, v in enumerate(verdicts)])
    found = curate(results, tmp_path / "clean")
    assert (found.kept, found.dropped, found.files) == (3, 2, 1)
    written = np.load(found.folder / name)
    written = written if name.endswith("npy") else written["images"]
    np.testing.assert_array_equal(written, stack[[0, 2, 4]])
    rows = table(found.folder / "manifest.csv")
    assert [(row["slice_index"], row["slice"]) for row in rows] == [
        ("0", "0"), ("1", "2"), ("2", "4"),
    ]  # fmt: skip
    source = find_images([found.folder]).sources[0]
    assert sum(len(volume.array) for volume in read_source(source)) == 3


def test_arrays_of_one_npz_are_told_apart(tmp_path):
    path = tmp_path / "data" / "two.npz"
    path.parent.mkdir()
    one, two = np.random.default_rng(0).random((2, 3, 8, 9))
    np.savez(path, one=one, two=two)
    rows = [(path, f"two:{m}", n, COPY if (m, n) == ("two", 1) else CLEAN)
            for m in ("one", "two") for n in range(3)]  # fmt: skip
    found = curate(result(tmp_path / "r", rows), tmp_path / "clean")
    written = np.load(found.folder / "two.npz")
    np.testing.assert_array_equal(written["one"], one)
    np.testing.assert_array_equal(written["two"], two[[0, 2]])


def test_an_untouched_stack_is_linked(tmp_path):
    path = tmp_path / "data" / "s.npy"
    path.parent.mkdir()
    np.save(path, np.zeros((2, 8, 9)))
    results = result(tmp_path / "r", [(path, "v", n, CLEAN) for n in range(2)])
    found = curate(results, tmp_path / "clean", link=True)
    assert (found.folder / "s.npy").samefile(path)


def test_a_volume_falls_with_one_slice(tmp_path):
    good, bad = volume(tmp_path / "data" / "good.nii.gz"), volume(tmp_path / "data" / "bad.nii.gz")
    rows = [(good, "good", n, CLEAN) for n in range(4)]
    rows += [(bad, "bad", n, COPY if n == 2 else CLEAN) for n in range(4)]
    found = curate(result(tmp_path / "r", rows), tmp_path / "clean")
    assert (found.kept, found.dropped, found.dropped_innocent, found.files) == (4, 4, 3, 1)
    assert not (found.folder / "bad.nii.gz").exists()
    assert (found.folder / "good.nii.gz").read_bytes() == good.read_bytes()
    reasons = [row["reason"] for row in table(found.folder / DROPPED)]
    assert reasons[2].startswith("copy:")
    assert reasons[0] == "its volume or file holds 1 slice with a dropped verdict"
    assert len(table(found.folder / "manifest.csv")) == 1


def test_the_voxels_of_a_header_come_along(tmp_path):
    path = volume(tmp_path / "data" / "v.mhd")
    found = curate(
        result(tmp_path / "r", [(path, "v", n, CLEAN) for n in range(4)]), tmp_path / "clean"
    )
    assert found.files == 2
    assert len(list(read_source(find_images([found.folder]).sources[0]))) == 1


def test_places_that_would_lose_or_touch_something_are_refused(images, tmp_path):
    data, paths, results = images
    before = state(tmp_path)
    for place, why in (
        (results, "not an empty folder"),
        (paths[0], "not an empty folder"),
        (data / "a" / "clean", "lies inside"),
    ):
        with pytest.raises(CurationError, match=why):
            curate(results, place)
    assert state(tmp_path) == before


def test_images_that_are_gone_are_named(images, tmp_path):
    _, paths, results = images
    paths[1].unlink()
    with pytest.raises(CurationError, match=r"1\.png.* is not there"):
        curate(results, tmp_path / "clean")
    assert not (tmp_path / "clean").exists()


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "\x00", "verdict\ncopy\n"])
def test_what_is_no_result_is_refused(tmp_path, text):
    (tmp_path / "slices.csv").write_text(text)
    with pytest.raises(CurationError, match="not a table of slices"):
        curate(tmp_path, tmp_path / "clean")
    with pytest.raises(CurationError, match="cannot be read"):
        curate(tmp_path / "missing", tmp_path / "clean")


@pytest.mark.parametrize("there", [False, True])
def test_a_cancelled_run_leaves_the_place_as_it_was(images, tmp_path, there):
    _, _, results = images
    target = tmp_path / "clean"
    if there:
        target.mkdir()
    answers = iter([False, False, True])
    with pytest.raises(CancelledError):
        curate(results, target, cancelled=lambda: next(answers))
    assert target.exists() is there
    assert not there or not list(target.iterdir())


def test_a_killed_run_leaves_no_half_set_and_can_be_repeated(images, tmp_path):
    data, paths, results = images
    before = state(data)
    half = tmp_path / "clean" / UNFINISHED / "a" / "1.png"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"half")
    found = curate(results, tmp_path / "clean")
    assert found.kept == 2
    assert sorted(path.name for path in found.folder.iterdir()) == [
        "a", "b", "dropped.csv", "manifest.csv",
    ]  # fmt: skip
    assert (found.folder / "a" / "1.png").read_bytes() == paths[1].read_bytes()
    assert state(data) == before


def test_links_to_another_file_system_are_symbolic(images, tmp_path, monkeypatch):
    data, paths, results = images
    before = state(data)

    def refuse(self, target):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    found = curate(results, tmp_path / "clean", link=True)
    assert (found.folder / "a" / "1.png").readlink() == paths[1].resolve()
    assert sum(source.slice_count for source in find_images([found.folder]).sources) == 2
    assert state(data) == before


def test_equal_names_in_different_folders_stay_apart(tmp_path):
    paths = [picture(tmp_path / "data" / name / "same.png", n) for n, name in enumerate("ab")]
    rows = [(path, path.parent.name, 0, CLEAN) for path in paths]
    found = curate(result(tmp_path / "r", rows), tmp_path / "clean")
    for path in paths:
        assert (found.folder / path.parent.name / "same.png").read_bytes() == path.read_bytes()


def test_a_damaged_image_is_no_reason_to_leave_half_a_set(tmp_path):
    path = tmp_path / "data" / "s.npy"
    path.parent.mkdir()
    path.write_bytes(b"not numpy")
    results = result(tmp_path / "r", [(path, "v", 0, CLEAN), (path, "v", 1, COPY)])
    with pytest.raises(CurationError, match="truncated or damaged"):
        curate(results, tmp_path / "clean")
    assert not (tmp_path / "clean").exists()


def test_names_that_look_like_formulas_survive(tmp_path):
    path = picture(tmp_path / "data" / "=1+1.png")
    found = curate(result(tmp_path / "r", [(path, "=v", 0, CLEAN)]), tmp_path / "clean")
    (row,) = table(found.folder / "manifest.csv")
    assert row["path"] == "./=1+1.png"
    assert find_images([found.folder]).sources[0].subject == "S"


@pytest.mark.parametrize("link", [False, True])
def test_a_scored_dicom_folder_falls_as_a_whole_and_the_other_reads_again(
    small_audit, tmp_path, link
):
    data, results, clean = tmp_path / "data", tmp_path / "results", tmp_path / "clean"
    for name in ("studyforrest_t1_defaced", "d2n_compressed_rle"):
        shutil.copytree(shared("data", "dicom", name), data / name)
    scored = ["score", str(data), "--cohort", str(small_audit.cohort), "--out", str(results)]
    assert main([*scored, "--quiet", "--no-verify"]) == 0
    rows = table(results / "slices.csv")
    assert {Path(row["source"]) for row in rows} == set(data.iterdir())
    bad = data / "d2n_compressed_rle"
    verdicts = [(row["source"], row["volume"], row["slice"], row["verdict"]) for row in rows]
    first = next(n for n, row in enumerate(verdicts) if row[0] == str(bad))
    verdicts[first] = (*verdicts[first][:3], COPY)
    result(results, verdicts)
    before = state(data)
    how = ["--link"] if link else []
    assert main(["curate", str(results), "--to", str(clean), "--drop", "copy", *how]) == 0
    assert state(data) == before
    (kept,) = find_images([data / "studyforrest_t1_defaced"]).sources
    (again,) = find_images([clean]).sources
    assert again.kind == "dicom" and again.slice_count == kept.slice_count
    assert not any(path.name == bad.name for path in clean.rglob("*"))
    for one, other in zip(read_source(kept), read_source(again), strict=True):
        np.testing.assert_array_equal(one.array, other.array)
        np.testing.assert_array_equal(one.affine, other.affine)
    dropped = table(clean / DROPPED)
    assert {row["source"] for row in dropped} == {str(bad)}
    assert len(dropped) == sum(row["source"] == str(bad) for row in rows)


def test_the_command(images, tmp_path, capsys):
    _, _, results = images
    clean = str(tmp_path / "clean")
    assert main(["curate", str(results), "--to", clean, "--drop", "copy", "--link"]) == 0
    assert "Kept:    3 slices in 3 files" in capsys.readouterr().out
    assert main(["curate", str(results), "--to", clean]) == 2
    assert "not an empty folder" in capsys.readouterr().err
    everything = "copy,suspicious,no-evidence,not-scored"
    arguments = ["curate", str(results), "--to", str(tmp_path / "none"), "--drop", everything]
    assert main(arguments) == 0
    assert "Kept:    nothing" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["curate", str(results), "--to", clean, "--drop", "copies"])
    assert "not a list of verdicts" in capsys.readouterr().err
