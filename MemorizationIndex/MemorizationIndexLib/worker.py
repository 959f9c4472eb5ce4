"""The library in a process of its own: ``python -m MemorizationIndexLib.worker FOLDER``.

``FOLDER/job.json`` says what to do (see :data:`JOBS`). What happens is told on standard output, one
JSON object a line; each has a ``type``:

=============  ===============================================================================
``started``    ``pid``, ``version``
``alive``      every :data:`HEARTBEAT` seconds, from a thread of its own
``progress``   ``stage``, ``done``, ``total`` (0 where unknown), ``unit``
``note``       ``text``: something a person should know
``volume``     ``name``, ``folder``: one volume is finished and its result is on disk
``finished``   what the job returns
``failed``     ``message``: one sentence; ``unexpected``: whether it is a defect of the program
=============  ===============================================================================

Everything else that a library prints goes to standard error. The worker ends by itself when
standard input closes or, where the system tells, when the process that started it is gone. One
worker at a time works in a folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from .locking import HeldError, held
from .progress import Progress
from .version import __version__

if TYPE_CHECKING:
    from .cohort import Cohort
    from .encoders.encoder import Encoder

HEARTBEAT = 2.0
"""Seconds between two signs of life."""

PROGRESS_EVERY = 0.1
"""Seconds between two reports of the same stage; a faster one would only fill the pipe."""

MOST_REFUSED = 100
"""Refused inputs that are named; a line of thousands would not pass as one message."""

JOB_FILE = "job.json"
LOCK_FILE = "worker.lock"
SUBJECT_RULE = "by DICOM patient or name of the volume"
RESULT_FOLDER = "result"
VOLUME_FOLDER = "volumes"

Job = dict[str, Any]


class WorkerError(ValueError):
    """A job cannot be done; the message is one sentence: what is wrong, where, what to do."""


class Reporter:
    """Writes messages as lines of JSON, from any thread.

    Args:
        stream: Where to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._last: tuple[str, float] = ("", 0.0)

    def say(self, kind: str, **fields: Any) -> None:
        """Write one message; a closed pipe ends the process, since nobody listens any more."""
        line = json.dumps({"type": kind, **fields}, default=str)
        with self._lock:
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                os._exit(1)

    def told(self, progress: Progress) -> None:
        """Take the library's own reports."""
        if progress.note:
            self.say("note", text=progress.note)
        self.progress(progress.stage, progress.done, progress.total, progress.unit)

    def progress(self, stage: str, done: int, total: int, unit: str = "slices") -> None:
        """Write how far a stage is, unless it was said a moment ago; the end is always said."""
        now = time.monotonic()
        if done != total and self._last[0] == stage and now - self._last[1] < PROGRESS_EVERY:
            return
        self._last = (stage, now)
        self.say("progress", stage=stage, done=done, total=total, unit=unit)


def check(job: Job, folder: Path, reporter: Reporter) -> dict[str, Any]:
    """Import PyTorch and run a real computation on the device of the job."""
    import torch

    from .encoders.device import choose_device

    choice = choose_device(job.get("device", "auto"))
    return {"torch": torch.__version__, "device": choice.device, "reason": choice.reason}


def fetch_weights(job: Job, folder: Path, reporter: Reporter) -> dict[str, Any]:
    """Download MRI-CORE's weights; whoever wrote the job has asked the user."""
    from .encoders import weights

    state = weights.fetch_weights(
        confirm=lambda _question: True,
        progress=lambda done, total: reporter.progress(
            "Downloading weights", done, total or 0, "bytes"
        ),
    )
    return {"path": str(state.path), "sentence": state.sentence()}


def register_weights(job: Job, folder: Path, reporter: Reporter) -> dict[str, Any]:
    """Check a local weights file and use it from now on."""
    from .encoders import weights

    state = weights.register_weights(job["path"])
    return {"path": str(state.path), "sentence": state.sentence()}


