"""Volumes and results as files: what is written comes back the same, and damage is told."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from MemorizationIndexLib.exchange import (
    ExchangeError,
    read_result,
    read_volumes,
    write_result,
    write_volumes,
)
from MemorizationIndexLib.images.volume import Volume
from MemorizationIndexLib.results import MatchPictures
from report.example_result import example


def volume(array, name="v", **changes):
    affine = np.array([[0, -2.5, 0.1, 7], [1.25, 0, 0, -3], [0, 0.2, 5, 1e-3], [0, 0, 0, 1]])
    return Volume(name, 'Müller, 患者 "O\'Neil"', array, affine, "C:\\dir\\x.nii", **changes)


@pytest.mark.parametrize("dtype", ["u1", "i1", "<i2", ">u2", "i8", "u8", "f2", "f4", "f8", "?"])
def test_voxels_come_back_with_type_and_geometry(tmp_path, dtype):
    array = np.arange(3 * 4 * 5).reshape(3, 4, 5).astype(dtype)
    given = [volume(array), volume(array[::-1, :, ::2], "w", slice_indices=(3, 5, 9))]
    write_volumes(given, tmp_path / "volumes")
    for before, after in zip(given, read_volumes(tmp_path / "volumes"), strict=True):
        assert after.array.dtype == before.array.dtype
        np.testing.assert_array_equal(after.array, before.array)
        np.testing.assert_array_equal(after.affine, before.affine)
        for field in ("name", "subject", "source", "planar", "slice_indices", "selected"):
            assert getattr(after, field) == getattr(before, field)


def test_nan_and_infinity_are_voxels_like_others(tmp_path):
    array = np.array([[[np.nan, np.inf], [-np.inf, 1]]], np.float32)
    write_volumes([volume(array)], tmp_path / "volumes")
    np.testing.assert_array_equal(read_volumes(tmp_path / "volumes")[0].array, array)


def test_a_result_comes_back_the_same(tmp_path):
    result = example()
    picture = np.arange(12, dtype=np.uint8).reshape(3, 4)
    match = MatchPictures(picture, picture + 1, picture + 2, picture + 3, picture / np.float32(12))
    result = dataclasses.replace(result, match_pictures={("synthetic-01", 3): match})
    write_result(result, tmp_path / "result")
    again = read_result(tmp_path / "result")
    assert again.slices == result.slices and again.volumes == result.volumes
    assert again.summary == result.summary
    np.testing.assert_array_equal(again.null, result.null)
    np.testing.assert_array_equal(again.statistics, result.statistics)
    assert list(again.control) == list(result.control)
    for kind, values in result.control.items():
        np.testing.assert_array_equal(again.control[kind], values)
    for name, values in vars(match).items():
        again_values = getattr(again.match_pictures["synthetic-01", 3], name)
        assert again_values.dtype == values.dtype
        np.testing.assert_array_equal(again_values, values)
    for before, after in (
        (result.pictures, again.pictures),
        (result.reference_pictures, again.reference_pictures),
    ):
        assert list(before) == list(after)
        for key, picture in before.items():
            np.testing.assert_array_equal(after[key], picture)


def test_objects_and_numbers_that_are_none_are_refused_and_leave_nothing(tmp_path):
    with pytest.raises(ExchangeError, match="Python objects"):
        write_volumes([volume(np.array([[[None]]], object))], tmp_path / "volumes")
    result = example()
    bad = dataclasses.replace(
        result, summary=dataclasses.replace(result.summary, null_mean=float("nan"))
    )
    with pytest.raises(ExchangeError, match="NaN or infinite"):
        write_result(bad, tmp_path / "result")
    assert list(tmp_path.iterdir()) == []


def test_a_pickle_is_never_loaded(tmp_path):
    write_volumes([volume(np.zeros((1, 2, 2)))], tmp_path / "volumes")
    np.save(tmp_path / "volumes" / "0.npy", np.array([print], object), allow_pickle=True)
    with pytest.raises(ExchangeError, match=r"0\.npy cannot be read"):
        read_volumes(tmp_path / "volumes")


def test_an_existing_folder_is_not_overwritten(tmp_path):
    write_volumes([], tmp_path / "volumes")
    with pytest.raises(FileExistsError):
        write_volumes([], tmp_path / "volumes")


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "result.json").unlink(),
        lambda folder: (folder / "result.json").write_text("{"),
        lambda folder: (folder / "result.json").write_text("[]"),
        lambda folder: (folder / "null.npy").unlink(),
        lambda folder: (folder / "statistics.npy").write_bytes(b"\x93NUMPY"),
        lambda folder: change(folder / "result.json", lambda d: d.pop("summary")),
        lambda folder: change(folder / "result.json", lambda d: d.update(format=99)),
        lambda folder: change(folder / "result.json", lambda d: d["slices"][0].pop("verdict")),
    ],
)
def test_damage_is_told_in_a_sentence(tmp_path, damage):
    write_result(example(lengths=(4,)), tmp_path / "result")
    damage(tmp_path / "result")
    with pytest.raises(ExchangeError, match="run again"):
        read_result(tmp_path / "result")


def change(path, how):
    document = json.loads(path.read_text())
    how(document)
    path.write_text(json.dumps(document))
