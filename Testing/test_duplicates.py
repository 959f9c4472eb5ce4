"""Slices and subjects that occur twice are found, and no others."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from MemorizationIndexLib.cli import main
from MemorizationIndexLib.cohort.building import CohortOptions
from MemorizationIndexLib.duplicates import clusters, find_duplicates
from MemorizationIndexLib.duplicates_tables import duplicates_in_words, write_duplicates
from MemorizationIndexLib.index.protocols import CalibrationError
from MemorizationIndexLib.phantoms import make_patient
from shared_data import shared

OPTIONS = CohortOptions(encoder="builtin", input_size=64, cache=False)


def write(folder, name, images):
    (folder / name).mkdir(parents=True)
    for number, image in enumerate(images):
        pixels = (image / max(float(image.max()), 1.0) * 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name / f"{number}.png")


def patients(folder, count=8):
    found = [make_patient(number, slices=8, size=96)[2:6] for number in range(count)]
    for number, images in enumerate(found):
        write(folder, f"patient-{number}", images)
    return found


def noisy(images, seed=0):
    noise = np.random.default_rng(seed).normal(0, 8, images.shape)
    return np.clip(images * 0.9 + 20 + noise, 0, 1000)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("twice")
    images = patients(folder)
    write(folder, "other-name", noisy(images[2]))
    write(folder, "turned", images[5][:, :, ::-1])
    # One slice alone is no second person.
    others = make_patient(70, slices=8, size=96)[2:5]
    write(folder, "mixed", np.concatenate([others, images[0][:1]]))
    (folder / "patient-7" / "again.png").write_bytes((folder / "patient-7" / "1.png").read_bytes())
    return find_duplicates(folder, options=OPTIONS)


def test_one_person_under_two_names_is_found_and_nobody_else(found):
    assert found.subject_clusters == (("other-name", "patient-2"), ("patient-5", "turned"))
    whole = [pair for pair in found.subject_pairs if pair.whole]
    assert {(pair.first, pair.second) for pair in whole} == set(found.subject_clusters)
    assert all(pair.shared >= pair.slices / 2 for pair in whole)
    assert found.highest_clean < found.threshold


def test_a_shared_slice_is_found_without_making_one_person_of_two(found):
    (part,) = [pair for pair in found.subject_pairs if not pair.whole]
    assert (part.first, part.second, part.shared) == ("mixed", "patient-0", 1)


def test_equal_pixels_within_a_subject_are_found(found):
    within = [
        pair
        for pair in found.pairs
        if found.places[pair.first].subject == found.places[pair.second].subject
    ]
    (pair,) = within
    assert pair.identical
    assert {found.places[row].source.rsplit("/", 1)[-1] for row in (pair.first, pair.second)} == {
        "1.png", "again.png",
    }  # fmt: skip


def test_tables_and_words_say_it(found, tmp_path):
    words = "\n".join(duplicates_in_words(found))
    assert "2 people occur under several names; " in words
    assert "one person: other-name, patient-2" in words
    assert "shared slices: mixed and patient-0, 1 of 4" in words
    assert "same picture twice in patient-7" in words
    table, _, content = write_duplicates(found, tmp_path / "out")
    rows = list(csv.DictReader(table.open(encoding="utf-8")))
    assert len(rows) == sum(len(cluster) for cluster in found.slice_clusters)
    assert {row["same_person"] for row in rows if row["subject"] == "turned"} == {"2"}
    data = json.loads(content.read_text(encoding="utf-8"))
    assert data["subject_clusters"] == [list(one) for one in found.subject_clusters]
    assert len(data["slice_pairs"]) == len(found.pairs)


def test_different_people_are_left_alone(tmp_path):
    patients(tmp_path / "data")
    found = find_duplicates(tmp_path / "data", options=OPTIONS)
    assert found.pairs == found.subject_pairs == found.subject_clusters == ()
    first, second = duplicates_in_words(found)
    assert first.startswith("Finding:  No slice of the 8 subjects occurs twice")
    assert second.startswith("Other slices of one person under another name are not sought: ")


def test_many_duplicates_do_not_hide_each_other(tmp_path):
    images = patients(tmp_path / "data")
    for number in range(6):
        write(tmp_path / "data", f"twin-{number}", noisy(images[number], number))
    found = find_duplicates(tmp_path / "data", options=OPTIONS)
    assert found.subject_clusters == tuple((f"patient-{n}", f"twin-{n}") for n in range(6))


def test_groups_are_joined_through_others():
    assert clusters([(1, 2), (5, 4), (2, 3), (8, 9), (3, 1)]) == [[1, 2, 3], [4, 5], [8, 9]]
    assert clusters([]) == []


def test_other_protocols_are_refused(tmp_path):
    patients(tmp_path / "data", 6)
    options = CohortOptions(encoder="builtin", input_size=64, cache=False, protocol="paper")
    with pytest.raises(CalibrationError, match="under the protocol calibrated"):
        find_duplicates(tmp_path / "data", options=options)


def test_too_few_people_are_said_in_words_that_fit(tmp_path, capsys):
    patients(tmp_path, 2)
    assert main(["duplicates", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "There are 2 subjects, and how alike different people are" in said
    assert "5 or more" in said
    assert "reference" not in said and "alibrati" not in said


def test_the_command(tmp_path, capsys):
    images = patients(tmp_path / "data", 6)
    write(tmp_path / "data", "again", images[1])
    arguments = ["duplicates", str(tmp_path / "data"), "--encoder", "builtin", "--no-cache"]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert "one person: again, patient-1" in said.out
    assert "Encoding the images" in said.err
    for word in ("reference", "alibrati", "cohort"):
        assert word not in said.err
    assert (tmp_path / "out" / "duplicates.json").is_file()


@pytest.mark.parametrize(("anatomy", "real"), [("knee", "knee-021"), ("spine", "spine-vb3-09")])
def test_a_real_person_under_another_name_is_found_without_a_false_pair(tmp_path, anatomy, real):
    data = shared("data", "slices", anatomy)
    folder = tmp_path / anatomy
    shutil.copytree(data, folder)
    (folder / "renamed").mkdir()
    rng = np.random.default_rng(0)
    for path in sorted((folder / real).iterdir()):
        pixels = np.asarray(Image.open(path).convert("L"), float)
        changed = np.clip(0.9 * pixels + 10 + rng.normal(0, 3, pixels.shape), 0, 255)
        Image.fromarray(changed.astype(np.uint8)).rotate(2).save(folder / "renamed" / path.name)
    found = find_duplicates(folder, options=CohortOptions(encoder="builtin", cache=False))
    assert found.subject_clusters == (tuple(sorted((real, "renamed"))),)
    assert {found.places[row].subject for pair in found.pairs for row in (pair.first, pair.second)}\
        == {real, "renamed"}  # fmt: skip
