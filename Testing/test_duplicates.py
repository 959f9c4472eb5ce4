"""Slices and subjects that occur twice are found, and no others."""

from __future__ import annotations

import csv
import functools
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from MemorizationIndexLib.cli import main
from MemorizationIndexLib.cohort.building import CohortOptions
from MemorizationIndexLib.duplicates import (
    _keep_nearest,
    _threshold,
    clusters,
    duplicates_of,
    find_duplicates,
)
from MemorizationIndexLib.duplicates_tables import duplicates_in_words, write_duplicates
from MemorizationIndexLib.index.protocols import PROTOCOLS, CalibrationError
from MemorizationIndexLib.index.verdict import lowest_of_copies
from MemorizationIndexLib.linkage import KEPT, NearestSubjects
from MemorizationIndexLib.phantoms import make_patient
from shared_data import shared

OPTIONS = CohortOptions(encoder="builtin", input_size=64, cache=False)


def write(folder, name, images):
    (folder / name).mkdir(parents=True)
    for number, image in enumerate(images):
        pixels = (image / max(float(image.max()), 1.0) * 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name / f"{number}.png")


@functools.cache
def head(number):
    return make_patient(number, slices=8, size=96)[2:6]


def patients(folder, count=6):
    found = [head(number) for number in range(count)]
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
    write(folder, "mixed", np.concatenate([head(70)[:3], images[0][:1]]))
    (folder / "patient-4" / "again.png").write_bytes((folder / "patient-4" / "1.png").read_bytes())
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
    assert "same picture twice in patient-4" in words
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
    assert first.startswith("Finding:  No slice of the 6 subjects occurs twice")
    assert second.startswith("Other slices of one person under another name are not sought: ")


def test_many_duplicates_do_not_hide_each_other(tmp_path):
    images = patients(tmp_path / "data")
    for number in range(4):
        write(tmp_path / "data", f"twin-{number}", noisy(images[number], number))
    found = find_duplicates(tmp_path / "data", options=OPTIONS)
    assert found.subject_clusters == tuple((f"patient-{n}", f"twin-{n}") for n in range(4))


CONTROL = {
    "exact": np.random.default_rng(1).normal(0.97, 0.01, 100).clip(0, 1),
    "noise": np.random.default_rng(2).normal(0.6, 0.03, 100),
}


