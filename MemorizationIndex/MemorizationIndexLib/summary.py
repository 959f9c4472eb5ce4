"""What was found in a run as a whole, and what must stand beside it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.cohort.cohort import Cohort
from MemorizationIndexLib.encoders.encoder import Encoder
from MemorizationIndexLib.evidence.errors import EvidenceError
from MemorizationIndexLib.evidence.share import estimate_share
from MemorizationIndexLib.index.scores import memorization_index, null_spread
from MemorizationIndexLib.index.verdict import Thresholds, power, rule_sentence
from MemorizationIndexLib.results import PART, AuditSummary, SliceResult, Verdict, VolumeResult
from MemorizationIndexLib.version import __version__

DRIFT = 5
"""Suspicious slices, in multiples of what the level lets expect, that raise a doubt aloud."""

DRIFT_SHARE = 0.05
"""Share of suspicious slices below which no doubt is raised."""


def summarize(
    slices: Sequence[SliceResult],
    volumes: Sequence[VolumeResult],
    cohort: Cohort,
    encoder: Encoder,
    alpha: float,
    thresholds: Thresholds | None,
    *,
    subject_rule: str,
    refused: tuple[tuple[str, str], ...],
    warnings: tuple[str, ...],
) -> AuditSummary:
    """Return the summary, as yet without the share of copies and verification.

    Args:
        slices: All slices.
        volumes: All volumes.
        cohort: What they were compared with.
        encoder: With which they were encoded.
        alpha: Significance level asked for.
        thresholds: From the null and the known copies; None where the protocol is undefined.
        subject_rule: How the query's subjects were identified.
        refused: Inputs that were not read, as (path, sentence).
        warnings: Sentences about the query that the reader must know.
    """
    facts = cohort.facts
    null, control = cohort.null.similarity, cohort.control.similarity
    spread = null_spread(null, cohort.protocol)
    values = [one.oni for one in slices if one.oni is not None]
    copies = sum(one.verdict is Verdict.COPY for one in slices)
    suspicious = sum(one.verdict is Verdict.SUSPICIOUS for one in slices)
    exact = 0.0
    if thresholds is not None:
        ceiling = np.array([np.median(control["exact"])])
        exact = float(memorization_index(ceiling, spread)[0])
    return AuditSummary(
        finding=finding_sentence(slices, volumes),
        alpha=alpha,
        certifiable_alpha=cohort.certifiable_alpha,
        protocol=facts.protocol,
        rule=rule_sentence(thresholds)
        if thresholds is not None
        else f"The protocol {facts.protocol} is undefined on this reference; nothing is judged.",
        encoder=facts.encoder,
        encoder_description=encoder.description,
        fingerprint=facts.fingerprint,
        layers=facts.layers,
        widths=facts.widths,
        shrinkage=facts.shrinkage,
        reference_slices=cohort.slice_count,
        reference_subjects=cohort.subject_count,
        null_mean=spread.mean if spread.defined else 0.0,
        null_sd=spread.sd if spread.defined else 0.0,
        null_size=len(null) if spread.defined else 0,
        exact_copy_mi=exact,
        suspicious_threshold=thresholds.suspicious if thresholds else None,
        copy_threshold=thresholds.copy if thresholds else None,
        statistic="similarity",
        power=power(null, control, thresholds) if thresholds else (),
        slices=len(slices),
        scored=len(values),
        copies=copies,
        suspicious=suspicious,
        mean_oni=float(np.mean(values)) if values else None,
        subject_rule=subject_rule,
        cohort=cohort.name,
        anonymized=facts.anonymized,
        refused=refused,
        warnings=(
            *warnings,
            *facts.warnings,
            *doubts(cohort, alpha, thresholds, slices),
        ),
        version=__version__,
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )


def with_share(
    summary: AuditSummary,
    slices: Sequence[SliceResult],
    statistics: NDArray[np.float64],
    cohort: Cohort,
) -> AuditSummary:
    """Return the summary with the estimated share of copies, or why there is none.

    Args:
        summary: Of these slices.
        slices: All slices.
        statistics: Statistic of each scored slice, in the order of ``slices``.
        cohort: The cohort they were compared with.
    """
    if not len(statistics):
        return replace(summary, share_note="no slice was scored")
    known = {name: np.isfinite(values) for name, values in cohort.control.similarity.items()}
    try:
        share = estimate_share(
            statistics,
            [one.volume for one in slices if one.similarity is not None],
            cohort.null.similarity,
            {name: cohort.control.similarity[name][kept] for name, kept in known.items()},
            seed=cohort.facts.seed,
            null_subjects=cohort.null.subjects,
            control_subjects={name: cohort.control.subjects[kept] for name, kept in known.items()},
            alpha=summary.alpha,
        )
    except EvidenceError as error:
        return replace(summary, share=None, share_low=None, share_high=None, share_note=str(error))
    return replace(
        summary, share=share.estimate, share_low=share.low, share_high=share.high, share_note=""
    )


def finding_sentence(slices: Sequence[SliceResult], volumes: Sequence[VolumeResult]) -> str:
    """Return what was found, in one sentence."""
    scored = [one for one in slices if one.oni is not None]
    if not scored:
        if len(slices) == 1:
            return "The only slice could not be scored."
        return f"None of the {len(slices)} slices could be scored."
    copies = [one for one in scored if one.verdict is Verdict.COPY]
    suspicious = sum(one.verdict is Verdict.SUSPICIOUS for one in scored)
    of = f"{_count(len(scored), 'scored slice')} in {_count(len(volumes), 'volume')}"
    if copies:
        patients = len({one.nearest_subject for one in copies})
        verb = "is a copy" if len(copies) == 1 else "are copies"
        more = f"; {suspicious} more {'is' if suspicious == 1 else 'are'} suspicious"
        return (
            f"{len(copies)} of {of} {verb} of {_count(patients, 'reference patient')}"
            f"{more if suspicious else ''}."
        )
    if suspicious:
        verb = "is suspicious" if suspicious == 1 else "are suspicious"
        by_part = sum(one.flagged_by == PART for one in scored)
        part = f", {'all' if by_part == suspicious else by_part} for a part only" if by_part else ""
        return f"{suspicious} of {of} {verb}{part}; none is called a copy."
    return f"No copy was found in {of}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def doubts(
    cohort: Cohort, alpha: float, thresholds: Thresholds | None, slices: Sequence[SliceResult]
) -> list[str]:
    """Return what a reader of the result must doubt, in sentences.

    Args:
        cohort: What the slices were compared with.
        alpha: Significance level asked for.
        thresholds: None where the protocol is undefined.
        slices: All slices.
    """
    if thresholds is None:
        return []
    scored = sum(one.similarity is not None for one in slices)
    by_part = sum(one.flagged_by == PART for one in slices)
    suspicious = sum(one.verdict is Verdict.SUSPICIOUS for one in slices) - by_part
    sentences = []
    if alpha < cohort.certifiable_alpha:
        sentences.append(
            f"{_count(cohort.subject_count, 'reference subject')} cannot certify an error rate of "
            f"{alpha:g}: the smallest is 1/({cohort.subject_count}+1) = "
            f"{cohort.certifiable_alpha:.3g}, because slices of one subject are not independent. "
            f"Ask for no less than that (alpha), or add reference subjects."
        )
    expected = DRIFT * max(alpha, cohort.certifiable_alpha) * scored
    if suspicious > expected and suspicious > DRIFT_SHARE * scored:
        sentences.append(
            f"{suspicious} of {scored} scored slices are more similar to the reference than chance "
            "allows without reaching known copies: they may come from a scanner or protocol that "
            "few reference subjects share. Look at the pairs."
        )
    if by_part > expected and by_part > DRIFT_SHARE * scored:
        sentences.append(
            f"{by_part} of {scored} scored slices are suspicious for a part only, more than chance "
            "allows: text or marks burned into the images, or a scanner that few reference "
            "subjects share, stand out like copied parts. Look at the pairs."
        )
    if thresholds.copy is None:
        sentences.append(
            "No known copy stands clearly above the null in this cohort, so no slice can be "
            "called a copy: add reference subjects, or use a better encoder."
        )
    return sentences
