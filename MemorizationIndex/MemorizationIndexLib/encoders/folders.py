"""The user's folders for this program, by the convention of each operating system."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CACHE_VARIABLE = "MEMORIZATION_INDEX_CACHE"
"""Environment variable that names the cache folder."""

DATA_NAME = "MemorizationIndex"
CACHE_NAME = "memorization-index"


def data_folder() -> Path:
    """Return the folder for what is kept; it may not exist yet."""
    try:
        from platformdirs import user_data_path

        return user_data_path(DATA_NAME, appauthor=False)
    except ImportError:  # inside 3D Slicer; the same convention by hand
        home = Path.home()
        if sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
        elif sys.platform == "darwin":
            base = home / "Library" / "Application Support"
        else:
            base = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
        return base / DATA_NAME


def cache_folder() -> Path:
    """Return the folder for what can be computed again; it may not exist yet.

    Raises:
        RuntimeError: The user has no home folder (see ``Path.home``).
    """
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    try:
        from platformdirs import user_cache_path

        return user_cache_path(CACHE_NAME, appauthor=False)
    except ImportError:
        home = Path.home()
        if sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
            return base / CACHE_NAME / "Cache"
        if sys.platform == "darwin":
            return home / "Library" / "Caches" / CACHE_NAME
        return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / CACHE_NAME
