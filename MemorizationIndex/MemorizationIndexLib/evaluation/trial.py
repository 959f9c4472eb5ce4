"""One trial of the experiment: one split of one dataset, audited under one protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.evaluation.baselines import baselines_of
from MemorizationIndexLib.evaluation.bootstrap import bootstrap_interval
from MemorizationIndexLib.evaluation.dataset import EncodedSet, LayerRows
from MemorizationIndexLib.evaluation.roc import auc, tpr_at_fpr
from MemorizationIndexLib.evaluation.splits import Split, plant, plant_by_chance, split_subjects
from MemorizationIndexLib.evidence.errors import EvidenceError
from MemorizationIndexLib.evidence.share import Share, estimate_share
from MemorizationIndexLib.index import published
from MemorizationIndexLib.index.control import CONTROL_SLICES, balanced_sample
from MemorizationIndexLib.index.matching import Matcher, make_matcher
from MemorizationIndexLib.index.null import Null, cross_fitted_null, half_split_null
from MemorizationIndexLib.index.protocols import LEAST_SUBJECTS, Protocol
from MemorizationIndexLib.index.reference import Reference, Views
from MemorizationIndexLib.index.scores import memorization_index, null_spread, oni
from MemorizationIndexLib.index.verdict import find_thresholds, verdicts
from MemorizationIndexLib.results import Verdict

Numbers = NDArray[np.float64]

CLEAN = "clean"
"""The condition of slices that copy nobody."""

ALL = "all"
"""The cohort of all reference subjects."""

LEVELS = (0.05, 0.15, 0.30, 0.45)
"""Shares of planted copies (paper, section 4)."""

ALPHAS = (0.05, 0.01)
"""Significance levels at which verdicts are counted."""

COHORT_SIZES = (5, 10, 20)
"""Reference subjects of the smaller cohorts."""

REPLICATES = 1000
"""Resamples of subjects behind each interval."""

CHANCE_SETS = 5
"""Sets planted by chance behind the coverage of each condition and level."""

MEASURES = {
    "mean_mi": "mean MI",
    "mean_oni": "mean ONI",
    "flagged": "share flagged",
    "called_copy": "share called copy",
    "share": "estimated share of copies",
    "share_low": "its lower end",
    "share_high": "its upper end",
    "share_coverage": "its coverage",
}
"""What the audit says of a set, by name in tables."""


@dataclass(frozen=True)
class ConditionRow:
    """How well copies under one condition are told from clean slices.

    Attributes:
        cohort: ``all`` or the number of reference subjects.
        condition: Name of the transformation.
        copies: Number of copies.
        clean: Number of clean slices.
        auc: Area under the ROC curve.
        tpr: TPR at 1 % FPR.
        auc_low: Lower end of its 95 % interval, subjects resampled; only for ``all``.
        auc_high: Upper end.
        tpr_low: Lower end of the TPR's interval.
        tpr_high: Upper end.
    """

    cohort: str
    condition: str
    copies: int
    clean: int
    auc: float
    tpr: float
    auc_low: float | None = None
    auc_high: float | None = None
    tpr_low: float | None = None
    tpr_high: float | None = None


@dataclass(frozen=True)
class VerdictRow:
    """Verdicts at one level; for clean slices these are false positives.

    Attributes:
        cohort: ``all`` or the number of reference subjects.
        subjects: Reference subjects.
        alpha: Significance level.
        condition: ``clean`` or the name of a transformation.
        slices: Number of slices.
        flagged: Share ``suspicious`` or ``copy``.
        called_copy: Share ``copy``.
    """

    cohort: str
    subjects: int
    alpha: float
    condition: str
    slices: int
    flagged: float
    called_copy: float


@dataclass(frozen=True)
class SetRow:
    """One measure of one set with planted copies.

    Attributes:
        condition: Name of the transformation; ``clean`` at level 0.
        level: Share of copies asked for.
        true_share: Share of copies planted.
        measure: A key of ``MEASURES`` or ``baselines.BASELINES``.
        value: The measure.
    """

    condition: str
    level: float
    true_share: float
    measure: str
    value: float


@dataclass(frozen=True)
class Trial:
    """What one trial found.

    Attributes:
        dataset: Name of the dataset.
        protocol: Name of the protocol.
        seed: Of the split.
        robust: Whether flips and small changes were searched.
        encoder: Name of the encoder.
        fingerprint: Its fingerprint.
        reference_subjects: Subjects in the reference of the full cohort.
        reference_slices: Their slices.
        test_subjects: Subjects in the test.
        test_slices: Their slices.
        conditions: Copies against clean slices.
        verdicts: What was flagged.
        sets: Measures of sets with planted copies.
        notes: What is undefined or weak, in sentences.
    """

    dataset: str
    protocol: str
    seed: int
    robust: bool
    encoder: str
    fingerprint: str
    reference_subjects: int
    reference_slices: int
    test_subjects: int
    test_slices: int
    conditions: tuple[ConditionRow, ...]
    verdicts: tuple[VerdictRow, ...]
    sets: tuple[SetRow, ...]
    notes: tuple[str, ...]

    @cached_property
    def set_values(self) -> dict[tuple[str, float, str], float]:
        """Values of ``sets`` by condition, level and measure."""
        return {(row.condition, row.level, row.measure): row.value for row in self.sets}


@dataclass(frozen=True)
class _Audited:
    """Similarities of one cohort's trial."""

    reference_rows: NDArray[np.int64]
    test_rows: NDArray[np.int64]
    codes: NDArray[np.int64]
    null: Null
    clean: Numbers
    copies: dict[str, Numbers]
    control: dict[str, Numbers]
    control_codes: NDArray[np.int64]


