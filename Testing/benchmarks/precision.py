"""What does bfloat16 do to similarity? MRI-CORE's architecture in both precisions, one device.

    python Testing/benchmarks/precision.py [--device cpu] [--weights FILE] [--patients 24]

Phantom slices are the reference; the same slices in five disguises and slices of other phantoms
are the queries. Each precision fits its own whitener, as each has its own cohort. Without
``--weights`` the weights are random numbers of the right shape: they say how far rounding goes in
twelve blocks of this width, not how MRI-CORE's own features behave.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "MemorizationIndex"))

from MemorizationIndexLib.encoders.mri_core import load_mri_core
from MemorizationIndexLib.images.slicing import slice_volume
from MemorizationIndexLib.images.volume import Volume
from MemorizationIndexLib.index.protocols import get_protocol
from MemorizationIndexLib.index.reference import Reference
from MemorizationIndexLib.phantoms import make_patient
from MemorizationIndexLib.transformations import get_transformation

DISGUISES = ("exact", "noise_0.02", "rotation_3", "shift", "gamma")
PRECISIONS = ("float32", "bfloat16")


def slices(patients: range, side: int) -> NDArray[np.float32]:
    """Return two slices a phantom, as an encoder gets them."""
    found = []
    for number in patients:
        array = make_patient(number, slices=2, size=160)
        volume = Volume(str(number), str(number), array, np.eye(4), "", planar=True)
        found += [one.pixels for one in slice_volume(volume, plane="auto", size=side)]
    return np.stack(found)


def cosines(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return all cosines between the rows of a and of b."""
    a, b = (
        x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a.astype(float), b.astype(float))
    )
    return a @ b.T


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--patients", type=int, default=24)
    parser.add_argument("--input-size", type=int, default=224)
    options = parser.parse_args()
    known = slices(range(options.patients), options.input_size)
    fresh = slices(range(1000, 1000 + options.patients // 2), options.input_size)
    rng = np.random.default_rng(0)
    copies = [get_transformation(name).apply(one, rng) for name in DISGUISES for one in known[::4]]
    queries = np.concatenate([np.stack(copies), fresh])
    protocol, subjects = get_protocol("calibrated"), np.arange(len(known)) // 2
    raw, white, similarity, nearest = {}, {}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        weights = options.weights
        if weights is None:
            from vit_speed import made_weights

            weights = Path(folder) / "made.pth"
            made_weights(weights)
        for precision in PRECISIONS:
            encoder = load_mri_core(
                weights,
                device=options.device,
                input_size=options.input_size,
                precision=precision,
            )
            start = time.perf_counter()
            reference, query = encoder.encode(known), encoder.encode(queries)
            spent = (time.perf_counter() - start) / (len(known) + len(queries))
            print(f"{precision}: {spent * 1e3:.0f} ms a slice on {encoder.device.device}")
            raw[precision] = reference, query
            index = Reference.fit(
                [rows[None] for rows in reference], subjects, options.patients, protocol
            )
            matches = index.match(query, protocol)
            white[precision] = index.whiten(reference), index.whiten(query)
            similarity[precision], nearest[precision] = matches.similarity, matches.rows
    print(f"{len(known)} reference slices, {len(copies)} disguised copies, {len(fresh)} others")
    print("| layer | row cosine, least | largest change of a cosine | the same, whitened |")
    print("|---|---|---|---|")
    for number, layer in enumerate(encoder.layers):
        full, mixed = (
            np.concatenate([part[number] for part in raw[precision]]) for precision in PRECISIONS
        )
        least = np.diag(cosines(full, mixed)).min()
        changes = []
        for kind in (raw, white):
            table = [cosines(*(part[number] for part in kind[p])) for p in PRECISIONS]
            changes.append(np.abs(table[1] - table[0]).max())
        print(f"| {layer} | {least:.6f} | {changes[0]:.1e} | {changes[1]:.1e} |")
    change = np.abs(similarity["bfloat16"] - similarity["float32"])
    same = np.mean(nearest["bfloat16"] == nearest["float32"])
    same_copies = np.mean((nearest["bfloat16"] == nearest["float32"])[: len(copies)])
    print(
        f"similarity s: largest change {change.max():.1e}, median {np.median(change):.1e}; the "
        f"nearest reference slice is the same for {same_copies:.1%} of the copies and {same:.1%} "
        "of all queries"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
