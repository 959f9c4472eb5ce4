"""The experiment's trials → figures that a paper could print."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from MemorizationIndexLib.evaluation import literature
from MemorizationIndexLib.evaluation.baselines import BASELINES
from MemorizationIndexLib.evaluation.experiment import Experiment
from MemorizationIndexLib.evaluation.features import EvaluationError
from MemorizationIndexLib.evaluation.tables import (
    PAPER_NAMES,
    allowed_rate,
    cohorts_of,
    greatest,
    grouped,
    least,
    mean,
    set_mean,
    variation,
)
from MemorizationIndexLib.evaluation.trial import ALL, ALPHAS, CLEAN, LEVELS, MEASURES, Trial
from MemorizationIndexLib.transformations import TRANSFORMATIONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Shared = Literal["none", "all", "row", "col"]

FORMATS = ("pdf", "svg", "png")
"""Formats of every figure: two for print, one to look at."""

SET_MEASURES = ("share", "mean_oni", *BASELINES)

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d31")
"""Okabe and Ito's palette, told apart under the common color vision deficiencies, and a brown."""

MARKERS = ("o", "s", "^", "v", "D", "P", "X", "*")

_DPI = 200
_LEAST_SPREAD = 1e-3
_WIDTH = 7.2
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "grid.color": "#dde1e5",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.6,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "svg.hashsalt": "memorization-index",
    "pdf.fonttype": 42,
}


def write_figures(experiment: Experiment, folder: Path) -> tuple[Path, ...]:
    """Draw every figure and write it in every format.

    Args:
        experiment: All trials.
        folder: Where to; it must exist.

    Returns:
        The written files.

    Raises:
        EvaluationError: Matplotlib is missing.
        OSError: A file cannot be written.
    """
    written: list[Path] = []
    with _matplotlib():
        for name, draw in FIGURES.items():
            figure = draw(experiment)
            for suffix in FORMATS:
                path = folder / f"{name}.{suffix}"
                nothing = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(suffix)
                figure.savefig(path, dpi=_DPI, metadata=nothing)
                written.append(path)
    return tuple(written)


@contextmanager
def _matplotlib() -> Iterator[None]:
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise EvaluationError(
            "Figures need Matplotlib, which is not installed; run: pip install matplotlib."
        ) from error
    with rc_context(_STYLE):
        yield


def detection_figure(experiment: Experiment) -> Figure:
    """AUC and TPR at 1 % FPR per condition, with intervals and the published AUC."""
    groups = _by_dataset(experiment)
    figure, axes = _panels(len(groups), 2, height=2.9, share_x="col", share_y="all")
    names = [one.name for one in TRANSFORMATIONS]
    for row, (dataset, protocols) in enumerate(groups):
        for column, (measure, title) in enumerate((("auc", "AUC"), ("tpr", "TPR at 1 % FPR"))):
            axis = axes[row][column]
            for number, (protocol, trials) in enumerate(protocols):
                offset = (number - (len(protocols) - 1) / 2) * 0.25
                for place, name in enumerate(names):
                    found = [
                        one
                        for trial in trials
                        for one in trial.conditions
                        if one.cohort == ALL and one.condition == name
                    ]
                    center = mean(getattr(one, measure) for one in found)
                    low = mean(getattr(one, f"{measure}_low") for one in found)
                    high = mean(getattr(one, f"{measure}_high") for one in found)
                    if center is None or low is None or high is None:
                        continue
                    axis.plot([low, high], [place + offset] * 2, color=COLORS[number], lw=1.6)
                    axis.plot(
                        center,
                        place + offset,
                        MARKERS[number],
                        color=COLORS[number],
                        label=protocol if place == 0 else None,
                    )
            if measure == "auc":
                places = [names.index(name) for name in literature.AUC]
                axis.plot(
                    [value[0] for value in literature.AUC.values()],
                    places,
                    "D",
                    mfc="none",
                    mec="#5b6671",
                    mew=0.9,
                    ms=5,
                    label="published",
                )
            axis.set_title(f"{dataset}: {title}", loc="left")
            axis.set_yticks(range(len(names)), [_words(name) for name in names])
            axis.set_ylim(len(names) - 0.4, -0.6)
            axis.axhline(len(PAPER_NAMES) - 0.5, color="#5b6671", lw=0.6, ls=":")
            axis.set_xlim(min(axis.get_xlim()[0], 0.7), 1.02)
    for axis in axes[-1]:
        axis.set_xlabel(axis.get_title(loc="left").split(": ")[1])
    _legend(figure, axes[0][0])
    return figure


