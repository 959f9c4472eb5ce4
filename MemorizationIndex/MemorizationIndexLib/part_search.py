"""Copied parts of query slices: searched while they stream by, then told with the findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.cohort.cohort import Cohort
from MemorizationIndexLib.comparison.part_reference import part_encoder
from MemorizationIndexLib.comparison.parts import (
    CLEARANCE,
    PartMatches,
    PartThreshold,
    encode_parts,
    find_parts,
    flipped,
    part_pictures,
    part_threshold,
)
from MemorizationIndexLib.encoders.encoder import Encoder
from MemorizationIndexLib.index.poses import FLIPS
from MemorizationIndexLib.index.scores import p_values
from MemorizationIndexLib.index.similarity import Layers
from MemorizationIndexLib.index.verdict import ALPHA
from MemorizationIndexLib.results import (
    PART,
    AuditSummary,
    PartPictures,
    SliceResult,
    TransformationPower,
    Verdict,
)

MOST_PICTURED = 200
"""Parts that stand out most, of which pictures are kept."""

NOT_KEPT = "the cohort holds no parts to search: build it with --parts"
OTHER_VERSION = (
    "the cohort's parts are another version's: build it again with --parts, or score with the "
    "library that built it"
)
NOT_WANTED = "not asked for"
UNSEEN = "known copies of a part do not stand out in this cohort, so nothing could be told"


class PartSearch:
    """The search for copied parts in one run.

    Attributes:
        threshold: Similarity above which a part stands out.
    """

    def __init__(self, cohort: Cohort, encoder: Encoder, alpha: float) -> None:
        """Prepare the search.

        Args:
            cohort: A cohort that holds parts.
            encoder: Of the run; its features are used where it is the built-in one.
            alpha: Significance level.
        """
        assert cohort.parts is not None
        self.cohort, self.reference = cohort, cohort.parts
        self.encoder = part_encoder()
        self.borrows = encoder.fingerprint == self.encoder.fingerprint
        self.threshold: PartThreshold = part_threshold(self.reference.null, alpha)
        self.numbers: list[int] = []
        self.matches: list[PartMatches] = []
        self.kept: dict[int, tuple[float, NDArray[np.uint8]]] = {}

    def add(
        self, numbers: Sequence[int], pixels: Sequence[NDArray[np.float32]], features: Layers
    ) -> NDArray[np.bool_]:
        """Search parts of some slices.

        Args:
            numbers: Positions of the slices in the run.
            pixels: Normalised slices, each of shape (S, S).
            features: From the run's encoder, one (n, D) array per layer.

        Returns:
            Whether a part of each slice stands out.
        """
        pictures = part_pictures(pixels)
        own = features if self.borrows else encode_parts(pixels, self.encoder)
        matches = find_parts(self.reference, self.encoder, own, pictures)
        self.numbers += numbers
        self.matches.append(matches)
        found = matches.similarity > self.threshold.similarity
        for place in np.flatnonzero(found).tolist():
            self.kept[numbers[place]] = float(matches.similarity[place]), pictures[place]
        if len(self.kept) > 2 * MOST_PICTURED:
            ranked = sorted(self.kept, key=lambda number: -self.kept[number][0])
            self.kept = {number: self.kept[number] for number in ranked[:MOST_PICTURED]}
        return found

    def told(
        self, slices: Sequence[SliceResult]
    ) -> tuple[list[SliceResult], dict[tuple[str, int], PartPictures]]:
        """Return the findings with what was found of parts, and pictures of those that stand out.

        A slice without other evidence of which a part stands out becomes suspicious, never a copy.
        """
        told = list(slices)
        pictures: dict[tuple[str, int], PartPictures] = {}
        if not self.numbers:
            return told, pictures
        joined = _joined(self.matches)
        p = p_values(joined.similarity, self.reference.null)
        found = joined.similarity > self.threshold.similarity
        for place, number in enumerate(self.numbers):
            one = told[number]
            if one.verdict is Verdict.NOT_SCORED:
                continue
            row, flip = int(joined.rows[place]), int(joined.flips[place])
            told[number] = self._with_part(one, joined, place, float(p[place]), bool(found[place]))
            if found[place] and number in self.kept:
                pictures[one.volume, one.slice] = PartPictures(
                    self.kept[number][1], flipped(np.asarray(self.reference.pictures[row]), flip)
                )
        return told, pictures

    def _with_part(
        self, one: SliceResult, matches: PartMatches, place: int, p: float, found: bool
    ) -> SliceResult:
        row = int(matches.rows[place])
        facts = self.cohort.facts
        top, bottom, left, right = (float(share) for share in matches.windows[place])
        alone = found and one.verdict is Verdict.NO_EVIDENCE
        verdict = Verdict.SUSPICIOUS if alone else one.verdict
        return replace(
            one,
            verdict=verdict,
            flagged_by=" and ".join(filter(None, [one.flagged_by, PART if found else ""])),
            part_p_value=p,
            part_similarity=float(matches.similarity[place]),
            part_subject=facts.subjects[int(self.cohort.reference.subjects[row])],
            part_volume=facts.volumes[int(self.cohort.volume_codes[row])],
            part_slice=int(self.cohort.indices[row]),
            part_row=row,
            part_window=(top, bottom, left, right),
            part_pose=FLIPS[int(matches.flips[place])].label,
        )

    def in_summary(self, summary: AuditSummary, slices: Sequence[SliceResult]) -> AuditSummary:
        """Return the summary with the rule for parts and what it finds of known copies."""
        known = self.reference.known
        power = TransformationPower(
            name="part",
            description="a quarter of the slice, pasted in place into a slice of someone else",
            power_suspicious=float(np.mean(known > self.threshold.similarity)),
            power_copy=0.0,
            seen=bool(np.median(known) > self.threshold.similarity),
            samples=len(known),
        )
        return replace(
            summary,
            rule=f"{summary.rule} {rule_sentence(self.threshold)}",
            power=(*summary.power, power) if len(known) else summary.power,
            part_threshold=self.threshold.similarity,
            part_suspicious=sum(one.flagged_by == PART for one in slices),
        )


def why_no_search(cohort: Cohort, *, wanted: bool, alpha: float = ALPHA) -> str:
    """Return why copied parts are not searched; empty if they are.

    A null of slices that show too little to be compared would let anything stand out; known copies
    of parts then show as little.
    """
    if not wanted:
        return NOT_WANTED
    parts = cohort.parts
    if parts is None:
        return OTHER_VERSION if cohort.facts.parts else NOT_KEPT
    threshold = part_threshold(parts.null, alpha).similarity
    if len(parts.known) and np.median(parts.known) <= threshold:
        return UNSEEN
    return ""


def parts_in_words(cohort: Cohort) -> str:
    """Say whether copied parts can be searched in a cohort, and what is stored for it."""
    if cohort.parts is None:
        return f"not searched: {why_no_search(cohort, wanted=True)}"
    side = cohort.parts.pictures.shape[1]
    return f"searched; pictures of {side} pixels of all slices are stored for it"


def rule_sentence(threshold: PartThreshold) -> str:
    """Return the rule for parts in one sentence, with its numbers."""
    return (
        "A slice is suspicious, but never called a copy, also if the correlation of a part of it, "
        "half its side wide, with the same part of a reference slice exceeds "
        f"{threshold.similarity:.4f}, which at most {100 * threshold.level:.2g} % of the slices of "
        f"patients outside the reference do and which lies at least {CLEARANCE:g} standard "
        "deviations above their mean."
    )


def _joined(matches: Sequence[PartMatches]) -> PartMatches:
    def all_of(name: str) -> NDArray:
        return np.concatenate([getattr(one, name) for one in matches])

    return PartMatches(all_of("similarity"), all_of("rows"), all_of("flips"), all_of("windows"))
