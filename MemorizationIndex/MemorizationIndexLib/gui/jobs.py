"""One job for the worker, from the files it gets to what it found."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import slicer

from ..exchange import ExchangeError, read_result, write_volumes
from ..images.volume import Volume
from ..results import AuditResult
from ..worker import RESULT_FOLDER, VOLUME_FOLDER
from .messages import TimeLeft
from .process import Outcome, WorkerProcess


@dataclass(frozen=True)
class Progress:
    """How far a job is.

    Attributes:
        stage: What it does.
        done: How much of it is done.
        total: How much there is; 0 where unknown.
        unit: What is counted.
        seconds_left: An estimate; None where there is too little to go by.
        seconds_stalled: For how long nothing new was told; 0 while all goes on.
    """

    stage: str
    done: int
    total: int
    unit: str
    seconds_left: float | None
    seconds_stalled: float = 0.0


def _nothing(*_: Any) -> None:
    pass


class JobError(RuntimeError):
    """A job did not finish; the message says why.

    Attributes:
        result: The result of the volumes that were finished; None without any.
    """

    def __init__(self, message: str, result: AuditResult | None = None) -> None:
        super().__init__(message)
        self.result = result


class Job:
    """A job in a worker process, in a folder that is removed when it has ended.

    Args:
        job: What to do; see ``worker.JOBS``.
        volumes: Volumes that the job is about; None if it is about files.

    Attributes:
        result: What an audit found so far: all volumes that are finished.
        outcome: How it ended; None before.
        on_progress: Called with a :class:`Progress`.
        on_note: Called with a sentence.
        on_volume: Called with the result so far when a volume is finished.
        on_silence: Called with the seconds for which the worker has said nothing.
        on_end: Called with the :class:`Outcome`, once.
    """

    def __init__(self, job: dict[str, Any], volumes: Sequence[Volume] | None = None) -> None:
        self.kind = str(job["kind"])
        self.result: AuditResult | None = None
        self.outcome: Outcome | None = None
        self.on_progress: Callable[[Progress], None] = _nothing
        self.on_note: Callable[[str], None] = _nothing
        self.on_volume: Callable[[AuditResult], None] = _nothing
        self.on_silence: Callable[[float], None] = _nothing
        self.on_end: Callable[[Outcome], None] = _nothing
        self._time_left = TimeLeft()
        self._progress = Progress("", 0, 0, "", None)
        self._volumes = volumes
        self.folder = Path(
            tempfile.mkdtemp(prefix="MemorizationIndex", dir=slicer.app.temporaryPath)
        )
        self.process = WorkerProcess(
            self.folder,
            job,
            on_message=self._on_message,
            on_end=self._on_end,
            on_silence=lambda seconds: self.on_silence(seconds),
            on_stall=self._on_stall,
        )

    @property
    def running(self) -> bool:
        """Whether the worker is at work."""
        return self.process.running

    @property
    def log(self) -> list[str]:
        """What the worker wrote besides its messages."""
        return self.process.log

    def start(self) -> None:
        """Hand the volumes over and start the worker.

        Raises:
            OSError: The disk is full or locked.
        """
        try:
            if self._volumes is not None:
                write_volumes(self._volumes, self.folder / VOLUME_FOLDER)
            self._volumes = None
            self.process.start()
        except BaseException:
            self._remove_folder()
            raise

    def cancel(self) -> None:
        """Ask the worker to end; finished volumes are kept."""
        self.process.cancel()

    def stop(self) -> None:
        """End the worker now; nothing is called any more, finished volumes are kept."""
        self.process.stop()
        self._remove_folder()

    def wait(self) -> AuditResult | None:
        """Wait for the end, for scripts.

        Returns:
            The result of an audit; None for other jobs.

        Raises:
            JobError: It did not finish.
        """
        self.process.wait()
        if self.outcome is None or self.outcome.kind != "finished":
            message = self.outcome.message if self.outcome else "The job was stopped."
            raise JobError(message, self.result)
        return self.result

    def _on_message(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "progress":
            stage, done = str(message["stage"]), int(message["done"])
            total = int(message.get("total") or 0)
            left = self._time_left.update(time.monotonic(), stage, done, total)
            self._progress = Progress(stage, done, total, str(message.get("unit", "")), left)
            self.on_progress(self._progress)
        elif kind == "note":
            self.on_note(str(message["text"]))
        elif kind == "volume" and self._read(str(message["folder"])):
            assert self.result is not None
            self.on_volume(self.result)

    def _on_stall(self, seconds: float) -> None:
        # What was estimated from an older pace holds no longer.
        if self._progress.stage:
            self.on_progress(replace(self._progress, seconds_left=None, seconds_stalled=seconds))

    def _read(self, folder: str) -> bool:
        try:
            self.result = read_result(self.folder / folder)
        except ExchangeError as error:
            self.process.log.append(str(error))
            return False
        return True

    def _on_end(self, outcome: Outcome) -> None:
        written = outcome.kind == "finished" and (self.folder / RESULT_FOLDER).is_dir()
        if written and not self._read(RESULT_FOLDER):
            outcome = Outcome("failed", self.process.log[-1], unexpected=True)
        self.outcome = outcome
        self._remove_folder()
        self.on_end(outcome)

    def _remove_folder(self) -> None:
        # It holds the patient's voxels.
        shutil.rmtree(self.folder, ignore_errors=True)
