"""What the application may call at any time, in any order."""

from __future__ import annotations

import pytest

slicer = pytest.importorskip("slicer", reason="needs slicer-core from PyPI")
pytest.importorskip("PySide6.QtWidgets", reason="needs PySide6-Essentials from PyPI")

from slicer_host.examples import volume_node  # noqa: E402


def test_calls_that_come_after_the_cleanup_do_nothing(stage):
    """Slicer leaves a module that it unloads, and closes its scene when it quits."""
    widget, scene = stage.widget, slicer.mrmlScene
    observed = [
        (scene, slicer.vtkMRMLScene.StartCloseEvent, widget.onSceneStartClose),
        (scene, slicer.vtkMRMLScene.EndCloseEvent, widget.onSceneReady),
        (scene, slicer.vtkMRMLScene.EndImportEvent, widget.onSceneReady),
    ]
    assert all(widget.hasObserver(*one) for one in observed)
    widget.cleanup()
    assert widget.panel is None and not any(widget.hasObserver(*one) for one in observed)
    for late in (
        widget.exit,
        widget.enter,
        widget.onSceneStartClose,
        widget.onSceneReady,
        widget.onQuit,
    ):
        late()
    slicer.mrmlScene.Clear()
    assert widget.panel is None


def test_no_parameter_node_is_made_in_a_closing_scene(stage):
    """It would be swept away a moment later, and its observers with it."""
    seen = []

    def enter(*_):
        stage.widget.enter()
        seen.append(stage.panel.parameters)

    tag = slicer.mrmlScene.AddObserver(slicer.vtkMRMLScene.StartCloseEvent, enter)
    try:
        stage.host.scene.clear()
    finally:
        slicer.mrmlScene.RemoveObserver(tag)
    assert seen == [None] and stage.panel.parameters is not None


def test_without_a_scene_there_are_no_parameters(stage):
    """SLICER.md 7.17: slots that came between closing and entering found a dead node."""
    stage.choose(volume_node((6, 10, 8)))
    stage.widget.parent.exit()
    stage.host.scene.clear()
    assert stage.panel.parameters is None and stage.panel.results.parameters is None
    stage.ui.alphaSpinBox.value = 0.2
    stage.ui.applyButton.click()
    assert stage.panel.job is None and not stage.ui.applyButton.enabled
    assert "no scene" in stage.ui.progressLabel.text
    stage.widget.parent.enter()
    assert stage.panel.parameters.alpha == pytest.approx(0.01)
