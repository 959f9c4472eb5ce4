"""Fixtures over the stand-in; import them in a ``conftest.py``. They skip without slicer-core."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from slicer_host.scene import HostScene

NEEDS_SLICER_CORE = "needs slicer-core from PyPI (Slicer's own MRML without the application)"
NEEDS_QT = "needs PySide6-Essentials from PyPI (before 6.12 on Python before 3.12)"


@pytest.fixture
def host() -> Iterator[HostScene]:
    """The process's one MRML scene with its logics, empty at the start of each test."""
    pytest.importorskip("slicer", reason=NEEDS_SLICER_CORE)
    from slicer_host.scene import host_scene

    scene = host_scene()
    scene.clear()
    # The layout outlives a closed scene, as in the application, but must not reach the next test.
    scene.layout_node.SetViewArrangement(scene.layout_node.SlicerLayoutFourUpView)
    yield scene
    scene.clear()


class SlicerHost:
    """What a widget test has in hand.

    Attributes:
        app: ``slicer.app``.
        scene: The data side: ``slice_view(name)`` for pictures, ``clear()`` to close the scene.
        slot_errors: Exceptions that left a slot; empty it if a test means them.
    """

    def __init__(self, app: Any, scene: HostScene, slot_errors: list[Exception]) -> None:
        self.app = app
        self.scene = scene
        self.slot_errors = slot_errors
        self._loaded: list[str] = []

    def load_module(self, path: Path | str) -> Any:
        """Load a scripted module; it is unloaded after the test."""
        from slicer_host.scripted_module import load_module

        entry = load_module(path)
        self._loaded.append(entry.name)
        return entry

    def enter(self, entry: Any) -> Any:
        """Open a module's panel as choosing it in the module list does; returns its widget."""
        representation = entry.widgetRepresentation()
        representation.enter()
        return representation.self()

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let the event loop run; returns True as soon as ``until`` holds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.app.processEvents()
            if until():
                return True
            time.sleep(0.005)
        return until()

    def unload(self) -> None:
        from slicer_host.scripted_module import unload_module

        for name in self._loaded:
            unload_module(name)


def settle() -> None:
    """Let Qt delete what is to be deleted and collect garbage now, not in the midst of a call."""
    from PySide6.QtCore import QCoreApplication, QEvent

    from slicer_host.pythonqt_style import forget_connections

    forget_connections()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    QCoreApplication.processEvents()
    gc.collect()


def take_override_cursors() -> int:
    """Restore the cursor; returns how many were set over it."""
    from PySide6.QtWidgets import QApplication

    count = 0
    while QApplication.overrideCursor() is not None:
        QApplication.restoreOverrideCursor()
        count += 1
    return count


@pytest.fixture
def slicer_app(host: HostScene) -> Iterator[SlicerHost]:
    """The stand-in application: real MRML and real Qt; fails a test whose slots raised."""
    pyside = pytest.importorskip("PySide6", reason=NEEDS_QT)
    pytest.importorskip("PySide6.QtWidgets", reason=NEEDS_QT)
    if sys.version_info < (3, 12) and pyside.__version_info__[:2] == (6, 12):
        # Each call that returns nothing takes one reference of None away until Python aborts.
        pytest.skip(NEEDS_QT)
    from slicer_host.boot import boot
    from slicer_host.pythonqt_style import slot_errors

    slot_errors.clear()
    app = boot()
    app.testing = True
    hook = sys.excepthook

    def remember(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if error not in slot_errors:
            slot_errors.append(error)
        hook(kind, error, trace)

    sys.excepthook = remember
    started = SlicerHost(app, host, slot_errors)
    try:
        yield started
        started.unload()
        settle()
        assert not slot_errors, f"a slot raised {slot_errors[0]!r}"
        assert take_override_cursors() == 0, "a wait cursor was left behind"
    finally:
        sys.excepthook = hook
