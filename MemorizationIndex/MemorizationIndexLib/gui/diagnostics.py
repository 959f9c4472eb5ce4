"""What to paste into a bug report: versions, settings, the last log. No patient data."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import slicer

from ..version import __version__
from .packages import installed_version
from .settings import DEFAULTS, setting

LOG_LINES = 60
PACKAGES = ("torch", "numpy", "scipy", "jinja2", "matplotlib")


def diagnostics(
    *,
    nodes: Sequence[Any],
    names: Iterable[str],
    parameters: dict[str, Any],
    outcome: str,
    device: str,
    log: Sequence[str],
) -> str:
    """Return a text that tells what ran where and how it ended.

    Args:
        nodes: The chosen volume nodes: only their sizes and types are told.
        names: Names that must not appear: of volumes, patients, files.
        parameters: Choices of the panel.
        outcome: How the last job ended.
        device: What the last device check said.
        log: What the worker wrote.
    """
    versions = ", ".join(f"{name} {installed_version(name) or 'absent'}" for name in PACKAGES)
    lines = [
        f"MemorizationIndex {__version__}, Slicer {slicer.app.applicationVersion} "
        f"(revision {slicer.app.revision})",
        f"{platform.platform()}, Python {platform.python_version()}",
        versions,
        f"Device: {device or 'not tested'}",
        "Settings: "
        + ", ".join(f"{name}={setting(name)!r}" for name in DEFAULTS if name != "LastFolder"),
        "Choices: " + ", ".join(f"{name}={value!r}" for name, value in parameters.items()),
        *(f"Volume {number}: {_geometry(node)}" for number, node in enumerate(nodes, start=1)),
        f"Last outcome: {outcome or 'none'}",
        "Log:",
        *log[-LOG_LINES:],
    ]
    return _without(names, "\n".join(lines))


def _geometry(node: Any) -> str:
    image = node.GetImageData()
    if image is None:
        return "no image"
    size = "×".join(str(length) for length in image.GetDimensions())
    spacing = "×".join(f"{step:.3g}" for step in node.GetSpacing())
    moved = ", under a transform" if node.GetParentTransformNode() is not None else ""
    return f"{size} voxels of {spacing} mm, {image.GetScalarTypeAsString()}{moved}"


def _without(names: Iterable[str], text: str) -> str:
    # Longest first: a name may be a part of another.
    for name in sorted({name for name in names if len(name) > 1}, key=len, reverse=True):
        text = text.replace(name, "‹name›")
    home = str(Path.home())
    if len(home) > 1:
        text = text.replace(home, "~")
    # Files of this program may be named; any other path may name a patient.
    return re.sub(r"(?<![\w~./\\])(?:[A-Za-z]:)?[\\/][^\n\"']*?(?=[\"'\n]|$)", _shorten, text)


def _shorten(match: re.Match[str]) -> str:
    path = match.group()
    for known in ("MemorizationIndexLib", "site-packages", "lib/python"):
        if known in path:
            return "…/" + path[path.index(known) :]
    return "‹path›"