def score(job: Job, folder: Path, reporter: Reporter) -> dict[str, Any]:
    """Check the volumes of the job's folder against a cohort, one volume after the other.

    After each volume the result of all volumes so far is written, so that nothing that is finished
    is lost however the worker ends. Laying the matches over the flagged slices takes longer than
    all the rest and comes last; nothing is matched a second time for it.
    """
    from .audit import AuditOptions, score_volumes
    from .cohort import load_cohort
    from .cohort.building import expected_slices, nothing_left
    from .exchange import read_volumes, write_result
    from .findings import FLAGGED
    from .images.volume import ImageError
    from .joining import join
    from .results import AuditResult
    from .verifying import verify_result

    volumes = read_volumes(folder / VOLUME_FOLDER)
    reporter.progress("Reading the cohort", 0, 0, "")
    cohort = load_cohort(job["cohort"])
    reporter.progress("Loading the encoder", 0, 0, "")
    encoder, note = encoder_of(cohort, job.get("device", "auto"), _batch(job))
    reporter.say("note", text=note)
    plane = None if job.get("plane", "auto") == "auto" else job["plane"]
    options = AuditOptions(
        alpha=job["alpha"], plane=plane, device=job.get("device", "auto"), verify=False
    )
    counts = [expected_slices(volume, plane or cohort.facts.plane) for volume in volumes]
    results: list[AuditResult] = []
    refused: list[tuple[str, str]] = []
    for number, volume in enumerate(volumes):
        before, total = sum(counts[:number]), sum(counts)

        def told(progress: Progress, before: int = before, total: int = total) -> None:
            if progress.unit == "slices" and progress.total:
                progress = dataclasses.replace(progress, done=before + progress.done, total=total)
            reporter.told(progress)

        try:
            found = score_volumes(
                [volume],
                cohort,
                subject_rule=SUBJECT_RULE,
                options=options,
                encoder=encoder,
                progress=told,
            )
        except ImageError as error:
            refused.append((volume.name, str(error)))
            counts[number] = 0
            named = volume.name in str(error)
            reporter.say("note", text=str(error) if named else f"{volume.name}: {error}")
            continue
        results.append(found)
        partial = f"{RESULT_FOLDER}{number}"
        write_result(join(results, cohort), folder / partial)
        reporter.say("volume", name=volume.name, folder=partial)
    if not results:
        raise ImageError(nothing_left(refused))
    result = join(results, cohort)
    if any(row.verdict in FLAGGED for row in result.slices):
        result = verify_result(
            result, volumes, cohort, encoder, plane=plane, progress=reporter.told
        )
    summary = dataclasses.replace(result.summary, refused=(*result.summary.refused, *refused))
    write_result(dataclasses.replace(result, summary=summary), folder / RESULT_FOLDER)
    return {}


def encoder_of(cohort: Cohort, device: str, batch: int) -> tuple[Encoder, str]:
    """Make the encoder of a cohort.

    Args:
        cohort: Names the encoder.
        device: Where it shall run.
        batch: Slices it shall compute at once; 0 for its own choice.

    Returns:
        The encoder, and what a person should know about it.
    """
    from .encoders.registry import choice_sentences, get_encoder

    facts = cohort.facts
    batch_option, note = _batch_option(facts.encoder, batch)
    encoder = get_encoder(
        facts.encoder,
        input_size=facts.input_size,
        device=device,
        **{**facts.encoder_options, **batch_option},
    )
    return encoder, f"{choice_sentences(facts.encoder, encoder)} {note}".strip()


def _batch_option(encoder: str, batch: int) -> tuple[dict[str, Any], str]:
    """Return the option that sets the slices at once, and a sentence where there is none."""
    from .encoders.registry import BUILTIN, MRI_CORE

    if not batch:
        return {}, ""
    if encoder == MRI_CORE:
        return {"batch": batch}, ""
    whose = "the built-in encoder" if encoder == BUILTIN else "an encoder of your own"
    return {}, f"The choice of {batch} slices at once is for MRI-CORE; {whose} has its own."


def build(job: Job, folder: Path, reporter: Reporter) -> dict[str, Any]:
    """Build a cohort of files (``inputs``) or of the volumes in the job's folder."""
    from .cohort import build_cohort, build_cohort_from_volumes
    from .cohort.building import CohortOptions
    from .encoders.registry import resolve_encoder
    from .exchange import read_volumes

    name = resolve_encoder(job["encoder"])
    batch_option, note = _batch_option(name, _batch(job))
    if note:
        reporter.say("note", text=note)
    options = CohortOptions(
        encoder=job["encoder"],
        encoder_options=batch_option,
        input_size=job.get("input_size") or None,
        device=job.get("device", "auto"),
        protocol=job.get("protocol", "calibrated"),
        plane=job.get("plane", "auto"),
        anonymize=bool(job.get("anonymize", False)),
        thumbnails=bool(job.get("thumbnails", True)),
        parts=bool(job.get("parts", False)),
    )
    if "inputs" in job:
        cohort = build_cohort(job["inputs"], job["path"], options=options, progress=reporter.told)
    else:
        volumes = read_volumes(folder / VOLUME_FOLDER)
        cohort = build_cohort_from_volumes(
            volumes, job["path"], options=options, progress=reporter.told
        )
    facts = cohort.facts
    refused = [f"{path}: {why}" for path, why in facts.refused[:MOST_REFUSED]]
    if len(facts.refused) > MOST_REFUSED:
        refused.append(f"and {len(facts.refused) - MOST_REFUSED} more")
    return {"path": str(cohort.path), "warnings": list(facts.warnings), "refused": refused}


def _batch(job: Job) -> int:
    return int(job.get("batch_size") or 0)


def demo(job: Job, folder: Path, reporter: Reporter) -> dict[str, Any]:
    """Make phantom patients, a cohort of them, and a volume that copies some of their slices.

    ``numbers`` may name other numbers than ``phantoms.write_phantom_cohort`` has by default, and
    ``input_size`` another size for the encoder.
    """
    place = Path(job["folder"])
    place.parent.mkdir(parents=True, exist_ok=True)
    with _alone(place.with_name(f"{place.name}.lock"), place):
        return _make_demo(job, place, reporter)


