"""Slice results → what the panel's table shows: texts, sorting keys, colors. No Qt here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..results import PART, AuditSummary, SliceResult, Verdict

GRAVITY = {
    Verdict.COPY: 0,
    Verdict.SUSPICIOUS: 1,
    Verdict.NO_EVIDENCE: 2,
    Verdict.NOT_SCORED: 3,
}
FLAGGED = frozenset({Verdict.COPY, Verdict.SUSPICIOUS})
VERDICT, ONI, DOMAIN, FILE = "Verdict", "ONI", "Domain", "Its file"
# Sorts after every number, whichever way a person would want to see it: at the end.
NO_NUMBER = 1e300
ROW_TINT = 0.25
"""How much of the ONI's color a row has; the ONI's own cell has all of it. Little enough for the
palette's own text to be read on it, light or dark."""


@dataclass(frozen=True)
class Column:
    """One column of the panel's table.

    Attributes:
        title: The header.
        tip: What it means.
        text: The cell.
        key: What it is sorted by.
        part_tip: What the cell of a slice means that is flagged for a part of it alone; empty where
            it means what it does for others.
    """

    title: str
    tip: str
    text: Callable[[SliceResult], str]
    key: Callable[[SliceResult], float | str]
    part_tip: str = ""

    def tip_of(self, row: SliceResult) -> str:
        """Return what the cell of a row means."""
        of_part = for_part(row) or (self.title == VERDICT and PART in row.flagged_by)
        return row.reason or (self.part_tip if of_part else "") or row.domain or self.tip


def for_part(row: SliceResult) -> bool:
    """Return whether a slice is flagged for a part of it alone."""
    return row.flagged_by == PART


def number(value: float | None, digits: int = 2) -> str:
    """Return a number as the table shows it, with a real minus sign; a dash without one."""
    if value is None:
        return "–"
    return f"{value:.{digits}f}".replace("-", "−")


def p_value(value: float | None) -> str:
    """Return a p-value to two significant digits, never as zero."""
    if value is None:
        return "–"
    return f"{value:.2g}" if value >= 0.001 else f"{value:.0e}".replace("e-0", "e-")


def _key(value: float | None) -> float:
    return NO_NUMBER if value is None else float(value)


class Subjects:
    """Names of reference subjects, or numbers in the order of their appearance.

    Args:
        rows: All rows of a result.
        shown: Whether the names themselves are shown.
        numbered: Whether the rows hold numbers already ("subject 3"), as a scene keeps them.

    Attributes:
        shown: Whether names are shown.
    """

    def __init__(self, rows: Sequence[SliceResult], shown: bool, *, numbered: bool = False) -> None:
        self.shown = shown and not numbered
        self._numbers: dict[str, int] = {}
        nearest = [row.nearest_subject for row in rows]
        for name in [*nearest, *(row.part_subject for row in rows)]:
            if name is None:
                continue
            kept = name.rpartition(" ")[2]
            if numbered and kept.isdecimal():
                self._numbers[name] = int(kept)
            else:
                self._numbers.setdefault(name, len(self._numbers) + 1)

    def name(self, subject: str | None) -> str:
        """Return a reference subject as it may be shown."""
        if subject is None:
            return "–"
        return subject if self.shown else f"subject {self._numbers[subject]}"

    def text(self, row: SliceResult) -> str:
        """Return the subject that a row names as it may be shown."""
        return self.name(named(row)[0])

    def file(self, row: SliceResult) -> str:
        """Return the file of the nearest slice, which may name the subject, as it may be shown."""
        # Of parts it is not known.
        return (
            row.nearest_source if self.shown and row.nearest_source and not for_part(row) else "–"
        )

    def key(self, row: SliceResult) -> float | str:
        """Return what the subject is sorted by."""
        subject = named(row)[0]
        if subject is None:
            return NO_NUMBER if not self.shown else "\uffff"
        return subject if self.shown else float(self._numbers[subject])


def named(row: SliceResult) -> tuple[str | None, int | None]:
    """Return subject and slice of the reference that the verdict of a row rests on."""
    if for_part(row):
        return row.part_subject, row.part_slice
    return row.nearest_subject, row.nearest_slice


def columns(subjects: Subjects, rows: Sequence[SliceResult]) -> tuple[Column, ...]:
    """Return the table's columns, left to right; without those that would say nothing."""
    return tuple(
        column
        for column in _all_columns(subjects)
        if (column.title != DOMAIN or any(row.domain for row in rows))
        and (column.title != FILE or subjects.shown)
    )


