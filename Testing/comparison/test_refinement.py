"""Placements refined step by step, and the smoothing and resampling beneath, against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from comparison.made_slices import made_slice, posed
from MemorizationIndexLib.comparison.placement import Placement, laid_over
from MemorizationIndexLib.comparison.refinement import Level, lay, refine
from MemorizationIndexLib.comparison.smoothing import smoothed


@pytest.mark.parametrize("shape", [(16, 16), (37, 50), (224, 224), (3, 40, 33)])
@pytest.mark.parametrize(("sigma", "radius"), [(1.5, 5), (0.7, 3), (4.0, 12)])
def test_smoothing_is_that_of_scipy(shape, sigma, radius) -> None:
    pixels = np.random.default_rng(0).random(shape, dtype=np.float32)
    spread = (0,) * (len(shape) - 2) + (sigma, sigma)
    expected = ndimage.gaussian_filter(pixels.astype(float), spread, radius=radius, mode="reflect")
    assert np.allclose(smoothed(pixels, sigma, radius), expected, atol=1e-6)
    every = smoothed(pixels, sigma, radius, every=3)
    assert np.allclose(every, expected[..., ::3, ::3], atol=1e-6)


@pytest.mark.parametrize("turn", [1.0 + 0j, 1.1 * np.exp(0.1j), 0.8 * np.exp(-2j)])
def test_resampling_is_that_of_scipy(turn: complex) -> None:
    pixels, shift = made_slice(1, 61), 3.5 - 6.25j
    found, known = laid_over(pixels, Placement("none", complex(turn), shift), step=2.0)
    matrix = np.array([[turn.real, turn.imag], [-turn.imag, turn.real]])
    offset = 30 + np.array([shift.imag, shift.real]) / 2 - matrix @ np.full(2, 30.0)
    expected = ndimage.affine_transform(pixels, matrix, offset, order=1, mode="nearest")
    points = np.tensordot(matrix, np.indices((61, 61)), axes=1) + offset[:, None, None]
    inside = ((points > -0.49) & (points < 60.49)).all(axis=0)
    outside = ((points < -0.51) | (points > 60.51)).any(axis=0)
    assert known[inside].all() and not known[outside].any()
    assert np.allclose(found[inside], expected[inside], atol=1e-4)
    assert (found[~known] == 0).all()


def test_what_does_not_move_is_not_resampled() -> None:
    pixels = made_slice(2)
    found, known = laid_over(pixels, Placement("none", 1 + 0j, 0j))
    assert found is pixels and known.all()


@pytest.mark.parametrize(
    ("degrees", "scale", "right", "down"),
    [(3.0, 1.0, 0.0, 0.0), (-4.0, 1.05, 3.0, -2.0), (0.0, 0.95, -3.0, 3.0)],
)
def test_a_near_placement_is_found(degrees, scale, right, down) -> None:
    reference = made_slice(3)
    query = posed(reference, degrees, scale, (right, down))
    level = Level(smoothed(query, 0.7, 3), smoothed(reference, 0.7, 3), 1.0)
    found = refine(level, Placement("none", 1 + 0j, 0j))
    assert np.rad2deg(np.angle(found.turn)) == pytest.approx(degrees, abs=0.1)
    assert 1 / abs(found.turn) == pytest.approx(scale, abs=0.003)
    back = -found.shift / found.turn
    assert (back.real, back.imag) == pytest.approx((right, down), abs=0.1)


def test_refining_never_lowers_the_agreement() -> None:
    for seed in range(12):
        level = Level(made_slice(seed, 56), made_slice(seed + 1, 56), 2.0)
        start = Placement("none", complex(np.exp(0.1j * (seed - 6))), complex(seed, -seed))
        assert lay(level, refine(level, start)).ncc >= lay(level, start).ncc


def test_what_lies_elsewhere_does_not_agree() -> None:
    level = Level(made_slice(4), made_slice(4), 1.0)
    far = Placement("none", 1 + 0j, 90 + 0j)
    assert lay(level, far).ncc == -1.0 and refine(level, far) == far
