"""The commands around evidence: evaluate, curate and duplicates."""

from __future__ import annotations

import argparse
from contextlib import nullcontext

from MemorizationIndexLib.cli.notes import refusals, said_warnings, warn
from MemorizationIndexLib.cli.progress import progress_bars
from MemorizationIndexLib.results import Verdict


def evaluate(given: argparse.Namespace) -> int:
    """Run the experiment and write its tables and figures."""
    from MemorizationIndexLib.evaluation.experiment import ExperimentOptions, run_experiment
    from MemorizationIndexLib.evaluation.writing import write_evaluation
    from MemorizationIndexLib.outputs import prepared_outputs

    with (
        prepared_outputs(given.out),
        said_warnings(),
        progress_bars(given.quiet) as progress,
    ):
        experiment = run_experiment(
            given.data,
            given.out,
            subjects=given.subjects,
            options=ExperimentOptions(
                encoder=given.encoder,
                input_size=given.input_size,
                device=given.device,
                protocols=tuple(given.protocol or ["calibrated"]),
                seeds=given.seeds,
                plane=given.plane,
                robust=given.robust,
                slices_per_subject=given.slices_per_subject or None,
                cache=not given.no_cache,
            ),
            progress=progress,
        )
    page = write_evaluation(experiment, given.out)
    for facts in experiment.datasets:
        warn(refusals(facts.refused))
        if not given.quiet:
            warn(facts.warnings)
            print(f"{facts.name}: {facts.slices} slices; subjects: {facts.subject_rule}.")
    if not given.quiet:
        print(f"Encoder: {experiment.encoder} ({experiment.encoder_description}).")
        print(f"Trials:  {len(experiment.trials)}, {experiment.reused} of them from earlier runs.")
        print(f"Page:    {page}")
    return 0


def curate(given: argparse.Namespace) -> int:
    """Write a set without its copies."""
    from MemorizationIndexLib import curation

    with progress_bars(given.quiet) as progress:
        found = curation.curate(
            given.result, given.to, drop=given.drop, link=given.link, progress=progress
        )
    if not given.quiet:
        more = (
            f", {found.dropped_innocent} of them only because they share a volume or file with one"
            if found.dropped_innocent
            else ""
        )
        if found.kept:
            print(f"Kept:    {found.kept} slices in {found.files} files: {found.folder}")
        else:
            print(f"Kept:    nothing, so {found.folder} holds no image")
        print(f"Dropped: {found.dropped} slices{more}; see {found.folder / curation.DROPPED}")
    return 0


def duplicates(given: argparse.Namespace) -> int:
    """Find slices and subjects that occur twice."""
    from MemorizationIndexLib import duplicates as search
    from MemorizationIndexLib.cohort.building import CohortOptions
    from MemorizationIndexLib.duplicates_tables import duplicates_in_words, write_duplicates
    from MemorizationIndexLib.outputs import prepared_outputs

    with (
        prepared_outputs(given.out) if given.out is not None else nullcontext(),
        said_warnings(),
        progress_bars(given.quiet) as progress,
    ):
        found = search.find_duplicates(
            given.inputs,
            subjects=given.subjects,
            any_modality=given.any_modality,
            options=CohortOptions(
                encoder=given.encoder,
                device=given.device,
                plane=given.plane,
                cache=not given.no_cache,
            ),
            progress=progress,
        )
    warn(refusals(found.refused))
    if not given.quiet:
        warn(found.warnings)
        print(f"Subjects: {found.subject_rule}.")
        for line in duplicates_in_words(found):
            print(line)
    if given.out is not None:
        for path in write_duplicates(found, given.out):
            if not given.quiet:
                print(f"Written:  {path}")
    return 0


def verdict_list(text: str) -> tuple[Verdict, ...]:
    """Read ``copy,suspicious`` from the command line."""
    names = [name.strip().replace("-", " ") for name in text.split(",") if name.strip()]
    try:
        return tuple(dict.fromkeys(Verdict(name) for name in names))
    except ValueError:
        known = ", ".join(one.value.replace(" ", "-") for one in Verdict)
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a list of verdicts; name some of {known}, separated by commas"
        ) from None


def whole_number(text: str) -> int:
    """Read a number of at least 0 from the command line."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 0")
    return value
