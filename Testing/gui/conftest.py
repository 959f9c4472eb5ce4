from __future__ import annotations

import pytest

from slicer_host.fixtures import host, slicer_app

__all__ = ["host", "slicer_app", "stage"]


@pytest.fixture
def stage(slicer_app, monkeypatch, tmp_path):
    from MemorizationIndexLib.gui import setup_section

    monkeypatch.setattr(setup_section, "torch_problem", lambda: "")
    monkeypatch.setattr(setup_section, "installed_version", lambda _: "2.9.0")
    # A saved setting of one test must not reach the next.
    import qt

    from gui.stage import Stage

    qt.QSettings().remove("MemorizationIndex")
    return Stage(slicer_app, monkeypatch, tmp_path)
