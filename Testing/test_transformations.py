"""Disguises of a copy: same shape, normalised, seeded, as strong as they say."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from MemorizationIndexLib.transformations import (
    PAPER_CONDITIONS,
    TRANSFORMATIONS,
    Transformation,
    TransformationError,
    get_transformation,
)
from shared_data import shared

NAMES = [
    "exact",
    "noise_0.01",
    "noise_0.02",
    "intensity",
    "rotation_3",
    "rotation_5",
    "horizontal_flip",
    "vertical_flip",
    "gamma",
    "blur",
    "shift",
    "crop",
    "jpeg",
    "resample",
    "elastic",
    "bias_field",
]
RANDOM = {
    "noise_0.01",
    "noise_0.02",
    "intensity",
    "rotation_3",
    "rotation_5",
    "gamma",
    "shift",
    "crop",
    "elastic",
    "bias_field",
}


def head(size: int = 224) -> np.ndarray:
    """A padded slice: texture inside an ellipse off the center, zero outside."""
    rng = np.random.default_rng(7)
    rows, columns = np.indices((size, size)) / size - 0.5
    inside = ((rows - 0.03) / 0.36) ** 2 + ((columns + 0.05) / 0.28) ** 2 < 1
    texture = ndimage.gaussian_filter(rng.standard_normal((size, size)), size / 40)
    image = np.where(inside, 0.3 + (texture - texture.min()) / np.ptp(texture), 0.0)
    return (image / image.max()).astype(np.float32)


def blob(size: int = 224) -> np.ndarray:
    """A Gaussian spot at the center: its moments tell shift, blur and rotation."""
    rows, columns = np.indices((size, size)) - (size - 1) / 2
    image = np.exp(-(rows**2 + columns**2) / (2 * (size / 20) ** 2)).astype(np.float32)
    return (image - image.min()) / np.ptp(image)


def changed(name: str, image: np.ndarray, seed: int = 0) -> np.ndarray:
    return get_transformation(name).apply(image, np.random.default_rng(seed))


def test_the_table_has_the_sections_sixteen_in_order():
    assert [transformation.name for transformation in TRANSFORMATIONS] == NAMES
    assert [transformation.name for transformation in PAPER_CONDITIONS] == NAMES[:8]
    assert all(transformation.description for transformation in TRANSFORMATIONS)


@pytest.mark.parametrize("transformation", TRANSFORMATIONS, ids=NAMES)
class TestEvery:
    @pytest.mark.parametrize("shape", [(224, 224), (64, 64), (97, 60), (2, 2), (1, 7)])
    def test_keeps_shape_and_normalises(self, transformation: Transformation, shape):
        image = np.random.default_rng(3).random(shape, dtype=np.float32)
        image = (image - image.min()) / np.ptp(image)
        result = transformation.apply(image, np.random.default_rng(0))
        assert result.shape == shape
        assert result.dtype == np.float32
        assert result.flags.c_contiguous
        assert result.min() == 0.0
        # A resampled 2×2 or a shifted 1×7 image may well be blank; a real slice may not.
        assert result.max() == 1.0 or (min(shape) <= 2 and result.max() == 0.0)

    def test_a_blank_slice_is_finite_and_a_constant_one_too(self, transformation):
        for value in (0.0, 0.5, 1.0):
            blank = np.full((32, 32), value, dtype=np.float32)
            result = transformation.apply(blank, np.random.default_rng(0))
            assert np.isfinite(result).all()
            assert 0.0 <= result.min() <= result.max() <= 1.0

    def test_the_seed_decides_alone(self, transformation):
        image = head()
        first = transformation.apply(image, np.random.default_rng(5))
        np.random.default_rng(6).random(10)
        again = transformation.apply(image, np.random.default_rng(5))
        other = transformation.apply(image, np.random.default_rng(6))
        np.testing.assert_array_equal(first, again)
        assert np.array_equal(first, other) == (transformation.name not in RANDOM)

    def test_leaves_the_input_alone(self, transformation):
        image = head()
        image.flags.writeable = False
        before = image.copy()
        result = transformation.apply(image, np.random.default_rng(0))
        np.testing.assert_array_equal(image, before)
        assert not np.shares_memory(result, image)

    def test_is_a_disguise_not_another_image(self, transformation):
        image = head()
        result = transformation.apply(image, np.random.default_rng(1))
        undone = {"horizontal_flip": result[:, ::-1], "vertical_flip": result[::-1]}
        seen = undone.get(transformation.name, result)
        assert np.corrcoef(seen.ravel(), image.ravel())[0, 1] > 0.85
        assert np.array_equal(result, image) == (transformation.name == "exact")

    def test_travels_to_a_worker_process(self, transformation):
        copy = pickle.loads(pickle.dumps(transformation))
        image = head(64)
        np.testing.assert_array_equal(
            copy.apply(image, np.random.default_rng(0)),
            transformation.apply(image, np.random.default_rng(0)),
        )

    @pytest.mark.parametrize(
        "bad", [np.zeros((3, 8, 8)), np.zeros((0, 8)), np.full((8, 8), np.nan)]
    )
    def test_refuses_what_is_no_slice(self, transformation, bad):
        with pytest.raises(TransformationError, match="slice to transform"):
            transformation.apply(bad, np.random.default_rng(0))


@pytest.mark.parametrize("sd", [0.01, 0.02])
def test_noise_has_its_standard_deviation(sd):
    image = np.full((224, 224), 0.5, dtype=np.float32)
    # A row of black and white keeps the normalisation from rescaling the noise.
    image[0, :112], image[0, 112:] = 0.0, 1.0
    result = changed(f"noise_{sd}", image)
    assert np.std(result[1:]) == pytest.approx(sd, rel=0.05)


def test_intensity_loses_only_the_bright_end():
    image = np.linspace(0, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
    saturated = [np.mean(changed("intensity", image, seed) == 1.0) for seed in range(200)]
    assert 0.05 < max(saturated) <= 1 - 1 / 1.1 + 1e-3
    assert np.mean(np.array(saturated) < 0.001) == pytest.approx(0.5, abs=0.12)


@pytest.mark.parametrize("degrees", [3.0, 5.0])
def test_rotation_reaches_its_angle_on_both_sides(degrees):
    rows, columns = np.indices((224, 224)) - 111.5
    bar = np.exp(-((rows / 6) ** 2) - (columns / 50) ** 2).astype(np.float32)
    angles = []
    for seed in range(100):
        result = changed(f"rotation_{degrees:.0f}", bar, seed).astype(np.float64)
        covariance = np.array(
            [(result * rows * columns).sum(), (result * (columns**2 - rows**2)).sum()]
        )
        angles.append(np.degrees(0.5 * np.arctan2(2 * covariance[0], covariance[1])))
    assert max(np.abs(angles)) <= degrees + 0.05
    assert min(angles) < -0.8 * degrees
    assert max(angles) > 0.8 * degrees


def test_rotation_fills_the_border_with_zero():
    result = changed("rotation_5", np.tile([[0.5, 1.0]], (112, 56)).astype(np.float32), seed=3)
    assert min(result[0, 0], result[0, -1], result[-1, 0], result[-1, -1]) == 0.0


def test_flips_are_exact_and_their_own_inverse():
    image = head()
    np.testing.assert_array_equal(changed("horizontal_flip", image), np.fliplr(image))
    np.testing.assert_array_equal(changed("vertical_flip", image), np.flipud(image))


def test_gamma_stays_in_its_range():
    image = np.linspace(0, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
    middle = np.searchsorted(image.ravel(), 0.5)
    exponents = [
        np.log(changed("gamma", image, seed).ravel()[middle]) / np.log(image.ravel()[middle])
        for seed in range(200)
    ]
    assert 0.7 <= min(exponents) < 0.75
    assert 1.35 < max(exponents) <= 1.4


@pytest.mark.parametrize("size", [112, 224, 448])
def test_blur_and_shift_scale_with_the_slice(size):
    scale = size / 224
    rows, columns = np.indices((size, size)) - (size - 1) / 2
    image = blob(size).astype(np.float64)
    sharp = (image * rows**2).sum() / image.sum()
    blurred = changed("blur", blob(size)).astype(np.float64)
    assert (blurred * rows**2).sum() / blurred.sum() - sharp == pytest.approx(scale**2, rel=0.15)

    offsets = []
    for seed in range(40):
        result = changed("shift", blob(size), seed).astype(np.float64)
        offsets.append(
            [(result * rows).sum() / result.sum(), (result * columns).sum() / result.sum()]
        )
    np.testing.assert_allclose(np.hypot(*np.transpose(offsets)), 4 * scale, rtol=0.02)
    angles = np.arctan2(*np.transpose(offsets))
    assert len(set(np.floor(angles / (np.pi / 2)))) == 4


def test_crop_enlarges_by_a_ninth():
    areas = [np.mean(changed("crop", blob(), seed) > 0.5) for seed in range(5)]
    np.testing.assert_allclose(areas, np.mean(blob() > 0.5) / 0.81, rtol=0.03)


def test_jpeg_is_quality_50(tmp_path):
    image = head()
    Image.fromarray(np.round(image * 255).astype(np.uint8)).save(tmp_path / "a.jpg", quality=50)
    decoded = np.asarray(Image.open(tmp_path / "a.jpg"), dtype=np.float32)
    expected = (decoded - decoded.min()) / np.ptp(decoded)
    np.testing.assert_allclose(changed("jpeg", image), expected, atol=1e-6)


def test_resample_removes_the_finest_detail_only():
    checkerboard = (np.indices((224, 224)).sum(axis=0) % 2).astype(np.float32)
    image = 0.5 * head() + 0.1 * checkerboard
    image = (image - image.min()) / np.ptp(image)
    difference = changed("resample", image)[:, 1:] - changed("resample", image)[:, :-1]
    assert np.abs(difference).mean() < 0.1 * np.abs(np.diff(image)).mean()


def test_elastic_moves_by_a_few_pixels():
    rng = np.random.default_rng(0)
    centers = [(40, 40), (112, 112), (180, 90), (60, 170)]
    lengths = []
    for _ in range(15):
        image = np.zeros((224, 224), dtype=np.float32)
        rows, columns = np.indices(image.shape)
        for row, column in centers:
            image += np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / 18.0)
        result = get_transformation("elastic").apply(image / image.max(), rng)
        for row, column in centers:
            window = result[row - 12 : row + 13, column - 12 : column + 13].astype(np.float64)
            offset = np.array(ndimage.center_of_mass(window)) - 12
            lengths.append(np.hypot(*offset))
    assert max(lengths) < 3 * np.sqrt(2) + 0.3
    assert 0.8 < np.mean(lengths) < 3.0


def test_bias_field_is_smooth_and_within_its_amplitude():
    image = np.full((224, 224), 0.5, dtype=np.float32)
    image[0, 0] = 0.0
    for seed in range(20):
        # min–max maps field·0.5 to field / largest field, since the image's minimum is 0
        field = changed("bias_field", image, seed).ravel()[1:]
        assert 0.7 / 1.3 - 1e-4 <= field.min() <= 1.0 / 1.2
        assert np.abs(np.diff(changed("bias_field", image, seed)[1:], axis=0)).max() < 0.01


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(TransformationError, match=r"'rotate'.*rotation_3"):
        get_transformation("rotate")


def test_import_is_light():
    code = (
        "import sys, MemorizationIndexLib.transformations;"
        "print([m for m in ('torch', 'scipy.ndimage', 'scipy.stats', 'SimpleITK')"
        " if m in sys.modules])"
    )
    # `python -c` does not see pytest's pythonpath setting.
    package = next(path for path in sys.path if path.endswith("MemorizationIndex"))
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=package
    )
    assert output.stdout.strip() == "[]"


def test_real_slices_stay_recognizable():
    folder = shared("data", "slices")
    for anatomy in ("brain", "knee", "spine"):
        path = sorted((folder / anatomy).rglob("*.png"))[0]
        image = np.asarray(Image.open(path).convert("L"), dtype=np.float32)
        side = max(image.shape)
        image = np.pad(image, [(0, side - image.shape[0]), (0, side - image.shape[1])])
        image = (image - image.min()) / np.ptp(image)
        for transformation in TRANSFORMATIONS:
            # Flips and crops move tissue too far for a correlation pixel by pixel.
            if transformation.name.endswith("flip") or transformation.name == "crop":
                continue
            result = transformation.apply(image, np.random.default_rng(2))
            correlation = np.corrcoef(result.ravel(), image.ravel())[0, 1]
            assert correlation > 0.5, (anatomy, transformation.name)
