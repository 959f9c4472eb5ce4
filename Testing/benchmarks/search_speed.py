"""How fast is the search, and how much memory does it take, beside the released code's way?

    python Testing/benchmarks/search_speed.py [--queries 500] [--references 20000] [--width 768]

Both ways score the same queries against the same references in three layers, in one process each,
alternating, on made features. The released code's way is written here from METHOD.md's
description: whiten the references at every call, form the whole similarity matrix in float64, sort
it partially. Ours reads whitened rows from disk, as ``score`` does. Prints the median of the
ratios of the runs and the peak memory beyond what the inputs take; exits with 1 where the ratio is
below 5 or the memory above a tenth.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "MemorizationIndex"))

from MemorizationIndexLib.index.protocols import get_protocol
from MemorizationIndexLib.index.reference import Reference
from MemorizationIndexLib.index.whitening import Whitener

LAYERS = 3


def make(folder: Path, queries: int, references: int, width: int) -> None:
    """Write features, whitening matrices and whitened rows."""
    rng = np.random.default_rng(0)
    for layer in range(LAYERS):
        matrix = rng.standard_normal((width, width)).astype(np.float32) / np.sqrt(width)
        raw = (rng.standard_normal((references, width)) @ matrix).astype(np.float32)
        values, vectors = np.linalg.eigh(np.cov(raw, rowvar=False))
        gains = 1 / np.sqrt(np.clip(values, 1e-8, None))
        whitener = Whitener(
            raw.mean(0).astype(float), vectors.T.astype(np.float32), gains, 1.0, 0.0
        )
        np.save(folder / f"raw{layer}.npy", raw)
        np.save(folder / f"query{layer}.npy", raw[rng.choice(references, queries)])
        np.save(folder / f"rows{layer}.npy", whitener.whiten(raw)[None])
        np.savez(
            folder / f"white{layer}.npz",
            mean=whitener.mean,
            vectors=whitener.vectors,
            gains=gains,
            matrix=(vectors * gains) @ vectors.T,
        )


def released(folder: Path) -> tuple[float, int, np.ndarray]:
    """Time the released code's way; return seconds, extra peak bytes and similarities."""
    inputs = [
        (
            np.load(folder / f"query{layer}.npy"),
            np.load(folder / f"raw{layer}.npy"),
            dict(np.load(folder / f"white{layer}.npz")),
        )
        for layer in range(LAYERS)
    ]
    before, start = _start()
    found = []
    for query, raw, white in inputs:
        q = (query - white["mean"]) @ white["matrix"]
        r = (raw - white["mean"]) @ white["matrix"]
        q = q / (np.linalg.norm(q, axis=1, keepdims=True) + 1e-12)
        r = r / (np.linalg.norm(r, axis=1, keepdims=True) + 1e-12)
        similarity = q @ r.T
        top = np.argpartition(similarity, -2, axis=1)[:, -2:]
        values = np.take_along_axis(similarity, top, axis=1)
        found.append(values.max(axis=1))
    joint = np.exp(np.mean(np.log(np.array(found) + 1e-8), axis=0))
    return *_stop(before, start), joint


def ours(folder: Path) -> tuple[float, int, np.ndarray]:
    """Time our way; return seconds, extra peak bytes and similarities."""
    queries = [np.load(folder / f"query{layer}.npy") for layer in range(LAYERS)]
    rows, whiteners = [], []
    for layer in range(LAYERS):
        rows.append(np.load(folder / f"rows{layer}.npy", mmap_mode="r"))
        # The mapped pages are the input, as the loaded features are the other way's.
        rows[-1].sum()
        white = dict(np.load(folder / f"white{layer}.npz"))
        whiteners.append(Whitener(white["mean"], white["vectors"], white["gains"], 1.0, 0.0))
    count = rows[0].shape[1]
    subjects = np.sort(np.random.default_rng(1).integers(0, 130, count))
    reference = Reference(tuple(rows), subjects, 130, tuple(whiteners))
    before, start = _start()
    matches = reference.match(queries, get_protocol("calibrated"))
    return *_stop(before, start), matches.similarity


def _memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def _start() -> tuple[int, float]:
    """Forget the peak so far; return the memory held now and the time."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS"), time.perf_counter()


def _stop(before: int, start: float) -> tuple[float, int]:
    return time.perf_counter() - start, _memory("VmHWM") - before


def _in_process(way, folder: Path) -> tuple[float, int, np.ndarray]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(way, (folder,))


def main() -> int:
    """Run the benchmark; return 0 if both targets are met."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--queries", type=int, default=500)
    given.add_argument("--references", type=int, default=20_000)
    given.add_argument("--width", type=int, default=768)
    given.add_argument("--runs", type=int, default=3)
    options = given.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, options.queries, options.references, options.width)
        ratios, memory = [], []
        for _ in range(options.runs):
            theirs, their_bytes, expected = _in_process(released, folder)
            mine, my_bytes, found = _in_process(ours, folder)
            worst = float(np.abs(found - expected).max())
            print(
                f"released {theirs:6.2f} s {their_bytes / 2**20:7.1f} MiB   "
                f"ours {mine:6.2f} s {my_bytes / 2**20:7.1f} MiB   "
                f"ratio {theirs / mine:5.2f}   largest difference of a similarity {worst:.1e}"
            )
            ratios.append(theirs / mine)
            memory.append(my_bytes / their_bytes)
    ratio, share = statistics.median(ratios), statistics.median(memory)
    print(f"median: {ratio:.2f} times as fast, {share:.1%} of the extra memory")
    return 0 if ratio >= 5 and share <= 0.1 else 1


if __name__ == "__main__":
    sys.exit(main())
