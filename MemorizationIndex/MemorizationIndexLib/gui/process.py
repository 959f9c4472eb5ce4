"""The worker as a child process of the application: started, listened to, ended for certain."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import qt
import slicer
import slicer.util

from ..worker import JOB_FILE
from .messages import LineReader

LIBRARY_PARENT = Path(__file__).resolve().parents[2]
"""The folder that holds the library; the worker starts there to find it."""

KILL_AFTER = 3.0
"""Seconds that a worker has to end when it is asked to."""

SILENT_AFTER = 20.0
"""Seconds without a sign of life after which the user is told; the worker sends one every 2."""

STALLED_AFTER = 60.0
"""Seconds without news, though not without signs of life, after which the user is told."""

MOST_LOG_LINES = 2000
MOST_LINE = 2000
"""Characters of a line in the log; the middle of a longer one is left out."""

MOST_PENDING = 1 << 16
"""Bytes of standard error without a line end that are kept; more become a line."""


@dataclass(frozen=True)
class Outcome:
    """How a worker ended.

    Attributes:
        kind: ``finished``, ``failed`` (it said why), ``cancelled`` or ``crashed`` (it did not).
        message: One sentence for people; empty if it finished.
        returned: What the job returned, if it finished.
        unexpected: Whether it is a defect of the program rather than of the input.
    """

    kind: str
    message: str = ""
    returned: dict[str, Any] = field(default_factory=dict)
    unexpected: bool = False


def python_program() -> str:
    """Return the Python that can run the library: PythonSlicer, else the one running now."""
    name = "PythonSlicer.exe" if os.name == "nt" else "PythonSlicer"
    beside = Path(slicer.app.slicerHome) / "bin" / name
    if beside.is_file():
        return str(beside)
    return shutil.which("PythonSlicer") or sys.executable


def worker_command(folder: Path) -> list[str]:
    """Return the program and the arguments that do the job of a folder."""
    return [python_program(), "-u", "-m", "MemorizationIndexLib.worker", str(folder)]


class WorkerProcess:
    """One job in a process of its own. Use each object once.

    Args:
        folder: Where the job is written; the worker writes its results there.
        job: What to do; see ``worker.JOBS``.
        on_message: Called with each message but signs of life.
        on_end: Called once, with how it ended, when the process is gone.
        on_silence: Called with the seconds of silence, twice a second while it lasts, and with 0
            when it is over.
        on_stall: Called with the seconds without a message but signs of life, twice a second.
    """

    def __init__(
        self,
        folder: Path,
        job: dict[str, Any],
        *,
        on_message: Callable[[dict[str, Any]], None],
        on_end: Callable[[Outcome], None],
        on_silence: Callable[[float], None] | None = None,
        on_stall: Callable[[float], None] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.log: list[str] = []
        self._job = job
        self._on_message, self._on_end = on_message, on_end
        self._on_silence, self._on_stall = on_silence, on_stall
        self._reader = LineReader()
        self._errors = b""
        self._last: Outcome | None = None
        self._cancelled = False
        self._started = self._ended = False
        self._pid = self._launcher = 0
        self._silent = False
        self._heard = self._told = time.monotonic()
        self._process: Any = None
        self._watch: Any = None
        self._kill_at: float | None = None

    @property
    def running(self) -> bool:
        """Whether the process has been started and has not ended."""
        return self._process is not None and not self._ended

    def start(self) -> None:
        """Write the job and start the process.

        Raises:
            OSError: The job cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / JOB_FILE).write_text(json.dumps(self._job), encoding="utf-8")
        process = self._process = qt.QProcess()
        process.setProcessEnvironment(_environment())
        process.setWorkingDirectory(str(LIBRARY_PARENT))
        process.connect("started()", self._on_started)
        process.connect("readyReadStandardOutput()", self._read_output)
        process.connect("readyReadStandardError()", self._read_errors)
        process.connect("finished(int,QProcess::ExitStatus)", self._on_finished)
        process.connect("errorOccurred(QProcess::ProcessError)", self._on_error)
        self._watch = qt.QTimer()
        self._watch.interval = 500
        self._watch.connect("timeout()", self._look)
        self._watch.start()
        self._heard = self._told = time.monotonic()
        program, *arguments = worker_command(self.folder)
        process.start(program, arguments)

    def cancel(self) -> None:
        """Ask the process to end; it is killed if it does not in :data:`KILL_AFTER` seconds."""
        if not self.running:
            return
        self._cancelled = True
        self._process.terminate()
        if self._kill_at is None:
            self._kill_at = time.monotonic() + KILL_AFTER

    def stop(self) -> None:
        """End the process now and wait until it is gone; nothing is called any more."""
        if not self.running:
            return
        self._on_message, self._on_end = _nothing, _nothing
        self._on_silence = self._on_stall = None
        self._cancelled = True
        self._kill()
        self._process.waitForFinished(5000)
        self._end(Outcome("cancelled"))

    def wait(self, seconds: float | None = None) -> bool:
        """Let it work and listen until it has ended, for scripts; False if time is over."""
        until = None if seconds is None else time.monotonic() + seconds
        while self.running:
            if until is not None and time.monotonic() > until:
                return False
            self._process.waitForFinished(50)
            slicer.app.processEvents()
        return True

    def _read_output(self) -> None:
        self._take(_bytes(self._process.readAllStandardOutput()))

    def _take(self, data: bytes) -> None:
        if not data:
            return
        self._heard = time.monotonic()
        for message in self._reader.feed(data):
            self._receive(message)
        self._keep(self._reader.other)
        self._reader.other.clear()

    def _receive(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "started":
            self._pid = int(message.get("pid") or 0)
        elif kind == "finished":
            returned = {key: value for key, value in message.items() if key != "type"}
            self._last = Outcome("finished", returned=returned)
        elif kind == "failed":
            self._last = Outcome(
                "failed", str(message.get("message")), unexpected=bool(message.get("unexpected"))
            )
        if kind != "alive":
            self._told = time.monotonic()
            self._on_message(message)

    def _read_errors(self) -> None:
        self._errors += _bytes(self._process.readAllStandardError())
        *lines, self._errors = self._errors.split(b"\n")
        if len(self._errors) > MOST_PENDING:
            # A progress bar writes one endless line.
            lines, self._errors = [*lines, self._errors], b""
        self._keep(line.decode("utf-8", "replace").rstrip() for line in lines)

    def _keep(self, lines: Iterable[str]) -> None:
        self.log.extend(map(_short, lines))
        del self.log[:-MOST_LOG_LINES]

    def _look(self) -> None:
        if not self.running:
            return
        now = time.monotonic()
        if self._kill_at is not None and now > self._kill_at:
            self._kill_at = now + KILL_AFTER
            self._kill()
        stall = now - self._told
        if stall > STALLED_AFTER and self._on_stall is not None:
            self._on_stall(stall)
        silence = now - self._heard
        if silence > SILENT_AFTER:
            self._silent = True
        elif self._silent:
            self._silent, silence = False, 0.0
        else:
            return
        if self._on_silence is not None:
            self._on_silence(silence)

    def _kill(self) -> None:
        self._process.kill()
        self._kill_python()

    def _kill_python(self) -> None:
        # PythonSlicer is a launcher: ending it alone could leave Python behind.
        if self._pid and self._pid not in (os.getpid(), self._launcher):
            with contextlib.suppress(OSError):
                os.kill(self._pid, getattr(signal, "SIGKILL", signal.SIGTERM))

    def _on_started(self) -> None:
        self._started = True
        self._launcher = int(self._process.processId())

    def _on_error(self, *_: Any) -> None:
        # Only a process that never started says nothing more; all others also say "finished".
        if not self._ended and not self._started:
            self._end(Outcome("crashed", f"The worker cannot be started with {python_program()}."))

    def _on_finished(self, code: int, *_: Any) -> None:
        if self._ended:
            return
        self._read_output()
        self._read_errors()
        self._keep([self._errors.decode("utf-8", "replace")] if self._errors else [])
        if self._last is not None and (self._last.kind == "finished") == (code == 0):
            self._end(self._last)
            return
        self._kill_python()
        if self._cancelled:
            self._end(Outcome("cancelled", "Cancelled."))
        else:
            self._end(
                Outcome(
                    "crashed",
                    f"The worker stopped without a word (exit code {code}); it may have been "
                    "killed or have run out of memory.",
                )
            )

    def _end(self, outcome: Outcome) -> None:
        if self._ended:
            return
        self._ended = True
        self._watch.stop()
        self._on_end(outcome)


def _nothing(_: Any) -> None:
    pass


def _short(line: str) -> str:
    # What a terminal would show of a progress bar; the ends of what is too long.
    line = line.rstrip("\r").rpartition("\r")[2]
    half = MOST_LINE // 2
    return line if len(line) <= MOST_LINE else f"{line[:half]} … {line[-half:]}"


def _environment() -> Any:
    environment = qt.QProcessEnvironment()
    for key, value in slicer.util.startupEnvironment().items():
        environment.insert(key, value)
    before = environment.value("PYTHONPATH", "")
    paths = [str(LIBRARY_PARENT), *([before] if before else [])]
    environment.insert("PYTHONPATH", os.pathsep.join(paths))
    environment.insert("PYTHONUTF8", "1")
    environment.insert("PYTHONIOENCODING", "utf-8")
    return environment


def _bytes(value: Any) -> bytes:
    if hasattr(value, "data"):
        value = value.data()
    return value.encode("latin-1", "replace") if isinstance(value, str) else bytes(value)
