"""Where a slice was copied: the map is high there and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from comparison.made_slices import made_slice, posed
from MemorizationIndexLib.comparison.agreement import content
from MemorizationIndexLib.comparison.registration import register
from MemorizationIndexLib.evidence.errors import EvidenceError
from MemorizationIndexLib.evidence.localization import similarity_map
from MemorizationIndexLib.images.normalizing import fit_to_square, normalize
from shared_data import shared


def quarter(size: int, corner: tuple[int, int]) -> np.ndarray:
    inside = np.zeros((size, size), bool)
    down, right = (part * size // 2 for part in corner)
    inside[down : down + size // 2, right : right + size // 2] = True
    return inside


def inside_and_outside(query, reference, inside) -> tuple[float, float]:
    found = similarity_map(query, reference, register(query, reference, start=("none", 0.0)))
    assert found.dtype == np.float32 and found.shape == query.shape
    assert found.min() >= 0 and found.max() <= 1
    shown = content(query)
    assert (found[~shown] == 0).all()
    return float(found[shown & inside].mean()), float(found[shown & ~inside].mean())


@pytest.mark.parametrize("corner", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_pasted_quarter_stands_out(corner) -> None:
    own, other = made_slice(1), made_slice(2)
    inside = quarter(len(own), corner)
    query = np.where(inside, other, own)
    high, low = inside_and_outside(query, other, inside)
    assert high > 0.8 and high - low > 0.2


def test_brightness_and_contrast_do_not_matter() -> None:
    own, other = made_slice(1), made_slice(2)
    inside = quarter(len(own), (0, 1))
    same, _ = inside_and_outside(np.where(inside, other, own), other, inside)
    darker = np.where(inside, np.where(other > 0, 0.1 + 0.6 * other, 0.0), own).astype(np.float32)
    high, low = inside_and_outside(darker, other, inside)
    assert high > 0.9 * same and high - low > 0.15


def test_a_whole_copy_is_alike_everywhere_and_moved_too() -> None:
    reference = made_slice(3)
    query = posed(reference[:, ::-1], 4.0, translation=(2.0, -3.0)).clip(0, 1)
    found = similarity_map(query, reference, register(query, reference))
    assert np.quantile(found[content(query)], 0.1) > 0.8


def test_nothing_to_compare_is_no_similarity() -> None:
    blank = np.zeros((64, 64), np.float32)
    registration = register(blank, made_slice(1, 64))
    assert (similarity_map(blank, made_slice(1, 64), registration) == 0).all()
    with pytest.raises(EvidenceError, match="at one size"):
        similarity_map(made_slice(1, 32), made_slice(1, 64), registration)


@pytest.mark.parametrize("anatomy", ["brain", "knee", "spine"])
def test_a_quarter_pasted_into_another_subject_stands_out_on_real_slices(anatomy: str) -> None:
    folders = sorted(path for path in shared("data", "slices", anatomy).iterdir() if path.is_dir())
    slices = []
    for folder in folders[:8]:
        grey = np.asarray(Image.open(sorted(folder.glob("*.png"))[0]).convert("L"))
        slices.append(normalize(fit_to_square(normalize(grey), (1.0, 1.0), 112)))
    higher = []
    for number in range(len(slices)):
        own, other = slices[number], slices[number - 1]
        inside = quarter(112, (number % 2, number // 2 % 2))
        query = np.where(inside, other, own)
        # A corner of air shows nothing.
        if content(query)[inside].mean() < 0.2:
            continue
        high, low = inside_and_outside(query, other, inside)
        higher.append(high - low)
    assert len(higher) >= 4 and min(higher) > 0.05 and np.median(higher) > 0.25