def _all_columns(subjects: Subjects) -> tuple[Column, ...]:
    return (
        Column("Slice", "Index along the slice axis", lambda r: str(r.slice), lambda r: r.slice),
        Column(
            VERDICT,
            "Copy, suspicious, no evidence or not scored",
            lambda r: f"{r.verdict.letter}  {r.verdict.value}",
            lambda r: GRAVITY[r.verdict],
            "A part of the slice stands out: a part alone makes it suspicious, never a copy",
        ),
        Column(
            DOMAIN,
            "Whether it lies outside the images that the method is validated on",
            lambda r: "⚠ outside" if r.domain else "",
            lambda r: r.domain,
        ),
        Column(
            ONI,
            "Originality: −1 copy, 0 typical, +1 novel",
            lambda r: number(r.oni),
            lambda r: _key(r.oni),
        ),
        Column(
            "MI",
            "Memorization Index: standard deviations above what people have in common",
            lambda r: number(r.mi, 1),
            lambda r: _key(r.mi),
        ),
        Column(
            "p",
            "Share of slices of different people that are at least this similar",
            lambda r: p_value(r.least_p),
            lambda r: _key(r.least_p),
            "Share of slices of different people of which a part is at least this similar",
        ),
        Column(
            "Nearest",
            "Reference subject of the nearest slice",
            subjects.text,
            subjects.key,
            "Reference subject that a part of the slice is like",
        ),
        Column(
            "Its slice",
            "Index of the nearest reference slice in its volume",
            lambda r: "–" if named(r)[1] is None else str(named(r)[1]),
            lambda r: _key(named(r)[1]),
            "Index of the reference slice that a part of the slice is like",
        ),
        Column(FILE, "File of the nearest reference slice", subjects.file, subjects.file),
        Column(
            "Similarity",
            "Similarity to the nearest reference slices, 0 to 1",
            lambda r: number(r.similarity),
            lambda r: _key(r.similarity),
        ),
    )


def slice_in_words(row: SliceResult, summary: AuditSummary, subjects: Subjects) -> str:
    """Return what is known of a slice, in a few sentences for the panel."""
    if row.verdict is Verdict.NOT_SCORED:
        return f"Slice {row.slice}: not scored ({row.reason or 'no reason given'})."
    if for_part(row):
        parts = [f"Slice {row.slice}: {row.verdict.value} for a part of it.", _part(row, subjects)]
        if row.nearest_subject is not None:
            whole = _place(subjects.name(row.nearest_subject), row.nearest_slice, "")
            p = f" (p = {p_value(row.p_value)})" if row.p_value is not None else ""
            parts.append(f"As a whole it is nearest to {whole}{p}, which is no evidence.")
        return " ".join([*parts, *_domain(row)])
    parts = [f"Slice {row.slice}: {row.verdict.value}."]
    if row.nearest_subject is not None:
        where = _place(subjects.text(row), row.nearest_slice, row.pose)
        parts.append(f"Nearest: {where}.")
    if row.consensus is not None and summary.layers:
        parts.append(f"{row.consensus} of {len(summary.layers)} layers agree.")
    if row.verified is not None:
        parts.append("Laid over it, it fits." if row.verified else "Laid over it, it does not fit.")
    if row.q_value is not None:
        parts.append(f"q = {p_value(row.q_value)}.")
    if PART in row.flagged_by:
        parts.append(f"A part stands out as well. {_part(row, subjects)}")
    return " ".join([*parts, *_domain(row)])


def _domain(row: SliceResult) -> list[str]:
    return [f"{row.domain[0].upper()}{row.domain[1:]}."] if row.domain else []


def _place(subject: str, index: int | None, pose: str) -> str:
    return ", ".join(filter(None, [subject, "" if index is None else f"slice {index}", pose]))


def _part(row: SliceResult, subjects: Subjects) -> str:
    """Return where the part that stands out lies, and what it is like."""
    where = "A part"
    if row.part_window is not None:
        where = f"The quarter at the {quarter_in_words(row.part_window)}"
    source = _place(subjects.name(row.part_subject), row.part_slice, row.part_pose)
    return f"{where} is like that of {source} (p = {p_value(row.part_p_value)})."


_MIDDLE = (0.42, 0.58)
"""Shares of the side between which the middle of a part is that of the picture."""


def quarter_in_words(window: tuple[float, float, float, float]) -> str:
    """Return where a part of a picture lies: "top left", "middle".

    Args:
        window: Its top, bottom, left and right, as shares of the side.
    """
    top, bottom, left, right = window
    words = []
    for middle, before, after in (
        ((top + bottom) / 2, "top", "bottom"),
        ((left + right) / 2, "left", "right"),
    ):
        words += [before] * (middle < _MIDDLE[0]) + [after] * (middle > _MIDDLE[1])
    return " ".join(words) or "middle"
