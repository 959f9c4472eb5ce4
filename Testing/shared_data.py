"""Where tests find real images and reference cases; they skip where these are missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def shared(*parts: str) -> Path:
    """Return a path below the shared folder, or skip the test with the reason."""
    folder = Path(os.environ.get("MI_SHARED_DIR", ROOT.parent / "shared"))
    path = folder.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"needs {'/'.join(parts)} in the shared folder (MI_SHARED_DIR)")
    return path


def reference(*parts: str) -> Path:
    """Return a path below the folder of numeric reference cases, or skip with the reason."""
    folder = Path(os.environ.get("MI_REFERENCE_DIR", ROOT.parent / "shared" / "reference"))
    path = folder.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"needs {'/'.join(parts)} in the reference folder (MI_REFERENCE_DIR)")
    return path
