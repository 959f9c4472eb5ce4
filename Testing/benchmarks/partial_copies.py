"""How often is a copy of a part of a slice flagged, and how often a slice without one?

    python Testing/benchmarks/partial_copies.py DATA... [--splits 3] [--subjects 10] [--alpha 0.01]

Each DATA is a folder of images, a folder per subject. For each split half of the subjects, or as
many as ``--subjects`` says, are the reference of a cohort with parts, built with the built-in
encoder. The slices of the others are scored as they are ("clean"), and with a part of a slice of
the reference pasted into them. Prints a table: the share of slices flagged by the similarity of
the whole, by a part, by either, and called a copy; and of the slices with a part, the share whose
source subject was named. Then the time that parts cost.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "MemorizationIndex"))

from MemorizationIndexLib import AuditOptions, CohortOptions, build_cohort_from_volumes
from MemorizationIndexLib.audit import score_volumes
from MemorizationIndexLib.cohort.cohort import Cohort
from MemorizationIndexLib.images.finding import find_images
from MemorizationIndexLib.images.streaming import stream_images
from MemorizationIndexLib.images.volume import Volume
from MemorizationIndexLib.results import Verdict

SIDE = 224
PASTED = 60
"""Most slices of the others that a part is pasted into."""

KINDS = {
    "corner": "a quarter of the slice, at a corner",
    "center": "a quarter, in the middle",
    "random": "a quarter, anywhere",
    "flipped": "a quarter of the flipped slice, anywhere",
    "noise": "a quarter with noise of 0.02, anywhere",
    "gamma": "a quarter with gamma 1.3, anywhere",
    "third": "a ninth of the slice, anywhere",
    "moved": "a quarter, anywhere, moved by 8 pixels",
}


def slices_of(folder: Path) -> dict[str, np.ndarray]:
    """Read the normalised slices of each subject, float32 (n, SIDE, SIDE)."""
    found: dict[str, list[np.ndarray]] = {}
    for one in stream_images(find_images([folder]), "auto", SIDE, lambda place, why: None):
        if one.pixels is not None:
            found.setdefault(one.subject, []).append(one.pixels)
    return {subject: np.stack(slices) for subject, slices in sorted(found.items())}


def pasted(kind: str, host: np.ndarray, source: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Paste a part of one slice into another."""
    side = SIDE // 3 if kind == "third" else SIDE // 2
    room = SIDE - side
    top, left = rng.integers(0, room + 1, 2)
    if kind == "corner":
        top, left = room * rng.integers(0, 2, 2)
    if kind == "center":
        top = left = room // 2
    if kind == "flipped":
        source = source[:, ::-1]
    if kind == "noise":
        source = (source + rng.normal(0, 0.02, source.shape)).clip(0, 1)
    if kind == "gamma":
        source = source**1.3
    if kind == "moved":
        source = np.roll(source, 8, axis=(0, 1))
    changed = host.copy()
    changed[top : top + side, left : left + side] = source[top : top + side, left : left + side]
    return ((changed - changed.min()) / (changed.max() - changed.min())).astype(np.float32)


def shares(cohort: Cohort, slices: list[np.ndarray], truth: list[str], alpha: float) -> np.ndarray:
    """Return shares flagged as a whole, by a part, by either, called a copy, and rightly named."""
    volume = Volume("q", "q", np.stack(slices), np.eye(4), "", planar=True)
    options = AuditOptions(alpha=alpha, pictures=False, verify=False, cache=False)
    found = score_volumes([volume], cohort, options=options).slices
    named = [
        one.part_subject == name for one, name in zip(found, truth, strict=True) if one.flagged_by
    ]
    return np.array(
        [
            np.mean(["slice" in one.flagged_by for one in found]),
            np.mean(["part" in one.flagged_by for one in found]),
            np.mean([one.flagged_by != "" for one in found]),
            np.mean([one.verdict is Verdict.COPY for one in found]),
            np.mean(named) if named and truth[0] else np.nan,
        ]
    )


