"""AuditResult → one HTML file a clinician can read, and tables a program can."""

from .errors import ReportError
from .html import write_report
from .tables import write_slices_csv, write_summary_json, write_volumes_csv

__all__ = [
    "ReportError",
    "write_report",
    "write_slices_csv",
    "write_summary_json",
    "write_volumes_csv",
]
