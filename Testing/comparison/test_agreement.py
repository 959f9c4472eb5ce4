"""SSIM against its equation written out, NCC against Pearson, both with care for the edges."""

from __future__ import annotations

import numpy as np
import pytest

from comparison.made_slices import made_slice
from MemorizationIndexLib.comparison.agreement import SSIM_RADIUS, content, mean_ssim, ncc, ssim_map

EVERYWHERE = np.ones((112, 112), bool)


def naive_ssim(one: np.ndarray, other: np.ndarray, row: int, column: int) -> float:
    """Wang et al. 2004, equations 13 to 16, at one pixel."""
    offsets = np.arange(-5, 6)
    window = np.exp(-(offsets[:, None] ** 2 + offsets[None, :] ** 2) / (2 * 1.5**2))
    window /= window.sum()
    x = one[row - 5 : row + 6, column - 5 : column + 6].astype(float)
    y = other[row - 5 : row + 6, column - 5 : column + 6].astype(float)
    mean_x, mean_y = (window * x).sum(), (window * y).sum()
    var_x, var_y = (window * (x - mean_x) ** 2).sum(), (window * (y - mean_y) ** 2).sum()
    covariance = (window * (x - mean_x) * (y - mean_y)).sum()
    c1, c2 = 0.01**2, 0.03**2
    return ((2 * mean_x * mean_y + c1) * (2 * covariance + c2)) / (
        (mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2)
    )


def test_ssim_is_its_equation() -> None:
    one, other = made_slice(1), made_slice(2)
    found = ssim_map(one, other)
    for row, column in [(5, 5), (56, 56), (30, 70), (106, 106), (40, 25)]:
        assert found[row, column] == pytest.approx(naive_ssim(one, other, row, column), abs=2e-5)


def test_ssim_is_that_of_scikit_image() -> None:
    metrics = pytest.importorskip("skimage.metrics")
    one, other = made_slice(1).astype(np.float64), made_slice(2).astype(np.float64)
    theirs = metrics.structural_similarity(
        one, other, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1.0
    )
    assert mean_ssim(one, other, EVERYWHERE, EVERYWHERE) == pytest.approx(theirs, abs=1e-6)


def test_ssim_counts_only_windows_within_the_overlap() -> None:
    one = made_slice(1)
    other = one.copy()
    other[:, 60:] = 0.0
    overlap = EVERYWHERE.copy()
    overlap[:, 60:] = False
    assert mean_ssim(one, other, overlap, EVERYWHERE) == pytest.approx(1.0)
    # One column more, and the windows see what is not there.
    overlap[:, 60] = True
    assert mean_ssim(one, other, overlap, EVERYWHERE) < 1.0


def test_ssim_without_a_whole_window_is_zero() -> None:
    one = made_slice(1)
    overlap = np.zeros_like(EVERYWHERE)
    overlap[: 2 * SSIM_RADIUS] = True
    assert mean_ssim(one, one, overlap, EVERYWHERE) == 0.0
    assert mean_ssim(one, one, EVERYWHERE, np.zeros_like(EVERYWHERE)) == 0.0


def test_ncc_is_pearson_and_blind_to_gain_and_offset() -> None:
    one, other = made_slice(1), made_slice(2)
    where = content(one) | content(other)
    expected = np.corrcoef(one[where].astype(float), other[where].astype(float))[0, 1]
    assert ncc(one, other, where) == pytest.approx(expected, abs=1e-12)
    assert ncc(one, 0.2 + 0.3 * one, where) == pytest.approx(1.0, abs=1e-6)
    assert ncc(one, 1 - one, where) == pytest.approx(-1.0, abs=1e-6)


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_ncc_with_a_constant_picture_is_zero(value: float) -> None:
    flat = np.full((112, 112), value, np.float32)
    assert ncc(made_slice(1), flat, EVERYWHERE) == 0.0
    assert ncc(flat, flat, EVERYWHERE) == 0.0
    assert ncc(flat, flat, np.zeros_like(EVERYWHERE)) == 0.0


def test_content_leaves_out_noisy_air() -> None:
    pixels = made_slice(1)
    noise = np.random.default_rng(0).standard_normal(pixels.shape) * 0.03
    noisy = np.clip(pixels + noise, 0, 1).astype(np.float32)
    assert (noisy[pixels == 0] > 0.05).any()
    shown = content(noisy)
    assert not shown[:5].any() and shown[56, 56]
    assert (shown ^ content(pixels)).mean() < 0.01
