"""A report to hand on: names of subjects and volumes give way to numbers, pictures are left out."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from ..results import AuditResult, AuditSummary, Verdict
from .numerals import count


def hide_subjects(result: AuditResult) -> AuditResult:
    """Return ``result`` without names of subjects, volumes or files, and without pictures.

    Volumes are numbered in the order of volumes.csv, reference subjects in the order in which
    slices.csv first names them, so that whoever holds the tables can look the names up.
    """
    volumes = _numbered("volume", (one.volume for one in result.volumes))
    volumes |= _numbered("volume", (s.volume for s in result.slices if s.volume not in volumes))
    subjects = _numbered("query subject", (one.subject for one in result.slices))
    nearest = _numbered(
        "reference subject",
        (one.nearest_subject for one in result.slices if one.nearest_subject is not None),
    )
    nearest |= {
        one.nearest_subject: f"reference subject {len(nearest) + 1}"
        for one in result.volumes
        if one.nearest_subject is not None and one.nearest_subject not in nearest
    }
    of_parts = dict.fromkeys(one.part_subject for one in result.slices if one.part_subject)
    for name in of_parts:
        nearest.setdefault(name, f"reference subject {len(nearest) + 1}")
    names = {**subjects, **nearest, **volumes}
    names |= {
        part: "a reference volume"
        for one in result.slices
        for part in (one.nearest_volume, one.part_volume)
        if part and part not in names
    }
    return dataclasses.replace(
        result,
        slices=tuple(
            dataclasses.replace(
                one,
                volume=volumes[one.volume],
                subject=subjects[one.subject],
                nearest_subject=nearest.get(one.nearest_subject or ""),
                nearest_volume=None,
                reason=_replace_names(one.reason, names),
                source="",
                nearest_source="",
                part_subject=nearest.get(one.part_subject or ""),
                part_volume=None,
            )
            for one in result.slices
        ),
        volumes=tuple(
            dataclasses.replace(
                one,
                volume=volumes[one.volume],
                subject=subjects.get(one.subject, "query subject"),
                nearest_subject=nearest.get(one.nearest_subject or ""),
            )
            for one in result.volumes
        ),
        summary=_without_names(result.summary, names),
        pictures={},
        reference_pictures={},
        match_pictures={},
        part_pictures={},
    )


def _numbered(kind: str, names: Iterable[str]) -> dict[str, str]:
    return {name: f"{kind} {number}" for number, name in enumerate(dict.fromkeys(names), start=1)}


def _without_names(summary: AuditSummary, names: dict[str, str]) -> AuditSummary:
    """Free text may name anyone, so the finding is told from the counts and paths are dropped."""
    scored = count(summary.scored, "scored slice")
    found = (
        f"Of {scored}, {summary.copies:,} called {Verdict.COPY.value} and "
        f"{summary.suspicious:,} called {Verdict.SUSPICIOUS.value}."
        if summary.copies + summary.suspicious
        else f"No copy found among {scored}."
    )
    return dataclasses.replace(
        summary,
        finding=found if summary.scored else "No slice could be scored, so nothing can be said.",
        warnings=tuple(_replace_names(warning, names) for warning in summary.warnings),
        refused=tuple(
            (f"input {number}", "not read; the reason is in summary.json")
            for number in range(1, len(summary.refused) + 1)
        ),
    )


def _replace_names(text: str, names: dict[str, str]) -> str:
    """Replace whole names; a bare number only after a word that makes it a name."""
    for name in sorted(names, key=len, reverse=True):
        if not name:
            continue
        after_a_noun = r"(?:(?<=subject )|(?<=patient )|(?<=volume ))"
        before = after_a_noun if name.isdigit() else r"(?<!\w)"
        text = re.sub(before + re.escape(name) + r"(?!\w)", names[name], text)
    return text
