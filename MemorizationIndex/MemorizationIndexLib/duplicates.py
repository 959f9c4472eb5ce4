"""A cohort against itself: slices, and whole subjects, that occur twice under different names."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.cohort.building import CohortOptions, build_cohort
from MemorizationIndexLib.cohort.cohort import Cohort
from MemorizationIndexLib.encoders.encoder import Encoder
from MemorizationIndexLib.encoders.registry import get_encoder
from MemorizationIndexLib.index.poses import query_views
from MemorizationIndexLib.index.protocols import (
    LEAST_SUBJECTS,
    CalibrationError,
    TooFewSubjectsError,
    get_protocol,
)
from MemorizationIndexLib.index.verdict import CLEARANCE, find_thresholds, lowest_of_copies
from MemorizationIndexLib.linkage import KEPT, Linkage, NearestSubjects, link
from MemorizationIndexLib.progress import (
    CancelFunction,
    Progress,
    ProgressFunction,
    check,
    never,
    quiet,
)

WHOLE = 0.5
"""Share of the smaller subject's slices that must recur for two subjects to be one."""

SURE = 0.25
"""Share of the disguises, hardest first, whose copies are less alike than slices surely one.

Lower, alike people of a rare scanner hide each other; higher, what lies next to weak copies stays
in the null (measured on three sets with single copied slices: 0.2 to 0.4 do, 0.5 refuses one).
"""

_QUERIES = 256

_ROUNDING = 1e-4
"""By how much the similarities of equal slices may differ."""

_STAGES = {
    "Encoding the reference": "Encoding the images",
    "Calibrating the null": "Learning how alike different people are",
    "Comparing the cohort with itself": "Comparing the images with each other",
}
"""Stages of a cohort's making in the words of those who look for duplicates."""


@dataclass(frozen=True)
class SlicePlace:
    """A slice of the cohort.

    Attributes:
        subject: Its subject.
        volume: Its volume.
        slice: Its index in the volume.
        source: The file it came from; empty if the cohort is anonymized.
    """

    subject: str
    volume: str
    slice: int
    source: str


@dataclass(frozen=True)
class SlicePair:
    """Two slices that are one.

    Attributes:
        first: Row of the first slice.
        second: Row of the second slice, above ``first``.
        similarity: Their similarity; 1 where the pixels are the same.
        identical: Whether the pixels are the same.
    """

    first: int
    second: int
    similarity: float
    identical: bool


@dataclass(frozen=True)
class SubjectPair:
    """Two subjects that share slices.

    Attributes:
        first: Name of the first subject.
        second: Name of the second subject.
        shared: Slices of the one with fewer slices that recur in the other.
        slices: Slices of the one with fewer slices.
        similarity: Largest similarity of a pair of slices.
        whole: Whether they are taken for one person: at least half of the slices recur.
    """

    first: str
    second: str
    shared: int
    slices: int
    similarity: float
    whole: bool


@dataclass(frozen=True)
class Duplicates:
    """What occurs twice.

    Attributes:
        places: Every slice by row.
        pairs: Pairs of slices.
        subject_pairs: Pairs of subjects, most shared first.
        slice_clusters: Rows that are one slice, each cluster sorted.
        subject_clusters: Names that hold the same slices of one person, each cluster sorted.
        linkage: Names that hold other slices of one person.
        linked_clusters: Names that are one person only by ``linkage``, together with names that
            hold the same slices, each cluster sorted.
        threshold: Similarity from which two slices of different subjects are one.
        highest_clean: Largest similarity of slices of different subjects below it.
        subjects: Number of subjects.
        subject_rule: How the subjects were identified.
        encoder: Name of the encoder.
        refused: Inputs that were not read, as (path, sentence).
        warnings: Sentences the user must know.
    """

    places: tuple[SlicePlace, ...]
    pairs: tuple[SlicePair, ...]
    subject_pairs: tuple[SubjectPair, ...]
    slice_clusters: tuple[tuple[int, ...], ...]
    subject_clusters: tuple[tuple[str, ...], ...]
    linkage: Linkage
    linked_clusters: tuple[tuple[str, ...], ...]
    threshold: float
    highest_clean: float
    subjects: int
    subject_rule: str
    encoder: str
    refused: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]


