from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from MemorizationIndexLib.phantoms import (
    DISGUISES,
    PhantomError,
    make_patient,
    write_phantom_cohort,
    write_synthetic_volume,
)


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.corrcoef(first.ravel(), second.ravel())[0, 1])


def read(path: Path) -> np.ndarray:
    sitk = pytest.importorskip("SimpleITK")
    return sitk.GetArrayFromImage(sitk.ReadImage(str(path)))


def test_one_seed_gives_one_patient():
    first, again, other = make_patient(3), make_patient(3), make_patient(4)
    assert first.shape == (8, 128, 128)
    assert first.dtype == np.float32
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_values_are_finite_and_in_range():
    for seed in range(12):
        head = make_patient(seed, slices=5, size=64)
        assert np.isfinite(head).all()
        assert head.min() >= 0
        assert head.max() <= 1000
        assert all(picture.std() > 50 for picture in head)


def test_slices_of_a_patient_resemble_each_other_more_than_other_patients():
    heads = [make_patient(seed) for seed in range(8)]
    within = [correlation(head[4], head[5]) for head in heads]
    between = [correlation(heads[a][4], heads[b][4]) for a in range(8) for b in range(a + 1, 8)]
    assert np.mean(within) > np.mean(between) + 0.1
    assert max(between) < 0.95


def test_any_number_of_slices_and_size():
    assert make_patient(0, slices=1, size=16).shape == (1, 16, 16)
    assert make_patient(0, slices=20, size=40).shape == (20, 40, 40)


@pytest.mark.parametrize(("slices", "size"), [(0, 128), (8, 4)])
def test_impossible_phantom_is_refused(slices, size):
    with pytest.raises(PhantomError, match="at least 1 slice"):
        make_patient(0, slices=slices, size=size)


def test_empty_cohort_is_refused(tmp_path):
    with pytest.raises(PhantomError, match="at least 1 patient"):
        write_phantom_cohort(tmp_path, patients=0)


def test_cohort_lies_in_one_folder_a_patient(tmp_path):
    sitk = pytest.importorskip("SimpleITK")
    paths = write_phantom_cohort(tmp_path, patients=3, slices=4, size=32)
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == [
        f"phantom-0{n}/phantom-0{n}_t1.nii.gz" for n in (1, 2, 3)
    ]
    image = sitk.ReadImage(str(paths[0]))
    assert image.GetSize() == (32, 32, 4)
    assert max(image.GetSpacing()) == image.GetSpacing()[2]


def test_cohort_is_the_same_twice(tmp_path):
    first = write_phantom_cohort(tmp_path / "a", patients=2, slices=3, size=32, seed=5)
    second = write_phantom_cohort(tmp_path / "b", patients=2, slices=3, size=32, seed=5)
    other = write_phantom_cohort(tmp_path / "c", patients=2, slices=3, size=32, seed=6)
    for one, two, three in zip(first, second, other, strict=True):
        assert np.array_equal(read(one), read(two))
        assert not np.array_equal(read(one), read(three))


def test_planted_copies_are_what_the_truth_says(tmp_path):
    cohort = write_phantom_cohort(tmp_path / "cohort")
    heads = {path.parent.name: read(path) for path in cohort}
    path, planted = write_synthetic_volume(tmp_path / "query")
    volume = read(path)
    assert len(volume) == len(planted) == 24
    counts = {
        truth: sum(one.truth == truth for one in planted) for truth in ("copy", "fresh", "blank")
    }
    assert counts == {"copy": 8, "fresh": 12, "blank": 4}
    assert {one.disguise for one in planted if one.truth == "copy"} == set(DISGUISES)
    for one, picture in zip(planted, volume, strict=True):
        if one.truth == "blank":
            assert not picture.any()
            continue
        closeness = {
            (name, index): correlation(picture, reference)
            for name, head in heads.items()
            for index, reference in enumerate(head)
        }
        best = max(closeness, key=closeness.__getitem__)
        if one.truth == "copy":
            assert best == (one.copied_subject, one.copied_slice)
            assert closeness[best] > 0.9
            assert not np.array_equal(picture, heads[best[0]][best[1]])
        else:
            assert closeness[best] < 0.95


def test_truth_is_on_disk_too(tmp_path):
    _, planted = write_synthetic_volume(tmp_path, patients=4, slices=4, size=32)
    with (tmp_path / "planted.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["slice"]) for row in rows] == list(range(24))
    assert [row["truth"] for row in rows] == [one.truth for one in planted]
    assert [row["copied_subject"] for row in rows] == [one.copied_subject for one in planted]
