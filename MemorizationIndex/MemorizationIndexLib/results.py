"""What an audit found: per slice, per volume and as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray


class Verdict(str, Enum):
    """The finding for one slice; the value is the string users see."""

    COPY = "copy"
    SUSPICIOUS = "suspicious"
    NO_EVIDENCE = "no evidence"
    NOT_SCORED = "not scored"

    @property
    def letter(self) -> str:
        """One letter, so that colour never carries the meaning alone: C, S, – or ×."""
        return {"copy": "C", "suspicious": "S", "no evidence": "–", "not scored": "×"}[self.value]


WHOLE, PART = "slice", "part"
"""What flagged a slice: its similarity as a whole, or that of a part of it."""


@dataclass(frozen=True)
class SliceResult:
    """The finding for one slice. Numbers are None where the slice was not scored.

    Attributes:
        volume: Name of the query volume.
        subject: Subject of the query volume.
        slice: Index along the slice axis as stored, or the manifest's label.
        verdict: The finding.
        reason: Why the slice was not scored; empty otherwise.
        similarity: Aggregated similarity to the nearest reference slices, in [0, 1].
        mi: Memorization Index, standard deviations above the null's mean.
        oni: −tanh(MI): −1 copy, 0 typical, +1 novel.
        p_value: Share of the null at or above this slice's statistic, never 0.
        q_value: Benjamini–Hochberg over the scored slices of the run.
        nearest_subject: Subject of the nearest reference slice.
        nearest_volume: Volume of the nearest reference slice.
        nearest_slice: Index of the nearest reference slice in that volume.
        nearest_row: Row of the nearest reference slice in the cohort.
        margin: Similarity to the nearest subject minus that to the second-nearest subject.
        consensus: How many layers name the nearest slice's subject as the nearest.
        layer_similarity: Largest cosine per layer, in the order of ``AuditSummary.layers``.
        source: File the slice came from.
        nearest_source: Name of the file of the nearest reference slice, without its folder; empty
            if the cohort is anonymized.
        pose: How the query stands to the nearest reference slice, in words; empty if as it is.
        ssim: Mean SSIM with that slice laid over the query; None if it was not.
        ncc: Normalised cross-correlation with it laid over the query; None if it was not.
        verified: Whether both stand out from pairs of different patients; None if not tried.
        flagged_by: What flagged it: ``slice``, ``part``, or ``slice and part``; empty if nothing
            did. A part alone makes a slice suspicious, never a copy.
        part_p_value: Share of the null of parts at or above the best part, never 0; None, as the
            other fields of the part, where parts were not searched.
        part_similarity: Mean local correlation of that part with the reference, in [0, 1].
        part_subject: Subject of the reference slice that the part is most like.
        part_volume: Volume of that reference slice.
        part_slice: Index of that reference slice in its volume.
        part_row: Row of that reference slice in the cohort.
        part_window: Top, bottom, left and right of the part, as shares of the side of the padded
            slice.
        part_pose: How the part stands to that reference slice, in words; empty if as it is.
        domain: What puts the slice outside the images that the method is validated on; empty where
            nothing says so.
    """

    volume: str
    subject: str
    slice: int
    verdict: Verdict
    reason: str = ""
    similarity: float | None = None
    mi: float | None = None
    oni: float | None = None
    p_value: float | None = None
    q_value: float | None = None
    nearest_subject: str | None = None
    nearest_volume: str | None = None
    nearest_slice: int | None = None
    nearest_row: int | None = None
    margin: float | None = None
    consensus: int | None = None
    layer_similarity: tuple[float, ...] = ()
    source: str = ""
    nearest_source: str = ""
    pose: str = ""
    ssim: float | None = None
    ncc: float | None = None
    verified: bool | None = None
    flagged_by: str = ""
    part_p_value: float | None = None
    part_similarity: float | None = None
    part_subject: str | None = None
    part_volume: str | None = None
    part_slice: int | None = None
    part_row: int | None = None
    part_window: tuple[float, float, float, float] | None = None
    part_pose: str = ""

    @property
    def least_p(self) -> float | None:
        """The smaller p-value of what flagged it, which its place in a list goes by."""
        if self.p_value is None or self.part_p_value is None or PART not in self.flagged_by:
            return self.p_value
        return min(self.p_value, self.part_p_value)

    domain: str = ""


@dataclass(frozen=True)
class VolumeResult:
    """The finding for one volume.

    Attributes:
        volume: Name of the query volume.
        subject: Its subject.
        slices: Number of slices, scored or not.
        scored: Number of scored slices.
        copies: Slices with the verdict ``copy``.
        suspicious: Slices with the verdict ``suspicious``.
        share_flagged: (copies + suspicious) / scored; None if nothing was scored.
        mean_oni: Mean ONI of the scored slices; None if nothing was scored.
        lowest_oni: Lowest ONI of the scored slices; None if nothing was scored.
        nearest_subject: The subject that most flagged slices copy; None without flagged slices.
        longest_run: Longest run of consecutive flagged slices, unscored ones left out, whose
            matches advance through one reference subject.
        verdict: The gravest verdict among its slices.
    """

    volume: str
    subject: str
    slices: int
    scored: int
    copies: int
    suspicious: int
    share_flagged: float | None
    mean_oni: float | None
    lowest_oni: float | None
    nearest_subject: str | None
    longest_run: int
    verdict: Verdict


@dataclass(frozen=True)
class TransformationPower:
    """What the audit sees of copies under one disguise.

    Attributes:
        name: Name of the transformation, as in ``transformations.TRANSFORMATIONS``.
        description: The transformation in words.
        power_suspicious: Share of known copies flagged ``suspicious`` or ``copy``.
        power_copy: Share of known copies called ``copy``.
        seen: Whether the median control lies above the null's (1−α) quantile.
        samples: Number of known copies tried.
    """

    name: str
    description: str
    power_suspicious: float
    power_copy: float
    seen: bool
    samples: int


@dataclass(frozen=True)
class AuditSummary:
    """Everything that must stand beside a result (METHOD.md section 3).

    Attributes:
        finding: The result in one sentence.
        alpha: Significance level asked for.
        certifiable_alpha: Smallest level the null can certify, 1 / (subjects + 1).
        protocol: ``calibrated``, ``paper`` or ``reference``.
        rule: The verdict rule in one sentence, with its numbers.
        encoder: Name of the encoder.
        encoder_description: The encoder in one honest sentence.
        fingerprint: The encoder's fingerprint.
        layers: Layer names, fine to coarse.
        widths: Features per layer.
        shrinkage: Shrinkage intensity per layer (0 none, 1 full).
        reference_slices: Number N of scored reference slices.
        reference_subjects: Number of reference subjects.
        null_mean: Mean of the null similarities.
        null_sd: Standard deviation of the null similarities.
        null_size: Number of null similarities.
        exact_copy_mi: MI of an exact copy: the ceiling.
        suspicious_threshold: Statistic at the null's (1−α) quantile; None where undefined.
        copy_threshold: Statistic of known copies that ``copy`` asks for; None where undefined.
        statistic: Name of the statistic that p-values and thresholds live on.
        power: One row per transformation.
        slices: Number of query slices.
        scored: Number of scored query slices.
        copies: Number of ``copy`` verdicts.
        suspicious: Number of ``suspicious`` verdicts.
        mean_oni: Mean ONI of the set; None if nothing was scored.
        subject_rule: How the query's subjects were identified.
        cohort: Name of the cohort.
        anonymized: Whether reference subject names are hashes.
        refused: Inputs that were not read, as (path, sentence).
        warnings: Sentences the reader must know.
        version: Version of this library.
        created: Time of the audit, ISO 8601, UTC.
        share: Estimated share of copies in the set; None where it cannot be estimated.
        share_low: Lower end of its 95 % interval.
        share_high: Upper end of it.
        share_note: Why there is no estimate; empty if there is one.
        verification: The rule of verification, or why matches were not verified; empty if there
            was nothing to verify.
        part_threshold: Similarity above which a part stands out; None where none were searched.
        part_suspicious: Slices that are suspicious for a part of them alone.
        part_note: Why copied parts were not searched; empty if they were.
    """

    finding: str
    alpha: float
    certifiable_alpha: float
    protocol: str
    rule: str
    encoder: str
    encoder_description: str
    fingerprint: str
    layers: tuple[str, ...]
    widths: tuple[int, ...]
    shrinkage: tuple[float, ...]
    reference_slices: int
    reference_subjects: int
    null_mean: float
    null_sd: float
    null_size: int
    exact_copy_mi: float
    suspicious_threshold: float | None
    copy_threshold: float | None
    statistic: str
    power: tuple[TransformationPower, ...]
    slices: int
    scored: int
    copies: int
    suspicious: int
    mean_oni: float | None
    subject_rule: str
    cohort: str
    anonymized: bool
    refused: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    version: str
    created: str
    share: float | None = None
    share_low: float | None = None
    share_high: float | None = None
    share_note: str = ""
    verification: str = ""
    part_threshold: float | None = None
    part_suspicious: int = 0
    part_note: str = ""


@dataclass(frozen=True)
class MatchPictures:
    """A match laid over the query, to look at.

    Attributes:
        query: The query, uint8 (P, P).
        match: The match laid over it, black where it does not reach, uint8 (P, P).
        difference: Query minus match, 128 where equal, uint8 (P, P).
        checkerboard: Fields of the query and the match in turn, uint8 (P, P).
        similarity: How alike they are around each pixel, float32 (P, P) in [0, 1].
    """

    query: NDArray[np.uint8]
    match: NDArray[np.uint8]
    difference: NDArray[np.uint8]
    checkerboard: NDArray[np.uint8]
    similarity: NDArray[np.float32]


@dataclass(frozen=True)
class PartPictures:
    """A slice of which a part stands out, and the reference slice, to look at.

    Attributes:
        query: The query, uint8 (P, P).
        reference: The reference slice, turned as the part is, uint8 (P, P).
    """

    query: NDArray[np.uint8]
    reference: NDArray[np.uint8]


@dataclass(frozen=True)
class AuditResult:
    """All that an audit found, with the calibration it rests on.

    Attributes:
        slices: One per query slice, grouped by volume, in anatomical order.
        volumes: One per query volume.
        summary: What must stand beside the numbers.
        null: Null statistics, shape (n,).
        control: Statistics of known copies by transformation name, each of shape (m,).
        statistics: Statistic of each scored slice, in the order of ``slices``, shape (scored,); on
            the scale of ``null`` and ``control``.
        pictures: Thumbnails, uint8 (P, P), by (volume, slice) of the query.
        reference_pictures: Thumbnails, uint8 (P, P), by reference row.
        match_pictures: Matches of the most suspicious flagged slices, by (volume, slice).
        part_pictures: Slices of which a part stands out, by (volume, slice).
    """

    slices: tuple[SliceResult, ...]
    volumes: tuple[VolumeResult, ...]
    summary: AuditSummary
    null: NDArray[np.float64]
    control: dict[str, NDArray[np.float64]]
    statistics: NDArray[np.float64]
    pictures: dict[tuple[str, int], NDArray[np.uint8]] = field(default_factory=dict)
    reference_pictures: dict[int, NDArray[np.uint8]] = field(default_factory=dict)
    match_pictures: dict[tuple[str, int], MatchPictures] = field(default_factory=dict)
    part_pictures: dict[tuple[str, int], PartPictures] = field(default_factory=dict)
