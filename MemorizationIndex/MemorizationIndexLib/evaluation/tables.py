"""The experiment's trials → tables, each number beside the published one where there is one."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from MemorizationIndexLib.evaluation import literature
from MemorizationIndexLib.evaluation.baselines import BASELINES
from MemorizationIndexLib.evaluation.experiment import Experiment
from MemorizationIndexLib.evaluation.trial import (
    ALL,
    ALPHAS,
    CHANCE_SETS,
    CLEAN,
    LEVELS,
    MEASURES,
    Trial,
)
from MemorizationIndexLib.report.tables import guard
from MemorizationIndexLib.transformations import PAPER_CONDITIONS, TRANSFORMATIONS

Cell = str | int | float | None

SPREAD_MEASURES = ("mean_mi", "mean_oni", "share", *BASELINES)
"""Measures whose spread is tabulated."""

PAPER_NAMES = tuple(one.name for one in PAPER_CONDITIONS)

_LEAST_MEAN = 1e-9


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        name: Stem of its file.
        title: What it shows.
        note: How to read it.
        columns: Column names.
        rows: Cells; None where there is no number.
    """

    name: str
    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def csv(self) -> str:
        """Return it as CSV, numbers in full."""
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer)
        writer.writerow(self.columns)
        for row in self.rows:
            writer.writerow([_plain(cell) for cell in row])
        return buffer.getvalue()

    def markdown(self) -> str:
        """Return it as a Markdown table, numbers rounded for people."""
        numeric = [
            all(not isinstance(row[place], str) for row in self.rows)
            for place in range(len(self.columns))
        ]
        lines = [
            _line(self.columns),
            _line(["---:" if number else "---" for number in numeric]),
            *(_line([_rounded(cell) for cell in row]) for row in self.rows),
        ]
        return "\n".join(lines) + "\n"


def all_tables(experiment: Experiment) -> tuple[Table, ...]:
    """Return every table of an experiment."""
    return (
        detection(experiment),
        false_positives(experiment),
        power(experiment),
        cohort_sizes(experiment),
        shares(experiment),
        set_levels(experiment),
        spread_over_conditions(experiment),
        spread_over_datasets(experiment),
    )


def detection(experiment: Experiment) -> Table:
    """AUC and TPR at 1 % FPR of the full cohort, per dataset, protocol and condition."""
    rows: list[tuple[Cell, ...]] = []
    for dataset, protocol, trials in grouped(experiment.trials):
        for one in TRANSFORMATIONS:
            found = [
                row
                for trial in trials
                for row in trial.conditions
                if row.cohort == ALL and row.condition == one.name
            ]
            published = literature.AUC.get(one.name, (None, None))
            rows.append(
                (
                    dataset,
                    protocol,
                    one.name,
                    len(found),
                    mean(row.auc for row in found),
                    mean(row.auc_low for row in found),
                    mean(row.auc_high for row in found),
                    least(row.auc for row in found),
                    mean(row.tpr for row in found),
                    mean(row.tpr_low for row in found),
                    mean(row.tpr_high for row in found),
                    least(row.tpr for row in found),
                    published[0],
                    published[1],
                )
            )
    return Table(
        "detection",
        "Copies told from clean slices, every copy transformed",
        "Mean over the splits, with the mean ends of the 95 % intervals (subjects resampled) and "
        f"the smallest split. Published: {literature.SOURCE}, Table 4, mean and smallest; its "
        "flips were given to half of the copies.",
        (
            "dataset",
            "protocol",
            "condition",
            "splits",
            "AUC",
            "AUC low",
            "AUC high",
            "AUC least",
            "TPR at 1 % FPR",
            "TPR low",
            "TPR high",
            "TPR least",
            "published AUC",
            "published least",
        ),
        tuple(rows),
    )


