"""The worker process: every way in which it can go and end, and none that leaves it behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("slicer", reason="needs slicer-core from PyPI")
pytest.importorskip("PySide6.QtWidgets", reason="needs PySide6-Essentials from PyPI")

WORKER = Path(__file__).with_name("scripted_worker.py")


class Listener:
    def __init__(self):
        self.messages, self.outcomes, self.silences = [], [], []

    def worker(self, folder, job=None):
        from MemorizationIndexLib.gui import process

        return process.WorkerProcess(
            folder,
            job or {"kind": "x"},
            on_message=self.messages.append,
            on_end=self.outcomes.append,
            on_silence=self.silences.append,
        )


@pytest.fixture
def start(slicer_app, tmp_path, monkeypatch):
    from MemorizationIndexLib.gui import process

    monkeypatch.setattr(
        process, "worker_command", lambda folder: [sys.executable, str(WORKER), str(folder)]
    )
    started = []

    def start(steps, folder=None):
        listener = Listener()
        job = {"kind": "scripted", "steps": steps}
        worker = listener.worker(folder or tmp_path / f"job{len(started)}", job)
        worker.start()
        started.append(worker)
        return worker, listener

    yield start
    for worker in started:
        worker.stop()


def alive(pid):
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return status != "Z"


def pid_in(path, slicer_app):
    assert slicer_app.wait(20, lambda: path.exists() and path.read_text())
    return int(path.read_text())


def test_messages_arrive_in_order_and_the_end_is_told_once(start, slicer_app):
    steps = [["say", {"type": "progress", "done": n}] for n in range(200)]
    steps += [["say", {"type": "finished", "answer": 42}], ["exit", 0]]
    worker, listener = start(steps)
    assert slicer_app.wait(20, lambda: bool(listener.outcomes))
    assert [m["done"] for m in listener.messages[:200]] == list(range(200))
    assert [(o.kind, o.returned) for o in listener.outcomes] == [("finished", {"answer": 42})]
    assert not worker.running


def test_signs_of_life_are_not_passed_on(start, slicer_app):
    _, listener = start([["say", {"type": "alive"}], ["say", {"type": "finished"}], ["exit", 0]])
    assert slicer_app.wait(20, lambda: bool(listener.outcomes))
    assert [m["type"] for m in listener.messages] == ["finished"]


def test_undecodable_output_is_logged_and_does_not_break_the_messages(start, slicer_app):
    steps = [
        ["raw", "Warnung f\xfcr M\xfcller\n"],
        ["flood", ["\xc4rger\n", 1]],
        ["complain", "a warning"],
        ["say", {"type": "finished"}],
        ["exit", 0],
    ]
    worker, listener = start(steps)
    assert slicer_app.wait(20, lambda: bool(listener.outcomes))
    assert listener.outcomes[0].kind == "finished"
    assert "Warnung f�r M�ller" in worker.log
    assert "�rger" in worker.log and "a warning" in worker.log


def test_the_child_speaks_utf8_whatever_the_locale(slicer_app, tmp_path, monkeypatch):
    """SLICER.md 7.18: a German Windows speaks another code page."""
    from MemorizationIndexLib.gui import process

    for name, value in (("PYTHONUTF8", "0"), ("PYTHONIOENCODING", "ascii"), ("LC_ALL", "C")):
        monkeypatch.setenv(name, value)
    code = "import sys; print('Müller 患者', sys.flags.utf8_mode)"
    monkeypatch.setattr(process, "worker_command", lambda _: [sys.executable, "-c", code])
    listener = Listener()
    worker = listener.worker(tmp_path / "job")
    worker.start()
    assert slicer_app.wait(20, lambda: bool(listener.outcomes))
    assert "Müller 患者 1" in worker.log


@pytest.mark.parametrize("text", ["x" * 65536, "x" * 4095 + "\n", "\r 42 %" * 8192])
def test_a_flood_of_complaints_neither_stops_the_worker_nor_fills_the_memory(
    start, slicer_app, text
):
    steps = [
        ["flood", [text, 50_000_000 // len(text)]],
        ["say", {"type": "finished"}],
        ["complain", "the last word"],
        ["exit", 0],
    ]
    worker, listener = start(steps)
    began = time.process_time()
    assert slicer_app.wait(60, lambda: bool(listener.outcomes))
    assert listener.outcomes[0].kind == "finished"
    assert time.process_time() - began < 15
    assert worker.log[-1].endswith("the last word")
    assert sum(map(len, worker.log)) < 5_000_000 and len(worker._errors) < 100_000


def test_what_is_printed_between_messages_is_logged_in_short(start, slicer_app):
    steps = [
        ["say", {"type": "progress", "done": 1}],
        ["raw", "x" * 3_000_000 + "\n"],
        ["raw", '{"type": 3}\n[]\nnull\n{"no": "type"}\n\n'],
        ["say", {"type": "progress", "done": 2}],
        ["raw", "y" * 900_000 + "\n"],
        ["say", {"type": "finished"}],
        ["exit", 0],
    ]
    worker, listener = start(steps)
    assert slicer_app.wait(30, lambda: bool(listener.outcomes))
    assert [m.get("done") for m in listener.messages] == [1, 2, None]
    assert listener.outcomes[0].kind == "finished"
    assert '{"type": 3}' in worker.log and max(map(len, worker.log)) <= 2003


def test_a_worker_that_lives_but_does_not_go_on_is_told(slicer_app, tmp_path, monkeypatch):
    from MemorizationIndexLib.gui import process

    monkeypatch.setattr(process, "STALLED_AFTER", 0.5)
    monkeypatch.setattr(
        process, "worker_command", lambda folder: [sys.executable, str(WORKER), str(folder)]
    )
    stalls, listener = [], Listener()
    steps = [["say", {"type": "progress", "done": 1}]]
    steps += [["say", {"type": "alive"}], ["sleep", 0.1]] * 300
    worker = process.WorkerProcess(
        tmp_path / "job",
        {"kind": "scripted", "steps": steps},
        on_message=listener.messages.append,
        on_end=listener.outcomes.append,
        on_silence=listener.silences.append,
        on_stall=stalls.append,
    )
    worker.start()
    assert slicer_app.wait(20, lambda: bool(stalls))
    assert stalls[0] > 0.5 and listener.silences == []
    worker.stop()


def test_a_failure_is_told_in_its_own_words(start, slicer_app):
    message = {"type": "failed", "message": "No cohort there.", "unexpected": False}
    _, listener = start([["say", message], ["exit", 1]])
    assert slicer_app.wait(20, lambda: bool(listener.outcomes))
    assert [(o.kind, o.message) for o in listener.outcomes] == [("failed", "No cohort there.")]


@pytest.mark.parametrize(
    "last", [["exit", 3], ["kill", int(signal.SIGKILL)], ["kill", int(signal.SIGSEGV)]]
)
def test_a_death_without_a_word_is_reported(start, slicer_app, last):
    _, listener = start([["say", {"type": "progress", "done": 1}], last])
    assert slicer_app.wait(20, lambda: bool(listener.outcomes))
    assert [o.kind for o in listener.outcomes] == ["crashed"]
    assert "without a word" in listener.outcomes[0].message


def test_finished_is_not_believed_if_the_process_then_crashes(start, slicer_app):
    _, listener = start([["say", {"type": "finished"}], ["exit", 7]])
    assert slicer_app.wait(20, lambda: bool(listener.outcomes))
    assert listener.outcomes[0].kind == "crashed"


def test_a_program_that_cannot_be_started_is_reported(slicer_app, tmp_path, monkeypatch):
    from MemorizationIndexLib.gui import process

    monkeypatch.setattr(process, "worker_command", lambda _: [str(tmp_path / "no python")])
    listener = Listener()
    worker = listener.worker(tmp_path / "job")
    worker.start()
    assert slicer_app.wait(20, lambda: bool(listener.outcomes))
    assert [o.kind for o in listener.outcomes] == ["crashed"]
    assert "cannot be started" in listener.outcomes[0].message


def test_cancel_ends_the_process(start, slicer_app, tmp_path):
    worker, listener = start([["pid", str(tmp_path / "pid")], ["sleep", 60]])
    pid = pid_in(tmp_path / "pid", slicer_app)
    worker.cancel()
    assert slicer_app.wait(5, lambda: bool(listener.outcomes))
    assert listener.outcomes[0].kind == "cancelled" and not alive(pid)


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_a_process_that_ignores_cancel_is_killed(start, slicer_app, tmp_path, monkeypatch):
    from MemorizationIndexLib.gui import process

    monkeypatch.setattr(process, "KILL_AFTER", 0.3)
    steps = [["ignore termination", 0], ["pid", str(tmp_path / "pid")], ["sleep", 60]]
    worker, listener = start(steps)
    pid = pid_in(tmp_path / "pid", slicer_app)
    worker.cancel()
    assert slicer_app.wait(10, lambda: bool(listener.outcomes))
    assert listener.outcomes[0].kind == "cancelled" and not alive(pid)


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_silence_is_told_and_its_end_too(start, slicer_app, tmp_path, monkeypatch):
    from MemorizationIndexLib.gui import process

    monkeypatch.setattr(process, "SILENT_AFTER", 0.5)
    steps = [["pid", str(tmp_path / "pid")], *[["say", {"type": "alive"}], ["sleep", 0.1]] * 200]
    worker, listener = start(steps)
    pid = pid_in(tmp_path / "pid", slicer_app)
    os.kill(pid, signal.SIGSTOP)
    assert slicer_app.wait(10, lambda: bool(listener.silences))
    assert listener.silences[0] > 0.5 and worker.running
    os.kill(pid, signal.SIGCONT)
    assert slicer_app.wait(10, lambda: listener.silences[-1] == 0)
    worker.stop()
    assert not alive(pid)


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_a_stopped_silent_process_can_be_ended(start, slicer_app, tmp_path, monkeypatch):
    from MemorizationIndexLib.gui import process

    monkeypatch.setattr(process, "KILL_AFTER", 0.3)
    worker, listener = start([["pid", str(tmp_path / "pid")], ["sleep", 60]])
    pid = pid_in(tmp_path / "pid", slicer_app)
    os.kill(pid, signal.SIGSTOP)
    worker.cancel()
    assert slicer_app.wait(10, lambda: bool(listener.outcomes))
    assert not alive(pid)


def test_stop_waits_until_it_is_gone_and_tells_nobody(start, slicer_app, tmp_path):
    worker, listener = start([["pid", str(tmp_path / "pid")], ["sleep", 60]])
    pid = pid_in(tmp_path / "pid", slicer_app)
    worker.stop()
    assert not alive(pid) and not worker.running
    slicer_app.wait(0.2)
    assert listener.outcomes == []
    worker.stop()


def test_a_launcher_does_not_leave_python_behind(slicer_app, tmp_path, monkeypatch):
    """PythonSlicer starts Python as a child: killing PythonSlicer alone would orphan it."""
    from MemorizationIndexLib.gui import process

    launcher = tmp_path / "launcher.py"
    launcher.write_text(
        "import subprocess, sys\nsys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))\n"
    )
    monkeypatch.setattr(
        process,
        "worker_command",
        lambda folder: [sys.executable, str(launcher), str(WORKER), str(folder)],
    )
    for how in ("cancel", "stop"):
        listener = Listener()
        pid_file = tmp_path / f"pid {how}"
        worker = process.WorkerProcess(
            tmp_path / how,
            {
                "kind": "scripted",
                # A computation that lets no other thread run would not hear it either.
                "steps": [["ignore the end of input", 0], ["pid", str(pid_file)], ["sleep", 60]],
            },
            on_message=listener.messages.append,
            on_end=listener.outcomes.append,
        )
        worker.start()
        pid = pid_in(pid_file, slicer_app)
        getattr(worker, how)()
        assert slicer_app.wait(10, lambda worker=worker: not worker.running)
        assert slicer_app.wait(10, lambda pid=pid: not alive(pid)), how


def test_the_worker_ends_when_its_parent_is_killed(tmp_path):
    """Slicer crashes: the pipe closes, and the real worker ends by itself."""
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "job.json").write_text(json.dumps({"kind": "check"}))
    library = Path(__file__).resolve().parents[2] / "MemorizationIndex"
    code = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-c', 'import time\\n"
        "from MemorizationIndexLib import worker\\n"
        'worker.JOBS["check"] = lambda *a: time.sleep(60)\\n'
        f"worker.main([r\"{folder}\"])'], stdin=subprocess.PIPE, cwd=r'{library}')\n"
        "print(p.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    time.sleep(1.0)
    assert alive(pid)
    parent.kill()
    parent.wait()
    until = time.monotonic() + 10
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(pid)


def test_the_job_is_handed_over_in_a_folder_with_any_name(start, slicer_app, tmp_path):
    folder = tmp_path / 'Müller 患者 "O\'Neil"'
    _, listener = start([["say", {"type": "finished"}], ["exit", 0]], folder)
    assert slicer_app.wait(20, lambda: bool(listener.outcomes))
    assert listener.outcomes[0].kind == "finished"


def test_waiting_from_a_script_returns_when_it_is_over(start):
    worker, listener = start([["sleep", 0.2], ["say", {"type": "finished"}], ["exit", 0]])
    assert worker.wait() and listener.outcomes[0].kind == "finished"
    worker, _ = start([["sleep", 60]])
    began = time.monotonic()
    assert not worker.wait(0.3) and time.monotonic() - began < 5
