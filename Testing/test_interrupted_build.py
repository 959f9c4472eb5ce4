"""A build that is interrupted goes on where it was, whatever ended it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from MemorizationIndexLib.cohort import load_cohort
from MemorizationIndexLib.phantoms import make_patient
from shared_data import ROOT

SLICES = 155
SUBJECTS = 31
PORTION = 4

ENCODER = """
import hashlib
import time
from pathlib import Path

HERE = Path(__file__).parent


class Means:
    name, description = "means", "Means of patches."
    layers, widths, input_size, fingerprint, batch = ("fine", "coarse"), (196, 49), 224, "1", 4

    def encode(self, pixels):
        if (HERE / "slow").exists():
            time.sleep(0.05)
        with (HERE / "encoded.txt").open("a") as log:
            log.writelines(hashlib.sha256(one.tobytes()).hexdigest() + "\\n" for one in pixels)
        count = len(pixels)
        fine = pixels.reshape(count, 14, 16, 14, 16).mean((2, 4))
        coarse = fine.reshape(count, 7, 2, 7, 2).mean((2, 4))
        return fine.reshape(count, -1), coarse.reshape(count, -1)


def load():
    return Means()
"""


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    patients = [make_patient(seed, slices=SLICES // SUBJECTS, size=64) for seed in range(SUBJECTS)]
    return np.concatenate(patients).astype(np.float32)


@pytest.fixture
def place(tmp_path: Path, volume: np.ndarray) -> Path:
    (tmp_path / "own.py").write_text(ENCODER, encoding="utf-8")
    np.save(tmp_path / "training.npy", volume)
    lines = ["path,subject_id,slice_index"]
    lines += [f"training.npy,p{i * SUBJECTS // SLICES:02d},{i}" for i in range(SLICES)]
    (tmp_path / "manifest.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "slow").touch()
    return tmp_path


def start_build(place: Path) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "MemorizationIndex"),
        "MEMORIZATION_INDEX_CACHE": str(place / "cache"),
    }
    command = ["build", "manifest.csv", "--cohort", "c", "--encoder", "own.py:load", "--quiet"]
    return subprocess.Popen(
        [sys.executable, "-m", "MemorizationIndexLib", *command],
        cwd=place,
        env=environment,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )


def encoded(place: Path) -> list[str]:
    """Return a hash of every slice that any run has encoded so far."""
    file = place / "encoded.txt"
    return file.read_text().split() if file.is_file() else []


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("interruption", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill-9"])
def test_what_was_encoded_is_not_encoded_again(place: Path, interruption: signal.Signals):
    first = start_build(place)
    end = time.monotonic() + 120
    while len(encoded(place)) < SLICES // 2:
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < end, "nothing was encoded"
        time.sleep(0.01)
    first.send_signal(interruption)
    _, said = first.communicate(timeout=60)
    if interruption == signal.SIGINT:
        assert first.returncode == 130
        assert "what was encoded is kept" in said
        assert "Traceback" not in said
        assert not list(place.glob(".c.micohort*"))
    assert not (place / "c.micohort").exists()
    before = encoded(place)
    assert SLICES // 2 <= len(before) < SLICES

    (place / "slow").unlink()
    second = start_build(place)
    _, said = second.communicate(timeout=300)
    assert second.returncode == 0, said
    assert load_cohort(place / "c.micohort").slice_count == SLICES
    # The first slice of each run tries whether the encoder keeps the protocol.
    tried = encoded(place)[0]
    times = Counter(encoded(place))
    assert times.pop(tried) == 2
    assert len(times) > SLICES
    again = [one for one, count in times.items() if count > 1]
    # What was encoded when the interruption came, and not stored yet.
    assert len(again) <= PORTION, f"{len(again)} of {len(before)} slices were encoded again"
    assert max(times.values()) <= 2
