"""A file is written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 so that ``path`` holds the old or the new content, never a part.

    Bytes of a file name that are not UTF-8 arrive as lone surrogates; they are written as
    backslash escapes.

    Raises:
        OSError: the folder is missing or not writable, or the disk is full; ``filename`` is
            ``path``, and a former file there is untouched.
    """
    path = Path(path)
    content = text.encode("utf-8", errors="backslashreplace")
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files only their owner can read; a result should follow the umask.
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
