"""Phantom patients: made-up heads with varied anatomy, to try an audit without patient data.

They are computed from a seed and show nobody. Each patient has a head shape, a folded cortex,
ventricles, deep nuclei, sometimes lesions, a tissue contrast and a coil shading of his own, so that
patients differ in structure while the slices of one patient resemble each other.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.float32]
Field = NDArray[np.floating[Any]]

SPACING = (1.8, 1.8, 7.0)
MAXIMUM = 1000.0
FRESH = 10_000


class PhantomError(ValueError):
    """A phantom cannot be made as asked; the message says why."""


def patient_name(number: int) -> str:
    """Return the subject name of cohort phantom ``number``, counted from 1."""
    return f"phantom-{number:02d}"


def make_patient(seed: int, *, slices: int = 8, size: int = 128) -> Image:
    """Return one phantom head, shape (slices, size, size) as (K, J, I), values 0 to 1000.

    I runs from right to left, J from front to back, K from below to above (LPS), with spacing
    ``SPACING`` in mm at size 128. The same seed always gives the same array.

    Raises:
        PhantomError: fewer than 1 slice, or a size below 16.
    """
    if slices < 1 or size < 16:
        raise PhantomError(
            f"a phantom needs at least 1 slice and a size of 16; asked for {slices} and {size}"
        )
    rng = np.random.default_rng([seed, 20260213])
    z, y, x = _coordinates(rng, slices, size)

    head, angle = _head(rng, x, y, z)
    thickness = rng.uniform(0.035, 0.06), rng.uniform(0.03, 0.06), rng.uniform(0.015, 0.05)
    scalp, skull, space = thickness[0], sum(thickness[:2]), sum(thickness)
    brain = head - space

    # Folds: the zero crossings of band-limited noise are long winding lines, as sulci are.
    fold = _noise(rng, head.shape, rng.uniform(0.07, 0.11))
    groove = np.exp(-((fold / rng.uniform(0.16, 0.26)) ** 2))
    ribbon = np.exp(-((fold / rng.uniform(0.5, 0.7)) ** 2))
    reach = rng.uniform(0.15, 0.24)
    cortex = rng.uniform(0.04, 0.06) + reach * ribbon

    tissue = {
        "scalp": rng.uniform(0.75, 1.0),
        "skull": rng.uniform(0.04, 0.12),
        "fluid": rng.uniform(0.10, 0.24),
        "gray": rng.uniform(0.42, 0.56),
        "white": rng.uniform(0.68, 0.86),
    }
    soft = 1.2 / size
    image = np.zeros_like(head)
    image = _paint(
        image, _step(head, soft), tissue["scalp"] * (1 + 0.15 * _noise(rng, head.shape, 0.08))
    )
    image = _paint(image, _step(head - scalp, soft), tissue["skull"])
    image = _paint(image, _step(head - skull, soft), tissue["fluid"])
    image = _paint(image, _step(brain, soft), tissue["gray"])
    texture = 1 + 0.05 * _noise(rng, head.shape, 0.2) + 0.025 * _noise(rng, head.shape, 0.05)
    image = _paint(image, _step(brain - cortex, soft * 2), tissue["white"] * texture)
    sulcus = groove * _step(reach * 0.75 - brain, 0.03) * _step(brain, soft)
    image = _paint(image, sulcus, tissue["fluid"] + 0.05)

    image = _fissure(rng, image, brain, x, y, z, tissue)
    image = _nuclei(rng, image, x, y, z, tissue)
    image = _ventricles(rng, image, x, y, z, tissue)
    image = _lower_head(rng, image, x, y, z, brain, tissue)
    image = _lesions(rng, image, brain, x, y, z)
    return _acquire(rng, image, angle)


def write_phantom_cohort(
    folder: Path, *, patients: int = 24, slices: int = 8, size: int = 128, seed: int = 0
) -> list[Path]:
    """Write phantom patients as ``phantom-01/phantom-01_t1.nii.gz`` and on; return the files.

    Raises:
        PhantomError: no patients asked for.
        OSError: the folder cannot be written.
    """
    if patients < 1:
        raise PhantomError(f"a cohort needs at least 1 patient; asked for {patients}")
    return [
        _write_volume(
            Path(folder) / patient_name(number) / f"{patient_name(number)}_t1.nii.gz",
            make_patient(_seed_of(seed, number), slices=slices, size=size),
        )
        for number in range(1, patients + 1)
    ]


@dataclass(frozen=True)
class Planted:
    """What one slice of the synthetic volume truly is.

    Attributes:
        slice: Index along the slice axis.
        truth: ``copy``, ``fresh`` (of a phantom outside the cohort) or ``blank``.
        copied_subject: The copied phantom; empty unless a copy.
        copied_slice: The copied slice; None unless a copy.
        disguise: How the copy was disguised; empty unless a copy.
    """

    slice: int
    truth: str
    copied_subject: str = ""
    copied_slice: int | None = None
    disguise: str = ""


def write_synthetic_volume(
    folder: Path,
    *,
    patients: int = 24,
    slices: int = 8,
    size: int = 128,
    seed: int = 0,
    copies: int = 8,
    fresh: int = 12,
    blank: int = 2,
    name: str = "synthetic-01",
) -> tuple[Path, list[Planted]]:
    """Write a volume as a copying generator might make it, and the truth as ``planted.csv``.

    Takes the numbers that ``write_phantom_cohort`` was called with. ``blank`` empty slices stand at
    each end; between them lie runs of disguised copies of cohort slices and of slices of phantoms
    that the cohort does not hold. The volume is ``name/name_t1.nii.gz`` below ``folder``.

    Returns:
        The volume's path, and one ``Planted`` per slice.

    Raises:
        PhantomError: the numbers cannot be met.
        OSError: the folder cannot be written.
    """
    if patients < 1 or min(copies, fresh, blank) < 0 or copies + fresh + blank < 1:
        raise PhantomError(
            "a synthetic volume needs a cohort of at least 1 patient and at least 1 slice; asked "
            f"for {patients} patients, {copies} copies, {fresh} fresh and {blank} blank slices"
        )
    rng = np.random.default_rng([seed, 77])
    runs = _copied_runs(rng, patients, slices, copies) + _fresh_runs(rng, slices, fresh)
    order = rng.permutation(len(runs))
    empty = np.zeros((size, size), dtype=np.float32)
    images: list[Image] = [empty] * blank
    planted = [Planted(index, "blank") for index in range(blank)]
    heads: dict[int, Image] = {}
    disguises = list(DISGUISES)
    for number, index in (pair for run in order for pair in runs[run]):
        if number not in heads:
            heads[number] = make_patient(_seed_of(seed, number), slices=slices, size=size)
        picture = heads[number][index]
        here = len(images)
        if number > FRESH:
            planted.append(Planted(here, "fresh"))
        else:
            count = sum(one.truth == "copy" for one in planted)
            disguise = disguises[count % len(disguises)]
            picture = DISGUISES[disguise](picture, rng)
            planted.append(Planted(here, "copy", patient_name(number), index, disguise))
        images.append(picture)
    planted += [Planted(len(images) + extra, "blank") for extra in range(blank)]
    images += [empty] * blank

    path = _write_volume(Path(folder) / name / f"{name}_t1.nii.gz", np.stack(images))
    with (Path(folder) / "planted.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["slice", "truth", "copied_subject", "copied_slice", "disguise"])
        for one in planted:
            source = "" if one.copied_slice is None else one.copied_slice
            writer.writerow([one.slice, one.truth, one.copied_subject, source, one.disguise])
    return path, planted


def _seed_of(seed: int, number: int) -> int:
    return seed * 100_003 + number


def _copied_runs(
    rng: np.random.Generator, patients: int, slices: int, copies: int
) -> list[list[tuple[int, int]]]:
    """Half of the copies as one run through one patient, the rest single, from other patients."""
    people = rng.permutation(patients) + 1
    run = min(slices, (copies + 1) // 2)
    start = (slices - run) // 2
    runs = [[(int(people[0]), start + step) for step in range(run)]] if run else []
    for rest in range(copies - run):
        person = int(people[(rest + 1) % patients])
        runs.append([(person, int(rng.integers(slices)))])
    return runs


def _fresh_runs(rng: np.random.Generator, slices: int, fresh: int) -> list[list[tuple[int, int]]]:
    """Runs of up to four neighbouring slices, each run from another phantom."""
    runs: list[list[tuple[int, int]]] = []
    while fresh > 0:
        run = min(4, slices, fresh)
        start = int(rng.integers(slices - run + 1))
        runs.append([(FRESH + len(runs) + 1, start + step) for step in range(run)])
        fresh -= run
    return runs


def _coordinates(rng: np.random.Generator, slices: int, size: int) -> tuple[Field, Field, Field]:
    """Head coordinates of every voxel, each (K, J, I): tilted, shifted and gently warped."""
    low, high = rng.uniform(-0.44, -0.36), rng.uniform(0.44, 0.56)
    levels = np.linspace(low, high, slices) if slices > 1 else np.array([0.1])
    line = np.linspace(-1.0, 1.0, size)
    grids = np.meshgrid(levels, line, line, indexing="ij")
    z, y, x = (grid.astype(np.float32) for grid in grids)
    tilt = np.deg2rad(rng.normal(0.0, 4.0))
    x, y = np.cos(tilt) * x - np.sin(tilt) * y, np.sin(tilt) * x + np.cos(tilt) * y
    x = x - rng.normal(0, 0.025) + 0.025 * _noise(rng, x.shape, 0.55)
    y = y - rng.normal(0, 0.03) + 0.025 * _noise(rng, y.shape, 0.55)
    return z, y, x


def _head(
    rng: np.random.Generator,
    x: Field,
    y: Field,
    z: Field,
) -> tuple[Field, Field]:
    """Depth below the skin (positive inside, about 1 at the centre line) and the angle."""
    width, length = rng.uniform(0.66, 0.80), rng.uniform(0.84, 0.93)
    height = rng.uniform(0.86, 1.0)
    power = rng.uniform(1.95, 2.35)
    angle = np.arctan2(y, x)
    shape = np.ones_like(x)
    for order in (1, 2, 3, 4, 6):
        phase, size = rng.uniform(0, 2 * np.pi), rng.normal(0, 0.024 / order**0.5)
        shape = shape + size * np.cos(order * angle + phase + 0.6 * z * order)
    narrowing = 1 - rng.uniform(0.05, 0.14) * np.clip(-y, 0, None) - 0.12 * np.clip(-z, 0, None)
    radius = (
        np.abs(x / (width * narrowing)) ** power
        + np.abs(y / length) ** power
        + np.abs(z / height) ** power
    ) ** (1 / power)
    return (1 - radius / shape) * (width + length) / 2, angle


def _fissure(
    rng: np.random.Generator,
    image: Field,
    brain: Field,
    x: Field,
    y: Field,
    z: Field,
    tissue: dict[str, float],
) -> Field:
    """The midline between the hemispheres, deeper at the front, back and top."""
    bend = rng.normal(0, 0.025) * np.sin(2.5 * y + rng.uniform(0, 6)) + 0.012 * _noise(
        rng, x.shape, 0.3
    )
    gap = rng.uniform(0.010, 0.024)
    open_part = _step(np.maximum(np.abs(y + 0.03) - rng.uniform(0.26, 0.4), z - 0.28), 0.05)
    inside = _step(brain, 0.02) * open_part
    mantle = np.exp(-(((x - bend) / (gap + 0.05)) ** 2))
    image = _paint(image, mantle * inside, tissue["gray"])
    return _paint(image, np.exp(-(((x - bend) / gap) ** 2)) * inside, tissue["fluid"])


def _nuclei(
    rng: np.random.Generator,
    image: Field,
    x: Field,
    y: Field,
    z: Field,
    tissue: dict[str, float],
) -> Field:
    """Caudate, putamen and thalamus on either side, in a gray of their own."""
    for depth, across, length, where in (
        (-0.2, 0.055, 0.11, 0.15),
        (-0.06, 0.07, 0.16, 0.29),
        (0.14, 0.09, 0.13, 0.14),
    ):
        gray = tissue["gray"] + rng.normal(0.04, 0.03)
        across, length = across * rng.uniform(0.8, 1.25), length * rng.uniform(0.8, 1.25)
        centre, place, turn = (
            depth + rng.normal(0, 0.025),
            where + rng.normal(0, 0.015),
            rng.uniform(0.1, 0.5),
        )
        level, tall = rng.normal(0.02, 0.04), rng.uniform(0.2, 0.32)
        for side in (-1, 1):
            u, v = x - side * place, y - centre - side * rng.normal(0, 0.01)
            u, v = (
                u * np.cos(turn) - side * v * np.sin(turn),
                side * u * np.sin(turn) + v * np.cos(turn),
            )
            radius = np.sqrt((u / across) ** 2 + (v / length) ** 2 + ((z - level) / tall) ** 2)
            image = _paint(image, _step(1 - radius, 0.09), gray)
    return image


def _ventricles(
    rng: np.random.Generator,
    image: Field,
    x: Field,
    y: Field,
    z: Field,
    tissue: dict[str, float],
) -> Field:
    """Lateral ventricles as two bent horns, from slit-like to wide, and a third ventricle."""
    wide = rng.uniform(0.035, 0.10)
    front, back = rng.uniform(0.24, 0.36), rng.uniform(0.26, 0.44)
    spread_front, spread_back = rng.uniform(0.25, 0.5), rng.uniform(0.3, 0.75)
    level, tall = rng.normal(0.18, 0.03), rng.uniform(0.2, 0.3)
    for side in (-1, 1):
        uneven = rng.uniform(0.82, 1.18)
        along = np.where(y < 0, -y / front, y / back)
        axis = (
            0.05
            + wide * 0.55
            + np.where(
                y < 0,
                spread_front * np.clip(-y, 0, None) ** 1.5,
                spread_back * np.clip(y, 0, None) ** 1.5,
            )
        )
        thick = wide * uneven * np.sqrt(np.clip(1 - along**2, 0, None)) * (0.75 + 0.5 * along**2)
        rise = np.sqrt(np.clip(1 - ((z - level) / tall) ** 2, 0, None))
        distance = thick * rise - np.abs(side * x - axis)
        image = _paint(
            image, _step(distance, 0.012) * (thick * rise > 0.004), tissue["fluid"] * 0.8
        )
    third = np.exp(-((x / rng.uniform(0.012, 0.03)) ** 2)) * _step(0.16 - np.abs(y - 0.08), 0.02)
    return _paint(image, third * _step(0.13 - np.abs(z), 0.04), tissue["fluid"] * 0.8)


def _lower_head(
    rng: np.random.Generator,
    image: Field,
    x: Field,
    y: Field,
    z: Field,
    brain: Field,
    tissue: dict[str, float],
) -> Field:
    """Below the ventricles: cerebellum, brain stem, temporal clefts, eyes and air spaces."""
    inside = _step(brain, 0.015)
    low = _step(-0.16 + rng.normal(0, 0.02) - z, 0.05)
    back, wide = rng.uniform(0.42, 0.5), rng.uniform(0.40, 0.5)
    bowl = 1 - np.sqrt((x / wide) ** 2 + ((y - back) / rng.uniform(0.24, 0.32)) ** 2)
    leaves = np.sin(
        (30 + 8 * rng.random()) * (bowl + 0.12 * np.abs(x)) + 1.5 * _noise(rng, x.shape, 0.12)
    )
    cerebellum = (
        tissue["gray"] + 0.13 * leaves * _step(0.75 - bowl, 0.2) + 0.2 * _step(bowl - 0.6, 0.1)
    )
    image = _paint(image, _step(bowl + 0.08, 0.03) * low * inside, tissue["fluid"])
    image = _paint(image, _step(bowl, 0.03) * low * inside, cerebellum)
    stem = 1 - np.sqrt(
        (x / rng.uniform(0.12, 0.17)) ** 2 + ((y - 0.13) / rng.uniform(0.12, 0.17)) ** 2
    )
    image = _paint(image, _step(stem + 0.25, 0.06) * low * inside, tissue["fluid"])
    image = _paint(image, _step(stem, 0.06) * low * inside, tissue["white"] * 0.95)
    vault = -0.36 + rng.normal(0, 0.03) + 0.08 * _noise(rng, x.shape, 0.4)
    face = _step(vault - y, 0.02) * _step(-0.24 + rng.normal(0, 0.02) - z, 0.03)
    skin = _step(brain + 0.03, 0.02)
    muscle = 0.35 + 0.14 * _noise(rng, x.shape, 0.1)
    image = _paint(image, face * skin, muscle)
    for side in (-1, 1):
        eye = 1 - np.sqrt(
            ((x - side * rng.normal(0.33, 0.02)) / 0.15) ** 2
            + ((y + rng.normal(0.58, 0.02)) / 0.15) ** 2
        )
        image = _paint(image, face * skin * _step(eye + 0.28, 0.06), 0.85)
        image = _paint(image, face * skin * _step(eye, 0.06), tissue["fluid"])
    air = _step(0.09 * rng.uniform(0.7, 1.4) - np.abs(x) + 0.03 * _noise(rng, x.shape, 0.08), 0.015)
    return _paint(image, face * skin * air * _step(-0.40 - y, 0.03), 0.03)


def _lesions(
    rng: np.random.Generator,
    image: Field,
    brain: Field,
    x: Field,
    y: Field,
    z: Field,
) -> Field:
    """None to four patches of another signal, ragged, anywhere in the brain."""
    for _ in range(int(rng.integers(0, 5))):
        side, place, level = (
            rng.uniform(-0.45, 0.45),
            rng.uniform(-0.5, 0.5),
            rng.uniform(-0.3, 0.45),
        )
        radius = rng.uniform(0.03, 0.13)
        distance = np.sqrt((x - side) ** 2 + (y - place) ** 2 + 0.5 * (z - level) ** 2) / radius
        distance = distance + 0.25 * _noise(rng, x.shape, 0.07)
        signal = rng.choice([rng.uniform(0.2, 0.35), rng.uniform(0.9, 1.1)])
        image = _paint(image, _step(1 - distance, 0.1) * _step(brain - 0.03, 0.02), signal)
    return image


def _acquire(rng: np.random.Generator, image: Field, angle: Field) -> Image:
    """What the scanner adds: coil shading, a gamma of its own, blur and Rician noise."""
    from scipy import ndimage

    image = np.clip(image, 0, 1.2) ** rng.uniform(0.85, 1.2)
    shading = 0.16 * _noise(rng, image.shape, 0.9) + 0.06 * np.cos(
        angle - rng.uniform(0, 2 * np.pi)
    )
    image = image * np.exp(rng.uniform(0.5, 1.2) * shading)
    image = ndimage.gaussian_filter(
        image, (0, *2 * (rng.uniform(0.45, 0.7) * image.shape[1] / 128,))
    )
    noise = rng.uniform(0.008, 0.018)
    real = image + noise * rng.standard_normal(image.shape)
    measured = np.hypot(real, noise * rng.standard_normal(image.shape))
    return (MAXIMUM * np.clip(measured / 1.25, 0, 1)).astype(np.float32)


def _step(depth: Field, soft: float) -> Field:
    """A soft 0-to-1 edge at depth 0, about ``soft`` wide: partial volume."""
    return 0.5 * (1 + np.tanh(depth / soft))


def _paint(image: Field, share: Field, value: float | Field) -> Field:
    return image + share * (value - image)


def _noise(rng: np.random.Generator, shape: tuple[int, ...], pitch: float) -> Field:
    """Smooth noise of mean 0 and spread about 1, features ``pitch`` wide (the head is about 1.6).

    Coarse random numbers, interpolated: cost does not depend on the pitch. Across slices it changes
    slowly, so neighbouring slices share their folds.
    """
    slices, rows, columns = shape
    coarse = max(3, round(2 / pitch) + 1)
    levels = max(2, round(1.0 / max(pitch, 0.25)) + 1)
    grid = rng.standard_normal((levels + 3, coarse + 3, coarse + 3)).astype(np.float32)
    across, down = _spline(columns, coarse), _spline(rows, coarse)
    field = np.tensordot(_spline(slices, levels), down @ (grid @ across.T), axes=1)
    return 2.8 * field


def _spline(samples: int, pieces: int) -> Field:
    """Weights of cubic B-splines, shape (samples, pieces + 3), at evenly spaced samples."""
    where = np.linspace(0, pieces, samples) if samples > 1 else np.array([pieces / 2])
    knots = np.arange(pieces + 3) - 1
    distance = np.abs(where[:, None] - knots)
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = np.clip(2 - distance, 0, None) ** 3 / 6
    return np.where(distance < 1, near, far).astype(np.float32)


def _noisy(picture: Image, rng: np.random.Generator) -> Image:
    return picture + rng.normal(0, 0.02 * MAXIMUM, picture.shape).astype(np.float32)


def _rescaled(picture: Image, rng: np.random.Generator) -> Image:
    return (picture * rng.uniform(0.75, 0.95)).astype(np.float32)


def _rotated(picture: Image, rng: np.random.Generator) -> Image:
    from scipy import ndimage

    degrees = rng.uniform(2.0, 3.0) * rng.choice([-1, 1])
    return ndimage.rotate(picture, degrees, reshape=False, order=1, mode="nearest")


def _blurred(picture: Image, rng: np.random.Generator) -> Image:
    from scipy import ndimage

    return ndimage.gaussian_filter(picture, rng.uniform(0.6, 0.9) * picture.shape[0] / 128)


def _shifted(picture: Image, rng: np.random.Generator) -> Image:
    from scipy import ndimage

    pixels = [step * rng.choice([-1, 1]) * picture.shape[0] / 128 for step in (1.5, 1.0)]
    return ndimage.shift(picture, pixels, order=1, mode="nearest")


def _gamma(picture: Image, rng: np.random.Generator) -> Image:
    return (MAXIMUM * (picture / MAXIMUM) ** rng.uniform(0.8, 1.25)).astype(np.float32)


DISGUISES: dict[str, Callable[[Image, np.random.Generator], Image]] = {
    "noise of 2 % of full scale": _noisy,
    "intensity scaled": _rescaled,
    "rotated by 2 to 3 degrees": _rotated,
    "blurred": _blurred,
    "shifted by 1 to 2 pixels": _shifted,
    "gamma": _gamma,
}
"""How the synthetic volume hides its copies; each takes a (J, I) picture and a generator."""


def _write_volume(path: Path, array: Image) -> Path:
    """Write (K, J, I) as NIfTI, axial, 16 bit; its name says that it is a phantom.

    Raises:
        OSError: the file cannot be written.
    """
    import SimpleITK as sitk  # noqa: N813

    path.parent.mkdir(parents=True, exist_ok=True)
    image = sitk.GetImageFromArray(np.clip(np.rint(array), 0, MAXIMUM).astype(np.int16))
    in_plane = SPACING[0] * 128 / array.shape[1]
    # Slices stay the coarsest axis at any size, for that is how a reader finds them.
    image.SetSpacing((in_plane, in_plane, max(SPACING[2], 1.5 * in_plane)))
    try:
        sitk.WriteImage(image, str(path), useCompression=True)
    except RuntimeError as error:
        raise OSError(
            f"cannot write the phantom {path}: is the disk full or the folder locked?"
        ) from error
    return path