def run_trial(
    data: EncodedSet,
    protocol: Protocol,
    seed: int,
    *,
    robust: bool,
    views: Views,
    encoder: str,
    fingerprint: str,
    replicates: int = REPLICATES,
    step: Callable[[str], None] = lambda what: None,
) -> Trial:
    """Split, calibrate, plant copies, and count what is found (METHOD.md section 5).

    Args:
        data: The encoded dataset.
        protocol: The protocol.
        seed: Of split, folds, known copies and planting.
        robust: Whether the poses of ``data`` and the ``views`` are searched.
        views: The poses in which queries are seen.
        encoder: Name of the encoder, for the record.
        fingerprint: Its fingerprint, for the record.
        replicates: Resamples behind each interval.
        step: Called before each part of the work with what it is; may raise to stop.

    Raises:
        EvaluationError: There are too few subjects to split.
    """
    notes: dict[str, None] = {}
    conditions: list[ConditionRow] = []
    rows: list[VerdictRow] = []
    sets: list[SetRow] = []
    full = split_subjects(data.subject_count, seed)
    audited = None
    for cohort, size in _cohorts(data.subject_count, len(full.reference)):
        step(f"cohort of {size}")
        split = split_subjects(data.subject_count, seed, size)
        audited = _audit(data, split, protocol, seed, robust, views)
        conditions += _conditions(audited, data, cohort, seed, replicates, notes)
        spread = null_spread(audited.null.similarity, protocol)
        if not spread.defined:
            notes[
                f"The protocol {protocol.name} has no null on {size} reference subjects with "
                f"{len(audited.codes)} slices, so that it judges nothing there."
            ] = None
            continue
        rows += _verdicts(audited, cohort, size)
        if cohort == ALL:
            for condition in data.copies:
                step(f"sets with {condition}")
                sets += _sets(audited, data, condition, protocol, seed, notes)
    assert audited is not None
    return Trial(
        dataset=data.name,
        protocol=protocol.name,
        seed=seed,
        robust=robust,
        encoder=encoder,
        fingerprint=fingerprint,
        reference_subjects=len(full.reference),
        reference_slices=len(audited.codes),
        test_subjects=len(full.test),
        test_slices=len(audited.test_rows),
        conditions=tuple(conditions),
        verdicts=tuple(rows),
        sets=tuple(sets),
        notes=tuple(notes),
    )