def verdict_figure(experiment: Experiment) -> Figure:
    """Share of copies flagged per condition, and of clean slices, at the default level."""
    groups = grouped(experiment.trials)
    alpha = min(ALPHAS)
    names = [CLEAN, *(one.name for one in TRANSFORMATIONS)]
    figure, axes = _panels(1, len(groups), height=3.4, share_y="all")
    for axis, (dataset, protocol, trials) in zip(axes[0], groups, strict=True):
        for place, name in enumerate(names):
            found = [
                one
                for trial in trials
                for one in trial.verdicts
                if (one.cohort, one.alpha, one.condition) == (ALL, alpha, name)
            ]
            flagged = mean(one.flagged for one in found)
            copy = mean(one.called_copy for one in found)
            if flagged is None or copy is None:
                continue
            first = place == 0
            axis.barh(
                place, 100 * copy, color="#9e1b1b", height=0.7, label="copy" if first else None
            )
            axis.barh(
                place,
                100 * (flagged - copy),
                left=100 * copy,
                color="#f3c79a",
                edgecolor="#b05400",
                linewidth=0.5,
                hatch="////",
                height=0.7,
                label="suspicious" if first else None,
            )
        axis.set_title(f"{dataset}, {protocol}", loc="left")
        axis.set_yticks(range(len(names)), [_words(name) for name in names])
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.set_xlim(0, 100)
        axis.set_xlabel(f"slices (%) at α = {alpha:g}")
    _legend(figure, axes[0][0])
    return figure


def false_positive_figure(experiment: Experiment) -> Figure:
    """Clean slices flagged against the size of the cohort, with what is allowed."""
    groups = grouped(experiment.trials)
    figure, axes = _panels(1, len(groups), height=2.4, share_y="all")
    for axis, (dataset, protocol, trials) in zip(axes[0], groups, strict=True):
        cohorts = cohorts_of(trials)
        sizes = [trials[0].reference_subjects if one == ALL else int(one) for one in cohorts]
        for number, alpha in enumerate(ALPHAS):
            for field, fill in (("flagged", COLORS[number]), ("called_copy", "white")):
                per_cohort = [
                    [
                        100 * getattr(one, field)
                        for trial in trials
                        for one in trial.verdicts
                        if (one.cohort, one.alpha, one.condition) == (cohort, alpha, CLEAN)
                    ]
                    for cohort in cohorts
                ]
                known = [(s, v) for s, v in zip(sizes, per_cohort, strict=True) if v]
                what = "suspicious or copy" if field == "flagged" else "copy"
                axis.plot(
                    [size for size, _ in known],
                    [mean(values) or 0.0 for _, values in known],
                    marker=MARKERS[number],
                    color=COLORS[number],
                    mfc=fill,
                    ls="-" if field == "flagged" else "--",
                    label=f"{what}, α = {alpha:g}",
                )
                if field == "flagged":
                    axis.fill_between(
                        [size for size, _ in known],
                        [least(values) or 0.0 for _, values in known],
                        [greatest(values) or 0.0 for _, values in known],
                        color=COLORS[number],
                        alpha=0.15,
                        lw=0,
                    )
            axis.plot(
                sizes,
                [100 * allowed_rate(alpha, size) for size in sizes],
                ":",
                color=COLORS[number],
                lw=1.4,
                label=f"allowed, α = {alpha:g}",
            )
        axis.set_title(f"{dataset}, {protocol}", loc="left")
        axis.set_xlabel("reference subjects")
    axes[0][0].set_ylim(bottom=0)
    axes[0][0].set_ylabel("clean slices flagged (%)")
    _legend(figure, axes[0][0], columns=3)
    return figure


