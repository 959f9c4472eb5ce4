"""What the panel and scripts hand to a job, and what a job of the real worker tells and leaves."""

from __future__ import annotations

import logging

import numpy as np
import pytest

slicer = pytest.importorskip("slicer", reason="needs slicer-core from PyPI")
pytest.importorskip("PySide6.QtWidgets", reason="needs PySide6-Essentials from PyPI")

from slicer_host.examples import volume_node  # noqa: E402

SHAPE = (6, 10, 8)
FAILS = [["say", {"type": "failed", "message": "x"}], ["exit", 1]]


def test_the_machines_choices_reach_the_worker(stage):
    stage.ui.batchSizeSpinBox.value = 4
    stage.run(FAILS, volume_node(SHAPE))
    job = stage.last_job.process._job
    assert (job["kind"], job["batch_size"]) == ("score", 4)
    assert stage.ends()
    stage.answers.answers = {"folder": "/data/training", "new_file": stage.tmp_path / "brains"}
    stage.ui.buildFromFolderButton.click()
    job = stage.last_job.process._job
    assert (job["kind"], job["batch_size"]) == ("build", 4)
    assert stage.ends()


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
