from __future__ import annotations

import csv
import dataclasses
import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from MemorizationIndexLib.report import (
    ReportError,
    write_slices_csv,
    write_summary_json,
    write_volumes_csv,
)
from MemorizationIndexLib.report.html import render
from MemorizationIndexLib.report.pseudonyms import hide_subjects
from MemorizationIndexLib.report.tables import guard, unguard
from MemorizationIndexLib.results import AuditSummary, VolumeResult
from report.example_result import HOSTILE, clean, example, nothing_scored

HEADER = [
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
    "similarity_middle_layer",
    "similarity_coarse",
    "nearest_volume",
    "source",
    "pose",
    "ssim",
    "ncc",
    "verified",
    "nearest_source",
    "domain",
    "flagged_by",
    "part_p_value",
    "part_similarity",
    "part_subject",
    "part_volume",
    "part_slice",
    "part_pose",
    "part_top",
    "part_bottom",
    "part_left",
    "part_right",
]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_slices_have_the_promised_columns_in_order(tmp_path):
    write_slices_csv(example(pictures=False), tmp_path / "slices.csv")
    with (tmp_path / "slices.csv").open(encoding="utf-8", newline="") as file:
        assert next(csv.reader(file)) == HEADER


def test_evidence_is_written_and_empty_where_it_was_not_sought(tmp_path):
    result = example((9,), pictures=False)
    scored = [number for number, one in enumerate(result.slices) if one.oni is not None]
    slices = list(result.slices)
    for number, verified in zip(scored, (True, False), strict=False):
        slices[number] = dataclasses.replace(
            slices[number], pose="rotated by +4°", ssim=0.5, ncc=0.25, verified=verified
        )
    write_slices_csv(dataclasses.replace(result, slices=tuple(slices)), tmp_path / "slices.csv")
    read = rows(tmp_path / "slices.csv")
    columns = ("pose", "ssim", "ncc", "verified")
    assert [read[scored[0]][name] for name in columns] == ["rotated by +4°", "0.5", "0.25", "yes"]
    assert read[scored[1]]["verified"] == "no"
    assert [read[scored[2]][name] for name in columns] == ["", "", "", ""]


def test_the_file_of_the_nearest_slice_is_told_unless_names_are_hidden(tmp_path):
    result = example(pictures=False)
    write_slices_csv(result, tmp_path / "slices.csv")
    told = {row["nearest_source"] for row in rows(tmp_path / "slices.csv")}
    assert "sub-07_T1w.nii.gz" in told
    assert "in <bdi>sub-07_T1w.nii.gz</bdi>" in render(result)
    assert not any(one.nearest_source for one in hide_subjects(result).slices)


def test_slices_come_back_as_they_were(tmp_path):
    result = example(pictures=False)
    write_slices_csv(result, tmp_path / "slices.csv")
    read = rows(tmp_path / "slices.csv")
    assert len(read) == len(result.slices)
    for row, one in zip(read, result.slices, strict=True):
        assert unguard(row["volume"]) == one.volume
        assert row["verdict"] == one.verdict.value
        assert int(row["slice"]) == one.slice
        for column in ("similarity", "mi", "oni", "p_value", "q_value", "margin"):
            expected = getattr(one, column)
            assert (float(row[column]) if row[column] else None) == expected
        if one.layer_similarity:
            assert float(row["similarity_coarse"]) == one.layer_similarity[2]
        else:
            assert row["similarity_coarse"] == ""


def test_ordinary_names_stand_as_they_are(tmp_path):
    write_slices_csv(example(pictures=False), tmp_path / "slices.csv")
    names = {row["volume"] for row in rows(tmp_path / "slices.csv")}
    assert {"synthetic-01", "合成脳画像_患者", "Müller-Ångström_größe"} <= names


def test_no_name_is_a_formula(tmp_path):
    assert any(name.startswith("=") for name in HOSTILE)
    write_slices_csv(example(pictures=False), tmp_path / "slices.csv")
    assert not any(row["volume"].startswith("=") for row in rows(tmp_path / "slices.csv"))