def false_positives(experiment: Experiment) -> Table:
    """Verdicts on clean slices of test subjects, per cohort and level."""
    rows: list[tuple[Cell, ...]] = []
    for dataset, protocol, trials in grouped(experiment.trials):
        for cohort in cohorts_of(trials):
            for alpha in ALPHAS:
                found = [
                    row
                    for trial in trials
                    for row in trial.verdicts
                    if (row.cohort, row.alpha, row.condition) == (cohort, alpha, CLEAN)
                ]
                if not found:
                    continue
                allowed = allowed_rate(alpha, found[0].subjects)
                flagged = mean(row.flagged for row in found)
                rows.append(
                    (
                        dataset,
                        protocol,
                        cohort,
                        found[0].subjects,
                        alpha,
                        flagged,
                        greatest(row.flagged for row in found),
                        allowed,
                        "yes" if flagged is not None and flagged <= allowed else "no",
                        mean(row.called_copy for row in found),
                        greatest(row.called_copy for row in found),
                    )
                )
    return Table(
        "false_positives",
        "Clean slices of subjects outside the cohort that are flagged",
        "Mean over the splits and the worst split. Allowed: 2·max(α, 1/(subjects + 1)), because "
        "slices of one subject are not independent and the null certifies no less. 'holds' says "
        "whether the mean keeps to it; single splits may not.",
        (
            "dataset",
            "protocol",
            "cohort",
            "reference subjects",
            "α",
            "suspicious or copy",
            "worst split",
            "allowed",
            "holds",
            "copy",
            "copy, worst split",
        ),
        tuple(rows),
    )


def power(experiment: Experiment) -> Table:
    """Verdicts on copies with the full cohort, per condition and level."""
    rows: list[tuple[Cell, ...]] = []
    for dataset, protocol, trials in grouped(experiment.trials):
        for one in TRANSFORMATIONS:
            cells: list[Cell] = []
            for alpha in ALPHAS:
                found = [
                    row
                    for trial in trials
                    for row in trial.verdicts
                    if (row.cohort, row.alpha, row.condition) == (ALL, alpha, one.name)
                ]
                cells += [
                    mean(row.flagged for row in found),
                    mean(row.called_copy for row in found),
                ]
            rows.append((dataset, protocol, one.name, *cells))
    columns = [
        f"{what} at α = {alpha:g}" for alpha in ALPHAS for what in ("suspicious or copy", "copy")
    ]
    return Table(
        "power",
        "Copies that are flagged",
        "Mean over the splits, full cohort.",
        ("dataset", "protocol", "condition", *columns),
        tuple(rows),
    )


def cohort_sizes(experiment: Experiment) -> Table:
    """How the number of reference subjects matters."""
    rows: list[tuple[Cell, ...]] = []
    for dataset, protocol, trials in grouped(experiment.trials):
        for cohort in cohorts_of(trials):
            cells: list[Cell] = []
            for names in (PAPER_NAMES, tuple(one.name for one in TRANSFORMATIONS)):
                for measure in ("auc", "tpr"):
                    values = [
                        mean(
                            getattr(row, measure)
                            for trial in trials
                            for row in trial.conditions
                            if row.cohort == cohort and row.condition == name
                        )
                        for name in names
                    ]
                    cells += [mean(values), least(values)]
            rows.append((dataset, protocol, cohort, _subjects(trials, cohort), *cells))
    columns = [
        f"{measure}, {which}, {what}"
        for which in ("paper's 8", "all 16")
        for measure in ("AUC", "TPR at 1 % FPR")
        for what in ("mean", "weakest")
    ]
    return Table(
        "cohort_sizes",
        "The same test with fewer reference subjects",
        "Mean over the splits; 'weakest' is the condition with the lowest mean.",
        ("dataset", "protocol", "cohort", "reference subjects", *columns),
        tuple(rows),
    )


