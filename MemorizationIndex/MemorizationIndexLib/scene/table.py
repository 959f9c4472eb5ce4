"""Slice results ↔ a table node, so that a saved scene keeps the numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import vtk

from ..exchange import ExchangeError, summary_as_text, summary_from_text
from ..results import AuditSummary, SliceResult, Verdict
from .errors import SceneError
from .outputs import find_output, output_node, place_beside
from .reading import source_of, subject_of

KIND = "Table"


@dataclass(frozen=True)
class Column:
    """One column of the table.

    Attributes:
        name: Its name in files and scripts.
        title: What the header shows.
        meaning: What it says, in a few words.
        field: The field of ``SliceResult`` it holds.
        read: The field's value from a cell that is not empty.
        unit: Unit of the numbers; empty for pure numbers and words.
        required: Whether a table without it is damaged: earlier versions wrote none of the others.
    """

    name: str
    title: str
    meaning: str
    field: str
    read: Callable[[str], Any] = float
    unit: str = ""
    required: bool = True


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Verdict):
        return value.value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(repr(one) for one in value)
    return value if isinstance(value, str) else repr(value)


def _floats(text: str) -> tuple[float, ...]:
    return tuple(float(one) for one in text.split())


def _window(text: str) -> tuple[float, float, float, float]:
    top, bottom, left, right = _floats(text)
    return top, bottom, left, right


# Numbers are text because a slice without a score has none: a numeric VTK column would need a value
# there, and both 0 and NaN would be read as a result.
COLUMNS: tuple[Column, ...] = (
    Column("Slice", "Slice", "Index along the slice axis", "slice", int),
    Column("Verdict", "Verdict", "Finding for the slice", "verdict", Verdict),
    Column("ONI", "ONI", "−tanh(MI): −1 copy, 0 typical, +1 novel", "oni"),
    Column("MI", "MI", "Memorization Index: standard deviations above the null's mean", "mi"),
    Column("p", "p", "Share of the null at or above this slice", "p_value"),
    Column("q", "q", "Benjamini–Hochberg over the run", "q_value"),
    Column(
        "Similarity",
        "Similarity",
        "Similarity to the nearest reference slices, 0 to 1",
        "similarity",
    ),
    Column(
        "Margin", "Margin", "Similarity to the nearest minus the second-nearest subject", "margin"
    ),
    Column(
        "Consensus",
        "Layers agreeing",
        "Layers that name the same nearest subject",
        "consensus",
        int,
        "layers",
    ),
    Column(
        "NearestSubject",
        "Nearest subject",
        "Subject of the nearest reference slice",
        "nearest_subject",
        str,
    ),
    Column(
        "NearestVolume",
        "Nearest volume",
        "Volume of the nearest reference slice",
        "nearest_volume",
        str,
    ),
    Column(
        "NearestSlice",
        "Nearest slice",
        "Index of the nearest reference slice in its volume",
        "nearest_slice",
        int,
    ),
    Column(
        "NearestSource",
        "Nearest file",
        "File of the nearest reference slice",
        "nearest_source",
        str,
    ),
    Column("Pose", "Pose", "How the slice stands to the nearest one", "pose", str),
    Column(
        "Verified",
        "Verified",
        "Whether the nearest one, laid over it, fits",
        "verified",
        "yes".__eq__,
    ),
    Column("SSIM", "SSIM", "Structural similarity with the nearest one laid over it", "ssim"),
    Column("NCC", "NCC", "Correlation with the nearest one laid over it", "ncc"),
    Column(
        "LayerSimilarity",
        "By layer",
        "Largest cosine per layer, fine to coarse",
        "layer_similarity",
        _floats,
    ),
    Column(
        "NearestRow", "Row", "Row of the nearest reference slice in the cohort", "nearest_row", int
    ),
    Column("Domain", "Domain", "What puts it outside the images the method knows", "domain", str),
    Column("Reason", "Reason", "Why the slice was not scored", "reason", str),
    Column(
        "FlaggedBy",
        "Flagged by",
        "What flagged it: slice, part, or slice and part",
        "flagged_by",
        str,
        required=False,
    ),
)
PART_COLUMNS: tuple[Column, ...] = (
    Column("PartP", "Part: p", "Share of the null of parts at or above the best", "part_p_value"),
    Column(
        "PartSimilarity",
        "Part: correlation",
        "Mean local correlation of the best part with the reference, 0 to 1",
        "part_similarity",
    ),
    Column(
        "PartSubject", "Part: subject", "Subject that the part is most like", "part_subject", str
    ),
    Column("PartVolume", "Part: volume", "Volume of that reference slice", "part_volume", str),
    Column(
        "PartSlice", "Part: slice", "Index of that reference slice in its volume", "part_slice", int
    ),
    Column("PartRow", "Part: row", "Row of that reference slice in the cohort", "part_row", int),
    Column(
        "PartWindow",
        "Part: place",
        "Its top, bottom, left and right, as shares of the side of the slice",
        "part_window",
        _window,
    ),
    Column("PartPose", "Part: pose", "How the part stands to that one", "part_pose", str),
)
"""Written where parts were searched."""
IDENTITY_COLUMNS = {
    "NearestSubject": "subject",
    "NearestVolume": "volume",
    "NearestSource": "file",
    "PartSubject": "subject",
    "PartVolume": "volume",
}
FRAME_COLUMN = "Frame"

_ATTRIBUTE = "MemorizationIndex."
_SUMMARY, _NAME, _AXIS, _NUMBERED = "Summary", "Volume", "SliceAxis", "SubjectsNumbered"


@dataclass(frozen=True)
class KeptTable:
    """What a table node keeps of an audit of one volume.

    Attributes:
        name: The volume's name in the results; that of the whole if it is a sequence.
        rows: Its slices, with the volume's name, or that of the frame.
        frames: The frame of each row where the volume is a sequence; None otherwise.
        axis: Array axis of the slices (0 K, 1 J, 2 I).
        summary: Of the run in which it was checked, maybe with other volumes.
        numbered: Whether it holds numbers in place of the names of reference subjects.
    """

    name: str
    rows: tuple[SliceResult, ...]
    frames: tuple[int, ...] | None
    axis: int
    summary: AuditSummary
    numbered: bool


def frame_name(name: str, frame: int) -> str:
    """Return the name of one frame of a volume in the results."""
    return f"{name} [frame {frame}]"


def write_table(
    volume: Any,
    slices: Sequence[SliceResult],
    summary: AuditSummary,
    *,
    name: str,
    axis: int,
    run: Sequence[SliceResult] | None = None,
    show_subjects: bool = False,
    frames: Sequence[int] | None = None,
) -> Any:
    """Keep the numbers of a volume's slices in a table node.

    Args:
        volume: The audited volume node.
        slices: Its results, one row each.
        summary: What must stand beside the numbers; kept in the node's attributes.
        name: The volume's name in the results; that of the whole if it is a sequence.
        axis: Array axis of the slices (0 K, 1 J, 2 I).
        run: All slices of the run, so that a number means the same subject in each of its tables;
            ``slices`` if None.
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
            frame = Column(FRAME_COLUMN, "Frame", "Frame of the sequence, from 0", "")
            _add_column(node, frame, texts)
        searched = any(row.part_p_value is not None for row in slices)
        for column in (*COLUMNS, *(PART_COLUMNS if searched else ())):
            texts = [_text(getattr(row, column.field)) for row in slices]
            if column.name in IDENTITY_COLUMNS and not show_subjects:
                word = IDENTITY_COLUMNS[column.name]
                texts = _numbered(texts, _names(run or slices, word), word)
            _add_column(node, column, texts)
        node.SetUseColumnTitleAsColumnHeader(True)
        node.SetUseFirstColumnAsRowHeader(False)
        node.SetLocked(True)
        node.SetDescription(summary.finding)
        attributes = {
            **_attributes(summary),
            # Paths of files that were refused are nobody's business but the user's.
            _SUMMARY: summary_as_text(dataclasses.replace(summary, refused=())),
            _NAME: name,
            _AXIS: str(axis),
            _NUMBERED: "no" if show_subjects else "yes",
        }
        for key, value in attributes.items():
            node.SetAttribute(_ATTRIBUTE + key, value)
    finally:
        node.EndModify(was_modified)
    place_beside(node, volume)
    return node


