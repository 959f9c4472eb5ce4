"""The main job: query images and a cohort → what was copied, from whom, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from MemorizationIndexLib.cohort.building import expected_slices, nothing_left
from MemorizationIndexLib.cohort.cohort import Cohort, check_encoder, encoder_of
from MemorizationIndexLib.cohort.store import load_cohort
from MemorizationIndexLib.encoders.cache import CachedEncoder, open_cache
from MemorizationIndexLib.encoders.encoder import Encoder
from MemorizationIndexLib.encoders.registry import choice_sentences, get_encoder
from MemorizationIndexLib.encoding import encode_slices
from MemorizationIndexLib.findings import (
    Scored,
    seen_poses,
    slice_results,
    undefined_results,
    volume_results,
)
from MemorizationIndexLib.gallery import (
    FlaggedKeeper,
    Gallery,
    query_pictures,
    read_matches,
    reference_pictures,
)
from MemorizationIndexLib.images.finding import find_images
from MemorizationIndexLib.images.streaming import Refuse, stream_images, stream_volumes
from MemorizationIndexLib.images.volume import ImageError, Slice, Volume
from MemorizationIndexLib.index.matching import make_matcher
from MemorizationIndexLib.index.poses import Pose, query_views
from MemorizationIndexLib.index.protocols import CalibrationError
from MemorizationIndexLib.index.scores import null_spread
from MemorizationIndexLib.index.verdict import ALPHA, Thresholds, find_thresholds
from MemorizationIndexLib.part_search import PartSearch, why_no_search
from MemorizationIndexLib.progress import (
    CancelFunction,
    Progress,
    ProgressFunction,
    check,
    never,
    quiet,
)
from MemorizationIndexLib.results import AuditResult, MatchPictures, PartPictures
from MemorizationIndexLib.summary import summarize, with_share
from MemorizationIndexLib.verifying import verified_slices


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
        parts: Whether copied parts are searched, where the cohort was built for it.
    """

    alpha: float = ALPHA
    plane: str | None = None
    encoder: str | None = None
    device: str = "auto"
    cache: bool = True
    pictures: bool = True
    verify: bool = True
    parts: bool = True


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
        name = encoder_of(cohort, options.encoder)
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
    part_note = why_no_search(cohort, wanted=options.parts, alpha=options.alpha)
    parts = None if part_note else PartSearch(cohort, encoder, options.alpha)
    scored = _match(queries, cohort, options, encoder, thresholds, parts, progress, cancelled)
    poses = seen_poses(scored, cohort, encoder)
    if thresholds is not None:
        slices, similarity = slice_results(scored, cohort, thresholds, poses)
    else:
        slices, similarity = undefined_results(scored, cohort), np.zeros(0)
    match_pictures: dict[tuple[str, int], MatchPictures] = {}
    verification = ""
    if options.pictures:
        progress(Progress("Gathering pictures", 0, 0, "pictures"))
        read_matches(cohort, slices, cancelled)
    if options.verify:
        matched = [number for number, one in enumerate(scored.slices) if not one.reason]
        slices, match_pictures, verification = verified_slices(
            slices,
            scored.flagged,
            dict(zip(matched, poses, strict=True)),
            cohort,
            encoder,
            alpha=options.alpha,
            progress=progress,
            cancelled=cancelled,
        )
    part_pictures: dict[tuple[str, int], PartPictures] = {}
    if parts is not None:
        slices, part_pictures = parts.told(slices)
    volumes = volume_results(slices)
    summary = summarize(
        slices,
        volumes,
        cohort,
        encoder,
        options.alpha,
        thresholds,
        subject_rule=queries.subject_rule,
        refused=(*queries.refused, *scored.refused),
        warnings=queries.warnings,
    )
    summary = replace(
        with_share(summary, slices, similarity, cohort),
        verification=verification,
        part_note=part_note,
    )
    if parts is not None:
        summary = parts.in_summary(summary, slices)
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
        result = replace(
            result,
            pictures=query_pictures(scored, slices),
            reference_pictures=reference_pictures(cohort, slices),
            match_pictures=match_pictures,
            part_pictures=part_pictures,
        )
    return result


def _match(
    queries: _Queries,
    cohort: Cohort,
    options: AuditOptions,
    encoder: Encoder,
    thresholds: Thresholds | None,
    parts: PartSearch | None,
    progress: ProgressFunction,
    cancelled: CancelFunction,
) -> Scored:
    facts = cohort.facts
    match = make_matcher(
        cohort.reference,
        cohort.features,
        cohort.protocol,
        query_views(encoder, robust=facts.robust),
    )
    scored = Scored()
    stream = queries.stream(
        options.plane or facts.plane,
        facts.input_size,
        lambda place, why: scored.refused.append((place, why)),
    )
    gallery = Gallery()
    keeper = FlaggedKeeper(thresholds)
    with CachedEncoder(encoder, open_cache(limit=None if options.cache else 0)) as cached:
        for batch in encode_slices(stream, cached, (Pose(),)):
            check(cancelled)
            matches = match([layer[0] for layer in batch.features])
            scored.matches.append(matches)
            first = len(scored.slices)
            numbers = [n for n, one in enumerate(batch.slices, first) if one.pixels is not None]
            pixels = [one.pixels for one in batch.scored if one.pixels is not None]
            standing_out = np.zeros(len(numbers), bool)
            if parts is not None:
                standing_out = parts.add(numbers, pixels, [layer[0] for layer in batch.features])
            for number, picture, similarity, part in zip(
                numbers, pixels, np.nan_to_num(matches.similarity), standing_out, strict=True
            ):
                if options.pictures:
                    gallery.offer(number, np.inf if part else float(similarity), picture)
                if options.verify:
                    keeper.offer(number, float(similarity), picture)
            scored.slices += [replace(one, pixels=None) for one in batch.slices]
            done = len(scored.slices)
            progress(Progress("Scoring", done, max(done, queries.slice_count)))
    scored.pictures = gallery.pictures
    scored.flagged = keeper.most_similar()
    if not scored.slices:
        raise ImageError(nothing_left([*queries.refused, *scored.refused]))
    return scored
