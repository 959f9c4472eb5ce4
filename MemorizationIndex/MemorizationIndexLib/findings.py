"""Matches of query slices → what was found, per slice and per volume."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PureWindowsPath

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.cohort.cohort import Cohort
from MemorizationIndexLib.encoders.encoder import Encoder
from MemorizationIndexLib.evidence.runs import longest_run
from MemorizationIndexLib.images.volume import Slice
from MemorizationIndexLib.index.poses import FLIPS, Pose, reference_poses, seen_pose
from MemorizationIndexLib.index.scores import (
    memorization_index,
    null_spread,
    oni,
    p_values,
    q_values,
)
from MemorizationIndexLib.index.similarity import Matches
from MemorizationIndexLib.index.verdict import Thresholds, verdicts
from MemorizationIndexLib.results import PART, WHOLE, SliceResult, Verdict, VolumeResult

FLAGGED = (Verdict.COPY, Verdict.SUSPICIOUS)

_GRAVITY = (Verdict.COPY, Verdict.SUSPICIOUS, Verdict.NO_EVIDENCE, Verdict.NOT_SCORED)


@dataclass
class Scored:
    """The query slices of a run with what they match.

    Attributes:
        slices: All of them in order, without pixels.
        matches: Of those without a reason, batch by batch.
        refused: Inputs that could not be read while slices streamed by, as (path, sentence).
        pictures: Small pictures by position in ``slices``.
        flagged: Slices that may be flagged, by position in ``slices``, to be verified.
    """

    slices: list[Slice] = field(default_factory=list)
    matches: list[Matches] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    pictures: dict[int, NDArray[np.uint8]] = field(default_factory=dict)
    flagged: dict[int, NDArray[np.float32]] = field(default_factory=dict)

    def joined(self, name: str) -> NDArray:
        """Return an array of all matches."""
        return np.concatenate([getattr(m, name) for m in self.matches])


def seen_poses(scored: Scored, cohort: Cohort, encoder: Encoder) -> list[Pose]:
    """Return how each slice with a match stands to it."""
    stored = reference_poses(encoder, robust=cohort.facts.robust)
    return [
        seen_pose(stored[int(row) // cohort.slice_count], FLIPS[int(view)])
        for row, view in zip(scored.joined("rows"), scored.joined("poses"), strict=True)
    ]


def slice_results(
    scored: Scored, cohort: Cohort, thresholds: Thresholds, poses: Sequence[Pose]
) -> tuple[list[SliceResult], NDArray[np.float64]]:
    """Return the finding for each slice, and the similarity of each that was scored."""
    facts, null = cohort.facts, cohort.null.similarity
    similarity = scored.joined("similarity")
    # Under the published protocols a single slice can be undefined where the null is not.
    defined = np.isfinite(similarity)
    mi = memorization_index(similarity, null_spread(null, cohort.protocol))
    p = np.ones(len(similarity))
    q = np.ones(len(similarity))
    p[defined] = p_values(similarity[defined], null)
    q[defined] = q_values(p[defined])
    found = dict(
        zip(
            (int(number) for number in np.flatnonzero(defined)),
            verdicts(similarity[defined], null, thresholds),
            strict=True,
        )
    )
    rows = scored.joined("rows") % cohort.slice_count
    subjects = scored.joined("subjects")[:, 0]
    margin = np.concatenate([m.margin for m in scored.matches])
    consensus = np.concatenate([m.consensus for m in scored.matches])
    layer_similarity = scored.joined("layer_similarity")
    results, number = [], -1
    for one in scored.slices:
        if one.reason:
            results.append(_not_scored(one, one.reason))
            continue
        number += 1
        if not defined[number]:
            results.append(
                _not_scored(
                    one,
                    f"undefined under the protocol {facts.protocol}: a layer's cosine is negative",
                )
            )
            continue
        row = int(rows[number])
        results.append(
            SliceResult(
                volume=one.volume,
                subject=one.subject,
                slice=one.index,
                verdict=found[number],
                similarity=float(similarity[number]),
                mi=float(mi[number]),
                oni=float(oni(mi[number : number + 1])[0]),
                p_value=float(p[number]),
                q_value=float(q[number]),
                nearest_subject=facts.subjects[subjects[number]],
                nearest_volume=facts.volumes[int(cohort.volume_codes[row])],
                nearest_slice=int(cohort.indices[row]),
                nearest_row=row,
                margin=float(margin[number]),
                consensus=int(consensus[number]),
                layer_similarity=tuple(float(value) for value in layer_similarity[number]),
                source=one.source,
                # Knows the separators of both worlds: a cohort may come from another machine.
                nearest_source=PureWindowsPath(cohort.sources[row]).name,
                pose=poses[number].label,
                flagged_by=WHOLE if found[number] in FLAGGED else "",
            )
        )
    return results, similarity[defined]


def undefined_results(scored: Scored, cohort: Cohort) -> list[SliceResult]:
    """Return the findings where the null is undefined: nothing is scored."""
    why = f"undefined under the protocol {cohort.facts.protocol}: see the warnings"
    return [_not_scored(one, one.reason or why) for one in scored.slices]


def _not_scored(one: Slice, reason: str) -> SliceResult:
    return SliceResult(
        volume=one.volume,
        subject=one.subject,
        slice=one.index,
        verdict=Verdict.NOT_SCORED,
        reason=reason,
        source=one.source,
    )


def volume_results(slices: Sequence[SliceResult]) -> list[VolumeResult]:
    """Return the finding for each volume, in the order in which they occur."""
    by_volume: dict[str, list[SliceResult]] = {}
    for one in slices:
        by_volume.setdefault(one.volume, []).append(one)
    return [_volume_result(volume, members) for volume, members in by_volume.items()]


def _volume_result(volume: str, members: list[SliceResult]) -> VolumeResult:
    scored = [one for one in members if one.oni is not None]
    values = [one.oni for one in scored if one.oni is not None]
    flagged = [one for one in scored if one.verdict in FLAGGED]
    named = Counter(_named(one)[0] for one in flagged)
    return VolumeResult(
        volume=volume,
        subject=members[0].subject,
        slices=len(members),
        scored=len(scored),
        copies=sum(one.verdict is Verdict.COPY for one in members),
        suspicious=sum(one.verdict is Verdict.SUSPICIOUS for one in members),
        share_flagged=len(flagged) / len(scored) if scored else None,
        mean_oni=float(np.mean(values)) if values else None,
        lowest_oni=min(values) if values else None,
        nearest_subject=named.most_common(1)[0][0] if named else None,
        # Rows, not slice indices: they count on where each slice is a volume of its own.
        longest_run=longest_run(
            [one.verdict in FLAGGED for one in scored],
            [_named(one)[0] for one in scored],
            [_named(one)[1] for one in scored],
        ).length,
        verdict=next(v for v in _GRAVITY if any(one.verdict is v for one in members)),
    )


def _named(one: SliceResult) -> tuple[str | None, int | None]:
    """Return subject and row of the reference slice that the verdict rests on."""
    if one.flagged_by == PART:
        return one.part_subject, one.part_row
    return one.nearest_subject, one.nearest_row


def by_suspicion(slices: Sequence[SliceResult]) -> list[int]:
    """Return the positions of the slices, the gravest finding first."""

    def key(number: int) -> tuple[int, float, float]:
        one = slices[number]
        return (
            _GRAVITY.index(one.verdict),
            1.0 if one.least_p is None else one.least_p,
            0.0 if one.similarity is None else -one.similarity,
        )

    return sorted(range(len(slices)), key=key)