def find_table(volume: Any) -> Any | None:
    """Return the table node that belongs to a volume, or None."""
    return find_output(volume, KIND, "vtkMRMLTableNode")


def read_table(volume: Any) -> KeptTable | None:
    """Return what the volume's table node keeps; None if the volume has none.

    Raises:
        SceneError: The table was changed by hand or written by another version of this module.
    """
    node = find_table(volume)
    if node is None:
        return None
    try:
        name = node.GetAttribute(_ATTRIBUTE + _NAME)
        summary = summary_from_text(node.GetAttribute(_ATTRIBUTE + _SUMMARY) or "")
        axis = int(node.GetAttribute(_ATTRIBUTE + _AXIS) or "")
        frames = None
        if node.GetTable().GetColumnByName(FRAME_COLUMN) is not None:
            frames = tuple(int(text) for text in _texts(node, FRAME_COLUMN))
        searched = node.GetTable().GetColumnByName(PART_COLUMNS[0].name) is not None
        cells = {
            column.field: _values(node, column)
            for column in (*COLUMNS, *(PART_COLUMNS if searched else ()))
            if column.required or node.GetTable().GetColumnByName(column.name) is not None
        }
    except (ExchangeError, ValueError) as error:
        raise SceneError(
            f"The results in the table '{node.GetName()}' cannot be read (they were changed, or "
            "written by another version of this module); press Apply to check "
            f"'{volume.GetName()}' again."
        ) from error
    subject, source = subject_of(volume), source_of(volume)
    rows = []
    for number in range(node.GetNumberOfRows()):
        given = {field: values[number] for field, values in cells.items()}
        rows.append(
            SliceResult(
                volume=name if frames is None else frame_name(name, frames[number]),
                subject=subject,
                source=source,
                **{field: value for field, value in given.items() if value is not None},
            )
        )
    numbered = node.GetAttribute(_ATTRIBUTE + _NUMBERED) != "no"
    return KeptTable(name, tuple(rows), frames, axis, summary, numbered)


