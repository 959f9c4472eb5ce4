"""Made-up audits of every shape, to look at and to test the report with."""

from __future__ import annotations

import dataclasses

import numpy as np

from MemorizationIndexLib.phantoms import make_patient
from MemorizationIndexLib.results import (
    AuditResult,
    AuditSummary,
    SliceResult,
    TransformationPower,
    Verdict,
    VolumeResult,
)

HOSTILE = (
    "<script>alert('x')</script>",
    '"><img src=x onerror=alert(1)>',
    "Müller-Ångström_größe",
    "合成脳画像_患者",
    "{{ 7 * 7 }} {% raw %}",
    '=HYPERLINK("http://example.invalid")',
    "a name with spaces & ampersands",
    "a_very_long_name_without_any_place_to_break_" * 4,
)
SUSPICIOUS, COPY = 0.42, 0.71

POWER = tuple(
    TransformationPower(name, words, flagged, copied, seen, 120)
    for name, words, flagged, copied, seen in (
        ("exact", "an exact copy", 1.0, 1.0, True),
        ("noise_0.01", "Gaussian noise of 1 % of full scale", 1.0, 1.0, True),
        ("noise_0.02", "Gaussian noise of 2 % of full scale", 1.0, 0.992, True),
        ("intensity", "intensity scaled by 0.9 to 1.1", 1.0, 1.0, True),
        ("rot3", "rotated by up to 3 degrees", 0.9995, 0.975, True),
        ("rot5", "rotated by up to 5 degrees", 0.983, 0.95, True),
        ("shift", "shifted by 4 pixels", 0.942, 0.93, True),
        ("hflip", "flipped left to right", 0.017, 0.0, False),
        ("vflip", "flipped top to bottom", 0.008, 0.0, False),
    )
)


def example(
    lengths: tuple[int, ...] = (24, 18, 22, 300, 1, 20, 9, 12, 14),
    *,
    copies: int = 7,
    seed: int = 0,
    pictures: bool = True,
    names: tuple[str, ...] = ("synthetic-01", *HOSTILE),
) -> AuditResult:
    """Return an audit of volumes of these lengths; the first holds ``copies`` copies in a run."""
    rng = np.random.default_rng(seed)
    slices: list[SliceResult] = []
    statistics: list[float] = []
    for number, length in enumerate(lengths):
        volume = names[number] if number < len(names) else f"synthetic-{number + 1:03d}"
        for index in range(length):
            if length > 2 and (index < 2 or index >= length - 2):
                slices.append(
                    SliceResult(volume, f"s{number}", index, Verdict.NOT_SCORED, "blank slice")
                )
                continue
            copied = number == 0 and 4 <= index < 4 + copies
            value = rng.uniform(0.75, 0.98) if copied else float(rng.normal(0.2, 0.07))
            if number == 1 and index in (5, 9):
                value = 0.5
            slices.append(_scored(rng, volume, f"s{number}", index, value, copied))
            statistics.append(value)
    volumes = tuple(
        _volume(name, [one for one in slices if one.volume == name])
        for name in dict.fromkeys(one.volume for one in slices)
    )
    thumbnails: dict[tuple[str, int], np.ndarray] = {}
    references: dict[int, np.ndarray] = {}
    if pictures:
        heads = [_thumbnails(head) for head in range(3)]
        for one in slices:
            if one.verdict is Verdict.NOT_SCORED:
                continue
            head = heads[hash_of(one.volume) % 3]
            thumbnails[one.volume, one.slice] = head[one.slice % len(head)]
            if one.nearest_row is not None and one.nearest_row % 5:
                references[one.nearest_row] = head[one.slice % len(head)]
    null = rng.normal(0.2, 0.07, 1440)
    control = {row.name: rng.normal(0.85 if row.seen else 0.21, 0.06, row.samples) for row in POWER}
    return AuditResult(
        slices=tuple(slices),
        volumes=volumes,
        summary=_summary(slices),
        null=null,
        control=control,
        statistics=np.array(statistics),
        pictures=thumbnails,
        reference_pictures=references,
    )


def nothing_scored() -> AuditResult:
    """Return an audit in which every number that may be None is None."""
    result = example((5,), pictures=False)
    slices = tuple(
        SliceResult("blank volume", "", index, Verdict.NOT_SCORED, reason)
        for index, reason in enumerate(("blank slice", "no finite values", "blank slice"))
    )
    summary = dataclasses.replace(
        result.summary,
        finding="No slice could be scored, so nothing can be said.",
        suspicious_threshold=None,
        copy_threshold=None,
        power=(),
        slices=3,
        scored=0,
        copies=0,
        suspicious=0,
        mean_oni=None,
        refused=(),
        warnings=(),
    )
    return dataclasses.replace(
        result,
        slices=slices,
        volumes=(_volume("blank volume", list(slices)),),
        summary=summary,
        null=np.empty(0),
        control={},
        statistics=np.empty(0),
    )


def clean() -> AuditResult:
    """Return an audit of one slice that shows no evidence, without optional numbers."""
    result = example((1,), copies=0, pictures=False)
    one = dataclasses.replace(
        result.slices[0],
        verdict=Verdict.NO_EVIDENCE,
        q_value=None,
        margin=None,
        consensus=None,
        nearest_subject=None,
        nearest_slice=None,
        nearest_row=None,
        layer_similarity=(),
    )
    return dataclasses.replace(
        result, slices=(one,), volumes=(_volume(one.volume, [one]),), summary=_summary([one])
    )


