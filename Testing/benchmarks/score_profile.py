"""Where does ``score`` spend its time? At most 5 % of it may lie outside the encoder.

    python Testing/benchmarks/score_profile.py [--planted 0 15 155] [--slices 155] [--patients 3]

A fresh process runs ``memorization-index score`` on the CPU, as a person would: one gzipped NIfTI
volume of a phantom, MRI-CORE's architecture at 224 px with random weights of its size (or
``--weights FILE``), nothing in the feature cache, everything written. This is done once for each
number of ``--planted``: so many slices of the volume are then copies of reference slices, each
under another disguise, taken in runs from the gzipped volumes of as many patients as
``--patients`` says. They are flagged, so that their matches are read again, laid over them and
pictured.

Random weights tell no patients apart. The encoder works as ever, and its time counts, but what it
returns is exchanged for random projections of the reduced picture; that alone is left out of the
times. The cohort is made of such projections too.

Counted as the encoder: loading its weights and encoding. Everything else, from the start of Python
to the last byte of the report, is outside; what verifying flagged slices takes of it is also told
apart. Exits with 1 where more than 5 % of the wall time lies outside, for any number of copies.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "MemorizationIndex"))

WANTED = 0.05
VERIFYING = "verifying flagged slices"
STANDING_IN = "standing in for the encoder"


@dataclass
class Times:
    """Seconds of wall time and of the process's own time, by what they went into."""

    wall: dict[str, float] = field(default_factory=dict)
    process: dict[str, float] = field(default_factory=dict)

    def measure(self, name: str, call):
        """Wrap a function so that its time is added up under ``name``."""

        def measured(*arguments, **named):
            wall, process = time.perf_counter(), time.process_time()
            try:
                return call(*arguments, **named)
            finally:
                self.wall[name] = self.wall.get(name, 0) + time.perf_counter() - wall
                self.process[name] = self.process.get(name, 0) + time.process_time() - process

        return measured


