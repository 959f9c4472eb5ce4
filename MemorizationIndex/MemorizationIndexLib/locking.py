"""A file that one process holds at a time; the system frees it however the process ends."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO


class HeldError(Exception):
    """Another process holds the file."""


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a file, made if it is missing. Where the file system knows no locks, nothing is held.

    Raises:
        HeldError: Another process holds it.
        OSError: The file cannot be made.
    """
    with path.open("ab") as file:
        try:
            lock(file)
        except (BlockingIOError, PermissionError) as error:
            raise HeldError(str(path)) from error
        except OSError:
            pass
        yield


def lock(file: IO[bytes]) -> None:
    """Lock an open file until it is closed, or its process ends.

    Raises:
        OSError: Another process holds the lock, or the file system knows none.
    """
    if sys.platform == "win32":
        import msvcrt

        # From the current position, which must be the same for all.
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
