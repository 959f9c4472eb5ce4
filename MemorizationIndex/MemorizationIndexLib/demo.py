"""The whole job on made-up patients: what a newcomer runs first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from MemorizationIndexLib.audit import score
from MemorizationIndexLib.cohort import build_cohort
from MemorizationIndexLib.cohort.building import CohortOptions
from MemorizationIndexLib.outputs import OutputError, prepare_outputs, write_outputs
from MemorizationIndexLib.phantoms import write_phantom_cohort, write_synthetic_volume
from MemorizationIndexLib.progress import Progress, ProgressFunction, quiet
from MemorizationIndexLib.results import AuditResult, Verdict

PATIENTS = "phantom-patients"
QUERY = "phantom-synthetic"
COHORT = "phantoms.micohort"
RESULTS = "results"

PHANTOMS = 20
"""Patients in the cohort."""

SLICES = 6
"""Slices of each: few enough that the demo takes seconds."""

_CONTENT = {PATIENTS, QUERY, COHORT, RESULTS}


@dataclass(frozen=True)
class Demonstration:
    """What the demo made and how the audit did.

    Attributes:
        cohort: The cohort.
        query: The synthetic volume.
        report: The report.
        result: What the audit found.
        planted: Number of planted copies.
        found: How many of them were called a copy.
        named: How many of those name the right patient.
        fresh: Number of slices of phantoms outside the cohort.
        false: How many of them were called a copy.
    """

    cohort: Path
    query: Path
    report: Path
    result: AuditResult
    planted: int
    found: int
    named: int
    fresh: int
    false: int


def run_demo(folder: str | Path, *, progress: ProgressFunction = quiet) -> Demonstration:
    """Make phantoms, a cohort of them and a synthetic volume with copies; audit; write a report.

    Args:
        folder: Where everything goes; an earlier demo there is replaced.
        progress: Told of the progress.

    Raises:
        OutputError: The folder holds something else or cannot be written.
    """
    folder = Path(folder)
    if folder.is_dir() and (
        others := {item.name for item in folder.iterdir() if item.name[0] != "."} - _CONTENT
    ):
        raise OutputError(
            f"{folder} holds {sorted(others)[0]}, which is not of the demo: choose another place "
            "with --out."
        )
    prepare_outputs(folder)
    progress(Progress("Making phantoms", 0, 0, "patients"))
    try:
        write_phantom_cohort(folder / PATIENTS, patients=PHANTOMS, slices=SLICES)
        (folder / QUERY).mkdir(exist_ok=True)
        query, planted = write_synthetic_volume(folder / QUERY, patients=PHANTOMS, slices=SLICES)
    except OSError as error:
        raise OutputError(
            f"The phantoms cannot be written in {folder} ({error.strerror or error}): make room, "
            "or choose another place with --out."
        ) from error
    cohort = build_cohort(
        folder / PATIENTS,
        folder / COHORT,
        options=CohortOptions(encoder="builtin", thumbnails=True),
        progress=progress,
    )
    result = score(query, cohort, progress=progress)
    report = write_outputs(result, folder / RESULTS)[-1]
    truth = {one.slice: one for one in planted}
    called = [one for one in result.slices if one.verdict is Verdict.COPY]
    found = [one for one in called if truth[one.slice].truth == "copy"]
    return Demonstration(
        cohort=cohort.path,
        query=query,
        report=report,
        result=result,
        planted=sum(one.truth == "copy" for one in planted),
        found=len(found),
        named=sum(one.nearest_subject == truth[one.slice].copied_subject for one in found),
        fresh=sum(one.truth == "fresh" for one in planted),
        false=sum(truth[one.slice].truth == "fresh" for one in called),
    )
