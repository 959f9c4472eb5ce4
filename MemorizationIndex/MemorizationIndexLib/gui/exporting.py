"""The result as files to keep or to hand on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..results import AuditResult
from .packages import ensure_report_packages

KINDS = {
    "slices": ("Slices as CSV…", "CSV (*.csv)", "slices.csv"),
    "volumes": ("Volumes as CSV…", "CSV (*.csv)", "volumes.csv"),
    "summary": ("Summary as JSON…", "JSON (*.json)", "summary.json"),
    "report": ("Report as HTML…", "HTML (*.html)", "report.html"),
}
"""Each kind of file: menu entry, filter, proposed name."""


def export(
    kind: str,
    result: AuditResult,
    path: Path,
    *,
    show_subjects: bool,
    confirm: Callable[[str], bool],
) -> None:
    """Write one kind of file.

    Args:
        kind: A key of :data:`KINDS`.
        result: What to write.
        path: The file.
        show_subjects: Write names of subjects, volumes and files; else numbers.
        confirm: Asked before packages are installed, which only the report may need.

    Raises:
        OSError: The file cannot be written.
        ValueError: The report's packages are missing, or the result cannot be written.
    """
    if kind == "report":
        ensure_report_packages(confirm)
        from ..report.html import write_report

        write_report(result, path, hide_subjects=not show_subjects)
        return
    from ..report.pseudonyms import hide_subjects
    from ..report.tables import write_slices_csv, write_summary_json, write_volumes_csv

    write = {
        "slices": write_slices_csv,
        "volumes": write_volumes_csv,
        "summary": write_summary_json,
    }[kind]
    write(result if show_subjects else hide_subjects(result), path)
