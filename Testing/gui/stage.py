"""A panel whose worker does what a test says; import it after the skip."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import slicer
import slicer.util

from MemorizationIndexLib.exchange import write_result
from slicer_host.examples import volume_node

MODULE = Path(__file__).resolve().parents[2] / "MemorizationIndex" / "MemorizationIndex.py"
WORKER = Path(__file__).with_name("scripted_worker.py")
SHAPE = (6, 10, 8)


class Facts:
    encoder, plane, protocol = "builtin", "auto", "calibrated"
    subjects, slices, input_size, widths = 27, 200, 224, (2048, 800, 288)

    def sentence(self):
        return "200 slices of 27 people."


class Stage:
    """A panel whose worker does what a test says."""

    def __init__(self, host, monkeypatch, tmp_path):
        from gui.doubles import Answers
        from MemorizationIndexLib.gui import process

        self.host, self.monkeypatch, self.tmp_path = host, monkeypatch, tmp_path
        self.entry = host.load_module(MODULE)
        self.widget = host.enter(self.entry)
        self.panel, self.ui, self.logic = self.widget.panel, self.widget.ui, self.widget.logic
        self.answers = Answers()
        self.panel.dialogs = self.answers
        self.panel.results._dialogs = self.panel.setup._dialogs = self.answers
        command = lambda folder: [sys.executable, str(WORKER), str(folder)]  # noqa: E731
        monkeypatch.setattr(process, "worker_command", command)
        monkeypatch.setattr(type(self.logic), "cohortFacts", lambda _self, _path: Facts())
        self.steps = []
        self._let_jobs_be_scripted()
        self.cohort = tmp_path / "cohort.micohort"
        self.cohort.mkdir()

    def _let_jobs_be_scripted(self):
        from MemorizationIndexLib.gui import jobs

        stage, init = self, jobs.Job.__init__

        def scripted(job, what, volumes=None):
            init(job, {**what, "steps": []}, volumes)
            job.process._job["steps"] = [
                step if step[0] != "result" else stage._result(job, *step[1:])
                for step in stage.steps
            ]
            stage.last_job = job

        self.monkeypatch.setattr(jobs.Job, "__init__", scripted)

    def _result(self, job, name, result):
        write_result(result, job.folder / name)
        message = {"type": "volume", "name": name, "folder": name}
        return ["say", message]

    def choose(self, *nodes):
        self.panel.parameters.volumes = list(nodes)
        self.panel.parameters.cohort = str(self.cohort)

    def run(self, steps, *nodes):
        """Press Apply with a worker that takes these steps."""
        if nodes:
            self.choose(*nodes)
        self.steps = steps
        assert self.ui.applyButton.enabled, self.ui.applyButton.toolTip
        self.ui.applyButton.click()
        assert self.panel.job is not None

    def finish(self, result, *nodes):
        """Press Apply and let the worker find ``result``."""
        self.run([["result", "result", result], ["say", {"type": "finished"}], ["exit", 0]], *nodes)
        assert self.host.wait(20, lambda: self.panel.job is None)

    def ends(self, seconds=20):
        return self.host.wait(seconds, lambda: self.panel.job is None)

    @property
    def message(self):
        return self.ui.messageLabel.text if not self.ui.messageFrame.isHidden() else ""


def sequence(count):
    logic = slicer.modules.sequences.logic()
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSequenceNode", "cine")
    for frame in range(count):
        data = volume_node(SHAPE, name=f"frame {frame}")
        node.SetDataNodeAtValue(data, str(frame))
        slicer.mrmlScene.RemoveNode(data)
    browser = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSequenceBrowserNode", "browser")
    browser.AddSynchronizedSequenceNodeID(node.GetID())
    logic.UpdateAllProxyNodes()
    browser.SetSelectedItemNumber(1)
    logic.UpdateAllProxyNodes()
    return browser.GetProxyNode(node)


def shows_slice(view, plane):
    """Whether a view lies in a slice's plane and passes through it."""
    matrix = slicer.util.arrayFromVTKMatrix(view.GetSliceToRAS())
    along = matrix[:3, 2] / np.linalg.norm(matrix[:3, 2])
    return np.isclose(abs(along @ plane.normal), 1) and np.isclose(
        (plane.center - matrix[:3, 3]) @ along, 0, atol=1e-4
    )