def shares(experiment: Experiment) -> Table:
    """The estimated share of copies against the planted one."""
    rows: list[tuple[Cell, ...]] = []
    for dataset, protocol, trials in grouped(experiment.trials):
        for level in (0.0, *LEVELS):
            found: dict[tuple[int, str], dict[str, float]] = {}
            for trial in trials:
                for row in trial.sets:
                    if row.level == level:
                        cells = found.setdefault((trial.seed, row.condition), {})
                        cells[row.measure] = row.value
                        cells["truth"] = row.true_share
            known = [cells for cells in found.values() if "share" in cells]
            rows.append(
                (
                    dataset,
                    protocol,
                    level,
                    len(known),
                    mean(cells["truth"] for cells in known),
                    mean(cells["share"] for cells in known),
                    mean(abs(cells["share"] - cells["truth"]) for cells in known),
                    mean(
                        cells["share_low"] <= cells["truth"] <= cells["share_high"]
                        for cells in known
                    ),
                    mean(cells.get("share_coverage") for cells in known),
                    mean(cells["flagged"] for cells in known),
                    mean(cells["called_copy"] for cells in known),
                )
            )
    return Table(
        "shares",
        "Estimated share of copies",
        "Mean over splits and all conditions of the planted and the estimated share, the mean "
        "distance between them, and how often the 95 % interval holds the planted share. "
        "'coverage' is how often it holds the rate of a generator that copies each slice with the "
        f"probability 'level': {CHANCE_SETS} sets for each split and condition.",
        (
            "dataset",
            "protocol",
            "level",
            "sets",
            "planted",
            "estimated",
            "distance",
            "holds planted",
            "coverage",
            "flagged",
            "called copy",
        ),
        tuple(rows),
    )


def set_levels(experiment: Experiment) -> Table:
    """Every set-level measure against the planted share, per condition."""
    measures = (*MEASURES, *BASELINES)
    rows: list[tuple[Cell, ...]] = []
    for dataset, protocol, trials in grouped(experiment.trials):
        for condition in (CLEAN, *(one.name for one in TRANSFORMATIONS)):
            for level in (0.0,) if condition == CLEAN else LEVELS:
                cells = [set_mean(trials, condition, level, measure) for measure in measures]
                rows.append((dataset, protocol, condition, level, *cells))
    return Table(
        "set_levels",
        "Measures of a set against its share of copies",
        "Mean over the splits.",
        ("dataset", "protocol", "condition", "level", *(MEASURES | BASELINES).values()),
        tuple(rows),
    )


def spread_over_conditions(experiment: Experiment) -> Table:
    """How much a measure depends on the disguise, in scale-free numbers."""
    rows: list[tuple[Cell, ...]] = []
    for dataset, protocol, trials in grouped(experiment.trials):
        for measure in SPREAD_MEASURES:
            base = set_mean(trials, CLEAN, 0.0, measure)
            for level in LEVELS:
                values = [set_mean(trials, name, level, measure) for name in PAPER_NAMES]
                rows.append(
                    (
                        dataset,
                        protocol,
                        (MEASURES | BASELINES)[measure],
                        level,
                        mean(values),
                        spread(values),
                        variation(values),
                        variation(_minus(values, base)),
                    )
                )
    return Table(
        "spread_over_conditions",
        "Spread over the paper's eight conditions",
        "CV is the standard deviation over the conditions as a share of their mean. CV of the "
        "response is that of the change from the set without copies: 0 means that every disguise "
        "moves the measure alike, 1 and more that the disguise decides. Published standard "
        f"deviations ({literature.SOURCE}, Table 1) at 5, 15, 30, 45 %: "
        + "; ".join(
            f"{name} C_T {_list(values['c_t'])} and index {_list(values['index'])}"
            for name, values in literature.SD_OVER_CONDITIONS.items()
        )
        + ".",
        ("dataset", "protocol", "measure", "level", "mean", "sd", "CV", "CV of the response"),
        tuple(rows),
    )