def find_duplicates(
    inputs: str | Path | Sequence[str | Path],
    *,
    subjects: str | None = None,
    any_modality: bool = False,
    options: CohortOptions | None = None,
    progress: ProgressFunction = quiet,
    cancelled: CancelFunction = never,
) -> Duplicates:
    """Find what occurs twice among images; see ``duplicates_of``.

    Args:
        inputs: Files, folders or a manifest.csv; see ``images.find_images``.
        subjects: Pattern that finds the subject in a path.
        any_modality: Whether DICOM series other than MR are taken too.
        options: How to encode; the cohort itself is not kept.
        progress: Told of the progress.
        cancelled: Asked between batches.

    Raises:
        ImageError: The inputs hold no usable image.
        EncoderError: The encoder cannot be used.
        CalibrationError: There are too few subjects, known copies cannot be told apart, or the
            protocol searches no copies by subject.
        CancelledError: ``cancelled`` said so.
    """

    def told(now: Progress) -> None:
        progress(replace(now, stage=_STAGES.get(now.stage, now.stage)))

    options = options or CohortOptions()
    if get_protocol(options.protocol).null != "subjects":
        raise CalibrationError(
            f"Duplicates are searched under the protocol calibrated, not {options.protocol}: "
            "choose that."
        )
    with tempfile.TemporaryDirectory(prefix="memorization-index-") as folder:
        try:
            cohort = build_cohort(
                inputs,
                Path(folder) / "self.micohort",
                subjects=subjects,
                any_modality=any_modality,
                # The pictures tell which slices lie next to each other.
                options=replace(options, thumbnails=True),
                progress=told,
                cancelled=cancelled,
            )
        except TooFewSubjectsError as error:
            many = "are" if error.subjects != 1 else "is"
            raise CalibrationError(
                f"There {many} {error.subjects} subject{'s' * (error.subjects != 1)}, and how "
                "alike different people are, by which duplicates are told, can be learned from "
                f"{LEAST_SUBJECTS} or more: add images of others, or say with --subjects or a "
                "manifest.csv whose image is whose."
            ) from error
        return duplicates_of(cohort, progress=told, cancelled=cancelled)


