"""What the panel and scripts hand to a job, and what a job of the real worker tells and leaves."""

from __future__ import annotations

import logging
import os
import signal
import subprocess

import numpy as np
import pytest

slicer = pytest.importorskip("slicer", reason="needs slicer-core from PyPI")
pytest.importorskip("PySide6.QtWidgets", reason="needs PySide6-Essentials from PyPI")

from slicer_host.examples import volume_node  # noqa: E402

SHAPE = (6, 10, 8)
FAILS = [["say", {"type": "failed", "message": "x"}], ["exit", 1]]


def patient(name, count=3, seed=0):
    from MemorizationIndexLib.images.volume import Volume

    array = np.random.default_rng(seed).random((count, 32, 32)).astype(np.float32)
    return Volume(name, name, array, np.diag([1.8, 1.8, 7.0, 1.0]), name)


def score(cohort, volumes):
    """A job of the real worker, not yet started."""
    from MemorizationIndexLib.gui.jobs import Job

    job = {"kind": "score", "cohort": str(cohort), "alpha": 0.05, "plane": "axial"}
    return Job({**job, "device": "cpu"}, volumes)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 200 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)]
    if os.name == "nt" or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_every_choice_of_the_panel_reaches_the_worker(stage):
    from MemorizationIndexLib.gui.parameters import EncoderChoice, Plane, Protocol

    ui, parameters = stage.ui, stage.panel.parameters
    ui.batchSizeSpinBox.value = 4
    ui.deviceComboBox.currentIndex = 1
    parameters.alpha, parameters.plane = 0.05, Plane.CORONAL
    parameters.encoder, parameters.protocol = EncoderChoice.BUILTIN, Protocol.PAPER
    parameters.inputSize, parameters.keepPictures, parameters.hashNames = 96, False, True
    shared = {"plane": "coronal", "device": "cpu", "batch_size": 4}
    stage.run(FAILS, volume_node(SHAPE))
    job = stage.last_job.process._job
    wanted = {"kind": "score", "cohort": str(stage.cohort), "alpha": 0.05, **shared}
    assert {name: job.get(name) for name in wanted} == wanted
    assert stage.ends()
    stage.answers.answers = {"folder": "/data/training", "new_file": stage.tmp_path / "brains"}
    ui.buildFromFolderButton.click()
    job = stage.last_job.process._job
    wanted = {"kind": "build", "inputs": ["/data/training"], "encoder": "builtin", **shared}
    wanted |= {"protocol": "paper", "input_size": 96, "thumbnails": False, "anonymize": True}
    wanted |= {"parts": False}
    assert {name: job.get(name) for name in wanted} == wanted
    assert stage.ends()


@pytest.mark.parametrize("from_folder", [False, True])
def test_parts_are_asked_for_only_if_checked_and_with_the_calibrated_protocol(stage, from_folder):
    from MemorizationIndexLib.gui.parameters import Protocol

    ui, parameters = stage.ui, stage.panel.parameters
    stage.choose(volume_node(SHAPE))
    stage.answers.answers = {"folder": "/data/training", "new_file": stage.tmp_path / "brains"}

    def asked():
        stage.steps = FAILS
        (ui.buildFromFolderButton if from_folder else ui.buildFromVolumesButton).click()
        parts = stage.last_job.process._job["parts"]
        assert stage.ends()
        return parts

    box = ui.findPartsCheckBox
    assert box.enabled and "112 pixels" in box.toolTip and "recognizable" in box.toolTip
    assert asked() is False
    box.checked = True
    assert parameters.findParts and asked() is True
    parameters.protocol = Protocol.PAPER
    assert not box.enabled and "Only the calibrated protocol" in box.toolTip
    assert asked() is False


def test_slices_at_once_act_in_this_process_too(stage, small_audit, monkeypatch, caplog):
    from MemorizationIndexLib import worker

    asked = []
    make = worker.encoder_of

    def remember(cohort, device, batch):
        asked.append((device, batch))
        return make(cohort, device, batch)

    from MemorizationIndexLib.gui import auditing

    monkeypatch.setattr(auditing, "encoder_of", remember)
    array = np.random.default_rng(0).random((3, 32, 32)).astype(np.float32)
    node = volume_node(array=array)
    options = {"plane": "axial", "device": "cpu", "batchSize": 3}
    with caplog.at_level(logging.INFO):
        stage.logic.score(node, small_audit.cohort, inProcess=True, **options)
    assert asked == [("cpu", 3)]
    assert "The choice of 3 slices at once is for MRI-CORE" in caplog.text


