from __future__ import annotations

import numpy as np
import pytest

from MemorizationIndexLib.report.pictures import DASH, LINE, outlined


@pytest.mark.parametrize("gray", [0, 128, 255])
def test_an_outline_is_seen_on_any_tissue_and_without_colors(gray):
    picture = np.full((40, 40), gray, np.uint8)
    drawn = outlined(picture, (0.25, 0.75, 0.5, 1.0), (230, 159, 0))
    lightness = drawn[10, 20:].astype(float).mean(axis=1)
    assert {tuple(pixel) for pixel in drawn[10, 20:].tolist()} == {(230, 159, 0), (0, 0, 0)}
    assert abs(lightness - gray).max() > 60
    changes = np.flatnonzero(np.diff(lightness))
    assert (np.diff(changes) == DASH).all() and len(changes) >= 4


def test_an_outline_lies_where_the_part_does_and_leaves_the_rest():
    picture = np.full((40, 40), 90, np.uint8)
    drawn = outlined(picture, (0.25, 0.75, 0.5, 1.0), (230, 159, 0))
    touched = (drawn != 90).any(axis=2)
    expected = np.zeros((40, 40), bool)
    expected[10:30, 20:40] = True
    expected[10 + LINE : 30 - LINE, 20 + LINE : 40 - LINE] = False
    assert (touched == expected).all()
    assert (picture == 90).all()


def test_a_part_at_the_edges_stays_inside_the_picture():
    drawn = outlined(np.zeros((8, 8), np.uint8), (-0.1, 1.1, 0.0, 1.0), (230, 159, 0))
    assert drawn.shape == (8, 8, 3) and (drawn[0] != 0).any() and (drawn[-1] != 0).any()
