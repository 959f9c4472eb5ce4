"""Slice results → what the panel's table shows: texts, sorting keys, colors. No Qt here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..results import AuditSummary, SliceResult, Verdict

GRAVITY = {
    Verdict.COPY: 0,
    Verdict.SUSPICIOUS: 1,
    Verdict.NO_EVIDENCE: 2,
    Verdict.NOT_SCORED: 3,
}
FLAGGED = frozenset({Verdict.COPY, Verdict.SUSPICIOUS})
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
    """

    title: str
    tip: str
    text: Callable[[SliceResult], str]
    key: Callable[[SliceResult], float | str]


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
        for row in rows:
            if row.nearest_subject is None:
                continue
            kept = row.nearest_subject.rpartition(" ")[2]
            if numbered and kept.isdecimal():
                self._numbers[row.nearest_subject] = int(kept)
            else:
                self._numbers.setdefault(row.nearest_subject, len(self._numbers) + 1)

    def text(self, row: SliceResult) -> str:
        """Return the nearest subject of a row as it may be shown."""
        if row.nearest_subject is None:
            return "–"
        if self.shown:
            return row.nearest_subject
        return f"subject {self._numbers[row.nearest_subject]}"

    def file(self, row: SliceResult) -> str:
        """Return the file of the nearest slice, which may name the subject, as it may be shown."""
        return row.nearest_source if self.shown and row.nearest_source else "–"

    def key(self, row: SliceResult) -> float | str:
        """Return what the nearest subject is sorted by."""
        if row.nearest_subject is None:
            return NO_NUMBER if not self.shown else "\uffff"
        return row.nearest_subject if self.shown else float(self._numbers[row.nearest_subject])


ONI, DOMAIN, FILE = "ONI", "Domain", "Its file"


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
            "Verdict",
            "Copy, suspicious, no evidence or not scored",
            lambda r: f"{r.verdict.letter}  {r.verdict.value}",
            lambda r: GRAVITY[r.verdict],
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
            lambda r: p_value(r.p_value),
            lambda r: _key(r.p_value),
        ),
        Column("Nearest", "Reference subject of the nearest slice", subjects.text, subjects.key),
        Column(
            "Its slice",
            "Index of the nearest reference slice in its volume",
            lambda r: "–" if r.nearest_slice is None else str(r.nearest_slice),
            lambda r: _key(r.nearest_slice),
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
    parts = [f"Slice {row.slice}: {row.verdict.value}."]
    if row.nearest_subject is not None:
        place = "" if row.nearest_slice is None else f", slice {row.nearest_slice}"
        pose = f", {row.pose}" if row.pose else ""
        parts.append(f"Nearest: {subjects.text(row)}{place}{pose}.")
    if row.consensus is not None and summary.layers:
        parts.append(f"{row.consensus} of {len(summary.layers)} layers agree.")
    if row.verified is not None:
        parts.append("Laid over it, it fits." if row.verified else "Laid over it, it does not fit.")
    if row.q_value is not None:
        parts.append(f"q = {p_value(row.q_value)}.")
    if row.domain:
        parts.append(f"{row.domain[0].upper()}{row.domain[1:]}.")
    return " ".join(parts)