def test_a_stall_is_shown_in_place_of_the_time_left(stage, monkeypatch):
    from MemorizationIndexLib.gui import process

    monkeypatch.setattr(process, "STALLED_AFTER", 0.3)
    report = {"type": "progress", "stage": "Verifying", "unit": "pairs", "done": 3, "total": 40}
    go_on = stage.tmp_path / "go on"
    steps = [["say", report], ["wait", str(go_on)], *FAILS]
    stage.run(steps, volume_node(SHAPE))
    label = stage.ui.progressLabel
    assert stage.host.wait(20, lambda: "nothing new" in label.text)
    assert label.text == "Verifying: 3 of 40 pairs, nothing new for a few seconds"
    assert (stage.ui.progressBar.value, stage.ui.progressBar.maximum) == (3, 40)
    go_on.touch()
    assert stage.ends()


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_what_was_finished_is_kept_when_the_real_worker_is_killed(slicer_app, small_audit):
    from MemorizationIndexLib.gui.jobs import JobError

    job = score(small_audit.cohort, [patient(f"v{n}", 20, n) for n in range(6)])
    job.on_volume = lambda _result: os.kill(job.process._pid, signal.SIGKILL)
    job.start()
    with pytest.raises(JobError, match="without a word") as caught:
        job.wait()
    kept = {row.volume for row in caught.value.result.slices}
    assert "v0" in kept and "v5" not in kept and not job.folder.exists()


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_a_silent_real_worker_is_told_and_can_be_ended(slicer_app, small_audit, monkeypatch):
    from MemorizationIndexLib.gui import process

    monkeypatch.setattr(process, "SILENT_AFTER", 0.5)
    monkeypatch.setattr(process, "KILL_AFTER", 0.3)
    job = score(small_audit.cohort, [patient(f"v{n}", 20, n) for n in range(3)])
    silences, ends = [], []
    job.on_silence, job.on_end = silences.append, ends.append
    job.start()
    assert slicer_app.wait(60, lambda: job.process._pid)
    os.kill(job.process._pid, signal.SIGSTOP)
    assert slicer_app.wait(20, lambda: silences and silences[-1] > 0.5)
    job.cancel()
    assert slicer_app.wait(20, lambda: bool(ends))
    assert ends[0].kind == "cancelled" and not job.folder.exists()


def test_where_no_volume_can_be_used_the_job_fails_with_the_reason(slicer_app, small_audit):
    from dataclasses import replace

    from MemorizationIndexLib.gui.jobs import JobError

    flat = [replace(patient(f"v{n}"), array=np.zeros((0, 4, 4), np.float32)) for n in range(2)]
    for volumes, words in ((flat, "v0.*and 1 more input cannot"), ([], "no image")):
        job = score(small_audit.cohort, volumes)
        job.start()
        with pytest.raises(JobError, match=words) as caught:
            job.wait()
        assert caught.value.result is None and not job.outcome.unexpected


def test_a_real_job_in_a_folder_of_any_name_keeps_the_names_of_volumes(
    slicer_app, small_audit, tmp_path, monkeypatch
):
    home = tmp_path / 'Müller 患者 "O\'Neil"'
    home.mkdir()
    monkeypatch.setattr(type(slicer.app), "temporaryPath", str(home))
    name = "T1 \"post\" 'Gd' — 患者"
    job = score(small_audit.cohort, [patient(name)])
    assert job.folder.parent == home
    job.start()
    assert {row.volume for row in job.wait().slices} == {name}


def test_a_full_disk_is_named_by_its_place(slicer_app, small_audit, small_disk, monkeypatch):
    from MemorizationIndexLib.gui.jobs import JobError

    monkeypatch.setattr(type(slicer.app), "temporaryPath", str(small_disk))
    job = score(small_audit.cohort, [patient("too large for it", 100)])
    with pytest.raises(OSError, match="No space left") as full:
        job.start()
    assert str(small_disk) in str(full.value) and not job.folder.exists()
    job = score(small_audit.cohort, [patient("fits, unlike its result", 45)])
    job.start()
    with pytest.raises(JobError, match="No space left on device") as caught:
        job.wait()
    assert str(small_disk) in str(caught.value) and "free some space" in str(caught.value)
    assert not job.outcome.unexpected and list(small_disk.iterdir()) == []
