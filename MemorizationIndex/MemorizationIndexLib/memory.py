"""How much main memory a run needs, told before it starts, and how much the machine has.

The terms are those arrays of the code that grow: encoder, moments and whitening of wide features,
blocks of the search, pictures. Cohorts are mapped from disk and count only where they are copied.
``Testing/test_memory.py`` measures small runs beside the estimate.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from MemorizationIndexLib.encoders.batching import batch_size
from MemorizationIndexLib.encoders.registry import BUILTIN, MRI_CORE
from MemorizationIndexLib.encoders.structure import BATCH, ORIENTATIONS, SCALES
from MemorizationIndexLib.encoding import BATCH as SLICES
from MemorizationIndexLib.index.control import CONTROL_SLICES
from MemorizationIndexLib.index.protocols import FOLDS
from MemorizationIndexLib.index.similarity import QUERIES, REFERENCES

INTERPRETER = 280 << 20
"""Python with PyTorch and SciPy loaded, measured: 220 to 280 MiB."""

MRI_CORE_WEIGHTS = 343_000_000
"""Bytes of its weights in float32; two copies exist while they are loaded."""

MRI_CORE_WIDTHS = (768, 768, 768)
PATCH = 16

TOKEN = 24 * 768 * 4
"""Bytes per token of a slice while MRI-CORE computes: input, queries, keys, values, attention and
a hidden layer four times as wide come to 15 numbers per channel, what is copied on the way to more;
22 were measured."""

FLOAT, DOUBLE = 4, 8


def feature_widths(encoder: str) -> tuple[int, ...] | None:
    """Return the features per layer of a known encoder; None for one of the user's own."""
    if encoder == BUILTIN:
        return tuple(ORIENTATIONS * scale.grid**2 for scale in SCALES)
    return MRI_CORE_WIDTHS if encoder == MRI_CORE else None


def encoder_memory(encoder: str, input_size: int, *, batch: int = 0, device: str = "cpu") -> int:
    """Return the bytes of main memory that an encoder takes at its peak.

    Args:
        encoder: Its name; one of the user's own is taken to be as large as MRI-CORE.
        input_size: Side of the slices in pixels.
        batch: Slices at once; 0 for the encoder's own choice.
        device: ``auto`` counts as CPU; on another device the batch is not in main memory.
    """
    if encoder == BUILTIN:
        samples = max(scale.samples for scale in SCALES)
        # A batch in both directions of smoothing, and its gradients in all orientations twice.
        slices = BATCH * (input_size**2 + 2 * samples * input_size) * FLOAT
        return slices + 2 * BATCH * ORIENTATIONS * samples**2 * FLOAT
    loading = 2 * MRI_CORE_WEIGHTS
    if device not in ("auto", "cpu"):
        return loading
    tokens = max(1, input_size // PATCH) ** 2
    at_once = batch or batch_size("cpu", tokens)
    return max(loading, MRI_CORE_WEIGHTS + at_once * tokens * TOKEN)


def score_memory(
    widths: Sequence[int], input_size: int, *, subjects: int, volume_bytes: int = 0
) -> int:
    """Return the bytes that comparing queries with a cohort takes, beside the encoder.

    Args:
        widths: Features per layer.
        input_size: Side of the slices in pixels.
        subjects: Number of reference subjects.
        volume_bytes: Size of the volumes in memory.
    """
    whitening = sum(width**2 for width in widths) * FLOAT
    block = REFERENCES * sum(widths) * FLOAT
    search = QUERIES * (2 * REFERENCES + subjects) * FLOAT
    return whitening + block + search + _waiting(input_size) + volume_bytes


def build_memory(
    widths: Sequence[int],
    input_size: int,
    *,
    slices: int | None,
    poses: int,
    thumbnail: int,
    volume_bytes: int = 0,
) -> int:
    """Return the bytes that calibrating a new cohort takes, beside the encoder.

    Args:
        widths: Features per layer.
        input_size: Side of the slices in pixels.
        slices: Number of reference slices; None where unknown.
        poses: Poses in which each is stored.
        thumbnail: Side of the small pictures in pixels; 0 without them.
        volume_bytes: Size of the volumes in memory.
    """
    rows = REFERENCES if slices is None else slices * poses
    # Few rows are whitened through their Gram matrix, which is smaller than the features' scatter.
    sides = [min(width, rows) for width in widths]
    moments = sum(width**2 for width in widths if rows > width) * (FOLDS + 1) * DOUBLE
    decomposition = (
        5 * max(side * width for side, width in zip(sides, widths, strict=True)) * DOUBLE
    )
    block = min(REFERENCES, rows) * sum(widths) * (2 * DOUBLE + FLOAT)
    of_slices = (slices or 0) * (thumbnail**2 + 2 * poses * sum(widths) * FLOAT // FOLDS)
    known_copies = 2 * CONTROL_SLICES * input_size**2 * FLOAT
    calibration = moments + decomposition + block
    return max(calibration, _waiting(input_size)) + of_slices + known_copies + volume_bytes


def _waiting(input_size: int) -> int:
    """Return the bytes of slices that wait for the encoder, as read and as turned for it."""
    return 2 * SLICES * input_size**2 * FLOAT


def free_memory() -> int | None:
    """Return the bytes that programs can still take without swapping; None where unknown."""
    try:
        if sys.platform == "win32":
            return _free_on_windows()
        if sys.platform == "darwin":
            return _free_on_macos()
        return free_in_meminfo(Path("/proc/meminfo").read_text(encoding="ascii"))
    except (OSError, ValueError, AttributeError, subprocess.SubprocessError):
        return None


def free_in_meminfo(text: str) -> int | None:
    """Return the available bytes of Linux's ``/proc/meminfo``."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB", text, re.MULTILINE)
    return int(found[1]) << 10 if found else None


def free_in_vm_stat(text: str) -> int | None:
    """Return the bytes that macOS's ``vm_stat`` calls free, inactive, speculative or purgeable."""
    size = re.search(r"page size of (\d+) bytes", text)
    kinds = ("free", "inactive", "speculative", "purgeable")
    pages = [re.search(rf"^Pages {kind}:\s*(\d+)\.", text, re.MULTILINE) for kind in kinds]
    known = [int(found[1]) for found in pages if found]
    return int(size[1]) * sum(known) if size and known else None


def _free_on_macos() -> int | None:
    run = subprocess.run(
        ["/usr/bin/vm_stat"], capture_output=True, text=True, timeout=5, check=True
    )
    return free_in_vm_stat(run.stdout)


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        *(
            (name, ctypes.c_uint64)
            for name in (
                "total",
                "available",
                "total_page_file",
                "available_page_file",
                "total_virtual",
                "available_virtual",
                "available_extended_virtual",
            )
        ),
    )


def _free_on_windows() -> int | None:
    status = _MemoryStatus()
    status.length = ctypes.sizeof(status)
    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined, unused-ignore]
    return int(status.available) if kernel.GlobalMemoryStatusEx(ctypes.byref(status)) else None


def in_words(size: int) -> str:
    """Return bytes as people say them: "0.4 GB"."""
    return f"{max(size / 1e9, 0.1):.1f} GB"