def hash_of(name: str) -> int:
    """Return a number of ``name`` that is the same in every run."""
    return sum(name.encode())


def _thumbnails(seed: int) -> np.ndarray:
    return (make_patient(seed, size=96) * 0.255).astype(np.uint8)


def _scored(
    rng: np.random.Generator, volume: str, subject: str, index: int, value: float, copied: bool
) -> SliceResult:
    mi = (value - 0.2) / 0.07
    verdict = Verdict.NO_EVIDENCE
    if value >= SUSPICIOUS:
        verdict = Verdict.COPY if value >= COPY else Verdict.SUSPICIOUS
    patient = 7 if copied else int(rng.integers(1, 25))
    return SliceResult(
        volume=volume,
        subject=subject,
        slice=index,
        verdict=verdict,
        similarity=max(value, 0.0),
        mi=mi,
        oni=float(-np.tanh(mi)),
        p_value=1 / 1441 if value >= SUSPICIOUS else float(rng.uniform(0.02, 1)),
        q_value=0.0123 if value >= SUSPICIOUS else float(rng.uniform(0.5, 1)),
        nearest_subject=f"sub-{patient:02d}",
        nearest_volume=f"sub-{patient:02d}_T1w.nii.gz",
        nearest_slice=index,
        nearest_row=patient * 400 + index,
        margin=float(rng.uniform(0.4, 0.6)) if copied else float(rng.uniform(0, 0.04)),
        consensus=3 if copied else int(rng.integers(0, 4)),
        layer_similarity=(value, value * 0.9, value * 1.05),
        source=f"/data/{volume}.nii.gz",
        nearest_source=f"sub-{patient:02d}_T1w.nii.gz",
    )


def _volume(name: str, members: list[SliceResult]) -> VolumeResult:
    scored = [one for one in members if one.oni is not None]
    onis = [one.oni for one in scored if one.oni is not None]
    copies = sum(one.verdict is Verdict.COPY for one in members)
    suspicious = sum(one.verdict is Verdict.SUSPICIOUS for one in members)
    order = (Verdict.COPY, Verdict.SUSPICIOUS, Verdict.NO_EVIDENCE, Verdict.NOT_SCORED)
    return VolumeResult(
        volume=name,
        subject=members[0].subject,
        slices=len(members),
        scored=len(scored),
        copies=copies,
        suspicious=suspicious,
        share_flagged=(copies + suspicious) / len(scored) if scored else None,
        mean_oni=float(np.mean(onis)) if onis else None,
        lowest_oni=min(onis) if onis else None,
        nearest_subject="sub-07" if copies else None,
        longest_run=copies,
        verdict=min((one.verdict for one in members), key=order.index),
    )


def _summary(slices: list[SliceResult]) -> AuditSummary:
    scored = [one.oni for one in slices if one.oni is not None]
    copies = sum(one.verdict is Verdict.COPY for one in slices)
    suspicious = sum(one.verdict is Verdict.SUSPICIOUS for one in slices)
    finding = f"No copy found among {len(scored)} scored slices."
    if copies:
        finding = (
            f"{copies} of {len(scored)} scored slices are as similar to a reference slice as known "
            f"copies are; most match sub-07. {suspicious} more are suspicious."
        )
    return AuditSummary(
        finding=finding,
        alpha=0.01,
        certifiable_alpha=0.04,
        protocol="calibrated",
        rule=(
            "A slice is suspicious when at most 1 % of the slices of other people come as close to "
            f"the cohort (statistic at or above {SUSPICIOUS}), and a copy when, besides, it is as "
            f"close as 95 % of known copies are (at or above {COPY})."
        ),
        encoder="builtin",
        encoder_description=(
            "built-in structure encoder: for trying out and for hosts without MRI-CORE weights"
        ),
        fingerprint="builtin-1:3f9ac27e51d0",
        layers=("fine", "middle layer", "coarse"),
        widths=(768, 768, 768),
        shrinkage=(0.31, 0.22, 0.087),
        reference_slices=1440,
        reference_subjects=24,
        null_mean=0.2004,
        null_sd=0.0699,
        null_size=1440,
        exact_copy_mi=11.43,
        suspicious_threshold=SUSPICIOUS,
        copy_threshold=COPY,
        statistic="similarity",
        power=POWER,
        slices=len(slices),
        scored=len(scored),
        copies=copies,
        suspicious=suspicious,
        mean_oni=float(np.mean(scored)) if scored else None,
        subject_rule="the parent folder",
        cohort="phantoms.micohort",
        anonymized=False,
        refused=(
            ("/data/<b>broken</b>.nii.gz", "The file ends early; copy it again."),
            ("/data/colored.png", "The image is colored; give gray images."),
        ),
        warnings=(
            "24 subjects certify about 0.04, not the 0.01 asked for.",
            "Two files are named <i>synthetic-01</i>; they are told apart by folder.",
        ),
        version="0.1.0",
        created="2026-11-30T07:21:05Z",
    )
