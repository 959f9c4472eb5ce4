from __future__ import annotations

from pathlib import Path

import pytest

from MemorizationIndexLib import load_cohort
from MemorizationIndexLib.cli import main
from MemorizationIndexLib.demo import run_demo
from MemorizationIndexLib.outputs import OutputError
from MemorizationIndexLib.results import Verdict


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "phantoms ü"
    return folder, run_demo(folder)


def test_every_planted_copy_is_found_with_its_patient_and_nothing_else(demonstration):
    _, found = demonstration
    assert found.planted > 0
    assert found.fresh > 0
    assert found.found == found.named == found.planted
    assert found.false == 0
    scored = [one for one in found.result.slices if one.verdict is not Verdict.NOT_SCORED]
    assert len(scored) == found.planted + found.fresh


def test_everything_stays_for_the_user_to_look_at(demonstration):
    folder, found = demonstration
    assert {path.name for path in folder.iterdir()} == {
        "phantom-patients",
        "phantom-synthetic",
        "phantoms.micohort",
        "results",
    }
    assert load_cohort(found.cohort).thumbnails is not None
    assert "phantom" in found.query.relative_to(folder).as_posix()
    report = found.report.read_text(encoding="utf-8")
    assert "phantom" in report
    assert found.result.summary.finding in report


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(OutputError, match=r"holds thesis\.txt, which is not of the demo"):
        run_demo(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_hidden_files_and_an_earlier_demo_are_borne(tmp_path, monkeypatch):
    class Reached(Exception):  # noqa: N818
        pass

    def reached(*_, **__):
        raise Reached

    monkeypatch.setattr("MemorizationIndexLib.demo.write_phantom_cohort", reached)
    (tmp_path / ".DS_Store").write_text("")
    (tmp_path / ".phantoms.micohort-abc").mkdir()
    (tmp_path / "results").mkdir()
    with pytest.raises(Reached):
        run_demo(tmp_path)


def test_a_file_in_the_way_and_a_full_disk_are_said(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file")]) == 2
    assert "is not a folder" in capsys.readouterr().err

    def full(folder: Path, **_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("MemorizationIndexLib.demo.write_phantom_cohort", full)
    assert main(["demo", "--out", str(tmp_path / "new"), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("memorization-index: The phantoms cannot be written in")
    assert "No space left on device" in said
