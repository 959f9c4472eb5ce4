"""The estimate of memory before a run, and what the machine has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from MemorizationIndexLib.encoders.mri_core import PATCH_SIZE
from MemorizationIndexLib.encoders.registry import BUILTIN, MRI_CORE
from MemorizationIndexLib.encoders.structure import StructureEncoder
from MemorizationIndexLib.memory import (
    INTERPRETER,
    MRI_CORE_WEIGHTS,
    PATCH,
    build_memory,
    encoder_memory,
    feature_widths,
    free_in_meminfo,
    free_in_vm_stat,
    free_memory,
    in_words,
    score_memory,
)

LIBRARY = Path(__file__).resolve().parents[1] / "MemorizationIndex"
WIDTHS = feature_widths(BUILTIN)


def test_widths_are_those_of_the_encoders():
    assert StructureEncoder().widths == WIDTHS
    assert feature_widths("own.py:make") is None and PATCH == PATCH_SIZE


def test_the_weights_of_mri_core_are_loaded_twice_and_a_large_batch_counts():
    small = encoder_memory(MRI_CORE, 224, batch=4)
    assert small == 2 * MRI_CORE_WEIGHTS
    assert encoder_memory(MRI_CORE, 224, batch=256) > 2 * small
    assert encoder_memory(MRI_CORE, 224, batch=256, device="cuda") == small
    assert encoder_memory(MRI_CORE, 224, batch=256, device="auto") > 2 * small


@pytest.mark.parametrize("encoder", [BUILTIN, MRI_CORE])
def test_more_pixels_need_more(encoder):
    batch = 64 if encoder == MRI_CORE else 0
    needs = [encoder_memory(encoder, size, batch=batch) for size in (224, 448, 1024)]
    assert needs == sorted(needs) and needs[0] < needs[-1]


def test_more_slices_and_subjects_need_more():
    options = {"poses": 7, "thumbnail": 96}
    few, many = (build_memory(WIDTHS, 224, slices=n, **options) for n in (100, 20_000))
    assert few < many
    unknown = build_memory(WIDTHS, 224, slices=None, **options)
    assert few < unknown < many
    less, more = (score_memory(WIDTHS, 224, subjects=n) for n in (10, 10_000))
    assert less < more
    assert score_memory(WIDTHS, 224, subjects=10, volume_bytes=1 << 30) == less + (1 << 30)


MEASURED = """
import sys, threading, time
peak = 0
def watch():
    global peak
    while True:
        text = open("/proc/self/status").read()
        peak = max(peak, int(text.split("RssAnon:")[1].split()[0]) << 10)
        time.sleep(0.005)
threading.Thread(target=watch, daemon=True).start()
from MemorizationIndexLib import CohortOptions, build_cohort, score
from MemorizationIndexLib.audit import AuditOptions
what, images, cohort = sys.argv[1:]
if what == "build":
    options = CohortOptions(encoder="builtin", input_size=96, cache=False)
    build_cohort(images, cohort, options=options)
else:
    score(images, cohort, options=AuditOptions(cache=False))
print(peak)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="measures with /proc")
@pytest.mark.parametrize("what", ["build", "score"])
def test_a_run_takes_no_more_than_estimated_and_not_less_than_a_third(small_audit, tmp_path, what):
    images = small_audit.reference if what == "build" else small_audit.queries
    cohort = tmp_path / "c.micohort" if what == "build" else small_audit.cohort
    run = subprocess.run(
        [sys.executable, "-c", MEASURED, what, str(images), str(cohort)],
        capture_output=True, text=True, check=True, cwd=LIBRARY,
    )  # fmt: skip
    took = int(run.stdout.split()[-1])
    estimated = INTERPRETER + encoder_memory(BUILTIN, 96)
    if what == "build":
        estimated += build_memory(WIDTHS, 96, slices=24, poses=7, thumbnail=96)
    else:
        estimated += score_memory(WIDTHS, 96, subjects=6)
    assert estimated / 3 < took < estimated, (took / 2**20, estimated / 2**20)


# What the machine has


def test_free_memory_is_read_as_each_system_writes_it():
    assert free_in_meminfo("MemTotal: 24 kB\nMemAvailable:   18901220 kB\n") == 18901220 << 10
    assert free_in_meminfo("MemTotal: 24 kB\n") is None
    text = (
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
        "Pages free:                               10.\n"
        "Pages active:                          99999.\n"
        "Pages inactive:                           20.\n"
        "Pages speculative:                         3.\n"
        "Pages purgeable:                           4.\n"
    )
    assert free_in_vm_stat(text) == 37 * 16384
    assert free_in_vm_stat("nothing of the kind") is None


def test_this_machine_has_some_free_memory():
    assert (free_memory() or 0) > 50_000_000


def test_what_cannot_be_read_is_unknown(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(Path, "read_text", lambda *_a, **_k: (_ for _ in ()).throw(OSError()))
    assert free_memory() is None
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(subprocess, "run", lambda *_a, **_k: (_ for _ in ()).throw(OSError()))
    assert free_memory() is None


def test_amounts_in_words():
    assert in_words(1_234_000_000) == "1.2 GB" and in_words(5) == "0.1 GB"
