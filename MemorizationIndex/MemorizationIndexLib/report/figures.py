"""Figures as SVG text to stand inside the page.

Written by hand: importing a plotting library takes longer than all the rest of the report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from ..colors import VERDICT_COLORS, css
from ..results import AuditResult, Verdict
from .errors import ReportError
from .numerals import count, significant

BINS = 56
POINTS = 72
"""Per inch; lengths below are in points."""

PANEL = 84
LEFT, RIGHT, TOP, BOTTOM, GAP = 50, 9, 6, 38, 20
TITLE, LEGEND_LINE = 16, 13
LETTER = 4.7
"""Width of a letter of the legend, about; browsers choose the font."""

NULL_COLOR = "#9aa7b4"
SEEN_COLOR = "#e0a458"
UNSEEN_COLOR = "#6b5b4b"
SCORED_COLOR = "#2a5c8c"
LINE_COLOR = "#333c46"
FONT = "system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class _Group:
    """Values drawn as one histogram; ``style`` is that of its outline."""

    values: NDArray[np.float64]
    style: str
    label: str = ""


@dataclass(frozen=True)
class _Threshold:
    value: float
    style: str
    label: str


def histogram(result: AuditResult, *, width: float = 9.0, prefix: str = "wide") -> str:
    """Return null, known copies and scored slices on one axis with both thresholds, as ``<svg>``.

    Three panels, one above the other, so that the groups are told apart by place and hatching and
    not by color alone.

    Args:
        result: The audit.
        width: Inches; a narrow one gets larger text in proportion.
        prefix: Put before every id, so that several figures can share a page.

    Raises:
        ReportError: A number is not finite.
    """
    seen = _controls(result, seen=True)
    unseen = _controls(result, seen=False)
    null = np.asarray(result.null, dtype=np.float64).ravel()
    scored = np.asarray(result.statistics, dtype=np.float64).ravel()
    thresholds = _thresholds(result)
    edges = _edges(
        [null, seen, unseen, scored, np.array([threshold.value for threshold in thresholds])]
    )
    line = f'stroke="{LINE_COLOR}" stroke-width="0.8"'
    hatched = f'fill="url(#{prefix}-hatch)" {line}'
    dotted = f'fill="none" stroke="{UNSEEN_COLOR}" stroke-width="1.3" stroke-dasharray="1.5 2"'
    panels = (
        (
            f"Null: {count(null.size, 'slice')} against other subjects",
            [_Group(null, f'fill="{NULL_COLOR}" {line}')],
        ),
        (
            f"{count(seen.size + unseen.size, 'known copy', 'known copies')}, disguised",
            [
                _Group(seen, hatched, f"under disguises seen: {seen.size:,}"),
                _Group(unseen, dotted, f"under disguises NOT seen: {unseen.size:,}"),
            ],
        ),
        (
            f"Your {count(scored.size, 'slice')}",
            [_Group(scored, f'fill="{SCORED_COLOR}" {line}')],
        ),
    )
    across = POINTS * width
    # A wide figure has room for the legend beside the titles.
    rows = 1 if width > 6 else 2
    parts: list[str] = []
    top = TOP
    for number, (title, groups) in enumerate(panels):
        groups = [group for group in groups if group.values.size]
        legend = [("rect", group.style, group.label) for group in groups if group.label] + [
            ("line", one.style, one.label) for one in thresholds if not number
        ]
        parts.append(
            f'<text x="{LEFT}" y="{top + 11}" font-weight="bold" fill="#161c24">'
            f"{escape(title)}</text>"
        )
        below = top + TITLE
        if legend and rows == 2:
            parts += _legend(legend, across - RIGHT, below + 8, rows)
            below += LEGEND_LINE * len(legend)
        elif legend:
            parts += _legend(legend, across - RIGHT, top + 9, rows)
        parts += _panel(groups, thresholds, edges, across - RIGHT, below, last=number == 2)
        top = below + PANEL + GAP
    high = top - GAP + BOTTOM
    name = f"{result.summary.statistic} (further right: more like a reference slice)"
    parts.append(
        f'<text x="{across - RIGHT:g}" y="{high - 5}" text-anchor="end">{escape(name)}</text>'
    )
    hatch = (
        f'<defs><pattern id="{prefix}-hatch" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect width="6" height="6" fill="{SEEN_COLOR}"/>'
        f'<path d="M-1 1L1 -1M0 6L6 0M5 7L7 5" stroke="{LINE_COLOR}" stroke-width="0.7"/>'
        "</pattern></defs>"
    )
    return (
        f'<svg aria-hidden="true" focusable="false" viewBox="0 0 {across:g} {high}" '
        f'xmlns="http://www.w3.org/2000/svg" font-family="{FONT}" font-size="10" '
        f'fill="{LINE_COLOR}">{hatch}{"".join(parts)}</svg>'
    )


def histogram_in_words(result: AuditResult) -> str:
    """Return what the histogram shows, for those who cannot see it."""
    summary = result.summary
    known = sum(values.size for values in result.control.values())
    parts = [
        f"Histogram of the statistic '{summary.statistic}' for "
        f"{count(result.null.size, 'null value')}, {count(known, 'known copy', 'known copies')} "
        f"and {count(result.statistics.size, 'scored slice')}."
    ]
    for name, threshold in (
        ("suspicious", summary.suspicious_threshold),
        ("copy", summary.copy_threshold),
    ):
        if threshold is None:
            parts.append(f"The threshold of '{name}' is undefined.")
            continue
        above = int((result.statistics >= threshold).sum())
        parts.append(
            f"The threshold of '{name}' lies at {significant(threshold)}; "
            f"{count(above, 'scored slice')} at or above it."
        )
    return " ".join(parts)


def _controls(result: AuditResult, *, seen: bool) -> NDArray[np.float64]:
    """Pool the controls of the transformations that are seen, or of those that are not."""
    visible = {row.name for row in result.summary.power if row.seen}
    chosen = [
        np.asarray(values, dtype=np.float64).ravel()
        for name, values in result.control.items()
        if (name in visible) == seen
    ]
    return np.concatenate(chosen) if chosen else np.empty(0)


def _edges(groups: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    values = np.concatenate(groups)
    if not np.isfinite(values).all():
        raise ReportError("the statistics hold NaN or infinite values, which no histogram can show")
    if not values.size:
        return np.linspace(0.0, 1.0, BINS + 1)
    low, high = float(values.min()), float(values.max())
    room = 0.02 * (high - low) or 0.5
    return np.linspace(low - room, high + room, BINS + 1)


def _thresholds(result: AuditResult) -> list[_Threshold]:
    summary = result.summary
    return [
        _Threshold(
            value,
            f'stroke="{css(VERDICT_COLORS[verdict])}" stroke-width="1.6"{dashes}',
            f"{verdict.value} from {significant(value)}",
        )
        for value, verdict, dashes in (
            (summary.suspicious_threshold, Verdict.SUSPICIOUS, ' stroke-dasharray="8 5"'),
            (summary.copy_threshold, Verdict.COPY, ""),
        )
        if value is not None
    ]


def _panel(
    groups: Sequence[_Group],
    thresholds: Sequence[_Threshold],
    edges: NDArray[np.float64],
    right: float,
    top: float,
    *,
    last: bool,
) -> list[str]:
    """Draw histograms of shares in percent with their axes; only the last names the ticks."""
    low, high = float(edges[0]), float(edges[-1])
    bottom = top + PANEL
    shares = [100 * np.histogram(group.values, edges)[0] / group.values.size for group in groups]
    tallest = 1.05 * max((float(share.max()) for share in shares), default=1.0)

    def x(value: float) -> float:
        return LEFT + (value - low) / (high - low) * (right - LEFT)

    def y(share: float) -> float:
        return bottom - share / tallest * PANEL

    parts = []
    for group, share in zip(groups, shares, strict=True):
        path = [f"M{x(low):.1f} {bottom}"]
        for number, height in enumerate(share):
            path.append(f"V{y(height):.1f}H{x(edges[number + 1]):.1f}")
        parts.append(f'<path d="{"".join(path)}V{bottom}" {group.style}/>')
    for one in thresholds:
        parts.append(f'<path d="M{x(one.value):.1f} {top}V{bottom}" fill="none" {one.style}/>')
    parts.append(f'<path d="M{LEFT} {top}V{bottom}H{right:g}" fill="none" stroke="#5b6671"/>')
    for value in _ticks(low, high, (right - LEFT) / 75):
        parts.append(f'<path d="M{x(value):.1f} {bottom}v3.5" stroke="#5b6671"/>')
        if last:
            parts.append(
                f'<text x="{x(value):.1f}" y="{bottom + 14}" text-anchor="middle">{value:g}</text>'
            )
    middle = (top + bottom) / 2
    if groups:
        for value in _ticks(0.0, tallest, 4):
            parts.append(
                f'<path d="M{LEFT} {y(value):.1f}h-3.5" stroke="#5b6671"/>'
                f'<text x="{LEFT - 6}" y="{y(value) + 3.5:.1f}" text-anchor="end">{value:g}</text>'
            )
    else:
        parts.append(
            f'<text x="{(LEFT + right) / 2:.1f}" y="{middle}" text-anchor="middle">none</text>'
        )
    parts.append(
        f'<text transform="translate(11 {middle}) rotate(-90)" text-anchor="middle">'
        "share (%)</text>"
    )
    return parts


def _legend(
    entries: Sequence[tuple[str, str, str]], right: float, top: float, rows: int
) -> list[str]:
    """Draw entries of (shape, style, label) that end at the right: beside or below each other."""
    parts = []
    for shape, style, label in reversed(entries) if rows == 1 else entries:
        left = right - LETTER * len(label)
        if shape == "rect":
            parts.append(f'<rect x="{left - 24:.1f}" y="{top - 7}" width="20" height="8" {style}/>')
        else:
            parts.append(f'<path d="M{left - 24:.1f} {top - 3}h20" fill="none" {style}/>')
        parts.append(f'<text x="{left:.1f}" y="{top}" font-size="8.5">{escape(label)}</text>')
        if rows == 1:
            right = left - 36
        else:
            top += LEGEND_LINE
    return parts


def _ticks(low: float, high: float, most: float) -> list[float]:
    """Return round numbers within a range, about ``most`` of them."""
    rough = (high - low) / max(most, 1.0)
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(scale * factor for factor in (1.0, 2.0, 5.0, 10.0) if scale * factor >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # A multiple of the step, rounded to its digits, prints without rounding errors.
    digits = max(0, -math.floor(math.log10(step)))
    return [round(number * step, digits) + 0.0 for number in range(first, last + 1)]
