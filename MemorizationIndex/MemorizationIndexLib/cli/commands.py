"""What each command does: read the arguments, call the library, tell the user."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from MemorizationIndexLib.cli.notes import refusals, said_warnings, warn
from MemorizationIndexLib.cli.progress import progress_bars
from MemorizationIndexLib.results import AuditResult, Verdict

LISTED = 20
"""Subjects that ``show`` lists unless it is asked for all."""


def build(given: argparse.Namespace) -> int:
    """Build a cohort."""
    from MemorizationIndexLib.cohort import build_cohort
    from MemorizationIndexLib.cohort.building import CohortOptions

    options = {
        name: value
        for name in ("position_embedding", "pooling", "precision")
        if (value := getattr(given, name)) is not None
    }
    with said_warnings(), progress_bars(given.quiet) as progress:
        cohort = build_cohort(
            given.inputs,
            given.cohort,
            subjects=given.subjects,
            any_modality=given.any_modality,
            options=CohortOptions(
                encoder=given.encoder,
                encoder_options=options,
                input_size=given.input_size,
                device=given.device,
                protocol=given.protocol,
                plane=given.plane,
                seed=given.seed,
                robust=given.robust,
                anonymize=given.anonymize,
                thumbnails=given.thumbnails,
                parts=given.parts,
                cache=not given.no_cache,
            ),
            progress=progress,
        )
    facts = cohort.facts
    warn(refusals(facts.refused))
    if not given.quiet:
        warn(facts.warnings)
        print(f"Subjects: {facts.subject_rule}.")
        print(f"Encoder:  {facts.encoder} ({facts.encoder_description}).")
        print(
            f"Cohort:   {cohort.path}: {cohort.slice_count} slices of {cohort.subject_count} "
            f"subjects, {facts.skipped} not scorable; certifies an error rate of "
            f"{cohort.certifiable_alpha:.3g} at best."
        )
    if facts.anonymized:
        return 0
    return _refused_code(given.inputs, cohort.sources, facts.refused)


def score(given: argparse.Namespace) -> int:
    """Score images against a cohort."""
    from MemorizationIndexLib import audit
    from MemorizationIndexLib.outputs import prepared_outputs, write_outputs

    with (
        prepared_outputs(given.out),
        said_warnings(),
        progress_bars(given.quiet) as progress,
    ):
        result = audit.score(
            given.inputs,
            given.cohort,
            subjects=given.subjects,
            any_modality=given.any_modality,
            options=audit.AuditOptions(
                alpha=given.alpha,
                plane=given.plane,
                encoder=given.encoder,
                device=given.device,
                cache=not given.no_cache,
                pictures=not given.hide_subjects,
                verify=not given.no_verify,
                parts=not given.no_parts,
            ),
            progress=progress,
        )
    written = write_outputs(result, given.out, hide_subjects=given.hide_subjects)
    summary = result.summary
    warn(refusals(summary.refused))
    if not given.quiet:
        warn(summary.warnings)
        print(f"Subjects: {summary.subject_rule}.")
        print(f"Finding:  {summary.finding}")
        if left := summary.slices - summary.scored:
            reason = next(one.reason for one in result.slices if one.reason)
            print(f"Left out: {left} of {summary.slices} slices; the first: {reason}")
        print(f"Report:   {written[-1]}")
    if given.fail_on and _met(result, given.fail_on):
        return 3
    if not summary.scored:
        reason = next((one.reason for one in result.slices if one.reason), "")
        print(f"memorization-index: {summary.finding} The first: {reason}.", file=sys.stderr)
        return 2
    return _refused_code(given.inputs, [one.source for one in result.slices], summary.refused)


def show(given: argparse.Namespace) -> int:
    """Print the facts of a cohort."""
    from MemorizationIndexLib.cohort import load_cohort
    from MemorizationIndexLib.index.scores import null_spread
    from MemorizationIndexLib.part_search import parts_in_words

    cohort = load_cohort(given.cohort)
    facts = cohort.facts
    counts = np.bincount(cohort.reference.subjects, minlength=cohort.subject_count).tolist()
    slices_of = dict(zip(facts.subjects, counts, strict=True))
    if given.json:
        content = dataclasses.asdict(facts)
        content |= {"poses": list(dict.fromkeys(facts.poses)), "pose_count": len(facts.poses)}
        content |= {"slices": cohort.slice_count, "certifiable_alpha": cohort.certifiable_alpha}
        content |= {"slices_of_subjects": slices_of}
        print(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False))
        return 0
    spread = null_spread(cohort.null.similarity, cohort.protocol)
    rows = [
        ("Cohort", str(cohort.path)),
        ("Slices", f"{cohort.slice_count}, and {facts.skipped} that could not be scored"),
        ("Subjects", f"{cohort.subject_count} ({facts.subject_rule})"),
        ("Error rate", f"certifies {cohort.certifiable_alpha:.3g} at best, 1/(subjects + 1)"),
        ("Encoder", f"{facts.encoder}: {facts.encoder_description}"),
        ("Fingerprint", facts.fingerprint),
        ("Input", f"{facts.input_size} pixels, plane {facts.plane}"),
        (
            "Layers",
            ", ".join(
                f"{layer} ({width} features, shrinkage {shrinkage:.3f})"
                for layer, width, shrinkage in zip(
                    facts.layers, facts.widths, facts.shrinkage, strict=True
                )
            ),
        ),
        ("Protocol", facts.protocol),
        ("Search", _search_in_words(facts.poses) if facts.robust else "slices as they are"),
        (
            "Null",
            f"{len(cohort.null.similarity)} similarities, mean {spread.mean:.4f}, standard "
            f"deviation {spread.sd:.4f}"
            if spread.defined
            else "undefined, see the warnings",
        ),
        ("Names", "salted hashes" if facts.anonymized else "as found"),
        ("Pictures", "stored" if cohort.thumbnails is not None else "not stored"),
        ("Parts", parts_in_words(cohort)),
        ("Built", f"{facts.created}, version {facts.library_version}, seed {facts.seed}"),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    for sentence in [*facts.warnings, *refusals(facts.refused)]:
        print(f"{'Note':<{width}}  {sentence}")
    print("Slices by subject")
    listed = list(slices_of.items())[: None if given.all else LISTED]
    longest = max(len(name) for name, _ in listed)
    for name, count in listed:
        print(f"  {name:<{longest}}  {count}")
    if left := len(slices_of) - len(listed):
        print(f"  and {left} more subject{'s' * (left != 1)}; --all lists them")
    return 0


def _search_in_words(poses: Sequence[str]) -> str:
    """Name each pose of the stored slices once; flips are added to every one of them."""
    still = Counter(label for label in poses if not label.startswith(("flipped", "turned")))
    named = [
        (label or "as they are") + (f" in {count} places" if count > 1 else "")
        for label, count in still.items()
    ]
    return f"slices {', '.join(named)}; each of these flipped too"


def demo(given: argparse.Namespace) -> int:
    """Audit phantom patients."""
    from MemorizationIndexLib import demo as demonstration

    with said_warnings(), progress_bars(given.quiet) as progress:
        found = demonstration.run_demo(given.out, progress=progress)
    if not given.quiet:
        warn(found.result.summary.warnings)
        print("These are phantoms: made-up patients, not people.")
        print(f"Cohort:   {found.cohort}")
        print(f"Images:   {found.query} ({found.planted} slices in it are disguised copies)")
        print(f"Finding:  {found.result.summary.finding}")
        print(
            f"Truth:    {found.found} of {found.planted} planted copies were called a copy, "
            f"{found.named} with the right patient; {found.false} of {found.fresh} fresh slices."
        )
        print(f"Report:   {found.report}")
    return 0


def weights(given: argparse.Namespace) -> int:
    """Show, fetch, register or remove the weights of MRI-CORE."""
    from MemorizationIndexLib.encoders import weights as store
    from MemorizationIndexLib.encoders.encoder import EncoderError
    from MemorizationIndexLib.progress import Progress

    for option, partner in (("yes", "fetch"), ("forget", "remove")):
        if getattr(given, option) and not getattr(given, partner):
            raise EncoderError(f"--{option} does something only with --{partner}: give both.")
    if given.fetch:
        with progress_bars(given.quiet) as progress:
            state = store.fetch_weights(
                confirm=(lambda question: True) if given.yes else _ask,
                progress=lambda done, total: progress(
                    Progress("Downloading", done, total or done, "bytes")
                ),
            )
    elif given.file is not None:
        state = store.register_weights(given.file)
    elif given.remove:
        state = store.remove_weights(forget=given.forget)
    else:
        state = store.weights_state()
    if not given.quiet:
        print(state.sentence())
        if not (given.fetch or given.remove):
            print(f"Published at {state.source}; license: {state.license}.")
    return 0


def cache(given: argparse.Namespace) -> int:
    """Show or clear the feature cache."""
    from MemorizationIndexLib.encoders.cache import (
        LIMIT_VARIABLE,
        cache_state,
        clear_cache,
        default_limit,
    )

    if given.clear:
        print(f"{clear_cache() / 2**20:.1f} MiB were freed.")
        return 0
    state = cache_state()
    rows = "an unreadable file" if state.rows is None else f"features of {state.rows} slices"
    with said_warnings():
        limit = default_limit()
    bound = f"at most {limit / 2**20:.0f} MiB" if limit else "turned off"
    print(
        f"{state.path}: {rows}, {state.bytes / 2**20:.1f} MiB; {bound} "
        f"({LIMIT_VARIABLE}=MiB changes that)."
    )
    return 0


def _met(result: AuditResult, fail_on: str) -> bool:
    grave = {Verdict.COPY} if fail_on == "copy" else {Verdict.COPY, Verdict.SUSPICIOUS}
    return any(one.verdict in grave for one in result.slices)


def _ask(question: str) -> bool:
    if not sys.stdin.isatty():
        return False
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def _refused_code(
    inputs: Sequence[str], sources: Iterable[str], refused: Sequence[tuple[str, str]]
) -> int:
    """Return 2 if one of the user's own inputs gave nothing at all, else 0."""
    exact = {Path(source).expanduser().absolute() for source in sources if source}
    used = exact | {folder for source in exact for folder in source.parents}
    lost = {Path(place).expanduser().absolute() for place, _ in refused if place}
    for name in inputs:
        place = Path(name).expanduser().absolute()
        # The files of a DICOM series are known by their folder.
        found = place in used or (place.parent in exact and place not in lost)
        if place.suffix.lower() != ".csv" and not found:
            print(f"memorization-index: nothing in {name} could be used.", file=sys.stderr)
            return 2
    return 0
