"""The main job: query images and a cohort → what was copied, from whom, and how sure that is."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.cohort.building import expected_slices, nothing_left, thumbnail
from MemorizationIndexLib.cohort.cohort import Cohort, check_encoder
from MemorizationIndexLib.cohort.pictures import reference_pixels
from MemorizationIndexLib.cohort.store import load_cohort
from MemorizationIndexLib.encoders.cache import CachedEncoder, open_cache
from MemorizationIndexLib.encoders.encoder import Encoder
from MemorizationIndexLib.encoders.registry import choice_sentences, get_encoder
from MemorizationIndexLib.encoding import encode_slices
from MemorizationIndexLib.evidence.errors import EvidenceError
from MemorizationIndexLib.evidence.flagged import (
    MOST_VERIFIED,
    FlaggedSlice,
    reduced,
    verify_flagged,
)
from MemorizationIndexLib.evidence.runs import longest_run
from MemorizationIndexLib.evidence.share import estimate_share
from MemorizationIndexLib.images.finding import find_images
from MemorizationIndexLib.images.streaming import Refuse, stream_images, stream_volumes
from MemorizationIndexLib.images.volume import ImageError, Slice, Volume
from MemorizationIndexLib.index.matching import make_matcher
from MemorizationIndexLib.index.poses import FLIPS, Pose, query_views, reference_poses, seen_pose
from MemorizationIndexLib.index.protocols import CalibrationError
from MemorizationIndexLib.index.scores import (
    memorization_index,
    null_spread,
    oni,
    p_values,
    q_values,
)
from MemorizationIndexLib.index.similarity import Matches
from MemorizationIndexLib.index.verdict import (
    ALPHA,
    Thresholds,
    find_thresholds,
    power,
    rule_sentence,
    verdicts,
)
from MemorizationIndexLib.progress import (
    CancelFunction,
    Progress,
    ProgressFunction,
    check,
    never,
    quiet,
)
from MemorizationIndexLib.results import (
    AuditResult,
    AuditSummary,
    MatchPictures,
    SliceResult,
    Verdict,
    VolumeResult,
)
from MemorizationIndexLib.version import __version__

PICTURES = 200
"""Most suspicious slices for which pictures are kept."""

DRIFT = 5
"""Suspicious slices, in multiples of what the level lets expect, that raise a doubt aloud."""

DRIFT_SHARE = 0.05
"""Share of suspicious slices below which no doubt is raised."""


@dataclass(frozen=True)
class AuditOptions:
    """How queries are scored; the defaults are those of the command line.

    Attributes:
        alpha: Significance level.
        plane: A key of ``images.PLANES``; the cohort's if None.
        encoder: As for ``encoders.get_encoder``; the cohort's if None. Needed only where the
            user's own encoder lies elsewhere than when the cohort was built.
        device: Where the encoder runs.
        cache: Whether features are kept for the next run.
        pictures: Whether pictures for the report are kept.
        verify: Whether the match of each flagged slice is laid over it, where its image is at hand.
    """

    alpha: float = ALPHA
    plane: str | None = None
    encoder: str | None = None
    device: str = "auto"
    cache: bool = True
    pictures: bool = True
    verify: bool = True


def score(
    inputs: str | Path | Sequence[str | Path],
    cohort: Cohort | str | Path,
    *,
    subjects: str | None = None,
    any_modality: bool = False,
    options: AuditOptions | None = None,
    encoder: Encoder | None = None,
    progress: ProgressFunction = quiet,
    cancelled: CancelFunction = never,
) -> AuditResult:
    """Score image files against a cohort.

    Args:
        inputs: Files, folders or a manifest.csv; see ``images.find_images``.
        cohort: The cohort or its path.
        subjects: Pattern that finds the subject in a path; see ``images.find_images``.
        any_modality: Whether DICOM series other than MR are taken too.
        options: How to score.
        encoder: The encoder, if it is at hand; the cohort's is made otherwise.
        progress: Told of the progress.
        cancelled: Asked between batches.

    Raises:
        ImageError: The inputs hold no usable image.
        CohortError: The cohort cannot be read, or belongs to another encoder.
        EncoderError: The cohort's encoder cannot be used here.
        CalibrationError: ``alpha`` is out of range.
        CancelledError: ``cancelled`` said so; features encoded by then are in the cache.
    """
    cohort = cohort if isinstance(cohort, Cohort) else load_cohort(cohort)
    progress(Progress("Finding images", 0, 0, "files"))
    images = find_images(
        [inputs] if isinstance(inputs, (str, Path)) else inputs,
        subjects=subjects,
        any_modality=any_modality,
    )
    return _score(
        _Queries(
            lambda plane, size, refuse: stream_images(images, plane, size, refuse),
            sum(source.slice_count for source in images.sources),
            images.subject_rule_sentence,
            images.refused,
            images.warnings,
        ),
        cohort,
        options or AuditOptions(),
        encoder,
        progress,
        cancelled,
    )


def score_volumes(
    volumes: Sequence[Volume],
    cohort: Cohort | str | Path,
    *,
    subject_rule: str = "as given with the volumes",
    warnings: Sequence[str] = (),
    options: AuditOptions | None = None,
    encoder: Encoder | None = None,
    progress: ProgressFunction = quiet,
    cancelled: CancelFunction = never,
) -> AuditResult:
    """Score volumes in memory against a cohort; see ``score``.

    Args:
        volumes: With unique names.
        cohort: The cohort or its path.
        subject_rule: How the subjects were identified, for the report.
        warnings: Sentences to be shown with the result.
        options: How to score.
        encoder: The encoder, if it is at hand.
        progress: Told of the progress.
        cancelled: Asked between batches.
    """
    cohort = cohort if isinstance(cohort, Cohort) else load_cohort(cohort)
    options = options or AuditOptions()
    plane = options.plane or cohort.facts.plane
    return _score(
        _Queries(
            lambda plane, size, refuse: stream_volumes(volumes, plane, size, refuse),
            sum(expected_slices(volume, plane) for volume in volumes),
            f"{len({volume.subject for volume in volumes})} subjects, {subject_rule}",
            (),
            tuple(warnings),
        ),
        cohort,
        options,
        encoder,
        progress,
        cancelled,
    )


@dataclass(frozen=True)
class _Queries:
    """Where the query slices come from and what was learned while finding them."""

    stream: Callable[[str, int, Refuse], Iterable[Slice]]
    slice_count: int
    subject_rule: str
    refused: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]


@dataclass
class _Scored:
    """All query slices in order, without pixels, with the matches of those without a reason."""

    slices: list[Slice] = field(default_factory=list)
    matches: list[Matches] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    pictures: dict[int, NDArray[np.uint8]] = field(default_factory=dict)
    flagged: dict[int, NDArray[np.float32]] = field(default_factory=dict)

    def joined(self, name: str) -> NDArray:
        return np.concatenate([getattr(m, name) for m in self.matches])


def _score(
    queries: _Queries,
    cohort: Cohort,
    options: AuditOptions,
    encoder: Encoder | None,
    progress: ProgressFunction,
    cancelled: CancelFunction,
) -> AuditResult:
    facts = cohort.facts
    if not 0 < options.alpha < 1:
        raise CalibrationError(f"alpha is {options.alpha} and must lie above 0 and below 1.")
    if encoder is None:
        progress(Progress("Loading the encoder", 0, 0, ""))
        name = options.encoder or facts.encoder
        encoder = get_encoder(
            name,
            input_size=facts.input_size,
            device=options.device,
            **(facts.encoder_options if name == facts.encoder else {}),
        )
        note = choice_sentences(name, encoder)
        progress(Progress("Loading the encoder", 0, 0, "", note))
    check_encoder(cohort, encoder)
    spread = null_spread(cohort.null.similarity, cohort.protocol)
    thresholds = (
        find_thresholds(cohort.null.similarity, cohort.control.similarity, options.alpha)
        if spread.defined
        else None
    )
    scored = _match(queries, cohort, options, encoder, thresholds, progress, cancelled)
    poses = _poses(scored, cohort, encoder)
    if thresholds is not None:
        slices, similarity = _slice_results(scored, cohort, thresholds, poses)
    else:
        slices, similarity = _undefined_results(scored, cohort), np.zeros(0)
    match_pictures: dict[tuple[str, int], MatchPictures] = {}
    verification = ""
    if options.verify:
        slices, match_pictures, verification = _verified(
            scored, slices, poses, cohort, encoder, options, progress, cancelled
        )
    volumes = _volume_results(slices)
    summary = _summarize(queries, scored, cohort, options, encoder, thresholds, slices, volumes)
    summary = replace(
        with_share(summary, slices, similarity, cohort),
        verification=verification,
    )
    result = AuditResult(
        slices=tuple(slices),
        volumes=tuple(volumes),
        summary=summary,
        null=cohort.null.similarity if spread.defined else np.zeros(0),
        control={
            name: values[np.isfinite(values)] for name, values in cohort.control.similarity.items()
        }
        if spread.defined
        else {},
        statistics=similarity,
    )
    if options.pictures:
        progress(Progress("Gathering pictures", 0, 0, "pictures"))
        result = replace(
            result,
            pictures=_pictures(scored, slices),
            reference_pictures=_reference_pictures(cohort, slices),
            match_pictures=match_pictures,
        )
    return result


def _match(
    queries: _Queries,
    cohort: Cohort,
    options: AuditOptions,
    encoder: Encoder,
    thresholds: Thresholds | None,
    progress: ProgressFunction,
    cancelled: CancelFunction,
) -> _Scored:
    facts = cohort.facts
    match = make_matcher(
        cohort.reference,
        cohort.features,
        cohort.protocol,
        query_views(encoder, robust=facts.robust),
    )
    scored = _Scored()
    stream = queries.stream(
        options.plane or facts.plane,
        facts.input_size,
        lambda place, why: scored.refused.append((place, why)),
    )
    gallery = _Gallery()
    keeper = _FlaggedKeeper(thresholds)
    with CachedEncoder(encoder, open_cache(limit=None if options.cache else 0)) as cached:
        for batch in encode_slices(stream, cached, (Pose(),)):
            check(cancelled)
            matches = match([layer[0] for layer in batch.features])
            scored.matches.append(matches)
            first = len(scored.slices)
            numbers = [n for n, one in enumerate(batch.slices, first) if one.pixels is not None]
            for number, one, similarity in zip(
                numbers, batch.scored, matches.similarity, strict=True
            ):
                assert one.pixels is not None
                if options.pictures:
                    gallery.offer(number, float(np.nan_to_num(similarity)), one.pixels)
                if options.verify:
                    keeper.offer(number, float(np.nan_to_num(similarity)), one.pixels)
            scored.slices += [replace(one, pixels=None) for one in batch.slices]
            done = len(scored.slices)
            progress(Progress("Scoring", done, max(done, queries.slice_count)))
    scored.pictures = gallery.pictures
    scored.flagged = keeper.most_similar()
    if not scored.slices:
        raise ImageError(nothing_left([*queries.refused, *scored.refused]))
    return scored


class _Gallery:
    """Small pictures of the most similar slices so far; their number stays bounded."""

    def __init__(self) -> None:
        self.pictures: dict[int, NDArray[np.uint8]] = {}
        self.similarity: dict[int, float] = {}

    def offer(self, number: int, similarity: float, pixels: NDArray[np.float32]) -> None:
        self.pictures[number] = thumbnail(pixels)
        self.similarity[number] = similarity
        if len(self.pictures) > 10 * PICTURES:
            ranked = sorted(self.similarity, key=self.similarity.__getitem__)
            for dropped in ranked[: -5 * PICTURES]:
                del self.pictures[dropped], self.similarity[dropped]


class _FlaggedKeeper:
    """The flagged slices to be verified, the most similar ones if there are many."""

    def __init__(self, thresholds: Thresholds | None) -> None:
        self.above = np.inf if thresholds is None else thresholds.suspicious
        self.kept: dict[int, tuple[float, NDArray[np.float32]]] = {}

    def offer(self, number: int, similarity: float, pixels: NDArray[np.float32]) -> None:
        if similarity > self.above:
            self.kept[number] = similarity, reduced(pixels)
            if len(self.kept) >= 2 * MOST_VERIFIED:
                self.kept = {number: self.kept[number] for number in self._ranked()}

    def most_similar(self) -> dict[int, NDArray[np.float32]]:
        return {number: self.kept[number][1] for number in self._ranked()}

    def _ranked(self) -> list[int]:
        return sorted(self.kept, key=lambda number: -self.kept[number][0])[:MOST_VERIFIED]


def _poses(scored: _Scored, cohort: Cohort, encoder: Encoder) -> list[Pose]:
    """Return how each slice with a match stands to it."""
    stored = reference_poses(encoder, robust=cohort.facts.robust)
    return [
        seen_pose(stored[int(row) // cohort.slice_count], FLIPS[int(view)])
        for row, view in zip(scored.joined("rows"), scored.joined("poses"), strict=True)
    ]


def _verified(
    scored: _Scored,
    slices: list[SliceResult],
    poses: Sequence[Pose],
    cohort: Cohort,
    encoder: Encoder,
    options: AuditOptions,
    progress: ProgressFunction,
    cancelled: CancelFunction,
) -> tuple[list[SliceResult], dict[tuple[str, int], MatchPictures], str]:
    """Return the results with those that were verified, pictures of matches, and the rule."""
    matched = [number for number, one in enumerate(scored.slices) if not one.reason]
    pose_of = dict(zip(matched, poses, strict=True))
    numbers = [
        number
        for number in _by_suspicion(slices)
        if number in scored.flagged and slices[number].verdict in FLAGGED
    ]
    flagged = [
        FlaggedSlice(scored.flagged[number], row, pose_of[number])
        for number in numbers
        if (row := slices[number].nearest_row) is not None
    ]
    found = verify_flagged(
        flagged, cohort, encoder, alpha=options.alpha, progress=progress, cancelled=cancelled
    )
    slices, pictures = list(slices), {}
    for position, one in found.slices.items():
        number = numbers[position]
        slices[number] = replace(slices[number], ssim=one.ssim, ncc=one.ncc, verified=one.verified)
        if one.pictures is not None:
            pictures[slices[number].volume, slices[number].slice] = one.pictures
    sentence = found.sentence
    if sum(one.verdict in FLAGGED for one in slices) > len(flagged):
        sentence += f" Only the {len(flagged)} most suspicious slices were tried."
    return slices, pictures, sentence


def _slice_results(
    scored: _Scored, cohort: Cohort, thresholds: Thresholds, poses: Sequence[Pose]
) -> tuple[list[SliceResult], NDArray[np.float64]]:
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
                pose=poses[number].label,
            )
        )
    return results, similarity[defined]


def _undefined_results(scored: _Scored, cohort: Cohort) -> list[SliceResult]:
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


FLAGGED = (Verdict.COPY, Verdict.SUSPICIOUS)

_GRAVITY = (Verdict.COPY, Verdict.SUSPICIOUS, Verdict.NO_EVIDENCE, Verdict.NOT_SCORED)


def _volume_results(slices: Sequence[SliceResult]) -> list[VolumeResult]:
    by_volume: dict[str, list[SliceResult]] = {}
    for one in slices:
        by_volume.setdefault(one.volume, []).append(one)
    return [_volume_result(volume, members) for volume, members in by_volume.items()]


def _volume_result(volume: str, members: list[SliceResult]) -> VolumeResult:
    scored = [one for one in members if one.oni is not None]
    values = [one.oni for one in scored if one.oni is not None]
    flagged = [one for one in scored if one.verdict in FLAGGED]
    named = Counter(one.nearest_subject for one in flagged)
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
            [one.nearest_subject for one in scored],
            [one.nearest_row for one in scored],
        ).length,
        verdict=next(v for v in _GRAVITY if any(one.verdict is v for one in members)),
    )


def _summarize(
    queries: _Queries,
    scored: _Scored,
    cohort: Cohort,
    options: AuditOptions,
    encoder: Encoder,
    thresholds: Thresholds | None,
    slices: Sequence[SliceResult],
    volumes: Sequence[VolumeResult],
) -> AuditSummary:
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
        alpha=options.alpha,
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
        subject_rule=queries.subject_rule,
        cohort=cohort.name,
        anonymized=facts.anonymized,
        refused=(*queries.refused, *scored.refused),
        warnings=(
            *queries.warnings,
            *facts.warnings,
            *doubts(cohort, options.alpha, thresholds, len(values), suspicious),
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
        return f"{suspicious} of {of} {verb}; none is called a copy."
    return f"No copy was found in {of}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def doubts(
    cohort: Cohort, alpha: float, thresholds: Thresholds | None, scored: int, suspicious: int
) -> list[str]:
    """Return what a reader of the result must doubt, in sentences."""
    if thresholds is None:
        return []
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
    if thresholds.copy is None:
        sentences.append(
            "No known copy stands clearly above the null in this cohort, so no slice can be "
            "called a copy: add reference subjects, or use a better encoder."
        )
    return sentences


def _by_suspicion(slices: Sequence[SliceResult]) -> list[int]:
    def key(number: int) -> tuple[int, float, float]:
        one = slices[number]
        return (
            _GRAVITY.index(one.verdict),
            1.0 if one.p_value is None else one.p_value,
            0.0 if one.similarity is None else -one.similarity,
        )

    return sorted(range(len(slices)), key=key)


def _pictures(
    scored: _Scored, slices: Sequence[SliceResult]
) -> dict[tuple[str, int], NDArray[np.uint8]]:
    return {
        (slices[number].volume, slices[number].slice): scored.pictures[number]
        for number in _by_suspicion(slices)[:PICTURES]
        if number in scored.pictures
    }


def _reference_pictures(
    cohort: Cohort, slices: Sequence[SliceResult]
) -> dict[int, NDArray[np.uint8]]:
    rows = {
        row
        for number in _by_suspicion(slices)[:PICTURES]
        if (row := slices[number].nearest_row) is not None
    }
    if cohort.thumbnails is not None:
        return {row: np.array(cohort.thumbnails[row]) for row in rows}
    return {row: thumbnail(pixels) for row, pixels in reference_pixels(cohort, rows).items()}