def _make_demo(job: Job, place: Path, reporter: Reporter) -> dict[str, Any]:
    from .cohort import build_cohort
    from .cohort.building import CohortOptions
    from .encoders.registry import BUILTIN
    from .exchange import write_volumes
    from .images import find_images, read_source
    from .phantoms import write_phantom_cohort, write_synthetic_volume

    shutil.rmtree(place, ignore_errors=True)
    reporter.progress("Making phantoms", 0, 0, "")
    numbers = job.get("numbers", {})
    write_phantom_cohort(place / "training", **numbers)
    path, _ = write_synthetic_volume(place / "synthetic", **numbers)
    options = CohortOptions(
        encoder=BUILTIN, input_size=job.get("input_size"), thumbnails=True, cache=False
    )
    cohort = build_cohort(
        place / "training", place / "phantoms.micohort", options=options, progress=reporter.told
    )
    source = find_images([path]).sources[0]
    write_volumes(read_source(source), place / "volume")
    return {"cohort": str(cohort.path), "volume": str(place / "volume")}


JOBS: dict[str, Callable[[Job, Path, Reporter], dict[str, Any]]] = {
    "score": score,
    "build": build,
    "demo": demo,
    "check": check,
    "fetch weights": fetch_weights,
    "register weights": register_weights,
}
"""What the worker can do: the job's ``kind`` to the function that does it."""


def run(folder: Path, stream: TextIO) -> int:
    """Do the job of a folder and tell about it.

    Args:
        folder: Holds ``job.json``; results are written there.
        stream: Where the messages go.

    Returns:
        The exit status: 0, or 1 if the job failed.
    """
    reporter = Reporter(stream)
    reporter.say("started", pid=os.getpid(), version=__version__)
    ended = threading.Event()
    threading.Thread(target=_stay_alive, args=(reporter, ended), daemon=True).start()
    try:
        job = json.loads((folder / JOB_FILE).read_text(encoding="utf-8"))
        with _alone(folder / LOCK_FILE, folder):
            returned = JOBS[job["kind"]](job, folder, reporter)
    except Exception as error:
        # Standard error may be closed: the message matters more.
        with contextlib.suppress(OSError, ValueError):
            traceback.print_exc()
        message, unexpected = explain(error)
        reporter.say("failed", message=message, unexpected=unexpected)
        return 1
    finally:
        ended.set()
    reporter.say("finished", **returned)
    return 0


@contextlib.contextmanager
def _alone(lock: Path, folder: Path) -> Iterator[None]:
    try:
        with held(lock):
            yield
    except HeldError:
        raise WorkerError(
            f"Another run is at work in {folder}; wait until it has ended, then try again."
        ) from None


def explain(error: BaseException) -> tuple[str, bool]:
    """Return an error as one sentence for people, and whether it is a defect of the program."""
    text = " ".join(str(error).split())
    if _lacks_torch(error):
        return (
            f"PyTorch cannot be loaded ({text}); install it in Setup, or if it is installed, "
            "uninstall it in the module PyTorch Utils, restart Slicer and install it again.",
            False,
        )
    if isinstance(error, ImportError):
        return f"A Python package cannot be loaded: {text}; install it and try again.", False
    if isinstance(error, MemoryError):
        return "There is not enough memory; close other programs or audit fewer volumes.", False
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        full = error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
        what = "; free some space there and try again" if full else ""
        return f"A file cannot be read or written: {error.strerror or text}{where}{what}.", False
    if isinstance(error, ValueError) and type(error) is not ValueError:
        # The library's own errors: each room raises its subclass with a sentence for people.
        return text, False
    return f"An unexpected error stopped the computation: {type(error).__name__}: {text}", True


def _lacks_torch(error: BaseException) -> bool:
    """Return whether PyTorch is missing, or failed while it was loaded, in whatever way."""
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "torch":
        return True
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        module = str(frame.f_globals.get("__name__", ""))
        if frame.f_code.co_name == "<module>" and module.partition(".")[0] == "torch":
            return True
        trace = trace.tb_next
    return False


def _stay_alive(reporter: Reporter, ended: threading.Event) -> None:
    parent = os.getppid()
    while not ended.wait(HEARTBEAT):
        if os.name == "posix" and os.getppid() != parent:
            os._exit(1)
        reporter.say("alive")


def _end_with_standard_input() -> None:
    """End when standard input closes: the program that started the worker is gone.

    The pipe is moved away from standard input first. On Windows, a library that looks at standard
    input while it is loaded would wait for ever behind the pending read (numpy/numpy#24290).
    """
    pipe = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()


def _end_with(pipe: int) -> None:
    try:
        while os.read(pipe, 4096):
            pass
    except OSError:
        pass
    os._exit(1)


def main(arguments: list[str] | None = None) -> int:
    """Run one job; the command line is the job's folder."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) != 1:
        print("usage: python -m MemorizationIndexLib.worker FOLDER", file=sys.stderr)
        return 2
    # A library that prints must not break the messages: only this stream leads to the old stdout.
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)
    _end_with_standard_input()
    return run(Path(arguments[0]), stream)


if __name__ == "__main__":
    sys.exit(main())
