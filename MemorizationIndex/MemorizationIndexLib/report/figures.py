"""Figures as SVG text to stand inside the page."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..colors import VERDICT_COLORS, css
from ..results import AuditResult, Verdict
from .errors import ReportError
from .numerals import count, significant

BINS = 56
HEIGHT = 5.0
"""Inches."""

NULL_COLOR = "#9aa7b4"
SEEN_COLOR = "#e0a458"
UNSEEN_COLOR = "#6b5b4b"
SCORED_COLOR = "#2a5c8c"


def histogram(result: AuditResult, *, width: float = 9.0, prefix: str = "wide") -> str:
    """Return null, known copies and scored slices on one axis with both thresholds, as ``<svg>``.

    Three panels, one above the other, so that the groups are told apart by place and hatching and
    not by color alone.

    Args:
        result: The audit.
        width: Inches; a narrow one gets larger text in proportion.
        prefix: Put before every id, so that several figures can share a page.

    Raises:
        ReportError: matplotlib is missing, or a number is not finite.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ReportError(
            "the histogram needs matplotlib, which is not installed; install it with "
            "'pip install matplotlib'"
        ) from error

    seen = _controls(result, seen=True)
    unseen = _controls(result, seen=False)
    null = np.asarray(result.null, dtype=np.float64).ravel()
    scored = np.asarray(result.statistics, dtype=np.float64).ravel()
    summary = result.summary
    thresholds = [
        t for t in (summary.suspicious_threshold, summary.copy_threshold) if t is not None
    ]
    edges = _edges([null, seen, unseen, scored, np.array(thresholds)])

    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": prefix,
        "font.family": "sans-serif",
        "font.sans-serif": ["system-ui", "Segoe UI", "Helvetica", "Arial", "DejaVu Sans"],
        "font.size": 10,
        "hatch.linewidth": 0.7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#5b6671",
        "xtick.color": "#333c46",
        "ytick.color": "#333c46",
    }
    # A wide figure has room beside the titles, where a legend covers no line.
    place: dict[str, Any] = {"loc": "best"}
    if width > 6:
        place = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.98), "ncols": 2}
    with rc_context(style):
        figure = Figure(figsize=(width, HEIGHT))
        FigureCanvasSVG(figure)
        # Margins by hand: matplotlib's layout engines draw everything twice to find them.
        figure.subplots_adjust(
            left=0.7 / width,
            right=1 - 0.12 / width,
            bottom=0.55 / HEIGHT,
            top=1 - 0.3 / HEIGHT,
            hspace=0.42,
        )
        axes = figure.subplots(3, 1, sharex=True)
        _bars(axes[0], edges, null, None, NULL_COLOR, "")
        _bars(axes[1], edges, seen, f"under disguises seen: {seen.size:,}", SEEN_COLOR, "////")
        _outline(axes[1], edges, unseen, f"under disguises NOT seen: {unseen.size:,}")
        _bars(axes[2], edges, scored, None, SCORED_COLOR, "")
        titles = (
            f"Null: {count(null.size, 'slice')} against other subjects",
            f"{count(seen.size + unseen.size, 'known copy', 'known copies')}, disguised",
            f"Your {count(scored.size, 'slice')}",
        )
        for axis, title in zip(axes, titles, strict=True):
            axis.set_title(title, loc="left", fontsize=10, fontweight="bold", color="#161c24")
            axis.set_ylabel("share (%)")
            axis.margins(x=0)
            axis.set_ylim(bottom=0)
            named = axis is axes[0]
            _mark(axis, summary.suspicious_threshold, Verdict.SUSPICIOUS, (0, (5, 3)), named)
            _mark(axis, summary.copy_threshold, Verdict.COPY, "-", named)
            if not axis.patches:
                axis.set_yticks([])
                axis.text(0.5, 0.5, "none", ha="center", transform=axis.transAxes)
            if axis.get_legend_handles_labels()[0]:
                axis.legend(fontsize=8.5, framealpha=1, edgecolor="none", **place).set_zorder(5)
        axes[2].set_xlabel(
            f"{summary.statistic} (further right: more like a reference slice)",
            loc="right",
            parse_math=False,
        )
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=nothing, transparent=True)
    return _embeddable(buffer.getvalue(), prefix)


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


def _bars(axis, edges, values, label, color, hatch) -> None:  # type: ignore[no-untyped-def]
    if values.size:
        weights = np.full(values.size, 100 / values.size)
        axis.hist(
            values,
            bins=edges,
            weights=weights,
            histtype="stepfilled",
            facecolor=color,
            edgecolor="#333c46",
            linewidth=0.8,
            hatch=hatch,
            label=label,
        )


def _outline(axis, edges, values, label) -> None:  # type: ignore[no-untyped-def]
    if values.size:
        weights = np.full(values.size, 100 / values.size)
        axis.hist(
            values,
            bins=edges,
            weights=weights,
            histtype="step",
            color=UNSEEN_COLOR,
            linewidth=1.3,
            linestyle=":",
            label=label,
        )


def _mark(axis, threshold, verdict, dashes, named) -> None:  # type: ignore[no-untyped-def]
    if threshold is not None:
        axis.axvline(
            threshold,
            color=css(VERDICT_COLORS[verdict]),
            linestyle=dashes,
            linewidth=1.6,
            label=f"{verdict.value} from {significant(threshold)}" if named else None,
        )


def _embeddable(svg: str, prefix: str) -> str:
    """Strip what only a file needs and make every id unique on the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = svg.replace("url(#", f"url(#{prefix}-").replace('href="#', f'href="#{prefix}-')
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return svg.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1)