def set_level_figure(experiment: Experiment) -> Figure:
    """Every measure of a set against the planted share, a line per condition of the paper."""
    groups = grouped(experiment.trials)
    figure, axes = _panels(len(SET_MEASURES), len(groups), height=1.45, share_x="all")
    for column, (dataset, protocol, trials) in enumerate(groups):
        for row, measure in enumerate(SET_MEASURES):
            axis = axes[row][column]
            base = set_mean(trials, CLEAN, 0.0, measure)
            drawn = 0
            for number, name in enumerate(PAPER_NAMES):
                values = [set_mean(trials, name, level, measure) for level in LEVELS]
                points = [
                    (100 * level, value)
                    for level, value in zip((0.0, *LEVELS), (base, *values), strict=True)
                    if value is not None
                ]
                drawn += len(points)
                axis.plot(
                    [x for x, _ in points],
                    [100 * y if measure == "share" else y for _, y in points],
                    marker=MARKERS[number],
                    ms=3,
                    color=COLORS[number],
                    label=_words(name),
                )
            if not drawn:
                axis.set_yticks([])
                axis.text(0.5, 0.5, "no value", transform=axis.transAxes, ha="center", va="center")
            if measure == "share":
                axis.plot([0, 45], [0, 45], color="#5b6671", lw=0.8, ls=":")
                axis.set_title(f"{dataset}, {protocol}", loc="left")
            if column == 0:
                label = (MEASURES | BASELINES)[measure]
                axis.set_ylabel("estimated share (%)" if measure == "share" else label)
    for axis in axes[-1]:
        axis.set_xlabel("planted copies (%)")
    figure.align_ylabels([row[0] for row in axes])
    _legend(figure, axes[0][0], columns=4)
    return figure


def spread_figure(experiment: Experiment) -> Figure:
    """CV over the paper's conditions of the response to copies, per measure and level."""
    groups = grouped(experiment.trials)
    figure, axes = _panels(1, len(groups), height=2.4, share_y="all")
    for axis, (dataset, protocol, trials) in zip(axes[0], groups, strict=True):
        for number, measure in enumerate(SET_MEASURES):
            base = set_mean(trials, CLEAN, 0.0, measure)
            points = []
            for level in LEVELS:
                values = [set_mean(trials, name, level, measure) for name in PAPER_NAMES]
                known = [v - base for v in values if v is not None and base is not None]
                found = variation(known)
                if found is not None:
                    points.append((100 * level, max(found, _LEAST_SPREAD)))
            axis.plot(
                [x for x, _ in points],
                [y for _, y in points],
                marker=MARKERS[number],
                color=COLORS[number],
                label=(MEASURES | BASELINES)[measure],
            )
        axis.set_yscale("log")
        axis.set_title(f"{dataset}, {protocol}", loc="left")
        axis.set_xlabel("planted copies (%)")
    axes[0][0].set_ylim(bottom=_LEAST_SPREAD / 1.5)
    axes[0][0].set_ylabel(f"CV of the response over disguises\n({_LEAST_SPREAD:g} stands for less)")
    _legend(figure, axes[0][0], columns=4)
    return figure


