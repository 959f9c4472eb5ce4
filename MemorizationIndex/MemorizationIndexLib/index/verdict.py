"""From similarity to a verdict with an error rate, by two thresholds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.index.protocols import CalibrationError
from MemorizationIndexLib.index.scores import p_values
from MemorizationIndexLib.results import TransformationPower, Verdict
from MemorizationIndexLib.transformations import TRANSFORMATIONS

ALPHA = 0.01
"""Significance level unless the user says otherwise."""

MISSED = 0.05
"""Share of copies in a disguise that may fall below the threshold of ``copy``."""

DOUBT = 0.05
"""Probability that, by the luck of the known copies drawn, more than ``MISSED`` do."""

CLEARANCE = 2.0
"""How far above the null's mean, in units of the suspicious threshold's distance, ``copy`` begins.

Where a cohort mixes sources, clean slices of a source it hardly holds exceed the null's quantile;
they do not reach twice its distance. ``memorization-index evaluate`` measures it.
"""


@dataclass(frozen=True)
class Thresholds:
    """Similarities from which a slice is suspicious, or a copy.

    Attributes:
        alpha: The level asked for.
        level: The level used: ``alpha``, or 1 / (n + 1) where n null slices cannot reach it.
        suspicious: A slice above this similarity has p ≤ ``level``.
        copy: A slice at or above this similarity is a copy; None where no known copy is told
            clearly from the null, so that no slice can be called one.
        clearly_seen: Transformations that set ``copy``.
    """

    alpha: float
    level: float
    suspicious: float
    copy: float | None
    clearly_seen: tuple[str, ...]


def find_thresholds(
    null: NDArray[np.float64], control: Mapping[str, NDArray[np.float64]], alpha: float = ALPHA
) -> Thresholds:
    """Find both thresholds from the null and the known copies.

    Args:
        null: Null similarities, shape (n,).
        control: Similarities of known copies by transformation name, each of shape (m,).
        alpha: Significance level, above 0 and below 1.

    Raises:
        CalibrationError: ``alpha`` is out of range.
    """
    if not 0 < alpha < 1:
        raise CalibrationError(f"alpha is {alpha} and must lie above 0 and below 1.")
    count = len(null)
    level = max(alpha, 1 / (count + 1))
    allowed = int(np.floor(level * (count + 1) + 1e-9)) - 1
    suspicious = float(np.sort(null)[count - 1 - allowed])
    mean = float(np.mean(null))
    least = mean + CLEARANCE * (suspicious - mean)
    lowest = {name: lowest_of_copies(values) for name, values in control.items() if len(values)}
    clear = {name: value for name, value in lowest.items() if value >= least}
    return Thresholds(
        alpha, level, suspicious, min(clear.values()) if clear else None, tuple(clear)
    )


def lowest_of_copies(similarity: NDArray[np.float64]) -> float:
    """Return the similarity that at least 95 % of copies reach, with 95 % confidence.

    The order statistic that bounds the 5 % quantile from below (Wilks 1941): the second lowest of
    100 known copies, the lowest where there are fewer than 93.

    Args:
        similarity: Of known copies in one disguise, shape (m,), m ≥ 1.
    """
    count, rank = len(similarity), 1
    while rank < count and _binomial(rank, count, MISSED) <= DOUBT:
        rank += 1
    return float(np.sort(_undefined_as_lowest(similarity))[rank - 1])


def _binomial(most: int, count: int, probability: float) -> float:
    """Return the probability of at most ``most`` successes; scipy's is not worth its import."""
    share = math.log(probability), math.log1p(-probability)
    return math.fsum(
        math.exp(
            math.lgamma(count + 1)
            - math.lgamma(hits + 1)
            - math.lgamma(count - hits + 1)
            + hits * share[0]
            + (count - hits) * share[1]
        )
        for hits in range(most + 1)
    )


def _undefined_as_lowest(similarity: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.nan_to_num(similarity, nan=0.0)


def verdicts(
    similarity: NDArray[np.float64], null: NDArray[np.float64], thresholds: Thresholds
) -> list[Verdict]:
    """Return the verdict of each scored slice."""
    # Undefined similarities, which the published protocols know, are no evidence.
    defined = np.isfinite(similarity)
    flagged = defined & (p_values(similarity, null) <= thresholds.level * (1 + 1e-12))
    copy = np.inf if thresholds.copy is None else thresholds.copy
    return [
        Verdict.COPY if f and s >= copy else Verdict.SUSPICIOUS if f else Verdict.NO_EVIDENCE
        for f, s in zip(flagged, similarity, strict=True)
    ]


def power(
    null: NDArray[np.float64],
    control: Mapping[str, NDArray[np.float64]],
    thresholds: Thresholds,
) -> tuple[TransformationPower, ...]:
    """Return what the audit sees of known copies, a row per transformation tried."""
    rows = []
    for transformation in TRANSFORMATIONS:
        values = control.get(transformation.name)
        if values is None or not len(values):
            continue
        found = verdicts(values, null, thresholds)
        rows.append(
            TransformationPower(
                name=transformation.name,
                description=transformation.description,
                power_suspicious=float(np.mean([v is not Verdict.NO_EVIDENCE for v in found])),
                power_copy=float(np.mean([v is Verdict.COPY for v in found])),
                seen=bool(np.median(_undefined_as_lowest(values)) > thresholds.suspicious),
                samples=len(values),
            )
        )
    return tuple(rows)


def rule_sentence(thresholds: Thresholds) -> str:
    """Return the rule in one sentence, with its numbers."""
    first = (
        f"A slice is suspicious if its similarity exceeds {thresholds.suspicious:.4f}, which "
        f"{100 * thresholds.level:.2g} % of the slices of patients outside the reference do"
    )
    if thresholds.copy is None:
        return f"{first}; none is called a copy, because no known copy stands clearly above that."
    return (
        f"{first}, and a copy if it reaches {thresholds.copy:.4f}, as 95 % of known copies do "
        "in every disguise that this cohort sees clearly."
    )