def cohort_steps(subject_count: int, conditions: int) -> int:
    """Return how often ``run_trial`` calls ``step`` for a dataset of that many subjects."""
    return len(_cohorts(subject_count, subject_count // 2)) + conditions


def _cohorts(subject_count: int, half: int) -> list[tuple[str, int]]:
    """Return name and size of every cohort, the full one last."""
    smaller = [
        (str(size), size)
        for size in COHORT_SIZES
        if size != half and subject_count - max(half, size) >= LEAST_SUBJECTS
    ]
    return [*smaller, (ALL, half)]


def _audit(
    data: EncodedSet, split: Split, protocol: Protocol, seed: int, robust: bool, views: Views
) -> _Audited:
    reference_rows = np.flatnonzero(np.isin(data.subjects, split.reference))
    test_rows = np.flatnonzero(np.isin(data.subjects, split.test))
    codes = np.searchsorted(split.reference, data.subjects[reference_rows])
    layers = [layer[: None if robust else 1, reference_rows] for layer in data.posed]
    reference = Reference.fit(layers, codes, len(split.reference), protocol)
    match = make_matcher(reference, layers, protocol, views)
    null = _null(reference, layers, protocol, seed, views)
    pick = balanced_sample(codes, CONTROL_SLICES, np.random.default_rng([seed, 2]))
    return _Audited(
        reference_rows,
        test_rows,
        codes,
        null,
        _similarity(match, [layer[0] for layer in data.posed], test_rows),
        {name: _similarity(match, rows, reference_rows) for name, rows in data.copies.items()},
        {
            name: _similarity(match, rows, reference_rows[pick])
            for name, rows in data.control.items()
        },
        codes[pick],
    )


def _similarity(
    match: Matcher, layers: Sequence[NDArray[np.float32]], rows: NDArray[np.int64]
) -> Numbers:
    return match([layer[rows] for layer in layers]).similarity


def _null(
    reference: Reference,
    layers: Sequence[NDArray[np.float32]],
    protocol: Protocol,
    seed: int,
    views: Views,
) -> Null:
    if protocol.null == "subjects":
        return cross_fitted_null(
            layers, reference.subjects, reference.subject_count, protocol, seed, views=views
        )
    if protocol.whitening == "clip":
        with np.errstate(all="ignore"):
            similarity = published.calibrate([layer[0] for layer in layers]).null
        return Null(similarity, np.full(len(similarity), -1, np.int64))
    return half_split_null(reference, protocol, seed)


def _conditions(
    audited: _Audited,
    data: EncodedSet,
    cohort: str,
    seed: int,
    replicates: int,
    notes: dict[str, None],
) -> list[ConditionRow]:
    rows = []
    clean_subjects = data.subjects[audited.test_rows]
    for condition, copies in audited.copies.items():
        undefined = int((~np.isfinite(copies)).sum() + (~np.isfinite(audited.clean)).sum())
        if undefined:
            notes[
                f"{undefined} similarities are undefined with a cohort of {cohort}, as a cosine "
                "is negative; AUC is left out there."
            ] = None
            continue
        row = ConditionRow(
            cohort,
            condition,
            len(copies),
            len(audited.clean),
            auc(copies, audited.clean),
            tpr_at_fpr(copies, audited.clean),
        )
        if cohort == ALL:
            strata, clusters = [copies, audited.clean], [audited.codes, clean_subjects]
            area, rate = (
                bootstrap_interval(measure, strata, seed, clusters, replicates=replicates)
                for measure in (auc, tpr_at_fpr)
            )
            row = ConditionRow(
                row.cohort,
                row.condition,
                row.copies,
                row.clean,
                row.auc,
                row.tpr,
                area.low,
                area.high,
                rate.low,
                rate.high,
            )
        rows.append(row)
    return rows


def _verdicts(audited: _Audited, cohort: str, size: int) -> list[VerdictRow]:
    rows = []
    null = audited.null.similarity
    for alpha in ALPHAS:
        thresholds = find_thresholds(null, audited.control, alpha)
        for condition, similarity in [(CLEAN, audited.clean), *audited.copies.items()]:
            found = verdicts(similarity, null, thresholds)
            rows.append(
                VerdictRow(
                    cohort,
                    size,
                    alpha,
                    condition,
                    len(similarity),
                    float(np.mean([one is not Verdict.NO_EVIDENCE for one in found])),
                    float(np.mean([one is Verdict.COPY for one in found])),
                )
            )
    return rows


def _sets(
    audited: _Audited,
    data: EncodedSet,
    condition: str,
    protocol: Protocol,
    seed: int,
    notes: dict[str, None],
) -> list[SetRow]:
    rows: list[SetRow] = []
    reference = _joined([layer[0] for layer in data.posed], audited.reference_rows)
    clean = _joined([layer[0] for layer in data.posed], audited.test_rows)
    copies = _joined(data.copies[condition], audited.reference_rows)
    # Without copies all conditions are one and the same.
    levels = LEVELS if condition != next(iter(data.copies)) else (0.0, *LEVELS)
    for level in levels:
        planted = plant(len(clean), audited.codes, level, seed)
        similarity, generated = audited.clean.copy(), clean.copy()
        similarity[planted.replaced] = audited.copies[condition][planted.copied]
        generated[planted.replaced] = copies[planted.copied]
        values: dict[str, float | None] = {}
        values |= _audit_measures(audited, data, similarity, protocol, seed, notes)
        if level and "share" in values:
            values["share_coverage"] = _share_coverage(audited, data, condition, level, seed)
        found = baselines_of(reference, clean, generated, seed)
        values |= found.values
        notes |= dict.fromkeys(found.notes)
        rows += [
            SetRow(
                condition if level else CLEAN,
                level,
                len(planted.replaced) / len(clean),
                measure,
                value,
            )
            for measure, value in values.items()
            if value is not None
        ]
    return rows


def _audit_measures(
    audited: _Audited,
    data: EncodedSet,
    similarity: Numbers,
    protocol: Protocol,
    seed: int,
    notes: dict[str, None],
) -> Mapping[str, float | None]:
    if not np.isfinite(similarity).all():
        return {}
    null = audited.null.similarity
    mi = memorization_index(similarity, null_spread(null, protocol))
    found = verdicts(similarity, null, find_thresholds(null, audited.control))
    values: dict[str, float | None] = {
        "mean_mi": float(mi.mean()),
        "mean_oni": float(oni(mi).mean()),
        "flagged": float(np.mean([one is not Verdict.NO_EVIDENCE for one in found])),
        "called_copy": float(np.mean([one is Verdict.COPY for one in found])),
    }
    try:
        share = _estimated_share(audited, data, similarity, seed)
    except EvidenceError as error:
        notes[str(error)] = None
        return values
    return values | {"share": share.estimate, "share_low": share.low, "share_high": share.high}


def _estimated_share(audited: _Audited, data: EncodedSet, similarity: Numbers, seed: int) -> Share:
    return estimate_share(
        similarity,
        data.subjects[audited.test_rows],
        audited.null.similarity,
        audited.control,
        seed=seed,
        null_subjects=audited.null.subjects if audited.null.subjects[0] >= 0 else None,
        control_subjects=dict.fromkeys(audited.control, audited.control_codes),
    )


def _share_coverage(
    audited: _Audited, data: EncodedSet, condition: str, level: float, seed: int
) -> float | None:
    """Return how often the interval holds the rate of a generator that copies by chance.

    The interval is about that rate (``evidence.share``). A set that holds exactly this share of
    copies, as the other measures need it, lacks the chance that makes an interval necessary.
    """
    copies = audited.copies[condition]
    # Unlike the other measures: sets shared by all conditions would be too few to count in.
    rng = np.random.default_rng(
        [seed, 7, list(audited.copies).index(condition), round(1e3 * level)]
    )
    held = []
    for _ in range(CHANCE_SETS):
        planted = plant_by_chance(len(audited.clean), len(copies), level, rng)
        similarity = audited.clean.copy()
        similarity[planted.replaced] = copies[planted.copied]
        try:
            share = _estimated_share(audited, data, similarity, seed)
        except EvidenceError:
            continue
        held.append(share.low <= level <= share.high)
    return float(np.mean(held)) if held else None


def _joined(layers: LayerRows | Sequence[NDArray[np.float32]], rows: NDArray[np.int64]) -> Numbers:
    """Return all layers of some slices side by side: the features of the baselines."""
    return np.concatenate([layer[rows] for layer in layers], axis=1).astype(np.float64)