def cohort_size_figure(experiment: Experiment) -> Figure:
    """The weakest condition's AUC and TPR against the size of the cohort."""
    groups = grouped(experiment.trials)
    figure, axes = _panels(1, 2, height=2.4)
    for axis, (measure, title) in zip(
        axes[0], (("auc", "AUC"), ("tpr", "TPR at 1 % FPR")), strict=True
    ):
        for number, (dataset, protocol, trials) in enumerate(groups):
            color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
            for names, dashes, what in (
                (PAPER_NAMES, "-", "paper's 8"),
                (tuple(one.name for one in TRANSFORMATIONS), "--", "all 16"),
            ):
                points = []
                for cohort in cohorts_of(trials):
                    size = trials[0].reference_subjects if cohort == ALL else int(cohort)
                    weakest = least(
                        mean(
                            getattr(one, measure)
                            for trial in trials
                            for one in trial.conditions
                            if (one.cohort, one.condition) == (cohort, name)
                        )
                        for name in names
                    )
                    if weakest is not None:
                        points.append((size, weakest))
                axis.plot(
                    [x for x, _ in points],
                    [y for _, y in points],
                    dashes,
                    marker=marker,
                    color=color,
                    mfc=color if dashes == "-" else "white",
                    label=f"{dataset}, {protocol}, {what}",
                )
        axis.set_title(f"{title}, weakest condition", loc="left")
        axis.set_ylim(min(axis.get_ylim()[0], 0.9), 1.01)
        axis.set_xlabel("reference subjects")
    _legend(figure, axes[0][0], columns=3)
    return figure


FIGURES: dict[str, Callable[[Experiment], Any]] = {
    "detection": detection_figure,
    "verdicts": verdict_figure,
    "false_positives": false_positive_figure,
    "set_levels": set_level_figure,
    "spread": spread_figure,
    "cohort_sizes": cohort_size_figure,
}
"""Figures by the stem of their files."""

CAPTIONS = {
    "detection": (
        "Copies told from clean slices: AUC and TPR at 1 % FPR, mean over the splits with the 95 % "
        "interval, for each disguise; above the dotted line are the paper's eight. Published "
        "values were measured on the paper's data, not on these."
    ),
    "verdicts": (
        f"Verdicts at α = {min(ALPHAS):g}: of clean slices, which copy nobody, and of copies "
        "under each disguise."
    ),
    "false_positives": (
        "Clean slices that are flagged, by the number of reference subjects. Shaded: from the "
        "least to the worst split. Dotted: what is allowed to the mean."
    ),
    "set_levels": (
        "Measures of a set in which a share of the slices are copies; a line per disguise. A "
        "measure that sees copies moves with their share, one that a disguise deceives leaves the "
        "other lines. FID and KID: distance between the features of the set and of the reference; "
        "C_T: below 0 where the set lies nearer to the reference than clean slices do; AuthPct: "
        "percentage of slices that no reference slice explains; Vendi: how many different slices "
        "the set amounts to. Dotted: the truth."
    ),
    "spread": (
        "How much the disguise decides: standard deviation over the disguises of the change that "
        "copies make, as a share of its mean. Low is good."
    ),
    "cohort_sizes": "The disguise that is told worst, by the number of reference subjects.",
}
"""What each figure shows, by the stem of its files."""


def _by_dataset(experiment: Experiment) -> list[tuple[str, list[tuple[str, list[Trial]]]]]:
    found: dict[str, list[tuple[str, list[Trial]]]] = {}
    for dataset, protocol, trials in grouped(experiment.trials):
        found.setdefault(dataset, []).append((protocol, trials))
    return list(found.items())


def _panels(
    rows: int,
    columns: int,
    height: float,
    share_x: _Shared = "none",
    share_y: _Shared = "none",
) -> tuple[Figure, list[list[Axes]]]:
    from matplotlib.figure import Figure

    width = max(_WIDTH, 2.0 * columns)
    figure = Figure(figsize=(width, height * rows + 0.7), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=share_x, sharey=share_y)
    return figure, [list(row) for row in axes]


def _legend(figure: Figure, axis: Axes, columns: int = 6) -> None:
    handles, labels = axis.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def _words(name: str) -> str:
    return _NAMES.get(name, name.replace("_", " "))


_NAMES = {
    "noise_0.01": "noise 0.01",
    "noise_0.02": "noise 0.02",
    "rotation_3": "rotation ±3°",
    "rotation_5": "rotation ±5°",
    "resample": "half size and back",
    "shift": "shift 4 px",
    "crop": "crop 90 %",
    "jpeg": "JPEG 50",
}