def spread_over_datasets(experiment: Experiment) -> Table:
    """How much a measure depends on the dataset, in scale-free numbers."""
    rows: list[tuple[Cell, ...]] = []
    protocols = list(dict.fromkeys(trial.protocol for trial in experiment.trials))
    names = [facts.name for facts in experiment.datasets]
    for protocol in protocols if len(names) > 1 else ():
        for measure in SPREAD_MEASURES:
            for place, level in enumerate(LEVELS):
                values, responses = [], []
                for name in names:
                    trials = [
                        t for t in experiment.trials if (t.dataset, t.protocol) == (name, protocol)
                    ]
                    value = mean(
                        set_mean(trials, condition, level, measure) for condition in PAPER_NAMES
                    )
                    values.append(value)
                    responses += _minus([value], set_mean(trials, CLEAN, 0.0, measure))
                key = {"c_t": "c_t", "mean_mi": "index"}.get(measure, "")
                published = literature.CV_OVER_DATASETS.get(key)
                rows.append(
                    (
                        protocol,
                        (MEASURES | BASELINES)[measure],
                        level,
                        len(names),
                        mean(values),
                        variation(values),
                        variation(responses),
                        published[place] if published else None,
                    )
                )
    return Table(
        "spread_over_datasets",
        "Spread over datasets",
        "As over conditions, of the mean over the paper's conditions. Published: "
        f"{literature.SOURCE}, Table 2, on BRATS, knee and spine.",
        (
            "protocol",
            "measure",
            "level",
            "datasets",
            "mean",
            "CV",
            "CV of the response",
            "published CV",
        ),
        tuple(rows),
    )


def grouped(trials: Iterable[Trial]) -> list[tuple[str, str, list[Trial]]]:
    """Return the trials by dataset and protocol, in order of appearance."""
    found: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        found.setdefault((trial.dataset, trial.protocol), []).append(trial)
    return [(*key, members) for key, members in found.items()]


def cohorts_of(trials: Sequence[Trial]) -> list[str]:
    """Return the cohorts of the trials by rising number of subjects."""
    names = dict.fromkeys(row.cohort for trial in trials for row in trial.conditions)
    return sorted(names, key=lambda name: (_subjects(trials, name), name == ALL))


def allowed_rate(alpha: float, subjects: int) -> float:
    """Return the share of clean slices that may be flagged: 2·max(α, 1/(subjects + 1))."""
    return 2 * max(alpha, 1 / (subjects + 1))


def set_mean(trials: Iterable[Trial], condition: str, level: float, measure: str) -> float | None:
    """Return the mean over trials of one measure of sets; None where there is none."""
    return mean(trial.set_values.get((condition, level, measure)) for trial in trials)


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of what is known, None if nothing is."""
    return _over(values, np.mean)


def least(values: Iterable[float | None]) -> float | None:
    """Return the smallest of what is known, None if nothing is."""
    return _over(values, np.min)


def greatest(values: Iterable[float | None]) -> float | None:
    """Return the greatest of what is known, None if nothing is."""
    return _over(values, np.max)


def spread(values: Sequence[float | None]) -> float | None:
    """Return the standard deviation (ddof 0), None of fewer than two known values."""
    known = [value for value in values if value is not None]
    return float(np.std(known)) if len(known) > 1 else None


def variation(values: Sequence[float | None]) -> float | None:
    """Return the coefficient of variation, sd / |mean|; None where the mean is 0."""
    sd, center = spread(values), mean(values)
    if sd is None or center is None or abs(center) < _LEAST_MEAN:
        return None
    return sd / abs(center)


def _over(values: Iterable[float | None], measure: Callable[[list[float]], Any]) -> float | None:
    known = [value for value in values if value is not None]
    return float(measure(known)) if known else None


def _minus(values: Sequence[float | None], base: float | None) -> list[float | None]:
    return [None if value is None or base is None else value - base for value in values]


def _subjects(trials: Sequence[Trial], cohort: str) -> int:
    return trials[0].reference_subjects if cohort == ALL else int(cohort)


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _plain(cell: Cell) -> str:
    if cell is None:
        return ""
    return repr(cell) if isinstance(cell, float) else guard(str(cell))


def _rounded(cell: Cell) -> str:
    if cell is None:
        return ""
    if not isinstance(cell, float):
        return str(cell).replace("|", "\\|")
    if cell and abs(cell) < 0.001:
        return f"{cell:.1e}"
    return f"{cell:.4f}".rstrip("0").rstrip(".") if abs(cell) < 10 else f"{cell:.1f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
