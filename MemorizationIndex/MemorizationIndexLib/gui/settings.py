"""What the machine keeps of the panel, for all scenes: QSettings."""

from __future__ import annotations

from typing import Any

import qt
import slicer.util

PREFIX = "MemorizationIndex/"
DEVICES = ("auto", "cpu", "cuda", "mps")
DEFAULTS: dict[str, Any] = {"Device": "auto", "BatchSize": 0, "LastFolder": ""}
"""Each setting and its default; a batch size of 0 is the encoder's own choice."""


def setting(name: str) -> Any:
    """Return a setting of this machine, of the type of its default."""
    default = DEFAULTS[name]
    return slicer.util.settingsValue(PREFIX + name, default, converter=type(default))


def set_setting(name: str, value: Any) -> None:
    """Keep a setting of this machine."""
    qt.QSettings().setValue(PREFIX + name, type(DEFAULTS[name])(value))
