"""Results of single volumes → one result of the run, as if all had been scored at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from .cohort.cohort import Cohort
from .findings import by_suspicion
from .gallery import PICTURES
from .index.scores import null_spread, q_values
from .index.verdict import find_thresholds
from .part_search import MOST_PICTURED as MOST_PARTS
from .results import AuditResult
from .summary import doubts, finding_sentence, with_share


def join(results: Sequence[AuditResult], cohort: Cohort) -> AuditResult:
    """Join audits of different volumes against one cohort.

    Scores, p-values and verdicts of a slice do not depend on the other volumes; q-values, the
    summary and which slices are pictured do and are determined anew.

    Args:
        results: At least one, made with the same options.
        cohort: The cohort of all of them.
    """
    slices = [row for result in results for row in result.slices]
    scored = [number for number, row in enumerate(slices) if row.p_value is not None]
    p = np.array([slices[number].p_value for number in scored], float)
    for number, q in zip(scored, q_values(p) if len(p) else p, strict=True):
        slices[number] = dataclasses.replace(slices[number], q_value=float(q))
    volumes = tuple(one for result in results for one in result.volumes)
    first = results[0].summary
    values = [row.oni for row in slices if row.oni is not None]
    suspicious = sum(result.summary.suspicious for result in results)
    defined = null_spread(cohort.null.similarity, cohort.protocol).defined
    thresholds = (
        find_thresholds(cohort.null.similarity, cohort.control.similarity, first.alpha)
        if defined
        else None
    )
    warnings = doubts(cohort, first.alpha, thresholds, slices)
    subjects = len({row.subject for row in slices})
    summary = dataclasses.replace(
        first,
        finding=finding_sentence(slices, volumes),
        slices=len(slices),
        scored=len(values),
        copies=sum(result.summary.copies for result in results),
        suspicious=suspicious,
        part_suspicious=sum(result.summary.part_suspicious for result in results),
        mean_oni=float(np.mean(values)) if values else None,
        subject_rule=f"{subjects} subjects, {first.subject_rule.partition(', ')[2]}",
        refused=tuple(one for result in results for one in result.summary.refused),
        warnings=(*cohort.facts.warnings, *warnings),
        verification=" ".join(
            dict.fromkeys(r.summary.verification for r in results if r.summary.verification)
        ),
    )
    statistics = np.concatenate([result.statistics for result in results])
    pictured = [slices[number] for number in by_suspicion(slices)[:PICTURES]]
    pictures = {key: one for result in results for key, one in result.pictures.items()}
    matches = {row: one for result in results for row, one in result.reference_pictures.items()}
    parts = {key: one for result in results for key, one in result.part_pictures.items()}
    similarity = {(row.volume, row.slice): row.part_similarity or 0.0 for row in slices}
    return dataclasses.replace(
        results[0],
        slices=tuple(slices),
        volumes=volumes,
        summary=with_share(summary, slices, statistics, cohort),
        statistics=statistics,
        pictures={
            key: pictures[key] for row in pictured if (key := (row.volume, row.slice)) in pictures
        },
        reference_pictures={
            row.nearest_row: matches[row.nearest_row]
            for row in pictured
            if row.nearest_row is not None and row.nearest_row in matches
        },
        match_pictures={
            key: one for result in results for key, one in result.match_pictures.items()
        },
        part_pictures=dict(
            sorted(parts.items(), key=lambda item: -similarity[item[0]])[:MOST_PARTS]
        ),
    )