@given(st.text(max_size=20))
def test_every_name_survives_the_guard(name):
    assert unguard(guard(name)) == name
    assert not guard(name).startswith(tuple("=+-@\t\r"))


@pytest.mark.parametrize("result", [nothing_scored(), clean()], ids=["nothing scored", "clean"])
def test_what_is_missing_is_an_empty_cell(tmp_path, result):
    write_slices_csv(result, tmp_path / "slices.csv")
    text = (tmp_path / "slices.csv").read_text(encoding="utf-8")
    assert "None" not in text
    assert "nan" not in text.lower()
    assert rows(tmp_path / "slices.csv")[0]["margin"] == ""


def test_volumes_have_every_field(tmp_path):
    result = example(pictures=False)
    write_volumes_csv(result, tmp_path / "volumes.csv")
    read = rows(tmp_path / "volumes.csv")
    assert list(read[0]) == [field.name for field in dataclasses.fields(VolumeResult)]
    assert read[0]["copies"] == str(result.volumes[0].copies)
    assert read[0]["verdict"] == "copy"


def test_summary_has_every_field(tmp_path):
    result = example(pictures=False)
    write_summary_json(result, tmp_path / "summary.json")
    read = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert list(read) == [field.name for field in dataclasses.fields(AuditSummary)]
    assert read["power"][0]["name"] == "exact"
    assert read["power"][-1]["seen"] is False
    assert read["refused"][0] == {
        "path": "/data/<b>broken</b>.nii.gz",
        "reason": "The file ends early; copy it again.",
    }
    assert read["layers"] == list(result.summary.layers)
    assert read["mean_oni"] == result.summary.mean_oni


def test_nothing_scored_is_null_in_the_summary(tmp_path):
    write_summary_json(nothing_scored(), tmp_path / "summary.json")
    assert json.loads((tmp_path / "summary.json").read_text("utf-8"))["mean_oni"] is None


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_no_table_holds_nan(tmp_path, bad):
    result = clean()
    one = dataclasses.replace(result.slices[0], mi=bad)
    volume = dataclasses.replace(result.volumes[0], mean_oni=bad)
    summary = dataclasses.replace(result.summary, null_sd=bad)
    result = dataclasses.replace(result, slices=(one,), volumes=(volume,), summary=summary)
    for write in (write_slices_csv, write_volumes_csv, write_summary_json):
        with pytest.raises(ReportError):
            write(result, tmp_path / "table")
    assert list(tmp_path.iterdir()) == []


def test_layers_that_do_not_fit_are_refused(tmp_path):
    result = clean()
    one = dataclasses.replace(result.slices[0], layer_similarity=(0.5,))
    with pytest.raises(ReportError, match="1 layer similarities, but the audit names 3"):
        write_slices_csv(dataclasses.replace(result, slices=(one,)), tmp_path / "slices.csv")


def test_missing_folder_is_named(tmp_path):
    target = tmp_path / "missing" / "slices.csv"
    with pytest.raises(OSError) as caught:
        write_slices_csv(clean(), target)
    assert caught.value.filename == str(target)


def test_full_disk_keeps_the_former_file(tmp_path, monkeypatch):
    target = tmp_path / "slices.csv"
    target.write_text("former", encoding="utf-8")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError) as caught:
        write_slices_csv(clean(), target)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(target)
    assert target.read_text(encoding="utf-8") == "former"
    assert [path.name for path in tmp_path.iterdir()] == ["slices.csv"]


def test_names_that_are_not_unicode_are_written(tmp_path):
    result = clean()
    one = dataclasses.replace(result.slices[0], source="broken\udcff.nii")
    write_slices_csv(dataclasses.replace(result, slices=(one,)), tmp_path / "slices.csv")
    assert rows(tmp_path / "slices.csv")[0]["source"] == "broken\\udcff.nii"
