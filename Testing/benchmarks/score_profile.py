"""Where does ``score`` spend its time? At most 5 % of it may lie outside the encoder.

    python Testing/benchmarks/score_profile.py [--slices 155] [--references 30] [--functions 15]

A fresh process runs ``memorization-index score`` on the CPU, as a person would: one gzipped NIfTI
volume of a phantom, MRI-CORE's architecture at 224 px with random weights of its size (or
``--weights FILE``), nothing in the feature cache, everything written. The cohort is made
beforehand, of random features, as its size is all that matters here.

Counted as the encoder: loading its weights and encoding. Everything else, from the start of Python
to the last byte of the report, is outside. Exits with 1 where that is more than 5 %. Verifying the
slices that were flagged is outside too, and also told apart: it costs a fixed sum from the first
flagged slice on, and nothing where none is.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "MemorizationIndex"))

WANTED = 0.05
VERIFYING = "verifying flagged slices"


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
    """Gives random features under the name of an encoder, so that a cohort is made at once."""

    def __init__(self, encoder) -> None:
        for name in ("name", "description", "layers", "widths", "input_size", "fingerprint"):
            setattr(self, name, getattr(encoder, name))
        self.rng = np.random.default_rng(0)

    def encode(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
        return tuple(
            self.rng.standard_normal((len(pixels), width), dtype=np.float32)
            for width in self.widths
        )


def prepare(folder: Path, slices: int, references: int) -> None:
    """Make the cohort and the volume to score."""
    import SimpleITK as sitk  # noqa: N813

    from MemorizationIndexLib.cohort import build_cohort, building
    from MemorizationIndexLib.cohort.building import CohortOptions
    from MemorizationIndexLib.encoders.registry import get_encoder
    from MemorizationIndexLib.phantoms import make_patient

    stand_in = StandIn(get_encoder("mri-core", device="cpu"))
    training = np.random.default_rng(1).random((references, 64, 64), dtype=np.float32)
    np.save(folder / "training.npy", training)
    lines = [f"training.npy,p{number},{number}" for number in range(references)]
    manifest = "\n".join(["path,subject_id,slice_index", *lines, ""])
    (folder / "manifest.csv").write_text(manifest, encoding="utf-8")
    with mock.patch.object(building, "get_encoder", lambda *_, **__: stand_in):
        build_cohort(
            folder / "manifest.csv",
            folder / "c.micohort",
            options=CohortOptions(encoder="mri-core", cache=False),
        )
    volume = make_patient(3, slices=slices, size=240)
    image = sitk.GetImageFromArray((volume * 4095).astype(np.int16))
    sitk.WriteImage(image, str(folder / "generated.nii.gz"))


def score(folder: Path, functions: int) -> None:
    """Score as the command does and print the times as JSON."""
    from MemorizationIndexLib import audit, cli
    from MemorizationIndexLib.encoders import mri_core

    times = Times()
    encode = times.measure("encoding", mri_core.MriCoreEncoder.encode)
    load = times.measure("loading the weights", mri_core.load_mri_core)
    verify = times.measure(VERIFYING, audit.verify_flagged)
    arguments = ["score", str(folder / "generated.nii.gz"), "--cohort", str(folder / "c.micohort")]
    arguments += ["--out", str(folder / "results"), "--device", "cpu"]
    profile = cProfile.Profile()
    with (
        mock.patch.object(mri_core.MriCoreEncoder, "encode", encode),
        mock.patch.object(mri_core, "load_mri_core", load),
        mock.patch.object(audit, "verify_flagged", verify),
        open(os.devnull, "w") as nowhere,  # noqa: PTH123
        redirect_stderr(nowhere),
    ):
        code = profile.runcall(cli.main, arguments) if functions else cli.main(arguments)
    if functions:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(functions)
    times.process["all"] = time.process_time()
    print(json.dumps({"code": code, "wall": times.wall, "process": times.process}))


def main() -> int:
    """Print the shares; return 0 if the target is met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slices", type=int, default=155)
    parser.add_argument("--references", type=int, default=30)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--threads", type=int, help="of the encoder and of NumPy (default: all)")
    parser.add_argument("--functions", type=int, default=0, help="dearest functions to print")
    parser.add_argument("--score", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.score:
        score(options.score, options.functions)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weights = options.weights
        if weights is None:
            from vit_speed import made_weights

            weights = folder / "made.pth"
            made_weights(weights)
        os.environ["MEMORIZATION_INDEX_WEIGHTS"] = str(weights.absolute())
        os.environ["MEMORIZATION_INDEX_CACHE"] = str(folder / "cache")
        prepare(folder, options.slices, options.references)
        if options.threads:
            os.environ["OMP_NUM_THREADS"] = str(options.threads)
        command = [sys.executable, __file__, "--score", str(folder)]
        start = time.perf_counter()
        done = subprocess.run(
            [*command, "--functions", str(options.functions)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        total = time.perf_counter() - start
    *printed, last = done.stdout.splitlines()
    print("\n".join(printed))
    found = json.loads(last)
    if found["code"]:
        print(f"score ended with {found['code']}")
        return 1
    shares = {}
    for kind, whole in (("wall", total), ("process", found["process"].pop("all"))):
        inside = found[kind]
        verifying = inside.pop(VERIFYING, 0.0)
        outside = whole - sum(inside.values())
        shares[kind] = outside / whole
        parts = ", ".join(f"{name} {value:.2f} s" for name, value in inside.items())
        print(
            f"{kind} time {whole:.1f} s: {parts}; outside {outside:.2f} s ({shares[kind]:.1%}), of "
            f"it {VERIFYING} {verifying:.2f} s; {(outside - verifying) / (whole - verifying):.1%} "
            "without that"
        )
    return 0 if shares["wall"] <= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
