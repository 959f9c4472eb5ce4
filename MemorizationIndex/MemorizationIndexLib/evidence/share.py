"""The share of copies in a set, corrected for what the audit misses and for what it flags wrongly.

At one threshold, flagged = share · power + (1 − share) · false positives, solved for the share
(Rogan and Gladen 1978). Power comes from the known copies, false positives from the null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from MemorizationIndexLib.evidence.errors import EvidenceError

Numbers = NDArray[np.float64]

_ALPHA = 0.01
_LEVEL = 0.95
_REPLICATES = 4000
_LOST_BY_WEAKEST = 0.20
_CLEAN_QUANTILES = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
_MOSTLY_COPIES = 0.7
_LARGEST_DRIFT = 1.0
_DRIFT_ROUNDS = 3
_LEAST_GAP = 0.05
_FEW_VOLUMES = 3


@dataclass(frozen=True)
class Share:
    """The estimated share of copies.

    Attributes:
        estimate: Share of the set's slices that are copies, in [0, 1].
        low: Lower end of the interval.
        high: Upper end of the interval.
        level: Nominal coverage of the interval for the share at which the generator copies.
        threshold: Statistic at or above which a slice counts as flagged here.
        flagged: Share of the set's slices at or above the threshold.
        false_positive_rate: Share of the null there, after the shift by ``drift``.
        power: Mean share of known copies there, over the disguises counted.
        drift: By how much the set's clean slices lie above the null, in units of the statistic.
        transformations: Disguises that the cohort can see; copies under others are not counted.
    """

    estimate: float
    low: float
    high: float
    level: float
    threshold: float
    flagged: float
    false_positive_rate: float
    power: float
    drift: float
    transformations: tuple[str, ...]


@dataclass(frozen=True)
class _Clusters:
    """Flagged slices and all slices per volume or subject."""

    flagged: NDArray[np.int64]
    slices: NDArray[np.int64]

    @property
    def rate(self) -> float:
        return float(self.flagged.sum() / self.slices.sum())


def estimate_share(
    statistics: ArrayLike,
    volumes: ArrayLike,
    null: ArrayLike,
    control: Mapping[str, ArrayLike],
    *,
    seed: int,
    null_subjects: ArrayLike | None = None,
    control_subjects: Mapping[str, ArrayLike] | None = None,
    alpha: float = _ALPHA,
    level: float = _LEVEL,
    replicates: int = _REPLICATES,
) -> Share:
    """Estimate which share of a set's slices are copies, with an interval.

    - Disguises: those the cohort sees, that is, whose median known copy lies above the null's
      (1 − ``alpha``) quantile (METHOD.md section 3). How a generator mixes them is unknown: the
      estimate takes them as equally frequent, the interval draws the mixture (flat Dirichlet).
    - Threshold: what the weakest of them passes with 80 % of its known copies, and no less than
      the null's (1 − ``alpha``) quantile. Lower, and a small drift of the clean slices would weigh
      more than the copies won.
    - Drift: clean slices of a set need not lie where the null lies. The lower half of the set's
      clean slices holds no copies; the null is shifted to it, by one standard deviation at most,
      before its false positives are counted.
    - Interval: the three rates are drawn from Jeffreys' beta distribution with the effective number
      of slices that the spread between volumes (or subjects) leaves (Korn and Graubard 1998, with
      their t correction), and solved for the share; quantiles. Resampling volumes alone covers too
      seldom where few volumes hold copies: it cannot see the copies that a set happens to lack.
      For the same reason, where fewer than three volumes hold flagged slices the upper end is no
      less than what a generator that copies whole volumes could hide in this number of volumes.

    The interval is about the share at which the generator copies, not about the copies that
    happened to fall into this set: for those it is wider than need be.

    Args:
        statistics: Statistic of each scored slice of the set, shape (n,); high means like a copy.
        volumes: Volume of each slice, shape (n,), any type that sorts.
        null: Statistics of slices whose subject is not in the cohort, shape (m,).
        control: Statistics of known copies by transformation, each of shape (k,).
        seed: Seed of the interval's draws.
        null_subjects: Subject of each null statistic, shape (m,); None takes them as independent,
            and the interval is then too narrow.
        control_subjects: Subject of each known copy by transformation; None as for the null.
        alpha: Significance level of the audit, in (0, 1).
        level: Nominal coverage, in (0, 1).
        replicates: Number of draws.

    Raises:
        EvidenceError: Fewer than two volumes or subjects, no disguise that the cohort sees, sizes
            that do not fit, values that are not finite, or a level out of range.
    """
    if not (0.0 < alpha < 1.0 and 0.0 < level < 1.0 and replicates >= 1):
        raise EvidenceError(
            f"A share at alpha {alpha}, level {level} and {replicates} replicates is not defined; "
            "give levels between 0 and 1 and at least one replicate."
        )
    query, clean = _checked(statistics, "set"), _checked(null, "null")
    known = {name: _checked(values, f"control {name!r}") for name, values in control.items()}
    # The next value up: an interpolated quantile would fall between a volume's equal slices.
    certain = float(np.quantile(clean, 1.0 - alpha, method="higher"))
    seen = tuple(name for name, values in known.items() if np.median(values) > certain)
    if not seen:
        raise EvidenceError(
            "The share of copies cannot be estimated because the cohort tells no known copy from "
            "the null; use more reference subjects or another encoder."
        )
    weakest = min(float(np.quantile(known[name], _LOST_BY_WEAKEST)) for name in seen)
    threshold = max(certain, weakest)
    copies = [
        _clusters(
            known[name],
            None if control_subjects is None else control_subjects.get(name),
            threshold,
            f"control {name!r}",
        )
        for name in seen
    ]
    found = _clusters(query, volumes, threshold, "set")
    power = float(np.mean([kind.rate for kind in copies]))
    drift = _drift(query, clean, threshold, power)
    false = _clusters(clean + drift, null_subjects, threshold, "null")
    if power - false.rate < _LEAST_GAP:
        raise EvidenceError(
            f"The share of copies cannot be estimated because {100 * false.rate:.0f} % of the null "
            f"and {100 * power:.0f} % of known copies pass one threshold; use more reference "
            "subjects or another encoder."
        )

    rng = np.random.default_rng(seed)
    mixture = rng.dirichlet(np.ones(len(seen)), replicates)
    powers = np.stack([_rate_draws(kind, replicates, level, rng) for kind in copies], axis=1)
    drawn = _share(
        _rate_draws(found, replicates, level, rng),
        _rate_draws(false, replicates, level, rng),
        (mixture * powers).sum(axis=1),
    )
    low, high = np.quantile(drawn, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    estimate = float(_share(np.array(found.rate), np.array(false.rate), np.array(power)))
    # Nothing flagged (or all) is what a share of 0 (or 1) looks like.
    low = 0.0 if not found.flagged.any() else low
    high = 1.0 if (found.flagged == found.slices).all() else high
    if (found.flagged > 0).sum() < _FEW_VOLUMES:
        high = max(high, _hidden_in(len(found.slices), level))
    return Share(
        estimate=estimate,
        low=float(min(low, estimate)),
        high=float(max(high, estimate)),
        level=level,
        threshold=threshold,
        flagged=found.rate,
        false_positive_rate=false.rate,
        power=power,
        drift=drift,
        transformations=seen,
    )


def _checked(values: ArrayLike, name: str) -> Numbers:
    checked = np.asarray(values, dtype=np.float64)
    if checked.ndim != 1 or not checked.size or not np.isfinite(checked).all():
        raise EvidenceError(
            f"The statistics of the {name} have shape {checked.shape} or hold values that are not "
            "finite; give at least one finite number, as (n,), and leave out unscored slices."
        )
    return checked


def _clusters(values: Numbers, labels: ArrayLike | None, threshold: float, name: str) -> _Clusters:
    names = np.arange(len(values)) if labels is None else np.asarray(labels)
    if names.shape != values.shape:
        raise EvidenceError(
            f"The {name} has {len(values)} statistics and labels of shape {names.shape}; give one "
            "volume or subject for each."
        )
    cluster = np.unique(names, return_inverse=True)[1]
    slices = np.bincount(cluster)
    if len(slices) < 2:
        raise EvidenceError(
            f"The {name} comes from one volume or subject, and nothing varies between them; give "
            "at least 2."
        )
    flagged = np.bincount(cluster, values >= threshold).astype(np.int64)
    return _Clusters(flagged, slices)


def _share(flagged: Numbers, false_positives: Numbers, power: Numbers) -> Numbers:
    gap = np.maximum(power - false_positives, _LEAST_GAP)
    return np.clip((flagged - false_positives) / gap, 0.0, 1.0)


def _drift(query: Numbers, null: Numbers, threshold: float, power: float) -> float:
    """Shift that lays the null's lower half on the lower half of the set's clean slices.

    The u-quantile of the clean slices is the u(1 − share)-quantile of the set, as copies lie above;
    share and shift are found in turn. 0 where hardly a clean slice is left to look at.
    """
    flagged = float((query >= threshold).mean())
    largest = _LARGEST_DRIFT * float(null.std())
    share, drift = flagged, 0.0
    if flagged > _MOSTLY_COPIES:
        return drift
    expected = np.quantile(null, _CLEAN_QUANTILES)
    for _ in range(_DRIFT_ROUNDS):
        seen = np.quantile(query, _CLEAN_QUANTILES * (1.0 - share))
        drift = float(np.clip((seen - expected).mean(), -largest, largest))
        false_positives = np.array((null + drift >= threshold).mean())
        estimate = float(_share(np.array(flagged), false_positives, np.array(power)))
        share = min(estimate, _MOSTLY_COPIES)
    return drift


def _rate_draws(
    clusters: _Clusters, replicates: int, level: float, rng: np.random.Generator
) -> Numbers:
    """Draw the rate behind clustered counts from Jeffreys' beta with the effective size."""
    from scipy import special

    count, total = len(clusters.slices), int(clusters.slices.sum())
    rate = clusters.rate
    # Linearised variance of a ratio, clusters as the units.
    residuals = clusters.flagged - rate * clusters.slices
    variance = count / (count - 1) * float(residuals @ residuals) / total**2
    # No spread says nothing of dependence: then every cluster counts once.
    effective = rate * (1.0 - rate) / variance if variance > 0.0 else float(count)
    effective = float(np.clip(effective, count, total))
    tail = (1.0 + level) / 2.0
    effective *= float(special.ndtri(tail) / special.stdtrit(count - 1, tail)) ** 2
    return rng.beta(rate * effective + 0.5, (1.0 - rate) * effective + 0.5, size=replicates)


def _hidden_in(volumes: int, level: float) -> float:
    """Share of volumes that may be copies though none of these is: Jeffreys' upper end."""
    from scipy import special

    return float(special.betaincinv(0.5, volumes + 0.5, (1.0 + level) / 2.0))
