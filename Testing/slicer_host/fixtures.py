"""Fixtures over the stand-in; import them in a ``conftest.py``. They skip without slicer-core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from slicer_host.scene import HostScene

NEEDS_SLICER_CORE = "needs slicer-core from PyPI (Slicer's own MRML without the application)"
NEEDS_QT = "needs PySide6-Essentials from PyPI"


@pytest.fixture
def host() -> Iterator[HostScene]:
    """The process's one MRML scene with its logics, empty at the start of each test."""
    pytest.importorskip("slicer", reason=NEEDS_SLICER_CORE)
    from slicer_host.scene import host_scene

    scene = host_scene()
    scene.clear()
    yield scene
    scene.clear()