def duplicates_of(
    cohort: Cohort,
    *,
    encoder: Encoder | None = None,
    progress: ProgressFunction = quiet,
    cancelled: CancelFunction = never,
) -> Duplicates:
    """Find what occurs twice in a cohort.

    Every slice is compared with the slices of all other subjects. Two slices are one if they are
    as similar as a known copy is to its original (``verdict.find_thresholds``); the null is the
    similarity of every slice to its nearest slice of another subject, subjects that share a slice
    left out. Of the slices of one subject only the most similar is the same. Within a subject
    neighbors are alike, and only equal pixels count. Names that hold
    other slices of one person are then sought with ``linkage.link``.

    Args:
        cohort: The cohort; its known copies calibrate the threshold. Without pictures names that
            hold other slices are not sought.
        encoder: Its encoder, if it is at hand; only what it knows of flips is used.
        progress: Told of the progress.
        cancelled: Asked between blocks.

    Raises:
        CalibrationError: The cohort's protocol searches no copies by subject, or known copies
            cannot be told from slices of different subjects.
        EncoderError: The encoder cannot be made.
        CancelledError: ``cancelled`` said so.
    """
    if cohort.protocol.null != "subjects":
        raise CalibrationError(
            f"Duplicates are searched under the protocol calibrated, and the cohort "
            f"'{cohort.name}' was built for {cohort.facts.protocol}: build it again."
        )
    facts = cohort.facts
    if encoder is None:
        encoder = get_encoder(facts.encoder, input_size=facts.input_size, **facts.encoder_options)
    codes = cohort.reference.subjects
    nearest = np.zeros(cohort.slice_count)
    similar: dict[tuple[int, int], float] = {}
    others = NearestSubjects(
        np.zeros((cohort.slice_count, KEPT)), np.full((cohort.slice_count, KEPT), -1)
    )
    stage = "Comparing the cohort with itself"
    for rows, block in _comparisons(cohort, encoder, stage, progress, cancelled):
        nearest[rows] = block.max(axis=1)
        _keep_nearest(others, rows, block, codes)
    threshold = _threshold(others, codes, cohort.control.similarity)
    # Compared again, as similar pairs kept before the threshold is known could be all pairs.
    stage = "Gathering what occurs twice"
    again = np.flatnonzero(nearest >= threshold)
    for rows, block in _comparisons(cohort, encoder, stage, progress, cancelled, again):
        for at, column in np.argwhere(block >= threshold).tolist():
            row = int(rows[at])
            pair = (min(row, column), max(row, column))
            similar[pair] = max(similar.get(pair, 0.0), float(block[at, column]))
    pairs = _pairs(_without_neighbors(similar, codes), cohort.digests)
    places = tuple(
        SlicePlace(
            facts.subjects[int(codes[row])],
            facts.volumes[int(cohort.volume_codes[row])],
            int(cohort.indices[row]),
            cohort.sources[row],
        )
        for row in range(cohort.slice_count)
    )
    subject_pairs = _subject_pairs(pairs, codes, facts.subjects)
    whole = [(pair.first, pair.second) for pair in subject_pairs if pair.whole]
    subject_clusters = _tuples(clusters(whole))
    linkage = link(
        cohort,
        encoder,
        others,
        _people(facts.subjects, subject_clusters),
        frozenset(
            (one, int(codes[two]))
            for pair in pairs
            for one, two in ((pair.first, pair.second), (pair.second, pair.first))
            if codes[one] != codes[two]
        ),
        threshold,
        progress=progress,
        cancelled=cancelled,
    )
    linked = [(pair.first, pair.second) for pair in linkage.pairs]
    clean = nearest[nearest < threshold]
    return Duplicates(
        places=places,
        pairs=pairs,
        subject_pairs=subject_pairs,
        slice_clusters=_tuples(clusters((p.first, p.second) for p in pairs)),
        subject_clusters=subject_clusters,
        linkage=linkage,
        linked_clusters=tuple(
            cluster
            for cluster in _tuples(clusters(whole + linked))
            if cluster not in subject_clusters
        ),
        threshold=threshold,
        highest_clean=float(clean.max()) if len(clean) else 0.0,
        subjects=cohort.subject_count,
        subject_rule=facts.subject_rule,
        encoder=facts.encoder,
        refused=facts.refused,
        warnings=facts.warnings,
    )


def clusters(pairs: Iterable[tuple]) -> list[list]:
    """Return the connected groups of a graph given by its edges (union-find), each sorted.

    Args:
        pairs: Edges between hashable, sortable nodes.
    """
    parent: dict = {}

    def root(node):  # type: ignore[no-untyped-def]
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for first, second in pairs:
        parent[root(first)] = root(second)
    groups: dict = {}
    for node in list(parent):
        groups.setdefault(root(node), []).append(node)
    return sorted(sorted(group) for group in groups.values())


def _tuples(groups: list[list]) -> tuple[tuple, ...]:
    return tuple(tuple(group) for group in groups)


def _people(names: Sequence[str], same: Sequence[Sequence[str]]) -> list[int]:
    """Return the person of each subject code: the code of the first of its names."""
    code = {name: number for number, name in enumerate(names)}
    first = {name: code[cluster[0]] for cluster in same for name in cluster}
    return [first.get(name, code[name]) for name in names]


