"""Questions to the user, in one place, so that tests can answer them."""

from __future__ import annotations

import qt
import slicer
import slicer.util


class Dialogs:
    """Asks through Qt; without a main window or in a test, nothing is chosen."""

    def choose_folder(self, title: str, start: str = "") -> str:
        """Return a folder that exists, or an empty text."""
        if _nobody_there():
            return ""
        return str(qt.QFileDialog.getExistingDirectory(_parent(), title, start) or "")

    def choose_file(self, title: str, kinds: str, start: str = "") -> str:
        """Return a file that exists, or an empty text."""
        if _nobody_there():
            return ""
        return _first(qt.QFileDialog.getOpenFileName(_parent(), title, start, kinds))

    def choose_new_file(self, title: str, kinds: str, start: str = "") -> str:
        """Return a file to write, or an empty text; Qt asks before one is replaced."""
        if _nobody_there():
            return ""
        return _first(qt.QFileDialog.getSaveFileName(_parent(), title, start, kinds))

    def confirm(self, question: str) -> bool:
        """Ask a question with OK and Cancel."""
        return bool(slicer.util.confirmOkCancelDisplay(question, "MemorizationIndex"))


def _nobody_there() -> bool:
    return bool(slicer.app.testingEnabled()) or slicer.util.mainWindow() is None


def _parent() -> object:
    return slicer.util.mainWindow()


def _first(chosen: object) -> str:
    # PythonQt returns the path, other bindings a pair of path and filter.
    if isinstance(chosen, (tuple, list)):
        chosen = chosen[0] if chosen else ""
    return str(chosen or "")
