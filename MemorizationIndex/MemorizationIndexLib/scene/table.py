"""Slice results → a table node, so that a saved scene keeps the numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import vtk

from ..results import AuditSummary, SliceResult
from .outputs import output_node, place_beside

KIND = "Table"


@dataclass(frozen=True)
class Column:
    """One column of the table.

    Attributes:
        name: Its name in files and scripts.
        title: What the header shows.
        meaning: What it says, in a few words.
        unit: Unit of the numbers; empty for pure numbers and words.
        text: The cell of a slice; empty where there is nothing to say.
    """

    name: str
    title: str
    meaning: str
    unit: str
    text: Callable[[SliceResult], str]


def _number(value: float | int | None) -> str:
    return "" if value is None else repr(value)


# Numbers are text because a slice without a score has none: a numeric VTK column would need a value
# there, and both 0 and NaN would be read as a result.
COLUMNS: tuple[Column, ...] = (
    Column("Slice", "Slice", "Index along the slice axis", "", lambda s: str(s.slice)),
    Column("Verdict", "Verdict", "Finding for the slice", "", lambda s: s.verdict.value),
    Column("ONI", "ONI", "−tanh(MI): −1 copy, 0 typical, +1 novel", "", lambda s: _number(s.oni)),
    Column(
        "MI",
        "MI",
        "Memorization Index: standard deviations above the null's mean",
        "",
        lambda s: _number(s.mi),
    ),
    Column("p", "p", "Share of the null at or above this slice", "", lambda s: _number(s.p_value)),
    Column("q", "q", "Benjamini–Hochberg over the run", "", lambda s: _number(s.q_value)),
    Column(
        "Similarity",
        "Similarity",
        "Similarity to the nearest reference slices, 0 to 1",
        "",
        lambda s: _number(s.similarity),
    ),
    Column(
        "Margin",
        "Margin",
        "Similarity to the nearest minus the second-nearest subject",
        "",
        lambda s: _number(s.margin),
    ),
    Column(
        "Consensus",
        "Layers agreeing",
        "Layers that name the same nearest subject",
        "layers",
        lambda s: _number(s.consensus),
    ),
    Column(
        "NearestSubject",
        "Nearest subject",
        "Subject of the nearest reference slice",
        "",
        lambda s: s.nearest_subject or "",
    ),
    Column(
        "NearestVolume",
        "Nearest volume",
        "Volume of the nearest reference slice",
        "",
        lambda s: s.nearest_volume or "",
    ),
    Column(
        "NearestSlice",
        "Nearest slice",
        "Index of the nearest reference slice in its volume",
        "",
        lambda s: _number(s.nearest_slice),
    ),
    Column("Reason", "Reason", "Why the slice was not scored", "", lambda s: s.reason),
)
IDENTITY_COLUMNS = {"NearestSubject": "subject", "NearestVolume": "volume"}
FRAME_COLUMN = "Frame"


def write_table(
    volume: Any,
    slices: Sequence[SliceResult],
    summary: AuditSummary,
    *,
    show_subjects: bool = False,
    frames: Sequence[int] | None = None,
) -> Any:
    """Keep the numbers of a volume's slices in a table node.

    Args:
        volume: The audited volume node.
        slices: Its results, one row each.
        summary: What must stand beside the numbers; kept in the node's attributes.
        show_subjects: Write the reference's subject and volume names; otherwise they are numbered
            in the order of their appearance ("subject 1"), since scenes are shared.
        frames: The frame of each row where the volume is a sequence.

    Returns:
        The vtkMRMLTableNode.
    """
    node = output_node(volume, KIND, "vtkMRMLTableNode", f"{volume.GetName()} memorization")
    was_modified = node.StartModify()
    try:
        node.RemoveAllColumns()
        if frames is not None:
            texts = [str(frame) for frame in frames]
            _add_column(node, FRAME_COLUMN, "Frame", "Frame of the sequence, from 0", "", texts)
        for column in COLUMNS:
            texts = [column.text(row) for row in slices]
            if column.name in IDENTITY_COLUMNS and not show_subjects:
                texts = _numbered(texts, IDENTITY_COLUMNS[column.name])
            _add_column(node, column.name, column.title, column.meaning, column.unit, texts)
        node.SetUseColumnTitleAsColumnHeader(True)
        node.SetUseFirstColumnAsRowHeader(False)
        node.SetLocked(True)
        node.SetDescription(summary.finding)
        for key, value in _attributes(summary).items():
            node.SetAttribute(f"MemorizationIndex.{key}", value)
    finally:
        node.EndModify(was_modified)
    place_beside(node, volume)
    return node


def _add_column(
    node: Any, name: str, title: str, meaning: str, unit: str, texts: Sequence[str]
) -> None:
    values = vtk.vtkStringArray()
    values.SetName(name)
    for text in texts:
        values.InsertNextValue(text)
    node.AddColumn(values)
    node.SetColumnTitle(name, title)
    node.SetColumnDescription(name, meaning)
    if unit:
        node.SetColumnUnitLabel(name, unit)


def _numbered(texts: Sequence[str], word: str) -> list[str]:
    numbers: dict[str, int] = {}
    for text in texts:
        if text:
            numbers.setdefault(text, len(numbers) + 1)
    return [f"{word} {numbers[text]}" if text else "" for text in texts]


def _attributes(summary: AuditSummary) -> dict[str, str]:
    return {
        "Finding": summary.finding,
        "Alpha": repr(summary.alpha),
        "CertifiableAlpha": repr(summary.certifiable_alpha),
        "Protocol": summary.protocol,
        "Rule": summary.rule,
        "Encoder": summary.encoder,
        "EncoderFingerprint": summary.fingerprint,
        "Cohort": summary.cohort,
        "ReferenceSlices": str(summary.reference_slices),
        "ReferenceSubjects": str(summary.reference_subjects),
        "NullMean": repr(summary.null_mean),
        "NullStandardDeviation": repr(summary.null_sd),
        "NullSize": str(summary.null_size),
        "ExactCopyMI": repr(summary.exact_copy_mi),
        "Warnings": "\n".join(summary.warnings),
        "Version": summary.version,
        "Created": summary.created,
    }
