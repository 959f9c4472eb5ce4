"""A reference laid over a query: pose recovered, alike on every run, robust at the edges."""

from __future__ import annotations

import time

import numpy as np
import pytest

from comparison.made_slices import made_slice, posed
from MemorizationIndexLib.comparison.errors import ComparisonError
from MemorizationIndexLib.comparison.registration import FLIPS, flipped, register


def test_rotation_is_counter_clockwise_as_displayed() -> None:
    """What the made poses, and with them the tests below, call counter-clockwise."""
    pixels = np.zeros((33, 33), np.float32)
    pixels[16, 30] = 1.0  # right of the center
    row, column = np.unravel_index(posed(pixels, degrees=90.0).argmax(), pixels.shape)
    assert (row, column) == (2, 16)  # above it


@pytest.mark.parametrize("flip", FLIPS)
@pytest.mark.parametrize(
    ("degrees", "scale", "translation"),
    [(0.0, 1.0, (0.0, 0.0)), (7.0, 1.0, (3.0, -5.0)), (-13.0, 1.1, (-4.0, 2.0))],
)
def test_pose_is_recovered(
    flip: str, degrees: float, scale: float, translation: tuple[float, float]
) -> None:
    reference = made_slice(1)
    query = posed(flipped(reference, flip), degrees, scale, translation)
    found = register(query, reference)
    assert found.flip == flip
    assert found.angle == pytest.approx(degrees, abs=0.3)
    assert found.scale == pytest.approx(scale, abs=0.01)
    assert found.translation == pytest.approx(translation, abs=0.3)
    assert found.ncc > 0.98 and found.ssim > 0.9
    assert np.abs(found.pixels - query)[found.overlap].mean() < 0.02


def test_an_exact_copy_is_not_moved() -> None:
    pixels = made_slice(2)
    found = register(pixels, pixels)
    assert np.array_equal(found.pixels, pixels) and found.overlap.all()
    assert (found.flip, found.angle, found.scale) == ("none", 0.0, 1.0)
    assert found.ncc == pytest.approx(1.0) and found.ssim == pytest.approx(1.0)


def test_the_same_pair_gives_the_same_numbers() -> None:
    query, reference = posed(made_slice(3), 4.0), made_slice(4)
    first, second = register(query, reference), register(query, reference)
    assert (first.angle, first.scale, first.translation) == (
        second.angle,
        second.scale,
        second.translation,
    )
    assert np.array_equal(first.pixels, second.pixels)


def test_a_known_pose_is_refined_and_nothing_else_tried() -> None:
    reference = made_slice(5)
    # A quarter turn is beyond what the search without a start reaches.
    query = posed(flipped(reference, "horizontal"), 93.0, 1.0, (2.0, 1.0))
    found = register(query, reference, start=("horizontal", 90.0))
    assert found.flip == "horizontal" and found.angle == pytest.approx(93.0, abs=0.3)
    assert register(query, reference, start=("none", 0.0)).flip == "none"


def test_without_flips_none_is_tried() -> None:
    reference = made_slice(6)
    found = register(flipped(reference, "vertical"), reference, flips=False)
    assert found.flip == "none" and found.ncc < 0.9


def test_another_slice_agrees_less_than_a_copy() -> None:
    copy = register(posed(made_slice(7), 5.0), made_slice(7))
    other = register(posed(made_slice(7), 5.0), made_slice(8))
    assert copy.ncc > 0.98 and other.ncc < 0.8
    assert copy.ssim > 0.9 and other.ssim < 0.6


def test_air_does_not_count() -> None:
    """Wide air around two different slices must not make them alike."""
    one, other = (np.pad(made_slice(seed), 112) for seed in (9, 10))
    found = register(one, other)
    assert found.ncc < 0.8 and found.ssim < 0.6


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_a_constant_slice_is_no_evidence(value: float) -> None:
    blank = np.full((64, 64), value, np.float32)
    for query, reference in (
        (blank, blank),
        (made_slice(1, 64), blank),
        (blank, made_slice(1, 64)),
    ):
        found = register(query, reference)
        assert found.ncc == 0.0 and np.isfinite(found.ssim)
        assert (found.angle, found.scale, found.translation) == (0.0, 1.0, (0.0, 0.0))


@pytest.mark.parametrize("size", [16, 30, 57, 301])
def test_sizes(size: int) -> None:
    reference = made_slice(11, size)
    found = register(flipped(reference, "both"), reference)
    # "both" is half a turn; each is the other's name only for a start at 180 degrees.
    assert found.flip == "both" and found.ncc > 0.99


def test_a_single_bright_pixel_and_noise_do_not_fail() -> None:
    spot = np.zeros((40, 40), np.float32)
    spot[20, 20] = 1.0
    noise = np.random.default_rng(0).random((40, 40), dtype=np.float32)
    for query, reference in ((spot, noise), (noise, spot), (spot, spot[::-1]), (noise, noise.T)):
        found = register(query, reference)
        assert np.isfinite([found.ncc, found.ssim, found.angle, found.scale]).all()
        assert found.pixels.min() >= 0.0 and found.pixels.max() <= 1.0
        assert 0.74 < found.scale < 1.34


def test_inputs_are_not_changed_and_need_no_contiguity() -> None:
    reference = made_slice(12)
    kept = reference.copy()
    query = reference[::-1, ::-1]
    query.flags.writeable = False
    register(query, reference)
    assert np.array_equal(reference, kept)


@pytest.mark.parametrize(
    ("query", "reference", "start", "message"),
    [
        (np.zeros((20, 30)), np.zeros((20, 30)), None, "query has shape"),
        (np.zeros((8, 8)), np.zeros((8, 8)), None, "at least 16"),
        (np.zeros((20, 20)), np.zeros((30, 30)), None, "one size"),
        (np.zeros((20, 20)), np.full((20, 20), np.nan), None, "reference has values outside"),
        (np.full((20, 20), 2.0), np.zeros((20, 20)), None, "query has values outside"),
        (np.zeros((20, 20)), np.zeros((20, 20)), ("sideways", 0.0), "is no pose"),
        (np.zeros((20, 20)), np.zeros((20, 20)), ("none", float("nan")), "is no pose"),
    ],
)
def test_refusals(
    query: np.ndarray, reference: np.ndarray, start: tuple[str, float] | None, message: str
) -> None:
    with pytest.raises(ComparisonError, match=message):
        register(query, reference, start=start)
    with pytest.raises(ComparisonError, match="no flip"):
        flipped(np.zeros((20, 20), np.float32), "diagonal")


def test_speed() -> None:
    """Far above what it takes (0.2 to 0.3 s at 224 px), so that a busy machine passes."""
    query, reference = posed(made_slice(13, 224), 3.0), made_slice(14, 224)
    register(query, reference)
    start = time.process_time()
    register(query, reference)
    assert time.process_time() - start < 1.5
