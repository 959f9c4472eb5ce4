"""Results as tables: slices.csv, volumes.csv, summary.json.

Text that a spreadsheet would run as a formula (a name that starts with = + - @ or their full-width
forms, a tab or a line break) is written with an apostrophe before it, and so is a name that starts
with an apostrophe. ``unguard`` takes the apostrophe off again, so that every name survives;
ordinary names are written as they are, and numbers are never touched.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import numbers
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any

from ..results import AuditResult, SliceResult, VolumeResult
from .errors import ReportError
from .writing import write_whole

SLICE_COLUMNS = (
    "volume",
    "subject",
    "slice",
    "similarity",
    "mi",
    "oni",
    "p_value",
    "q_value",
    "verdict",
    "reason",
    "nearest_subject",
    "nearest_slice",
    "margin",
    "consensus",
)
TRAILING_COLUMNS = (
    "nearest_volume",
    "source",
    "pose",
    "ssim",
    "ncc",
    "verified",
    "nearest_source",
    "domain",
    "flagged_by",
    "part_p_value",
    "part_similarity",
    "part_subject",
    "part_volume",
    "part_slice",
    "part_pose",
)
WINDOW_COLUMNS = ("part_top", "part_bottom", "part_left", "part_right")
VOLUME_COLUMNS = tuple(field.name for field in dataclasses.fields(VolumeResult))

_FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠'")


def write_slices_csv(result: AuditResult, path: Path) -> None:
    """Write one row per query slice, in the order of the result.

    Columns: ``SLICE_COLUMNS``, one ``similarity_<layer>`` per layer, ``TRAILING_COLUMNS`` and
    ``WINDOW_COLUMNS``. Floats are written so that reading them gives the same number; a cell is
    empty where there is none.

    Raises:
        OSError: ``path`` cannot be written; its ``filename`` says which.
        ReportError: a number is NaN or infinite, or the layers of a slice do not fit.
    """
    layers = result.summary.layers
    names = [f"similarity_{'_'.join(layer.split())}" for layer in layers]
    rows = [
        [
            *(getattr(one, column) for column in SLICE_COLUMNS),
            *_layer_similarities(one, len(layers)),
            *(getattr(one, column) for column in TRAILING_COLUMNS),
            *(one.part_window or (None,) * len(WINDOW_COLUMNS)),
        ]
        for one in result.slices
    ]
    _write_csv(path, [*SLICE_COLUMNS, *names, *TRAILING_COLUMNS, *WINDOW_COLUMNS], rows)


def write_volumes_csv(result: AuditResult, path: Path) -> None:
    """Write one row per query volume: the fields of ``VolumeResult``.

    Raises:
        OSError: ``path`` cannot be written; its ``filename`` says which.
        ReportError: a number is NaN or infinite.
    """
    rows = [[getattr(one, column) for column in VOLUME_COLUMNS] for one in result.volumes]
    _write_csv(path, VOLUME_COLUMNS, rows)


def write_summary_json(result: AuditResult, path: Path) -> None:
    """Write every field of ``AuditSummary``; ``power`` and ``refused`` are lists of objects.

    Raises:
        OSError: ``path`` cannot be written; its ``filename`` says which.
        ReportError: a number is NaN or infinite.
    """
    summary = dataclasses.asdict(result.summary)
    summary["refused"] = [
        {"path": str(where), "reason": reason} for where, reason in result.summary.refused
    ]
    try:
        text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError as error:
        raise ReportError(f"the summary holds a number that is NaN or infinite: {error}") from error
    write_whole(path, text + "\n")


def guard(text: str) -> str:
    """Return ``text`` such that no spreadsheet takes it for a formula."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def unguard(text: str) -> str:
    """Undo ``guard``."""
    return text[1:] if text.startswith("'") else text


def _layer_similarities(one: SliceResult, layers: int) -> list[float | None]:
    if not one.layer_similarity:
        return [None] * layers
    if len(one.layer_similarity) != layers:
        raise ReportError(
            f"slice {one.slice} of {one.volume} has {len(one.layer_similarity)} layer "
            f"similarities, but the audit names {layers} layers"
        )
    return list(one.layer_similarity)


def _write_csv(path: Path, header: Iterable[str], rows: Iterable[list[Any]]) -> None:
    header = list(header)
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(header)
    for row in rows:
        writer.writerow([_cell(value, name) for value, name in zip(row, header, strict=True)])
    write_whole(path, buffer.getvalue())


def _cell(value: Any, column: str) -> str:
    if value is None:
        return ""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, str):
        return guard(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    number = float(value)
    if not math.isfinite(number):
        raise ReportError(f"the column {column} holds {number}; a result must be a number or empty")
    return repr(number)


def _plain(value: Any) -> Any:
    """Turn a NumPy scalar into a number that JSON knows."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in a summary")
