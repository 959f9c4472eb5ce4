"""A match judged against pairs of different patients, and its pictures."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from comparison.made_slices import made_slice, posed
from MemorizationIndexLib.comparison.errors import ComparisonError
from MemorizationIndexLib.comparison.registration import Registration, register
from MemorizationIndexLib.comparison.verification import (
    VerificationNull,
    checkerboard,
    difference,
    side_by_side,
    verification_null,
    verify,
)
from MemorizationIndexLib.images.normalizing import fit_to_square, normalize
from MemorizationIndexLib.transformations import TRANSFORMATIONS
from shared_data import shared


@pytest.fixture(scope="module")
def null() -> VerificationNull:
    pairs = [(made_slice(seed, 64), made_slice(seed + 100, 64)) for seed in range(12)]
    return verification_null(pairs, alpha=0.05)


def test_a_copy_is_verified_and_another_slice_is_not(null: VerificationNull) -> None:
    query = posed(made_slice(50, 64)[:, ::-1], 4.0)
    copy = verify(query, made_slice(50, 64), null)
    assert copy.verified and copy.registration.flip == "horizontal"
    assert copy.p_ssim == copy.p_ncc == 1 / 13
    assert (copy.ssim, copy.ncc) == (copy.registration.ssim, copy.registration.ncc)
    assert not verify(query, made_slice(51, 64), null).verified


def test_a_blank_match_is_not_verified(null: VerificationNull) -> None:
    blank = np.zeros((64, 64), np.float32)
    assert not verify(blank, blank, null).verified


def test_a_start_is_handed_on(null: VerificationNull) -> None:
    query = posed(made_slice(50, 64), 90.0)
    assert not verify(query, made_slice(50, 64), null, start=("none", 0.0)).verified
    assert verify(query, made_slice(50, 64), null, start=("none", 90.0)).verified


@pytest.mark.parametrize(
    ("pairs", "alpha", "level", "above"),
    [(99, 0.01, 0.01, 0), (99, 0.05, 0.05, 4), (20, 0.01, 1 / 21, 0), (299, 0.01, 0.01, 2)],
)
def test_thresholds_are_those_of_the_p_values(
    pairs: int, alpha: float, level: float, above: int
) -> None:
    values = np.random.default_rng(0).permutation(np.arange(pairs) / pairs)
    null = VerificationNull(values, values, alpha)
    assert null.level == level
    # So many null pairs may pass, and the value just above the threshold is the first to do so.
    assert (values > null.ssim_threshold).sum() == above
    for value in (null.ssim_threshold, null.ssim_threshold + 1e-9):
        p = (1 + (values >= value).sum()) / (pairs + 1)
        assert (p <= level + 1e-12) == (value > null.ssim_threshold)
    assert f"{100 * level:.2g} % of {pairs} pairs" in null.rule


def test_both_measures_must_pass() -> None:
    query = made_slice(1, 64)
    low, high = np.zeros(20), np.full(20, 2.0)
    assert verify(query, query, VerificationNull(low, low, 0.05)).verified
    assert not verify(query, query, VerificationNull(high, low, 0.05)).verified
    assert not verify(query, query, VerificationNull(low, high, 0.05)).verified


def test_refusals() -> None:
    pair = (made_slice(1, 32), made_slice(2, 32))
    with pytest.raises(ComparisonError, match="3 pairs"):
        verification_null([pair] * 3)
    with pytest.raises(ComparisonError, match="between 0 and 1"):
        verification_null([pair] * 10, alpha=1.0)
    with pytest.raises(ComparisonError, match="does not fit"):
        checkerboard(pair[0], register(*pair), checks=33)


def as_is(pixels: np.ndarray, overlap: np.ndarray | None = None) -> Registration:
    known = np.ones(pixels.shape, bool) if overlap is None else overlap
    return Registration(pixels, known, "none", 0.0, 1.0, (0.0, 0.0), 1.0, 1.0)


def test_side_by_side() -> None:
    query, other = made_slice(1, 32), made_slice(2, 32)
    picture = side_by_side(query, as_is(other))
    assert picture.dtype == np.uint8 and picture.shape == (32, 64)
    assert np.abs(picture / 255 - np.concatenate([query, other], axis=1)).max() < 0.5 / 255 + 1e-6


def test_checkerboard() -> None:
    ones, zeros = np.ones((32, 32), np.float32), np.zeros((32, 32), np.float32)
    picture = checkerboard(ones, as_is(zeros), checks=4)
    assert picture.dtype == np.uint8 and picture.shape == (32, 32)
    assert picture[0, 0] == 255 and picture[0, 8] == 0 and picture[8, 8] == 255
    assert picture.mean() == 127.5


def test_difference_shows_what_is_there_and_not_gain_or_the_unknown() -> None:
    reference = made_slice(1, 64)
    query = np.clip(0.1 + 0.6 * reference, 0, 1)
    assert (difference(query, as_is(reference)) == 128).all()
    lesion = query.copy()
    lesion[20:24, 30:34] += 0.25
    shown = difference(lesion, as_is(reference)).astype(int)
    assert shown[20:24, 30:34].min() > 128 + 25
    assert np.abs(shown - 128)[40:].max() < 5
    overlap = np.ones((64, 64), bool)
    overlap[:, :10] = False
    assert (difference(lesion, as_is(reference * overlap, overlap))[:, :10] == 128).all()
    # Nothing in common, or nothing to fit: still a picture.
    assert (difference(query, as_is(reference, ~overlap & overlap)) == 128).all()
    assert difference(query, as_is(np.zeros((64, 64), np.float32))).shape == (64, 64)


def real_slices(anatomy: str, count: int, size: int) -> list[np.ndarray]:
    folders = sorted(path for path in shared("data", "slices", anatomy).iterdir() if path.is_dir())
    slices = []
    for folder in folders[:count]:
        grey = np.asarray(Image.open(sorted(folder.glob("*.png"))[0]).convert("L"))
        slices.append(normalize(fit_to_square(normalize(grey), (1.0, 1.0), size)))
    return slices


@pytest.mark.parametrize("anatomy", ["brain", "knee", "spine"])
def test_disguised_real_copies_stand_above_every_pair_of_patients(anatomy: str) -> None:
    slices = real_slices(anatomy, 14, 112)
    neighbors = [(slices[row], slices[row - 1]) for row in range(len(slices))]
    null = verification_null(neighbors, alpha=0.05)
    rng = np.random.default_rng(0)
    for row, transformation in enumerate(TRANSFORMATIONS):
        pixels = slices[row % len(slices)]
        found = verify(transformation.apply(pixels, rng), pixels, null)
        assert found.verified, (transformation.name, found.ssim, found.ncc)