def _values(node: Any, column: Column) -> list[Any]:
    return [column.read(text) if text else None for text in _texts(node, column.name)]


def _texts(node: Any, name: str) -> list[str]:
    column = node.GetTable().GetColumnByName(name)
    if column is None:
        raise ValueError(f"there is no column {name}")
    return [str(column.GetValue(row)) for row in range(node.GetNumberOfRows())]


def _add_column(node: Any, column: Column, texts: Sequence[str]) -> None:
    values = vtk.vtkStringArray()
    values.SetName(column.name)
    for text in texts:
        values.InsertNextValue(text)
    node.AddColumn(values)
    node.SetColumnTitle(column.name, column.title)
    node.SetColumnDescription(column.name, column.meaning)
    if column.unit:
        node.SetColumnUnitLabel(column.name, column.unit)


def _names(run: Sequence[SliceResult], word: str) -> list[str]:
    """Return the names of a kind in the order in which they are numbered."""
    fields = [
        column.field
        for column in (*COLUMNS, *PART_COLUMNS)
        if IDENTITY_COLUMNS.get(column.name) == word
    ]
    return [_text(getattr(row, field)) for field in fields for row in run]


def _numbered(texts: Sequence[str], everywhere: Sequence[str], word: str) -> list[str]:
    numbers: dict[str, int] = {}
    for text in everywhere:
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
