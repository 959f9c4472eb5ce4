"""Grey values to [0, 1], the square, and what is not scored."""

from __future__ import annotations

import numpy as np
import pytest

from MemorizationIndexLib.images.normalizing import (
    MAX_PIXELS,
    fit_to_square,
    intensity_range,
    normalize,
    why_not_scorable,
)
from MemorizationIndexLib.images.slicing import slice_volume
from MemorizationIndexLib.images.volume import ImageError, Volume

EVEN = (1.0, 1.0)


def planar(array: np.ndarray) -> Volume:
    return Volume("v", "s", array, np.eye(4), "v.npy", planar=True)


@pytest.mark.parametrize(
    "dtype",
    ["u1", "i1", "<u2", ">u2", "<i2", ">i2", "<u4", ">i4", "<i8", "<u8", ">u8", "f2", ">f4", "f8"],
)
def test_every_dtype_gives_the_same_slice(dtype: str) -> None:
    values = np.random.default_rng(0).integers(0, 100, (20, 20))
    values[0, :2] = 0, 100
    one, _ = slice_volume(planar(np.stack([values, values.T]).astype(dtype)), size=20)
    assert one.pixels is not None and one.pixels.dtype == np.float32
    assert np.allclose(one.pixels, values / 100, atol=1e-6)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u8"])
def test_the_full_range_of_integers_does_not_overflow(dtype: str) -> None:
    info = np.iinfo(dtype)
    values = np.array([info.min, info.max, info.min // 2 + info.max // 2], dtype)
    assert np.allclose(normalize(values), [0, 1, 0.5], atol=0.01)


def test_small_differences_of_large_integers_are_kept() -> None:
    values = np.array([2**63, 2**63 + 50, 2**63 + 100], np.uint64)
    assert np.allclose(normalize(values), [0, 0.5, 1])
    assert np.allclose(normalize(np.array([-(2**62), -(2**62) + 2], np.int64)), [0, 1])


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1.0, 1e30, 1.7e308])
def test_the_full_range_of_floats_does_not_overflow(scale: float) -> None:
    values = np.linspace(-1, 1, 400).reshape(20, 20) * scale
    assert why_not_scorable(values, EVEN, intensity_range(values[None])) == ""
    assert np.allclose(normalize(values), np.linspace(0, 1, 400).reshape(20, 20), atol=1e-6)


def test_bool_and_non_finite_values() -> None:
    mask = np.random.default_rng(0).random((20, 20)) > 0.5
    (one,) = slice_volume(planar(mask[None]), size=20)
    assert one.pixels is not None and np.array_equal(one.pixels, mask.astype(np.float32))
    values = np.random.default_rng(0).random((20, 20)) + 5
    values[0, 0], values[1, 1], values[2, 2] = np.nan, np.inf, -np.inf
    (one,) = slice_volume(planar(values[None]), size=20)
    assert one.pixels is not None and np.isfinite(one.pixels).all()
    assert one.pixels[0, 0] == one.pixels[1, 1] == one.pixels[2, 2] == 0
    assert one.pixels.max() == 1


@pytest.mark.parametrize("dtype", ["c8", "c16", "O", "U3", "M8[s]"])
def test_what_is_no_number_is_refused(dtype: str) -> None:
    with pytest.raises(ImageError, match=r"v\.npy"):
        list(slice_volume(planar(np.zeros((2, 20, 20), dtype))))


def rough(shape: tuple = (40, 40), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape)


@pytest.mark.parametrize(
    ("pixels", "reason"),
    [
        (np.full((20, 20), np.nan), "no finite value"),
        (np.full((20, 20), np.inf), "no finite value"),
        (np.zeros((20, 20)), "constant"),
        (np.where(np.eye(20) > 0, np.nan, 3.0), "constant"),
        (1e6 + 1e-3 * rough(), "nearly constant"),
        ((rough() * 3).astype(np.uint8), "nearly constant"),
        (np.pad([[1.0]], ((10, 29), (10, 29))), "nearly constant"),
        (rough((1, 1)), "too small: 1 × 1"),
        (rough((1, 500)), "too small: 500 × 1"),
        (rough((15, 40)), "too small"),
        (rough((20, 400)), "too elongated"),
    ],
)
def test_what_is_not_scored(pixels: np.ndarray, reason: str) -> None:
    assert why_not_scorable(pixels, EVEN).startswith(reason)
    (one,) = slice_volume(planar(pixels[None]))
    assert one.pixels is None and one.reason.startswith(reason)


def test_elongation_is_physical() -> None:
    assert why_not_scorable(rough((20, 400)), (10.0, 1.0)) == ""
    assert why_not_scorable(rough((40, 40)), (10.5, 1.0)).startswith("too elongated")


def test_blank_ends_with_faint_noise_are_caught() -> None:
    rng = np.random.default_rng(0)
    y, x = np.mgrid[-1:1:64j, -1:1:64j]
    anatomy = 1000 * (x**2 + y**2 < 0.5) * (1 + 0.3 * np.sin(9 * x))
    stack = np.hypot(rng.normal(0, 20, (20, 64, 64)), rng.normal(0, 20, (20, 64, 64)))
    stack[3:17] += anatomy
    stack[2] += 900 * (x**2 + y**2 < 0.03)
    reasons = [
        one.reason
        for one in slice_volume(Volume("v", "s", stack, np.eye(4), "v.nii"), plane="axial")
    ]
    blank = [index for index, reason in enumerate(reasons) if reason.startswith("blank")]
    assert blank == [0, 1, 17, 18, 19]
    assert not any(reasons[2:17])


def test_a_stack_of_noise_is_not_blank() -> None:
    assert not any(one.reason for one in slice_volume(planar(rough((5, 32, 32)))))


def test_an_image_too_large_is_refused_without_being_touched() -> None:
    huge = np.broadcast_to(np.float32(0), (1, 20_000, 20_000))
    with pytest.raises(ImageError, match="20000 × 20000 pixels"):
        list(slice_volume(planar(huge)))
    assert MAX_PIXELS < 20_000**2


@pytest.mark.parametrize("shape", [(50, 20), (20, 50), (37, 23), (64, 64), (16, 160)])
@pytest.mark.parametrize("size", [32, 33, 224])
def test_the_square_is_centered_whatever_the_flip(shape: tuple, size: int) -> None:
    pixels = rough(shape).astype(np.float32)
    square = fit_to_square(pixels, EVEN, size)
    assert square.shape == (size, size) and square.dtype == np.float32
    assert square.min() >= 0 and square.max() <= 1
    for axis in (0, 1):
        flipped = fit_to_square(np.flip(pixels, axis), EVEN, size)
        assert np.allclose(flipped, np.flip(square, axis), atol=1e-5)


def test_the_filter_is_antialiased() -> None:
    checkers = (np.indices((256, 256)).sum(axis=0) % 2).astype(np.float32)
    assert np.abs(fit_to_square(checkers, EVEN, 64) - 0.5).max() < 0.05


def test_the_range_of_a_large_stack_is_sampled() -> None:
    stack = np.random.default_rng(0).random((30, 300, 300)).astype(np.float32)
    low, high = intensity_range(stack)
    assert abs(low - 0.005) < 0.002 and abs(high - 0.995) < 0.002
