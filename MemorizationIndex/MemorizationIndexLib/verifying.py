"""An audit's flagged slices, each with its match laid over it → the audit with what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from MemorizationIndexLib.cohort.cohort import Cohort
from MemorizationIndexLib.comparison.registration import Pixels
from MemorizationIndexLib.encoders.encoder import Encoder
from MemorizationIndexLib.evidence.flagged import (
    MOST_VERIFIED,
    FlaggedSlice,
    reduced,
    verify_flagged,
)
from MemorizationIndexLib.findings import FLAGGED, by_suspicion
from MemorizationIndexLib.images.streaming import stream_volumes
from MemorizationIndexLib.images.volume import Volume
from MemorizationIndexLib.index.poses import FLIPS, Pose, reference_poses, seen_pose
from MemorizationIndexLib.progress import (
    CancelFunction,
    Progress,
    ProgressFunction,
    check,
    never,
    quiet,
)
from MemorizationIndexLib.results import PART, AuditResult, MatchPictures, SliceResult


def verified_slices(
    slices: Sequence[SliceResult],
    pixels: Mapping[int, Pixels],
    poses: Mapping[int, Pose],
    cohort: Cohort,
    encoder: Encoder,
    *,
    alpha: float,
    progress: ProgressFunction = quiet,
    cancelled: CancelFunction = never,
) -> tuple[list[SliceResult], dict[tuple[str, int], MatchPictures], str]:
    """Lay the matches over the flagged slices that are at hand.

    Args:
        slices: All slices of an audit.
        pixels: Those to verify, by position in ``slices``, each from ``flagged.reduced``.
        poses: How they stand to their matches, by position.
        cohort: The cohort they matched.
        encoder: The cohort's.
        alpha: Significance level.
        progress: Told of the progress.
        cancelled: Asked between pairs.

    Returns:
        The slices with those that were verified, pictures of their matches, and the rule.
    """
    numbers = [number for number in _flagged(slices) if number in pixels]
    flagged = [
        FlaggedSlice(pixels[number], row, poses[number])
        for number in numbers
        if (row := slices[number].nearest_row) is not None
    ]
    found = verify_flagged(
        flagged, cohort, encoder, alpha=alpha, progress=progress, cancelled=cancelled
    )
    slices, pictures = list(slices), {}
    for position, one in found.slices.items():
        number = numbers[position]
        slices[number] = replace(slices[number], ssim=one.ssim, ncc=one.ncc, verified=one.verified)
        if one.pictures is not None:
            pictures[slices[number].volume, slices[number].slice] = one.pictures
    sentence = found.sentence
    if len(_flagged(slices)) > len(flagged):
        sentence += f" Only the {len(flagged)} most suspicious slices were tried."
    return slices, pictures, sentence


def verify_result(
    result: AuditResult,
    volumes: Sequence[Volume],
    cohort: Cohort,
    encoder: Encoder,
    *,
    plane: str | None = None,
    progress: ProgressFunction = quiet,
    cancelled: CancelFunction = never,
) -> AuditResult:
    """Verify a result that was made without verification; nothing is encoded or matched again.

    Args:
        result: What was found in ``volumes``.
        volumes: With the names that the result has; only volumes with flagged slices are read.
        cohort: The cohort they were compared with.
        encoder: The cohort's.
        plane: The plane that was scored; the cohort's if None.
        progress: Told of the progress.
        cancelled: Asked between volumes and between pairs.

    Returns:
        The same findings, with what verification says of them.
    """
    slices = result.slices
    wanted = {
        (slices[number].volume, slices[number].slice): number
        for number in _flagged(slices)[:MOST_VERIFIED]
    }
    named = {name for name, _ in wanted}
    flagged = [volume for volume in volumes if volume.name in named]
    pixels: dict[int, Pixels] = {}
    for done, volume in enumerate(flagged):
        check(cancelled)
        progress(Progress("Reading the flagged slices", done, len(flagged), "volumes"))
        if not volume.planar:
            of_volume = tuple(sorted(index for name, index in wanted if name == volume.name))
            volume = replace(volume, selected=of_volume)
        cut = stream_volumes(
            [volume], plane or cohort.facts.plane, cohort.facts.input_size, _cannot_refuse
        )
        for one in cut:
            number = wanted.get((one.volume, one.index))
            if number is not None and one.pixels is not None:
                pixels[number] = reduced(one.pixels)
    # Crops of the same name differ in nothing that verification starts from.
    by_label = {
        pose.label: pose
        for stored in reference_poses(encoder, robust=cohort.facts.robust)
        for pose in (seen_pose(stored, flip) for flip in FLIPS)
    }
    found, pictures, sentence = verified_slices(
        slices,
        pixels,
        {number: by_label[slices[number].pose] for number in pixels},
        cohort,
        encoder,
        alpha=result.summary.alpha,
        progress=progress,
        cancelled=cancelled,
    )
    return replace(
        result,
        slices=tuple(found),
        summary=replace(result.summary, verification=sentence),
        match_pictures=pictures,
    )


def _flagged(slices: Sequence[SliceResult]) -> list[int]:
    """Return the positions of what is flagged as a whole, most suspicious first.

    The match of a slice that a part alone makes suspicious would not fit, and need not.
    """
    return [
        number
        for number in by_suspicion(slices)
        if slices[number].verdict in FLAGGED and slices[number].flagged_by != PART
    ]


def _cannot_refuse(place: str, why: str) -> None:
    raise AssertionError(f"{place} was scored, yet now: {why}")