def costed(
    volumes: list[Volume], clean: list[np.ndarray], seed: int, folder: Path
) -> tuple[Cohort, dict[str, float]]:
    """Build a cohort with parts; for the first split, tell what they cost in processor time."""
    seconds: dict[str, float] = {}
    for parts in (False, True) if seed == 0 else (True,):
        started = time.process_time()
        options = CohortOptions(encoder="builtin", seed=seed, parts=parts, cache=False)
        cohort = build_cohort_from_volumes(volumes, folder / f"{parts}", options=options)
        seconds[f"build {parts}"] = time.process_time() - started
    if seed:
        return cohort, {}
    volume = Volume("q", "q", np.stack(clean), np.eye(4), "", planar=True)
    for parts in (False, True):
        started = time.process_time()
        options = AuditOptions(pictures=False, verify=False, cache=False, parts=parts)
        score_volumes([volume], cohort, options=options)
        seconds[f"score {parts}"] = (time.process_time() - started) / len(clean)
    return cohort, {
        "slices": cohort.slice_count,
        "build": seconds["build True"] - seconds["build False"],
        "score": seconds["score True"] - seconds["score False"],
        "of": seconds["score False"],
    }


def split(
    data: dict[str, np.ndarray], seed: int, size: int | None, alphas: list[float], folder: Path
) -> tuple[dict[tuple[str, float], np.ndarray], dict[str, float]]:
    """Measure one split; return shares by kind and level, and what parts cost."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(sorted(data)).tolist()
    count = size or len(names) // 2
    reference, others = sorted(names[:count]), sorted(names[count:])
    volumes = [Volume(one, one, data[one], np.eye(4), "", planar=True) for one in reference]
    clean = [one for name in others for one in data[name]]
    cohort, cost = costed(volumes, clean, seed, folder)
    sources = [(name, one) for name in reference for one in data[name]]
    hosts = [clean[row] for row in np.sort(rng.permutation(len(clean))[:PASTED])]
    rows = {("clean", alpha): shares(cohort, clean, [""] * len(clean), alpha) for alpha in alphas}
    for kind in KINDS:
        drawn = [sources[number] for number in rng.integers(len(sources), size=len(hosts))]
        queries = [
            pasted(kind, host, one, rng) for host, (_, one) in zip(hosts, drawn, strict=True)
        ]
        rows[kind, alphas[0]] = shares(cohort, queries, [name for name, _ in drawn], alphas[0])
    return rows, cost


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--subjects", type=int, help="of the reference; half of them by default")
    parser.add_argument("--alpha", type=float, action="append", help="default: 0.01 and 0.05")
    given = parser.parse_args()
    alphas = given.alpha or [0.01, 0.05]
    for folder in given.data:
        data = slices_of(folder)
        with tempfile.TemporaryDirectory() as temporary:
            found = [
                split(data, seed, given.subjects, alphas, Path(temporary))
                for seed in range(given.splits)
            ]
        print(f"\n{folder.name}: {len(data)} subjects, {sum(map(len, data.values()))} slices")
        print(f"{'':50} alpha  whole  part  either  copy  named   %")
        for key in found[0][0]:
            mean = 100 * np.mean([rows[key] for rows, _ in found], axis=0)
            told = "as they are" if key[0] == "clean" else KINDS[key[0]]
            values = "  ".join("     " if np.isnan(v) else f"{v:5.1f}" for v in mean)
            print(f"{key[0]:8} {told:41} {key[1]:5g}  {values}")
        cost = found[0][1]
        print(
            f"parts of {cost['slices']:.0f} reference slices: {cost['build']:.1f} s more to build, "
            f"{1e3 * cost['score']:.1f} ms more than {1e3 * cost['of']:.1f} ms per scored slice "
            "(processor time)",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