class StandIn:
    """Gives projections of the picture under the name of an encoder; a copy is known by them."""

    sides = (16, 24, 32)

    def __init__(self, encoder) -> None:
        for name in ("name", "description", "layers", "widths", "input_size", "fingerprint"):
            setattr(self, name, getattr(encoder, name))
        rng = np.random.default_rng(0)
        self.projections = [
            rng.standard_normal((side * side, width), dtype=np.float32) / side
            for side, width in zip(self.sides, self.widths, strict=True)
        ]

    def encode(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
        features = []
        for side, projection in zip(self.sides, self.projections, strict=True):
            small = np.stack([resized(one, side, Image.Resampling.BOX) for one in pixels])
            flat = small.reshape(len(small), -1)
            features.append((flat - flat.mean(axis=1, keepdims=True)) @ projection)
        return tuple(features)


def resized(pixels: NDArray[np.float32], side: int, how: Image.Resampling) -> NDArray[np.float32]:
    """Return a picture at another side."""
    picture = Image.fromarray(np.ascontiguousarray(pixels, np.float32))
    return np.asarray(picture.resize((side, side), how))


def made_volume(seed: int, slices: int) -> NDArray[np.float32]:
    """Return a phantom head of (slices, 240, 240) in [0, 1], drawn coarsely and filled in."""
    from MemorizationIndexLib.phantoms import make_patient

    drawn = make_patient(seed, slices=max(2, slices // 8), size=120) / np.float32(1000)
    drawn = np.stack([resized(one, 240, Image.Resampling.BICUBIC) for one in drawn])
    place = np.linspace(0, len(drawn) - 1, slices)
    below = np.minimum(place.astype(int), len(drawn) - 2)
    share = (place - below).astype(np.float32)[:, None, None]
    filled = (1 - share) * drawn[below] + share * drawn[below + 1]
    rng = np.random.default_rng(seed)
    return (filled + 0.01 * rng.standard_normal(filled.shape, dtype=np.float32)).clip(0, 1)


def write_volume(path: Path, volume: NDArray[np.float32]) -> None:
    """Write a volume as a scanner's integers, gzipped."""
    import SimpleITK as sitk  # noqa: N813

    path.parent.mkdir(parents=True, exist_ok=True)
    sitk.WriteImage(sitk.GetImageFromArray((volume * 4095).astype(np.int16)), str(path))


def planted(
    volume: NDArray[np.float32], copied: list[NDArray[np.float32]], copies: int
) -> NDArray[np.float32]:
    """Return the volume with so many slices exchanged for disguised ones of the patients."""
    from MemorizationIndexLib.transformations import TRANSFORMATIONS

    # An encoder of one's own choice is not searched under flips.
    disguises = [one for one in TRANSFORMATIONS if "flip" not in one.name]
    volume = volume.copy()
    first = (len(volume) - copies) // 2
    for number in range(copies):
        place = first + number
        patient = copied[number * len(copied) // copies]
        disguise = disguises[number % len(disguises)]
        volume[place] = disguise.apply(patient[place], np.random.default_rng(number))
    return volume


def prepare(folder: Path, options: argparse.Namespace) -> None:
    """Make the cohort and the volumes to score."""
    from MemorizationIndexLib.cohort import build_cohort, building
    from MemorizationIndexLib.cohort.building import CohortOptions
    from MemorizationIndexLib.encoders.registry import get_encoder

    copied = [made_volume(100 + number, options.slices) for number in range(options.patients)]
    for number, patient in enumerate(copied):
        write_volume(folder / "training" / f"copied-{number}" / "head.nii.gz", patient)
    for number in range(options.references - options.patients):
        patient = made_volume(200 + number, 8)
        write_volume(folder / "training" / f"other-{number}" / "head.nii.gz", patient)
    stand_in = StandIn(get_encoder("mri-core", device="cpu"))
    with mock.patch.object(building, "get_encoder", lambda *_, **__: stand_in):
        build_cohort(
            folder / "training",
            folder / "c.micohort",
            options=CohortOptions(encoder="mri-core", cache=False),
        )
    stranger = made_volume(3, options.slices)
    for copies in options.planted:
        write_volume(folder / str(copies) / "generated.nii.gz", planted(stranger, copied, copies))


def score(folder: Path, copies: int, functions: int) -> None:
    """Score as the command does and print the times as JSON."""
    from MemorizationIndexLib import cli, verifying
    from MemorizationIndexLib.encoders import mri_core

    times = Times()
    really_encode = times.measure("encoding", mri_core.MriCoreEncoder.encode)
    stand_in: list[StandIn] = []
    flagged: list[int] = []

    def exchanged(encoder, pixels):
        stand_in[:] = stand_in or [StandIn(encoder)]
        return stand_in[0].encode(pixels)

    exchange = times.measure(STANDING_IN, exchanged)

    def encode(encoder, pixels):
        really_encode(encoder, pixels)
        return exchange(encoder, pixels)

    def verified(slices, *arguments, **named):
        flagged.append(len(slices))
        return verify(slices, *arguments, **named)

    load = times.measure("loading the weights", mri_core.load_mri_core)
    verify = times.measure(VERIFYING, verifying.verify_flagged)
    arguments = ["score", str(folder / str(copies) / "generated.nii.gz")]
    arguments += ["--cohort", str(folder / "c.micohort"), "--device", "cpu"]
    arguments += ["--out", str(folder / str(copies) / "results")]
    profile = cProfile.Profile()
    with (
        mock.patch.object(mri_core.MriCoreEncoder, "encode", encode),
        mock.patch.object(mri_core, "load_mri_core", load),
        mock.patch.object(verifying, "verify_flagged", verified),
        open(os.devnull, "w") as nowhere,  # noqa: PTH123
        redirect_stderr(nowhere),
    ):
        code = profile.runcall(cli.main, arguments) if functions else cli.main(arguments)
    if functions:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(functions)
    times.process["all"] = time.process_time()
    found = {"wall": times.wall, "process": times.process, "flagged": sum(flagged)}
    print(json.dumps({"code": code, **found}))


def shares(folder: Path, copies: int, functions: int) -> dict[str, float] | None:
    """Score in a process of its own, print where the time went, and return the shares outside."""
    # Each run encodes anew.
    os.environ["MEMORIZATION_INDEX_CACHE"] = str(folder / str(copies) / "cache")
    command = [sys.executable, __file__, "--score", str(folder), "--planted", str(copies)]
    start = time.perf_counter()
    done = subprocess.run(
        [*command, "--functions", str(functions)], check=True, stdout=subprocess.PIPE, text=True
    )
    total = time.perf_counter() - start
    *printed, last = done.stdout.splitlines()
    print("\n".join(printed))
    found = json.loads(last)
    if found["code"]:
        print(f"score ended with {found['code']}")
        return None
    print(f"{copies} copies planted, {found['flagged']} slices flagged")
    outside = {}
    for kind, whole in (("wall", total), ("process", found["process"].pop("all"))):
        inside = found[kind]
        whole -= inside.pop(STANDING_IN)
        verifying = inside.pop(VERIFYING, 0.0)
        seconds = whole - sum(inside.values())
        outside[kind] = seconds / whole
        parts = ", ".join(f"{name} {value:.2f} s" for name, value in inside.items())
        print(
            f"  {kind} time {whole:.1f} s: {parts}; outside {seconds:.2f} s "
            f"({outside[kind]:.1%}), of it {VERIFYING} {verifying:.2f} s"
        )
    return outside


def main() -> int:
    """Print the shares; return 0 if the target is met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--planted", type=int, nargs="+", default=[0, 15, 155], help="copies")
    parser.add_argument("--slices", type=int, default=155)
    parser.add_argument("--patients", type=int, default=3, help="of whom slices are copied")
    parser.add_argument("--references", type=int, default=30, help="patients in the cohort")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--threads", type=int, help="of the encoder and of NumPy (default: all)")
    parser.add_argument("--functions", type=int, default=0, help="dearest functions to print")
    parser.add_argument("--score", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.score:
        score(options.score, options.planted[0], options.functions)
        return 0
    if max(options.planted) > options.slices:
        parser.error("more copies than slices")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weights = options.weights
        if weights is None:
            from vit_speed import made_weights

            weights = folder / "made.pth"
            made_weights(weights)
        os.environ["MEMORIZATION_INDEX_WEIGHTS"] = str(weights.absolute())
        prepare(folder, options)
        if options.threads:
            os.environ["OMP_NUM_THREADS"] = str(options.threads)
        found = [shares(folder, copies, options.functions) for copies in options.planted]
    met = all(outside is not None and outside["wall"] <= WANTED for outside in found)
    print(f"at most {WANTED:.0%} of the wall time outside: {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
