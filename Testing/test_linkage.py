"""Names that hold neighboring slices of one person are linked, and no others."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from MemorizationIndexLib.cohort.building import CohortOptions
from MemorizationIndexLib.duplicates import find_duplicates
from MemorizationIndexLib.duplicates_tables import LINKED, duplicates_in_words, write_duplicates
from MemorizationIndexLib.linkage import correlation_of, link_threshold
from shared_data import shared


def scores(subjects=40, slices=3, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(subjects), slices)
    return rng.lognormal(-1.5, 0.5, len(codes)), codes, (codes + 1) % subjects


def neighbors(count=100, seed=1):
    return np.random.default_rng(seed).normal(3.0, 0.4, count)


def test_the_threshold_is_what_known_neighbors_reach():
    values, codes, partners = scores()
    found = link_threshold(values, codes, partners, neighbors())
    assert found == pytest.approx(np.quantile(neighbors(), 0.05))
    assert values.max() < found


def test_linked_subjects_do_not_raise_the_threshold():
    values, codes, partners = scores()
    before = link_threshold(values, codes, partners, neighbors())
    for first in range(0, 20, 2):
        for one, two in ((first, first + 1), (first + 1, first)):
            rows = np.flatnonzero(codes == one)
            values[rows], partners[rows] = (3.2, 2.9, 1.0), two
    assert link_threshold(values, codes, partners, neighbors()) == before


def test_a_threshold_within_the_null_is_refused():
    values, codes, partners = scores()
    assert link_threshold(values, codes, partners, neighbors() / 8) is None


def test_a_threshold_needs_ten_other_subjects():
    values, codes, partners = scores(subjects=9)
    assert link_threshold(values, codes, partners, neighbors()) is None


def test_pictures_are_correlated_over_small_shifts():
    rng = np.random.default_rng(0)
    one, other = rng.random((2, 96, 96)).astype(np.float32)
    assert correlation_of(one, [one]) == pytest.approx(1, abs=1e-5)
    assert correlation_of(one, [other, np.roll(0.5 * one + 0.2, (5, -6), (0, 1))]) > 0.8
    assert correlation_of(one, [np.roll(one, 20, 0)]) < 0.2
    assert correlation_of(one, [other]) < 0.2
    assert correlation_of(one, [np.zeros_like(one)]) == 0


def disguised(path):
    pixels = np.asarray(Image.open(path).convert("L"), float)
    noise = np.random.default_rng(0).normal(0, 3, pixels.shape)
    changed = Image.fromarray(np.clip(0.9 * pixels + 10 + noise, 0, 255).astype(np.uint8))
    return changed.rotate(2).transpose(Image.Transpose.FLIP_LEFT_RIGHT)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Half of the spines, with the most alike, the vb1; one person's every second slice under
    another name, turned and noisy, and another person a second time."""
    spines = sorted(shared("data", "slices", "spine").iterdir())
    folder = tmp_path_factory.mktemp("linked")
    split, twice = "spine-vb3-09", "spine-vb2-20"
    for number, spine in enumerate(spines):
        if number % 2 == 0 or "vb1" in spine.name or spine.name in (split, twice):
            shutil.copytree(spine, folder / spine.name)
    for name in ("renamed", "again"):
        (folder / name).mkdir()
    for path in sorted((folder / split).iterdir())[1::2]:
        disguised(path).save(folder / "renamed" / path.name)
        path.unlink()
    for path in (folder / twice).iterdir():
        Image.open(path).rotate(2).save(folder / "again" / path.name)
    return find_duplicates(folder, options=CohortOptions(encoder="builtin", cache=False))


def test_a_real_person_twice_is_found_without_a_false_pair(found):
    assert found.subject_clusters == (("again", "spine-vb2-20"),)
    places = [found.places[row] for pair in found.pairs for row in (pair.first, pair.second)]
    assert {place.subject for place in places} == {"again", "spine-vb2-20"}
    for pair in found.pairs:
        first, second = (found.places[row].source for row in (pair.first, pair.second))
        assert first.rsplit("/", 1)[-1] == second.rsplit("/", 1)[-1]


def test_other_slices_of_a_real_person_under_another_name_are_found_without_a_false_pair(found):
    (pair,) = found.linkage.pairs
    assert (pair.first, pair.second) == ("renamed", "spine-vb3-09")
    assert found.linked_clusters == (("renamed", "spine-vb3-09"),)
    assert pair.score == pytest.approx(pair.lead * pair.correlation)
    assert pair.score >= found.linkage.threshold > found.linkage.highest_clean
    assert found.places[pair.first_row].subject == pair.first
    assert found.places[pair.second_row].subject == pair.second
    assert found.linkage.power > 0.8


def test_words_and_tables_tell_it_from_equal_slices(found, tmp_path):
    words = "\n".join(duplicates_in_words(found))
    assert "  one person: again, spine-vb2-20" in words
    assert "probably one person: renamed, spine-vb3-09" in words
    assert "other acquisitions of one person, are not found" in words
    table, linked, content = write_duplicates(found, tmp_path)
    assert linked.name == LINKED
    listed = list(csv.DictReader(table.open(encoding="utf-8")))
    assert {row["subject"] for row in listed} == {"again", "spine-vb2-20"}
    (row,) = csv.DictReader(linked.open(encoding="utf-8"))
    assert (row["person"], row["first"], row["second"]) == ("1", "renamed", "spine-vb3-09")
    assert row["second_source"].endswith(".png")
    data = json.loads(content.read_text(encoding="utf-8"))
    assert data["linked_clusters"] == [["renamed", "spine-vb3-09"]]
    assert data["linked_pairs"][0]["first_slice"]["subject"] == "renamed"
    assert data["subject_clusters"] == [["again", "spine-vb2-20"]]


def test_single_slices_teach_nothing_of_neighbors(tmp_path):
    for subject in range(6):
        pixels = np.random.default_rng(subject).integers(0, 255, (80, 80)).astype(np.uint8)
        (tmp_path / f"p{subject}").mkdir()
        Image.fromarray(pixels).save(tmp_path / f"p{subject}" / "0.png")
    found = find_duplicates(
        tmp_path, options=CohortOptions(encoder="builtin", input_size=64, cache=False)
    )
    assert found.linkage.threshold is None
    words = "\n".join(duplicates_in_words(found))
    assert "not sought: only 0 of its slices have another of their own subject" in words
