"""What is found among the inputs, whose it is, and under which name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from images.making import dicom_slice, gray, nifti, png
from MemorizationIndexLib.images import ImageError, find_images
from MemorizationIndexLib.images.identity import bids_subject, rule_sentence, shortest_distinct


def names(*inputs: Path, **options: object) -> dict[str, str]:
    return {s.name: s.subject for s in find_images(inputs, **options).sources}  # type: ignore[arg-type]


def test_a_folder_of_images_is_one_source(tmp_path: Path) -> None:
    for index in (10, 9, 1):
        png(tmp_path / "fake" / f"s{index}.png", index)
    (source,) = find_images([str(tmp_path / "fake")]).sources
    assert (source.name, source.subject, source.kind) == ("fake", "fake", "images")
    assert [path.name for path in source.paths] == ["s1.png", "s9.png", "s10.png"]
    assert source.labels == (0, 1, 2) and source.slice_count == 3
    assert source.input == str(tmp_path / "fake")


def test_finding_reads_no_voxel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    png(tmp_path / "a" / "1.png")
    nifti(tmp_path / "v.nii.gz")
    np.save(tmp_path / "stack.npy", gray(0, (5, 20, 20)))
    from MemorizationIndexLib.images import itk, pictures, stacks

    for module, function in (
        (itk, "read_voxels"),
        (pictures, "read_picture"),
        (stacks, "read_stack"),
    ):
        monkeypatch.setattr(module, function, None)
    assert [s.slice_count for s in find_images([tmp_path]).sources] == [1, 5, 18]


def test_what_is_no_image_is_ignored(tmp_path: Path) -> None:
    png(tmp_path / "a.png")
    for name in (".hidden.png", "__MACOSX/a.png", ".git/b.png"):
        png(tmp_path / name)
    for name in (".DS_Store", "Thumbs.db", "DICOMDIR", "notes.txt", "x.json", "core", "w.bin"):
        (tmp_path / name).write_bytes(b"\x00\x01 not an image" * 20)
    found = find_images([tmp_path])
    assert len(found.sources) == 1 and not found.refused and len(found.sources[0].paths) == 1


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda p: p / "none", "does not exist"),
        (lambda p: (p / "empty").mkdir() or p / "empty", "holds no image"),
        (lambda p: (p / "n.txt").write_text("x") and p / "n.txt", "is not an image"),
        (lambda p: (p / "noext").write_text("x") and p / "noext", "is not an image"),
    ],
)
def test_bad_inputs(tmp_path: Path, make: object, sentence: str) -> None:
    path = make(tmp_path)  # type: ignore[operator]
    with pytest.raises(ImageError, match=sentence) as error:
        find_images([path])
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(ImageError, match="No input"):
        find_images([])


def test_a_file_reached_twice_is_read_once_and_loops_end(tmp_path: Path) -> None:
    real = nifti(tmp_path / "d" / "v.nii")
    (tmp_path / "d" / "link.nii").symlink_to(real)
    (tmp_path / "d" / "loop").symlink_to(tmp_path / "d", target_is_directory=True)
    (tmp_path / "d" / "broken.nii").symlink_to(tmp_path / "gone.nii")
    (tmp_path / "other").symlink_to(tmp_path / "d", target_is_directory=True)
    assert len(find_images([tmp_path, tmp_path / "d", real, tmp_path / "other"]).sources) == 1


def test_names_are_the_shortest_that_differ(tmp_path: Path) -> None:
    for name in ("a/x/v.nii", "b/x/v.nii", "b/y/v.nii.gz", "b/y/v.nrrd", "b/w.mha"):
        nifti(tmp_path / name)
    assert set(names(tmp_path)) == {"a/x/v", "b/x/v", "v.nii.gz", "v.nrrd", "w"}


def test_odd_names(tmp_path: Path) -> None:
    folder = tmp_path / "Müller 患者 <script>"
    nifti(folder / "a b" / "ü 画像 <script>.nii.gz")
    png(folder / "ß x" / "é.png")
    found = find_images([folder])
    assert {s.name for s in found.sources} == {"ü 画像 <script>", "ß x"} and not found.refused
    from MemorizationIndexLib.images import read_source

    assert all(len(list(read_source(source))) == 1 for source in found.sources)


def test_relative_input_named_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    png(tmp_path / "patient" / "1.png")
    monkeypatch.chdir(tmp_path / "patient")
    assert names(Path()) == {"patient": "patient"}


def test_unreadable_headers_are_refused_one_by_one(tmp_path: Path) -> None:
    nifti(tmp_path / "good.nii")
    for name in ("bad.nii", "bad.nii.gz", "bad.nrrd", "bad.mha", "bad.npy", "bad.npz", "bad.dcm"):
        (tmp_path / name).write_bytes(b"<html>no</html>" * 50)
    (tmp_path / "zero.nii").touch()
    (tmp_path / "zero.npy").touch()
    found = find_images([tmp_path])
    assert len(found.sources) == 1 and len(found.refused) == 9
    for path, sentence in found.refused:
        assert path in sentence and sentence.endswith(".") and "\n" not in sentence


# Identity


def test_order_of_the_rules(tmp_path: Path) -> None:
    nifti(tmp_path / "in" / "sub-07" / "anat" / "sub-07_T1w.nii.gz")
    nifti(tmp_path / "in" / "listed" / "sub-09_T1w.nii.gz")
    dicom_slice(tmp_path / "in" / "sub-08" / "1.dcm", gray().astype(np.int16), patient="P8")
    dicom_slice(tmp_path / "in" / "d2" / "1.dcm", gray().astype(np.int16), patient="")
    nifti(tmp_path / "in" / "who" / "v.nii")
    (tmp_path / "in" / "manifest.csv").write_text("path,subject_id\nlisted,M1\n")
    found = find_images([tmp_path / "in"])
    assert {(s.subject, s.rule) for s in found.sources} == {
        ("sub-07", "their BIDS sub- name"),
        ("M1", "the manifest"),
        ("P8", "DICOM PatientID"),
        ("d2", "their parent folder"),
        ("v", "their file name"),
    }
    assert list(found.subject_rules.values()) == [1, 1, 1, 1, 1]
    assert found.subject_rule_sentence.startswith("5 subjects, identified 1 by the manifest, 1 by")
    assert ["4 of 5 images" in warning for warning in found.warnings] == [True]
    found = find_images([tmp_path / "in"], subjects=r"in/(?P<subject>\w+)")
    assert {s.subject for s in found.sources} == {"sub", "listed", "d2", "who"}
    assert set(found.subject_rules) == {"the --subjects pattern"}


def test_parent_folder_or_file(tmp_path: Path) -> None:
    for name in ("one/a.nii", "one/b.nii"):
        nifti(tmp_path / name)
    assert names(tmp_path) == {"a": "a", "b": "b"}
    nifti(tmp_path / "two" / "c.nii")
    assert names(tmp_path) == {"a": "one", "b": "one", "c": "two"}
    sentence = find_images([tmp_path]).subject_rule_sentence
    assert sentence == "2 subjects, identified by their parent folder"


def test_folders_of_one_name_are_different_subjects(tmp_path: Path) -> None:
    for patient in ("p1", "p2"):
        nifti(tmp_path / patient / "T1" / "v.nii")
        png(tmp_path / patient / "slices" / "1.png")
    assert set(names(tmp_path).values()) == {"p1/T1", "p2/T1", "p1/slices", "p2/slices"}


@pytest.mark.parametrize(
    ("pattern", "subjects"),
    [
        (r"p(\d+)_", {"1", "2"}),
        (r"p\d+", {"p1", "p2"}),
        (r"(x)?(?P<subject>p\d)", {"p1", "p2"}),
        (r"^flat/", {"flat/"}),
    ],
)
def test_subjects_pattern(tmp_path: Path, pattern: str, subjects: set[str]) -> None:
    for name in ("p1_a", "p1_b", "p2_a"):
        png(tmp_path / "flat" / f"{name}.png")
    found = find_images([tmp_path / "flat"], subjects=pattern)
    assert {source.subject for source in found.sources} == subjects
    labels = sorted(label for source in found.sources for label in source.labels)
    assert labels == [0, 1, 2] and len({s.name for s in found.sources}) == len(subjects)


def test_bids_names_of_files_named_one_by_one(tmp_path: Path) -> None:
    one = nifti(tmp_path / "sub-01" / "anat" / "T1w.nii")
    two = nifti(tmp_path / "x" / "sub-02_T1w.nii")
    assert set(names(one, two).values()) == {"sub-01", "sub-02"}
    assert len(find_images(str(one)).sources) == 1


def test_subjects_pattern_on_files(tmp_path: Path) -> None:
    files = [nifti(tmp_path / name / "v.nii") for name in ("p1", "p2")]
    assert set(names(*files, subjects=r"p\d").values()) == {"p1", "p2"}


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [("(", "not a regular expression"), (r"q(\d)", "in/p1.png"), ("(q?)", "finds no subject")],
)
def test_bad_subjects_pattern(tmp_path: Path, pattern: str, sentence: str) -> None:
    png(tmp_path / "in" / "p1.png")
    nifti(tmp_path / "in" / "v.nii")
    with pytest.raises(ImageError, match=sentence):
        find_images([tmp_path / "in"], subjects=pattern)


def test_a_pattern_that_misses_a_volume_is_an_error_not_a_refusal(tmp_path: Path) -> None:
    nifti(tmp_path / "in" / "p1.nii")
    nifti(tmp_path / "in" / "other.nii")
    with pytest.raises(ImageError, match=r"in/other\.nii"):
        find_images([tmp_path / "in"], subjects=r"p\d")


def test_doubts_about_the_parent_folder(tmp_path: Path) -> None:
    png(tmp_path / "flat" / "1.png")
    png(tmp_path / "flat" / "2.png")
    (warning,) = find_images([tmp_path / "flat"]).warnings
    assert "The 2 pictures in the folder flat were taken as the slices of one volume" in warning
    assert "--subjects" in warning and "manifest" in warning
    png(tmp_path / "b" / "1.png")
    assert not find_images([tmp_path]).warnings
    for index in range(11):
        np.save(tmp_path / "b" / f"{index}.npy", gray(0, (2, 20, 20)))
    np.save(tmp_path / "flat" / "x.npy", gray(0, (2, 20, 20)))
    (warning,) = find_images([tmp_path]).warnings
    assert "11 volume files" in warning


def test_small_rules() -> None:
    assert bids_subject(("in", "sub-01", "ses-1")) == "sub-01"
    assert bids_subject(("x", "sub-A2_T1w.nii.gz")) == "sub-A2"
    assert bids_subject(("my-sub-01", "subject")) == ""
    assert shortest_distinct([("a", "b"), ("c", "b"), ("b",)]) == {
        ("a", "b"): "a/b",
        ("c", "b"): "c/b",
        ("b",): "b",
    }
    assert rule_sentence({"the manifest": 1}) == "1 subject, identified by the manifest"


# Manifest


def table(folder: Path, text: str, name: str = "manifest.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode("utf-8"))
    return path


def test_manifest_with_bom_crlf_and_parent_paths(tmp_path: Path) -> None:
    png(tmp_path / "slices" / "f" / "b.png")
    png(tmp_path / "slices" / "f" / "a.png")
    png(tmp_path / "slices" / "f" / "c.png")
    rows = "\ufeffpath,subject_id,slice_index,x\r\nslices/f/a.png,S1,12,\r\nf/b.png,S2,7,q\r\n"
    rows += f"{tmp_path / 'slices' / 'f' / 'c.png'},S1,,\r\n\r\n"
    file = table(tmp_path / "slices", rows)
    for given in (file, tmp_path / "slices"):
        found = find_images([given])
        assert {s.name: (s.subject, s.labels) for s in found.sources} == {
            "f [S1]": ("S1", (12, 2)),
            "f [S2]": ("S2", (7,)),
        }
        assert found.subject_rules == {"the manifest": 2} and not found.warnings


def test_images_of_one_subject_with_one_slice_index_are_told_apart(tmp_path: Path) -> None:
    for name in ("t1_3.png", "t2_3.png", "t2_4.png", "other.png"):
        png(tmp_path / name)
    lines = ["t1_3.png,S,3", "t2_3.png,S,3", "t2_4.png,S,4", "other.png,T,3"]
    table(tmp_path, "path,subject_id,slice_index\n" + "\n".join(lines))
    found = find_images([tmp_path])
    labels = {source.subject: source.labels for source in found.sources}
    assert labels == {"S": (1, 2, 3), "T": (3,)}
    assert any("2 images of S as slice 3" in one for one in found.warnings)


def test_a_manifest_as_input_takes_only_what_it_lists(tmp_path: Path) -> None:
    png(tmp_path / "f" / "a.png")
    png(tmp_path / "f" / "b.png")
    (source,) = find_images([table(tmp_path, "path;subject_id\nf\\b.png;S\n", "mine.csv")]).sources
    assert [path.name for path in source.paths] == ["b.png"]


def test_a_manifest_names_slices_of_a_stack(tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", gray(0, (6, 20, 20)))
    nifti(tmp_path / "v.nii")
    rows = "path,subject_id,slice_index\ns.npy,A,0\ns.npy,A,5\ns.npy,B,2\nv.nii,C,3\nv.nii,C,4\n"
    found = find_images([table(tmp_path, rows)])
    got = {s.name: (s.subject, s.selected, s.slice_count) for s in found.sources}
    assert got == {
        "s [A]": ("A", (0, 5), 2),
        "s [B]": ("B", (2,), 1),
        "v": ("C", (3, 4), 2),
    }
    from MemorizationIndexLib.images import read_source, slice_volume

    for source in found.sources:
        indices = [
            one.index for volume in read_source(source) for one in slice_volume(volume, size=32)
        ]
        assert tuple(indices) == source.selected


def test_a_manifest_beside_a_named_file_counts(tmp_path: Path) -> None:
    np.save(tmp_path / "stack.npy", gray(0, (4, 20, 20)))
    png(tmp_path / "other.png")
    lines = [f"stack.npy,{'AB'[index % 2]},{index}" for index in range(4)]
    table(tmp_path, "path,subject_id,slice_index\n" + "\n".join(lines))
    found = find_images([tmp_path / "stack.npy"])
    assert {s.subject: s.selected for s in found.sources} == {"A": (0, 2), "B": (1, 3)}
    assert found.subject_rules == {"the manifest": 2} and not found.warnings
    found = find_images([tmp_path / "stack.npy", tmp_path / "other.png"])
    (warning,) = found.warnings
    assert "other.png is not in the manifest.csv beside it" in warning
    table(tmp_path, "path,subject_id\nstack.npy,\n")
    found = find_images([tmp_path / "stack.npy", tmp_path / "other.png"])
    (warning,) = found.warnings
    assert "Ignored as a manifest" in warning and "subject_id is empty" in warning


def test_a_manifest_names_a_dicom_folder(tmp_path: Path) -> None:
    dicom_slice(tmp_path / "d" / "1.dcm", gray().astype(np.int16))
    assert names(table(tmp_path, "path,subject_id\nd,X\n")) == {"d": "X"}


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("file,subject_id\na.png,S\n", "no column path"),
        ("path\na.png\n", "no column subject_id"),
        ("", "no column path and no column subject_id"),
        ("path,subject_id\n", "lists no image"),
        ("path,subject_id\na.png,\n", "line 2: subject_id is empty"),
        ("path,subject_id\na.png\n", "line 2: subject_id is empty"),
        ("path,subject_id\na.png,S\ngone.png,S\n", "line 3: gone.png is neither"),
        ("path,subject_id,slice_index\na.png,S,x\n", "slice_index 'x' is not a whole number"),
        ("path,subject_id,slice_index\na.png,S,inf\n", "slice_index 'inf' is not a whole number"),
        ("path,subject_id\na.png,S\na.png,T\n", "to S and to T"),
        ("path,subject_id,slice_index\ns.npy,S,1\ns.npy,T,1\n", "slice 1 of .* to S and to T"),
        ("path,subject_id\nmanifest.csv,S\n", "is not an image"),
    ],
)
def test_bad_manifests(tmp_path: Path, rows: str, sentence: str) -> None:
    png(tmp_path / "a.png")
    np.save(tmp_path / "s.npy", gray(0, (6, 20, 20)))
    with pytest.raises(ImageError, match=sentence):
        find_images([table(tmp_path, rows)])


def test_a_slice_index_out_of_range_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", gray(0, (6, 20, 20)))
    file = table(tmp_path, "path,subject_id,slice_index\ns.npy,S,6\n")
    ((_, sentence),) = find_images([file]).refused
    assert "names slice 6" in sentence and "6 slices" in sentence


def test_manifest_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_bytes("path,subject_id\nü.png,S\n".encode("latin-1"))
    with pytest.raises(ImageError, match="UTF-8"):
        find_images([tmp_path / "m.csv"])


def test_found_manifests(tmp_path: Path) -> None:
    png(tmp_path / "a.png")
    table(tmp_path, "file,who\na.png,S\n")
    found = find_images([tmp_path])
    assert found.sources[0].subject == tmp_path.name
    assert "no column path" in found.warnings[0]
    table(tmp_path, "path,subject_id\na.png,S\ngone.png,S\n")
    found = find_images([tmp_path])
    assert found.sources[0].subject == "S" and "gone.png" in found.warnings[0]