def threshold(alike, control=CONTROL, subjects=20, slices=5):
    """Return the threshold where the rows given are as similar as given, others hardly."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(subjects), slices)
    similarity = np.triu(rng.uniform(0.05, 0.2, (len(codes), len(codes))), 1)
    for (first, second), value in alike.items():
        similarity[first, second] = value
    similarity += similarity.T
    similarity[codes[:, None] == codes] = 0
    others = NearestSubjects(np.zeros((len(codes), KEPT)), np.full((len(codes), KEPT), -1))
    _keep_nearest(others, np.arange(len(codes)), similarity.astype(np.float32), codes)
    return _threshold(others, codes, control)


def test_slices_beside_a_copied_one_do_not_raise_the_threshold():
    copied = {(2, 97): 0.9, (1, 97): 0.45, (3, 97): 0.4}
    assert threshold(copied) == threshold({}) == lowest_of_copies(CONTROL["noise"])


def test_copies_of_neighboring_slices_in_two_subjects_do_not_raise_the_threshold():
    copied = {(2, 97): 0.9, (3, 92): 0.8, (92, 97): 0.45}
    assert threshold(copied) == threshold({})


def test_alike_people_of_a_rare_scanner_do_not_hide_each_other():
    # 0 is as like 1 and 2 as the hardest disguise, 1 is less like 2.
    rare = {(0, 5): 0.4, (3, 12): 0.4, (6, 13): 0.3}
    control = CONTROL | {"crop": np.random.default_rng(3).normal(0.4, 0.03, 100)}
    assert threshold(rare, control) > 0.4
    assert threshold(rare, control) == lowest_of_copies(CONTROL["noise"])


def test_weak_copies_do_not_come_back_into_the_null():
    # Different people ask for 0.42, and the weakest disguise that is clear of it for 0.53.
    alike = {(7, 52): 0.31, (2, 97): 0.48, (13, 62): 0.5, (23, 72): 0.9}
    control = CONTROL | {"gamma": np.random.default_rng(3).normal(0.45, 0.03, 100)}
    assert threshold(alike, control) == lowest_of_copies(CONTROL["noise"])


def test_different_people_as_alike_as_hard_disguises_raise_the_threshold():
    values = iter(np.linspace(0.19, 0.35, 50))
    alike = {(5 * n + k, 50 + 5 * ((n + k) % 10) + k): next(values) for n in range(10)
             for k in range(5)}  # fmt: skip
    control = CONTROL | {"crop": np.random.default_rng(3).normal(0.3, 0.03, 100)}
    assert threshold(alike, control) == lowest_of_copies(CONTROL["noise"])


@pytest.mark.parametrize("similarity", [0.15, 0.19])
def test_a_set_without_clear_copies_is_refused(similarity):
    with pytest.raises(CalibrationError, match="no known copy stands clearly above"):
        threshold({}, {"noise": np.full(100, similarity)})


def test_groups_are_joined_through_others():
    assert clusters([(1, 2), (5, 4), (2, 3), (8, 9), (3, 1)]) == [[1, 2, 3], [4, 5], [8, 9]]
    assert clusters([]) == []


def test_other_protocols_are_refused(tmp_path):
    patients(tmp_path / "data", 1)
    options = CohortOptions(encoder="builtin", input_size=64, cache=False, protocol="paper")
    with pytest.raises(CalibrationError, match="under the protocol calibrated, not paper"):
        find_duplicates(tmp_path / "data", options=options)
    cohort = SimpleNamespace(
        name="set", protocol=PROTOCOLS["paper"], facts=SimpleNamespace(protocol="paper")
    )
    with pytest.raises(CalibrationError, match="'set' was built for paper: build it again"):
        duplicates_of(cohort)


def test_too_few_people_are_said_in_words_that_fit(tmp_path, capsys):
    patients(tmp_path, 2)
    assert main(["duplicates", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "There are 2 subjects, and how alike different people are" in said
    assert "5 or more" in said
    assert "reference" not in said and "alibrati" not in said


def test_the_command(tmp_path, capsys):
    images = patients(tmp_path / "data", 5)
    write(tmp_path / "data", "again", images[1])
    arguments = ["duplicates", str(tmp_path / "data"), "--encoder", "builtin", "--no-cache"]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert "one person: again, patient-1" in said.out
    assert "Encoding the images" in said.err
    for word in ("reference", "alibrati", "cohort"):
        assert word not in said.err
    assert (tmp_path / "out" / "duplicates.json").is_file()


def disguised(path, to, seed=0):
    pixels = np.asarray(Image.open(path).convert("L"), float)
    noise = np.random.default_rng(seed).normal(0, 3, pixels.shape)
    changed = np.clip(0.9 * pixels + 10 + noise, 0, 255)
    Image.fromarray(changed.astype(np.uint8)).rotate(2).save(to)


def test_a_real_person_under_another_name_is_found_without_a_false_pair(tmp_path):
    folder = tmp_path / "knee"
    shutil.copytree(shared("data", "slices", "knee"), folder)
    (folder / "renamed").mkdir()
    for path in sorted((folder / "knee-021").iterdir()):
        disguised(path, folder / "renamed" / path.name)
    found = find_duplicates(folder, options=CohortOptions(encoder="builtin", cache=False))
    assert found.subject_clusters == (("knee-021", "renamed"),)
    assert {found.places[row].subject for pair in found.pairs for row in (pair.first, pair.second)}\
        == {"knee-021", "renamed"}  # fmt: skip


def test_real_slices_beside_copied_ones_hide_no_copy_and_are_none(tmp_path):
    brains = sorted(shared("data", "slices", "brain").iterdir())[:24:2]
    for folder in brains:
        shutil.copytree(folder, tmp_path / "training" / folder.name)
    made = tmp_path / "made"
    made.mkdir()
    copied = set()
    for number, folder in enumerate(brains[:4]):
        first, second = sorted(folder.iterdir())[2:4]
        shutil.copy(first, made / f"{number}-0.png")
        disguised(second, made / f"{number}-1.png", number)
        copied |= {(first.name, f"{number}-0.png"), (second.name, f"{number}-1.png")}
    found = find_duplicates(
        [made, tmp_path / "training"],
        options=CohortOptions(encoder="builtin", input_size=128, cache=False),
    )
    names = [place.source.rsplit("/", 1)[-1] for place in found.places]
    assert {tuple(sorted((names[p.first], names[p.second]), reverse=True)) for p in found.pairs}\
        == copied  # fmt: skip
    assert not found.subject_clusters
