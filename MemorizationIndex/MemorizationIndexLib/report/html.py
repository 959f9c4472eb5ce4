"""The report as one self-contained HTML file."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from ..colors import (
    ONI_STOPS,
    SIMILARITY_FROM,
    VERDICT_COLORS,
    css,
    oni_color,
    similarity_color,
    text_color,
)
from ..results import PART, AuditResult, AuditSummary, SliceResult, Verdict, VolumeResult
from . import numerals
from .errors import ReportError
from .figures import histogram, histogram_in_words
from .numerals import count, decimal, moment, percent, significant
from .ordering import slices_by_suspicion, volumes_by_suspicion
from .pictures import outlined, overlay, png_data_uri
from .pseudonyms import hide_subjects as without_subjects
from .strip import strip

MOST_ROWS = 200
OPEN_VOLUMES = 50
MOST_VOLUMES = 500
MOST_REFUSED = 100
MOST_MATCHES = 20

SET_LEVEL_LINE = 0.68
"""The paper's level for the mean ONI of a set (Table 3: clean mean 0.715 minus two standard
deviations). It is no threshold for a slice."""

PAPER = (
    "Deo Y, et al. A Calibrated Memorization Index (MI) for Detecting Training Data Leakage in "
    "Generative MRI Models. arXiv:2602.13066, 2026."
)
PAPER_ADDRESS = "https://arxiv.org/abs/2602.13066"


def write_report(result: AuditResult, path: Path, *, hide_subjects: bool = False) -> None:
    """Write the audit as one HTML file that needs no network and no other file.

    Args:
        result: What the audit found.
        path: The file; its folder must exist. It is replaced whole or not at all.
        hide_subjects: Replace the names of subjects and volumes by numbers, and leave out
            pictures, file names and free text that may name someone.

    Raises:
        ReportError: jinja2 or Pillow is missing, or the result holds NaN or infinite numbers.
        OSError: ``path`` cannot be written; its ``filename`` says which.
    """
    from .writing import write_whole

    write_whole(path, render(result, hide_subjects=hide_subjects))


def render(result: AuditResult, *, hide_subjects: bool = False) -> str:
    """Return the report as HTML text; arguments and errors as for ``write_report``."""
    try:
        import jinja2
    except ImportError as error:
        raise ReportError(
            "the HTML report needs jinja2, which is not installed; install it with "
            "'pip install jinja2'"
        ) from error

    if hide_subjects:
        result = without_subjects(result)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent, encoding="utf-8"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "decimal": decimal,
        "significant": significant,
        "percent": percent,
        "count": count,
        "moment": moment,
    }
    return environment.get_template("report.html").render(**_page(result, hide_subjects))


def _page(result: AuditResult, hidden: bool) -> dict[str, Any]:
    """Everything the template shows, by name."""
    summary = result.summary
    ordered = slices_by_suspicion(result.slices)
    consensus_of = len(summary.layers)
    return {
        "summary": summary,
        "hidden": hidden,
        "outcome": _outcome(summary),
        "tiles": _tiles(summary),
        "style": _style(),
        "volumes": _volumes(result),
        "volume_total": len(result.volumes),
        "open_volumes": OPEN_VOLUMES,
        "rows": [_row(result, one) for one in ordered[:MOST_ROWS]],
        "row_total": len(ordered),
        "flagged_total": summary.copies + summary.suspicious,
        "consensus_of": consensus_of,
        "has_pictures": bool(result.pictures or result.reference_pictures),
        "share": _share(summary),
        "share_beside_finding": _share_beside_finding(summary),
        "matches": _matches(result, ordered),
        "parts": _parts(result, ordered),
        "verified": any(one.verified is not None for one in result.slices),
        "similarity_from": SIMILARITY_FROM,
        "similarity_scale": ", ".join(
            css(similarity_color(SIMILARITY_FROM + step * (1 - SIMILARITY_FROM)))
            for step in (0.0, 0.5, 1.0)
        ),
        "not_scored": _not_scored(result.slices),
        "figures": _figures(result),
        "figure_words": histogram_in_words(result),
        "limits": _limits(summary, any(one.verified is not None for one in result.slices)),
        "facts": _facts(summary),
        "refused": summary.refused[:MOST_REFUSED],
        "legend": [(oni, decimal(oni, 1), css(oni_color(oni))) for oni in _legend_steps()],
        "verdicts": [(verdict.letter, verdict.value) for verdict in Verdict],
        "paper": PAPER,
        "paper_address": PAPER_ADDRESS,
    }


def _outcome(summary: AuditSummary) -> dict[str, str]:
    if summary.copies:
        return {"verdict": "copy", "title": "Copies found"}
    if summary.suspicious:
        return {"verdict": "suspicious", "title": "Suspicious slices found"}
    if summary.scored:
        return {"verdict": "no-evidence", "title": "No copy found"}
    return {"verdict": "not-scored", "title": "Nothing could be scored"}


def _tiles(summary: AuditSummary) -> list[dict[str, Any]]:
    counts = {
        Verdict.COPY: summary.copies,
        Verdict.SUSPICIOUS: summary.suspicious,
        Verdict.NO_EVIDENCE: summary.scored - summary.copies - summary.suspicious,
        Verdict.NOT_SCORED: summary.slices - summary.scored,
    }
    meaning = {
        Verdict.COPY: "as similar to a reference slice as known copies are",
        Verdict.SUSPICIOUS: "more similar than other people's slices are; look at it",
        Verdict.NO_EVIDENCE: "no more similar than other people's slices are",
        Verdict.NOT_SCORED: "left out, with a reason",
    }
    return [
        {
            "letter": verdict.letter,
            "name": verdict.value,
            "css": verdict.value.replace(" ", "-"),
            "number": number,
            "share": percent(number / summary.slices) if summary.slices else "",
            "meaning": meaning[verdict],
        }
        for verdict, number in counts.items()
    ]


def _style() -> dict[str, str]:
    """Colors for the style sheet, so that they are named in one place."""
    style = {f"{verdict.name.lower()}": css(color) for verdict, color in VERDICT_COLORS.items()}
    style |= {
        f"{verdict.name.lower()}_ink": css(text_color(color))
        for verdict, color in VERDICT_COLORS.items()
    }
    stops = (f"{css(color)} {50 * (oni + 1):.1f}%" for oni, color in ONI_STOPS)
    return style | {"scale": ", ".join(stops)}


def _legend_steps() -> list[float]:
    return [-1.0, -0.5, 0.0, 0.5, 1.0]


def _volumes(result: AuditResult) -> list[dict[str, Any]]:
    slices: dict[str, list[SliceResult]] = defaultdict(list)
    for one in result.slices:
        slices[one.volume].append(one)
    shown = []
    for volume in volumes_by_suspicion(result.volumes)[:MOST_VOLUMES]:
        cells, group = strip(slices[volume.volume])
        shown.append(
            {
                "result": volume,
                "css": volume.verdict.value.replace(" ", "-"),
                "cells": cells,
                "group": group,
                "words": _volume_in_words(volume, slices[volume.volume]),
            }
        )
    return shown


def _volume_in_words(volume: VolumeResult, slices: list[SliceResult]) -> str:
    if not volume.scored:
        return f"none of {count(volume.slices, 'slice')} scored"
    flagged = volume.copies + volume.suspicious
    parts = [
        f"{flagged:,} of {count(volume.scored, 'scored slice')} flagged "
        f"({percent(volume.share_flagged)}): {volume.copies:,} copy, "
        f"{volume.suspicious:,} suspicious",
        f"mean ONI {decimal(volume.mean_oni)}, lowest {decimal(volume.lowest_oni)}",
    ]
    if flagged and volume.nearest_subject is not None:
        naming = sum(
            (one.part_subject if one.flagged_by == PART else one.nearest_subject)
            == volume.nearest_subject
            for one in slices
            if one.verdict in (Verdict.COPY, Verdict.SUSPICIOUS)
        )
        parts.append(
            f"most often named: {volume.nearest_subject}, by {naming:,} of {flagged:,} flagged"
        )
    if volume.longest_run > 1:
        parts.append(f"longest run advancing through one subject: {volume.longest_run} slices")
    if volume.scored < volume.slices:
        parts.append(f"{volume.slices - volume.scored:,} not scored")
    return "; ".join(parts)


def _row(result: AuditResult, one: SliceResult) -> dict[str, Any]:
    picture = result.pictures.get((one.volume, one.slice))
    nearest = None if one.nearest_row is None else result.reference_pictures.get(one.nearest_row)
    color = oni_color(one.oni)
    return {
        "slice": one,
        "css": one.verdict.value.replace(" ", "-"),
        "background": css(color),
        "ink": css(text_color(color)),
        "picture": None if picture is None else png_data_uri(picture),
        "nearest": None if nearest is None else png_data_uri(nearest),
        "verification": _verification(one),
        # How the closest of unlike slices happens to lie tells nothing.
        "pose": "" if one.verdict is Verdict.NO_EVIDENCE or one.flagged_by == PART else one.pose,
        # Of a slice that is like another as a whole, the part adds nothing.
        "part": _part(one) if one.flagged_by == PART else "",
    }


def _part(one: SliceResult) -> str:
    """The part that stands out, in words; empty if none does."""
    if PART not in one.flagged_by:
        return ""
    source = one.part_subject or "the reference"
    if one.part_slice is not None:
        source += f", slice {one.part_slice}"
    pose = f", {one.part_pose}" if one.part_pose else ""
    return (
        f"like {source}{pose}; correlation {decimal(one.part_similarity)}, "
        f"p {significant(one.part_p_value, 2)}"
    )


def _verification(one: SliceResult) -> dict[str, str] | None:
    """What came of laying the match over the slice, in words; None if it was not tried."""
    if one.verified is None:
        return None
    return {
        "word": "holds" if one.verified else "does not hold",
        "css": "holds" if one.verified else "fails",
        "numbers": f"SSIM {decimal(one.ssim)}, NCC {decimal(one.ncc)}",
    }


def _matches(result: AuditResult, ordered: list[SliceResult]) -> list[dict[str, Any]]:
    """The most suspicious slices whose match was pictured."""
    shown = [one for one in ordered if (one.volume, one.slice) in result.match_pictures]
    matches = []
    for one in shown[:MOST_MATCHES]:
        pictures = result.match_pictures[one.volume, one.slice]
        alike = overlay(pictures.query, pictures.similarity)
        matches.append(
            {
                "slice": one,
                "css": one.verdict.value.replace(" ", "-"),
                "verification": _verification(one),
                "pictures": [
                    ("slice", png_data_uri(pictures.query)),
                    ("match, laid over it", png_data_uri(pictures.match)),
                    ("slice and match in turn", png_data_uri(pictures.checkerboard)),
                    ("difference", png_data_uri(pictures.difference)),
                    ("where they are alike", png_data_uri(alike, color=True)),
                ],
            }
        )
    return matches


def _parts(result: AuditResult, ordered: list[SliceResult]) -> list[dict[str, Any]]:
    """The most suspicious slices of which a part stands out; those flagged for it alone first."""
    shown = [one for one in ordered if (one.volume, one.slice) in result.part_pictures]
    shown.sort(key=lambda one: one.flagged_by != PART)
    color = VERDICT_COLORS[Verdict.SUSPICIOUS]
    parts = []
    for one in shown[:MOST_MATCHES]:
        pictures, window = result.part_pictures[one.volume, one.slice], one.part_window
        if window is None:
            continue
        parts.append(
            {
                "slice": one,
                "css": one.verdict.value.replace(" ", "-"),
                "words": _part(one),
                "pictures": [
                    (name, png_data_uri(outlined(picture, window, color), color=True))
                    for name, picture in (
                        ("slice", pictures.query),
                        (
                            "reference slice" + (f", {one.part_pose}" * bool(one.part_pose)),
                            pictures.reference,
                        ),
                    )
                ],
            }
        )
    return parts


def _share(summary: AuditSummary) -> str:
    """The estimated share of copies as a sentence; empty where there is none."""
    if summary.share is None:
        return ""
    return (
        f"An estimated {percent(summary.share)} of the slices are copies "
        f"(95 % interval {percent(summary.share_low)} to {percent(summary.share_high)})."
    )


def _share_beside_finding(summary: AuditSummary) -> str:
    """Why the estimate need not be the share of slices called a copy; empty without estimate."""
    if summary.share is None or not summary.scored:
        return ""
    return (
        f"It need not be the share of slices that are called a copy, {summary.copies:,} of "
        f"{summary.scored:,} ({percent(summary.copies / summary.scored)}): for that each slice "
        "must stand out by itself, while the estimate adds the copies that are too faint to be "
        "called and takes off the slices that look copied by chance, without saying which they "
        "are. The interval says how far it could move with other volumes from the same model."
    )


def _not_scored(slices: tuple[SliceResult, ...]) -> list[dict[str, Any]]:
    """Slices without a score, grouped by reason and volume, commonest reason first."""
    groups: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for one in slices:
        if one.verdict is Verdict.NOT_SCORED:
            groups[one.reason or "no reason given"][one.volume].append(one.slice)
    listed = [
        {
            "reason": reason,
            "number": sum(map(len, volumes.values())),
            "volumes": [
                (name, numerals.ranges(indices))
                for name, indices in list(volumes.items())[:OPEN_VOLUMES]
            ],
            "more": max(0, len(volumes) - OPEN_VOLUMES),
        }
        for reason, volumes in groups.items()
    ]
    return sorted(listed, key=lambda group: -group["number"])


def _figures(result: AuditResult) -> dict[str, Any]:
    """The histogram for a screen and for a phone, or the sentence why there is none."""
    from markupsafe import Markup

    if not any(part.size for part in (result.null, result.statistics, *result.control.values())):
        return {"wide": "", "narrow": "", "missing": "There is no statistic to draw."}
    return {
        "wide": Markup(histogram(result, width=9.0, prefix="wide")),
        "narrow": Markup(histogram(result, width=4.2, prefix="narrow")),
        "missing": "",
    }


def _limits(summary: AuditSummary, verified: bool) -> list[str]:
    """What the audit cannot see, one sentence each."""
    limits = [
        "A pass is “no copy found”. It is never “private”: it does not show that a model keeps "
        "its training patients secret.",
        f"It compares with the {count(summary.reference_subjects, 'subject')} of the cohort "
        f"“{summary.cohort}” and nobody else. Copies of a patient who is not in the cohort "
        "cannot be found.",
    ]
    unseen = [row.description for row in summary.power if not row.seen]
    if unseen:
        limits.append(
            f"Copies under {count(len(unseen), 'disguise')} would pass unseen here: "
            f"{'; '.join(unseen)}."
        )
    elif summary.power:
        limits.append(
            f"It was tried on {count(len(summary.power), 'disguise')}, listed above; a copy "
            "disguised in another way may pass unseen."
        )
    if not summary.power:
        limits.append("It was not tried on known copies, so what it would miss is unknown.")
    if summary.certifiable_alpha > summary.alpha:
        limits.append(
            f"Too few reference subjects for the level asked for: {summary.reference_subjects} "
            f"certify about {significant(summary.certifiable_alpha, 2)}, not "
            f"{significant(summary.alpha, 2)}. The share of false alarms may "
            f"exceed {percent(summary.alpha)}; add subjects to the cohort."
        )
    limits += [
        f"It sees through one encoder: {summary.encoder_description.rstrip('.')}.",
        "It looks at single slices. Slices of one volume depend on each other; count volumes, "
        "not slices, as independent findings.",
        "A match names the nearest reference slice. Whether it is the same patient is for a "
        "person to judge, with both images at hand.",
        _unseen_parts(summary),
    ]
    if summary.verification and not verified:
        limits.append(summary.verification)
    if summary.mean_oni is None:
        limits.append("No slice was scored, so the audit says nothing about these images.")
    return limits


def _unseen_parts(summary: AuditSummary) -> str:
    """What is missed of copied parts, in a sentence."""
    if summary.part_threshold is None:
        why = f" ({summary.part_note})" if summary.part_note else ""
        return (
            "A copy of only a part of a slice is easily missed: the rest of the slice hides it. "
            f"Copied parts were not searched{why}."
        )
    return (
        "Copied parts were searched in place and flipped, in windows of half the slice's side. A "
        "smaller part, or one that was moved, turned or scaled, is easily missed."
    )


def _facts(summary: AuditSummary) -> list[tuple[str, str]]:
    """Label and value of all that must stand beside a result (METHOD.md section 3)."""
    layers = zip(summary.layers, summary.widths, summary.shrinkage, strict=False)
    threshold = {
        name: "undefined" if value is None else significant(value, 4)
        for name, value in (
            ("suspicious", summary.suspicious_threshold),
            ("copy", summary.copy_threshold),
        )
    }
    mean = "–"
    if summary.mean_oni is not None:
        mean = (
            f"{decimal(summary.mean_oni, 3)} (the paper's set-level line is {SET_LEVEL_LINE}: a "
            "level for the mean of a set under the paper's own protocol, no threshold for a slice)"
        )
    return [
        ("Level α asked for", significant(summary.alpha)),
        (
            "Level the null can certify",
            f"about {significant(summary.certifiable_alpha)}, from "
            f"{count(summary.reference_subjects, 'subject')}",
        ),
        ("Protocol", summary.protocol),
        ("Statistic of p-values and thresholds", summary.statistic),
        ("Threshold of “suspicious”", threshold["suspicious"]),
        ("Threshold of “copy”", threshold["copy"]),
        ("Reference slices N", f"{summary.reference_slices:,}"),
        ("Reference subjects", f"{summary.reference_subjects:,}"),
        (
            "Layers: features D, shrinkage",
            "; ".join(f"{name}: {width:,}, {decimal(s, 3)}" for name, width, s in layers),
        ),
        ("Null mean μ₀ of the similarity", significant(summary.null_mean, 4)),
        ("Null standard deviation σ₀", significant(summary.null_sd, 4)),
        ("Null size", f"{summary.null_size:,}"),
        ("MI of an exact copy (the ceiling)", significant(summary.exact_copy_mi, 4)),
        ("Mean ONI of the set", mean),
        (
            "Estimated share of copies",
            _share(summary) or f"not estimated: {summary.share_note or 'not tried'}",
        ),
        ("Verification of matches", summary.verification or "there was nothing to verify"),
        (
            "Threshold of a copied part",
            f"not searched: {summary.part_note or 'not asked for'}"
            if summary.part_threshold is None
            else f"{significant(summary.part_threshold, 4)}; "
            f"{count(summary.part_suspicious, 'slice')} suspicious for a part only",
        ),
        ("Slices scored", f"{summary.scored:,} of {summary.slices:,}"),
        ("Encoder", summary.encoder),
        ("Encoder fingerprint", summary.fingerprint),
        (
            "Cohort",
            summary.cohort + (" (subject names are hashes)" if summary.anonymized else ""),
        ),
        ("Subjects of the query identified by", summary.subject_rule),
        ("Software", f"MemorizationIndex {summary.version}"),
        ("Audit made", summary.created),
    ]
