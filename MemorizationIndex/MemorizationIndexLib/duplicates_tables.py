"""What occurs twice, in words and as tables."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterator
from pathlib import Path

from MemorizationIndexLib.duplicates import Duplicates, SlicePlace
from MemorizationIndexLib.outputs import OutputError, prepare_outputs
from MemorizationIndexLib.report.tables import guard
from MemorizationIndexLib.report.writing import write_whole

CSV, JSON, LINKED = "duplicates.csv", "duplicates.json", "linked.csv"

_LISTED = 20
_COLUMNS = (
    "cluster",
    "subject",
    "volume",
    "slice",
    "source",
    "same_person",
    "similarity",
    "identical",
)
_LINKED_COLUMNS = (
    "person",
    "first",
    "second",
    "slices",
    "score",
    "similarity",
    "lead",
    "correlation",
    "first_volume",
    "first_slice",
    "first_source",
    "second_volume",
    "second_slice",
    "second_source",
)


def duplicates_in_words(found: Duplicates) -> Iterator[str]:
    """Give what was found, line by line, at most twenty of a kind."""
    yield from _same_slices(found)
    yield from _other_slices(found)


def _other_slices(found: Duplicates) -> Iterator[str]:
    linkage = found.linkage
    if linkage.threshold is None:
        yield f"Other slices of one person under another name are not sought: {linkage.reason}."
        return
    if not linkage.pairs:
        yield (
            f"No two names hold neighboring slices of one person (scores reach "
            f"{linkage.highest_clean:.2f}, neighbors {linkage.threshold:.2f} and more)."
        )
    else:
        count = len(linkage.pairs)
        yield (
            f"{count} {'pair' if count == 1 else 'pairs'} of names probably "
            f"{'holds' if count == 1 else 'hold'} other slices of one person:"
        )
    for cluster in found.linked_clusters[:_LISTED]:
        yield f"  probably one person: {', '.join(cluster)}"
    for pair in linkage.pairs[:_LISTED]:
        first, second = found.places[pair.first_row], found.places[pair.second_row]
        yield (
            f"  neighboring slices: {pair.first} and {pair.second}, {pair.slices} "
            f"(score {pair.score:.2f} of {linkage.threshold:.2f}; {_name(first)} beside "
            f"{_name(second)})"
        )
    hidden = sum(max(0, len(kind) - _LISTED) for kind in (found.linked_clusters, linkage.pairs))
    if hidden:
        yield f"  and {hidden} more; --out DIR writes them all"
    yield (
        f"Of neighboring slices of one subject {linkage.power:.0%} are told so; slices further "
        "apart, and other acquisitions of one person, are not found."
    )


def _same_slices(found: Duplicates) -> Iterator[str]:
    if not found.pairs:
        yield (
            f"Finding:  No slice of the {found.subjects} subjects occurs twice; the most similar "
            f"slices of different subjects reach {found.highest_clean:.3f}, copies "
            f"{found.threshold:.3f} and more."
        )
        return
    slices = sum(len(cluster) for cluster in found.slice_clusters)
    people = len(found.subject_clusters)
    persons = "No person occurs under several names"
    if people:
        persons = (
            f"{people} {'person occurs' if people == 1 else 'people occur'} under several names"
        )
    groups = len(found.slice_clusters)
    yield (
        f"Finding:  {persons}; {slices} slices occur more than once, in {groups} "
        f"{'group' if groups == 1 else 'groups'}."
    )
    for cluster in found.subject_clusters[:_LISTED]:
        yield f"  one person: {', '.join(cluster)}"
    part = [pair for pair in found.subject_pairs if not pair.whole]
    for pair in part[:_LISTED]:
        yield (
            f"  shared slices: {pair.first} and {pair.second}, {pair.shared} of {pair.slices} "
            f"(similarity {pair.similarity:.3f})"
        )
    within = [
        pair
        for pair in found.pairs
        if found.places[pair.first].subject == found.places[pair.second].subject
    ]
    for one in within[:_LISTED]:
        first, second = found.places[one.first], found.places[one.second]
        yield f"  same picture twice in {first.subject}: {_name(first)} and {_name(second)}"
    hidden = sum(max(0, len(kind) - _LISTED) for kind in (found.subject_clusters, part, within))
    if hidden:
        yield f"  and {hidden} more; --out DIR writes them all"


def write_duplicates(found: Duplicates, folder: str | Path) -> tuple[Path, ...]:
    """Write what was found.

    duplicates.csv has a row per slice that occurs twice, linked.csv a row per pair of names with
    other slices of one person, duplicates.json everything.

    Raises:
        OutputError: A file cannot be written.
    """
    folder = prepare_outputs(folder)
    try:
        write_whole(folder / CSV, _csv(found))
        write_whole(folder / LINKED, _linked(found))
        text = json.dumps(_content(found), indent=1, ensure_ascii=False, allow_nan=False)
        write_whole(folder / JSON, text + "\n")
    except OSError as error:
        raise OutputError(
            f"Nothing can be written in {folder} ({error.strerror or error}): choose another place "
            "with --out."
        ) from error
    return folder / CSV, folder / LINKED, folder / JSON


def _csv(found: Duplicates) -> str:
    person = {
        name: number
        for number, cluster in enumerate(found.subject_clusters, start=1)
        for name in cluster
    }
    best: dict[int, tuple[float, bool]] = {}
    for pair in found.pairs:
        for row in (pair.first, pair.second):
            best[row] = max(best.get(row, (0.0, False)), (pair.similarity, pair.identical))
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(_COLUMNS)
    for number, cluster in enumerate(found.slice_clusters, start=1):
        for row in cluster:
            place = found.places[row]
            similarity, identical = best[row]
            writer.writerow(
                [
                    number,
                    guard(place.subject),
                    guard(place.volume),
                    place.slice,
                    guard(place.source),
                    person.get(place.subject, ""),
                    repr(similarity),
                    "yes" if identical else "no",
                ]
            )
    return buffer.getvalue()


def _linked(found: Duplicates) -> str:
    person = {
        name: number
        for number, cluster in enumerate(found.linked_clusters, start=1)
        for name in cluster
    }
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(_LINKED_COLUMNS)
    for pair in found.linkage.pairs:
        places = (found.places[pair.first_row], found.places[pair.second_row])
        cells: list[object] = [person[pair.first], guard(pair.first), guard(pair.second)]
        cells += [pair.slices, pair.score, pair.similarity, pair.lead, pair.correlation]
        for place in places:
            cells += [guard(place.volume), place.slice, guard(place.source)]
        writer.writerow(cells)
    return buffer.getvalue()


def _content(found: Duplicates) -> dict[str, object]:
    def place(row: int) -> dict[str, object]:
        return dataclasses.asdict(found.places[row])

    return {
        "subjects": found.subjects,
        "subject_rule": found.subject_rule,
        "encoder": found.encoder,
        "threshold": found.threshold,
        "highest_clean": found.highest_clean,
        "subject_clusters": found.subject_clusters,
        "subject_pairs": [dataclasses.asdict(pair) for pair in found.subject_pairs],
        "linked_clusters": found.linked_clusters,
        "linked_pairs": [
            {
                **{
                    name: value
                    for name, value in dataclasses.asdict(pair).items()
                    if name not in ("first_row", "second_row")
                },
                "first_slice": place(pair.first_row),
                "second_slice": place(pair.second_row),
            }
            for pair in found.linkage.pairs
        ],
        "linkage": {
            "threshold": found.linkage.threshold,
            "highest_clean": found.linkage.highest_clean,
            "power": found.linkage.power,
            "reason": found.linkage.reason,
        },
        "slice_clusters": [[place(row) for row in cluster] for cluster in found.slice_clusters],
        "slice_pairs": [
            {
                "first": place(pair.first),
                "second": place(pair.second),
                "similarity": pair.similarity,
                "identical": pair.identical,
            }
            for pair in found.pairs
        ],
        "refused": [{"path": path, "reason": reason} for path, reason in found.refused],
        "warnings": found.warnings,
    }


def _name(place: SlicePlace) -> str:
    return place.source or f"{place.volume} slice {place.slice}"
