"""What an audit leaves in a folder: two tables, a summary and the report."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from MemorizationIndexLib.report import (
    write_report,
    write_slices_csv,
    write_summary_json,
    write_volumes_csv,
)
from MemorizationIndexLib.results import AuditResult

SLICES, VOLUMES, SUMMARY, REPORT = "slices.csv", "volumes.csv", "summary.json", "report.html"


class OutputError(ValueError):
    """Results cannot be written; the message says where and what to do."""


def prepare_outputs(folder: str | Path) -> Path:
    """Make the folder and try to write in it, before anything is computed.

    Raises:
        OutputError: The folder cannot be made or written.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unwritable(folder, error) from error
    return folder


@contextlib.contextmanager
def prepared_outputs(folder: str | Path) -> Iterator[Path]:
    """Make the folder before the work; where the work fails, leave no new empty folder behind.

    Empty folders that the work made inside go too.

    Raises:
        OutputError: The folder cannot be made or written.
    """
    folder = Path(folder)
    made = [one for one in (folder, *folder.parents) if not os.path.lexists(one)]
    try:
        yield prepare_outputs(folder)
    except BaseException:
        inside = sorted(folder.rglob("*"), reverse=True) if made and folder.is_dir() else []
        for one in (*inside, *made):
            # What is not empty holds something of somebody: it and those above stay.
            if one.is_dir():
                with contextlib.suppress(OSError):
                    one.rmdir()
        raise


def write_outputs(
    result: AuditResult, folder: str | Path, *, hide_subjects: bool = False
) -> tuple[Path, ...]:
    """Write slices.csv, volumes.csv, summary.json and report.html.

    Args:
        result: What was found.
        folder: Where to; it is made if it is missing.
        hide_subjects: Whether the report leaves out who the subjects are.

    Returns:
        The written files, the report last.

    Raises:
        OutputError: A file cannot be written; files written before it are whole.
        ReportError: A package that the report needs is missing.
    """
    folder = prepare_outputs(folder)
    try:
        write_slices_csv(result, folder / SLICES)
        write_volumes_csv(result, folder / VOLUMES)
        write_summary_json(result, folder / SUMMARY)
        write_report(result, folder / REPORT, hide_subjects=hide_subjects)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return folder / SLICES, folder / VOLUMES, folder / SUMMARY, folder / REPORT


def _unwritable(folder: Path, error: OSError) -> OutputError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutputError(f"The disk is full while writing in {folder}: make room and run again.")
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return OutputError(f"{folder} is not a folder: choose another place with --out.")
    return OutputError(
        f"Nothing can be written in {folder} ({error.strerror or error}): choose another place "
        "with --out."
    )
