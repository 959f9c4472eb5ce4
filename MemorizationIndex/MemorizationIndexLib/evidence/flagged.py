"""The flagged slices of an audit, each with its match laid over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from MemorizationIndexLib.cohort.cohort import Cohort
from MemorizationIndexLib.cohort.pictures import reference_pixels
from MemorizationIndexLib.comparison.errors import ComparisonError
from MemorizationIndexLib.comparison.nearest_pairs import nearest_pairs
from MemorizationIndexLib.comparison.patients_apart import (
    lay_apart,
    reduced,
    registration_start,
)
from MemorizationIndexLib.comparison.placement import Pixels
from MemorizationIndexLib.comparison.verification import (
    Verification,
    VerificationNull,
    checkerboard,
    difference,
    verify,
)
from MemorizationIndexLib.encoders.encoder import Encoder
from MemorizationIndexLib.evidence.localization import similarity_map
from MemorizationIndexLib.index.poses import Pose, query_views, reference_poses
from MemorizationIndexLib.progress import CancelFunction, Progress, ProgressFunction, check
from MemorizationIndexLib.results import MatchPictures

MOST_VERIFIED = 200
"""Most suspicious slices that are verified; a person looks at no more."""

MOST_PICTURED = 20
"""Most suspicious slices whose match is pictured."""

PICTURE_SIDE = 144
"""Side of a picture in pixels."""

STAGE = "Verifying"


@dataclass(frozen=True)
class FlaggedSlice:
    """A flagged slice with its match.

    Attributes:
        pixels: The slice, from ``reduced``.
        row: Number of the matched reference slice.
        pose: How the slice stands to it.
    """

    pixels: Pixels
    row: int
    pose: Pose


@dataclass(frozen=True)
class VerifiedSlice:
    """What came of one flagged slice.

    Attributes:
        ssim: See ``verification.Verification``.
        ncc: See ``verification.Verification``.
        verified: See ``verification.Verification``.
        pictures: To look at; None but for the first ``MOST_PICTURED``.
    """

    ssim: float
    ncc: float
    verified: bool
    pictures: MatchPictures | None


@dataclass(frozen=True)
class Verified:
    """What came of all flagged slices.

    Attributes:
        slices: By position among the flagged slices; those that could not be verified are missing.
        sentence: The rule, and what was not verified and why.
    """

    slices: dict[int, VerifiedSlice] = field(default_factory=dict)
    sentence: str = ""


def verify_flagged(
    flagged: Sequence[FlaggedSlice],
    cohort: Cohort,
    encoder: Encoder,
    *,
    alpha: float,
    progress: ProgressFunction,
    cancelled: CancelFunction,
) -> Verified:
    """Lay the match over each flagged slice and judge it against pairs of different patients.

    The null is the cohort's, or made when the first slice is flagged and kept as long as the cohort
    is loaded.

    Args:
        flagged: Most suspicious first.
        cohort: Its images must be where they were when it was built.
        encoder: The cohort's.
        alpha: Significance level.
        progress: Told of the progress.
        cancelled: Asked between pairs.

    Raises:
        CancelledError: ``cancelled`` said so.
    """
    if not flagged:
        return Verified()
    if not any(cohort.sources):
        return Verified(
            sentence="Matches were not verified: the cohort does not know where its images are."
        )
    flagged = flagged[:MOST_VERIFIED]
    progress(Progress(STAGE, 0, 0, "pairs"))
    pixels = _pixels(cohort, sorted({one.row for one in flagged}), cancelled)
    at_hand = [number for number, one in enumerate(flagged) if one.row in pixels]
    if not at_hand:
        return Verified(
            sentence="Matches were not verified: their images are gone, changed or not readable."
        )
    try:
        null = _null(cohort, encoder, alpha, progress, cancelled)
    except ComparisonError as error:
        return Verified(sentence=f"Matches were not verified: {_lowered(str(error))}")
    found = {}
    for done, number in enumerate(at_hand):
        check(cancelled)
        progress(Progress(STAGE, done, len(at_hand), "pairs"))
        one = flagged[number]
        reference = pixels[one.row]
        verification = verify(one.pixels, reference, null, start=registration_start(one.pose))
        found[number] = VerifiedSlice(
            verification.ssim,
            verification.ncc,
            verification.verified,
            _pictures(one.pixels, reference, verification) if number < MOST_PICTURED else None,
        )
    progress(Progress(STAGE, len(at_hand), len(at_hand), "pairs"))
    sentence = null.rule
    if len(at_hand) < len(flagged):
        sentence += (
            f" {len(flagged) - len(at_hand)} of {len(flagged)} flagged slices were not verified: "
            "the image of their match is gone, changed or not readable."
        )
    return Verified(found, sentence)


def _null(
    cohort: Cohort,
    encoder: Encoder,
    alpha: float,
    progress: ProgressFunction,
    cancelled: CancelFunction,
) -> VerificationNull:
    apart = cohort.patients_apart or cohort.memory.get(STAGE)
    if apart is None:
        robust = cohort.facts.robust
        pairs = nearest_pairs(
            cohort.reference,
            cohort.features,
            cohort.facts.seed,
            reference_poses(encoder, robust=robust),
            query_views(encoder, robust=robust),
        )
        apart = cohort.memory[STAGE] = lay_apart(
            pairs,
            lambda rows: _pixels(cohort, rows, cancelled),
            stage=STAGE,
            progress=progress,
            cancelled=cancelled,
        )
    return VerificationNull(apart.ssim, apart.ncc, alpha)


def _pixels(cohort: Cohort, rows: Sequence[int], cancelled: CancelFunction) -> dict[int, Pixels]:
    read = reference_pixels(cohort, rows, between_files=lambda: check(cancelled))
    return {row: reduced(pixels) for row, pixels in read.items()}


def _pictures(query: Pixels, reference: Pixels, verification: Verification) -> MatchPictures:
    registration = verification.registration
    return MatchPictures(
        query=_small((query * 255).round().astype(np.uint8)),
        match=_small((registration.pixels.clip(0, 1) * 255).round().astype(np.uint8)),
        difference=_small(difference(query, registration)),
        checkerboard=_small(checkerboard(query, registration)),
        similarity=_small(similarity_map(query, reference, registration)),
    )


def _small(pixels: NDArray) -> NDArray:
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    side = min(PICTURE_SIDE, len(pixels))
    small = np.asarray(picture.resize((side, side), Image.Resampling.BOX))
    return small.clip(0, 1) if small.dtype == np.float32 else small


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