def _keep_nearest(
    others: NearestSubjects,
    rows: NDArray[np.int64],
    block: NDArray[np.float32],
    codes: NDArray[np.int64],
) -> None:
    """Keep the nearest other subjects of a block of slices, similarities (B, N)."""
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    ends = np.append(starts[1:], len(codes))
    by_subject = np.maximum.reduceat(block, starts, axis=1)
    order = np.argsort(-by_subject, axis=1, kind="stable")[:, :KEPT]
    for at, (subjects, values) in enumerate(zip(order, by_subject, strict=True)):
        for rank, subject in enumerate(subjects):
            if values[subject] <= 0:
                break
            first = starts[subject]
            nearest = first + int(block[at, first : ends[subject]].argmax())
            others.similarity[rows[at], rank] = values[subject]
            others.rows[rows[at], rank] = nearest


def _comparisons(
    cohort: Cohort,
    encoder: Encoder,
    stage: str,
    progress: ProgressFunction,
    cancelled: CancelFunction,
    rows: NDArray[np.int64] | None = None,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Give blocks of slices, all or those asked for, and their similarity to all slices, (B, N).

    Similarity within a subject is 0.
    """
    reference, codes, count = cohort.reference, cohort.reference.subjects, cohort.slice_count
    views = query_views(encoder, robust=cohort.facts.robust)
    layers = len(reference.rows)
    wanted = np.arange(count) if rows is None else rows
    for start in range(0, len(wanted), _QUERIES):
        progress(Progress(stage, start, len(wanted)))
        part = wanted[start : start + _QUERIES]
        features = [np.asarray(layer[0][part]) for layer in cohort.features]
        best = np.zeros((len(part), count), np.float32)
        for view in views(features):
            seen = reference.whiten(view)
            for pose in range(len(reference.rows[0])):
                check(cancelled)
                joint = np.ones_like(best)
                for query, stored in zip(seen, reference.rows, strict=True):
                    joint *= np.maximum(query @ np.asarray(stored[pose]).T, 0.0)
                np.maximum(best, joint, out=best)
        best[codes[part, None] == codes[None]] = 0.0
        yield part, best ** np.float32(1.0 / layers)
    if len(wanted):
        progress(Progress(stage, len(wanted), len(wanted)))


def _threshold(
    others: NearestSubjects,
    codes: NDArray[np.int64],
    control: Mapping[str, NDArray[np.float64]],
) -> float:
    """Return the similarity of known copies, seen against a null without the duplicates.

    The null holds the duplicates that are sought, so it is cut where known copies begin in their
    hardest disguise. It also holds what lies next to them, so subjects with a slice that is surely
    one (``SURE``) do not meet in it (``_null_without``). Where the cut would go into the
    similarity of different people, it rises as far as ``find_thresholds`` wants copies to stand
    out, and no further: at the threshold itself, weaker copies would come back and lift it above
    all.
    """
    lowest = [lowest_of_copies(v) for v in control.values() if len(v)]
    cut = min(lowest, default=np.inf)
    sure = float(np.quantile(lowest, SURE)) if lowest else np.inf
    while True:
        null = _null_without(others, codes, cut, sure)
        if not len(null):
            break
        thresholds = find_thresholds(null, control)
        if thresholds.copy is None:
            break
        mean = float(null.mean())
        clear = mean + CLEARANCE * (thresholds.suspicious - mean)
        if clear <= cut:
            return thresholds.copy
        cut = clear
    raise CalibrationError(
        "Duplicates cannot be found: no known copy stands clearly above the similarity of "
        "different subjects; add subjects, or use a better encoder."
    )


def _null_without(
    others: NearestSubjects, codes: NDArray[np.int64], cut: float, sure: float
) -> NDArray[np.float64]:
    """Return the similarities below a cut to the nearest subject that shares no slice.

    Two subjects share a slice if two of theirs are surely one, or if slices of either and of one
    third subject are: copies of two neighboring slices are neighbors. The cut alone must not tell
    it, or the few subjects of a rare scanner hide each other (seen on half of the spines).

    Args:
        others: The nearest other subjects of every slice.
        codes: Subject code of each slice, shape (N,).
        cut: Similarity from which a slice is left out.
        sure: Similarity from which two slices are surely one.
    """
    kept = others.rows >= 0
    theirs = codes[others.rows]
    near: dict[int, set[int]] = {int(code): {int(code)} for code in np.unique(codes)}
    for row, rank in np.argwhere(kept & (others.similarity >= sure)).tolist():
        one, two = int(codes[row]), int(theirs[row, rank])
        near[one].add(two)
        near[two].add(one)
    shared = {code: set[int]().union(*(near[third] for third in near[code])) for code in near}
    null = []
    for row, code in enumerate(codes.tolist()):
        apart = (
            float(similarity)
            for similarity, other, there in zip(
                others.similarity[row], theirs[row].tolist(), kept[row], strict=True
            )
            if there and other not in shared[code]
        )
        nearest = next(apart, None)
        if nearest is not None and nearest < cut:
            null.append(nearest)
    return np.array(null)


def _without_neighbors(
    similar: Mapping[tuple[int, int], float], codes: NDArray[np.int64]
) -> dict[tuple[int, int], float]:
    """Keep pairs of which neither slice is more similar to another of the other's subject.

    The slices beside a copied one can resemble the copy more than hard disguises resemble theirs.
    """
    best: dict[tuple[int, int], float] = {}
    for (first, second), value in similar.items():
        for key in ((first, int(codes[second])), (second, int(codes[first]))):
            best[key] = max(best.get(key, 0.0), value)
    return {
        (first, second): value
        for (first, second), value in similar.items()
        if value + _ROUNDING
        >= max(best[first, int(codes[second])], best[second, int(codes[first])])
    }


def _pairs(
    similar: dict[tuple[int, int], float], digests: NDArray[np.uint64]
) -> tuple[SlicePair, ...]:
    found = dict(similar)
    for members in _equal(digests):
        # Neighboring members suffice to join them all.
        found.update({(int(a), int(b)): 1.0 for a, b in pairwise(members)})
    return tuple(
        SlicePair(int(a), int(b), min(value, 1.0), bool(digests[a] == digests[b]))
        for (a, b), value in sorted(found.items())
    )


def _equal(digests: NDArray[np.uint64]) -> Iterator[NDArray[np.int64]]:
    order = np.argsort(digests, kind="stable")
    cuts = np.flatnonzero(np.diff(digests[order].astype(object)) != 0) + 1
    for group in np.split(order, cuts):
        if len(group) > 1:
            yield np.sort(group)


def _subject_pairs(
    pairs: Sequence[SlicePair], codes: NDArray[np.int64], names: Sequence[str]
) -> tuple[SubjectPair, ...]:
    slices = Counter(int(code) for code in codes)
    shared: dict[tuple[int, int], dict[int, set[int]]] = {}
    highest: dict[tuple[int, int], float] = {}
    for pair in pairs:
        one, two = sorted((int(codes[row]), row) for row in (pair.first, pair.second))
        if one[0] == two[0]:
            continue
        key = (one[0], two[0])
        rows = shared.setdefault(key, {one[0]: set(), two[0]: set()})
        rows[one[0]].add(one[1])
        rows[two[0]].add(two[1])
        highest[key] = max(highest.get(key, 0.0), pair.similarity)
    found = []
    for key, rows in shared.items():
        smaller = min(key, key=lambda code: (slices[code], code))
        recurring = len(rows[smaller])
        found.append(
            SubjectPair(
                names[key[0]],
                names[key[1]],
                recurring,
                slices[smaller],
                highest[key],
                recurring >= WHOLE * slices[smaller],
            )
        )
    return tuple(sorted(found, key=lambda p: (-p.shared, -p.similarity, p.first, p.second)))
