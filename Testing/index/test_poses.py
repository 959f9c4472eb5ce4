"""The pose that is reported is the pose in which the match looks like the query."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from MemorizationIndexLib.index.poses import FLIPS, SMALL_CHANGES, Pose, seen_pose


def smooth_slice() -> np.ndarray:
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.random((9, 9)).astype(np.float32))
    return np.asarray(coarse.resize((96, 96), Image.Resampling.BICUBIC)).clip(0, 1)


@pytest.mark.parametrize("view", FLIPS)
@pytest.mark.parametrize("change", SMALL_CHANGES)
@pytest.mark.parametrize("flip", FLIPS[:2])
def test_the_pose_makes_the_match_look_like_the_query(view, change, flip) -> None:
    reference = smooth_slice()
    stored = Pose(change.rotation, flip.horizontal, flip.vertical, change.window, change.center)
    # The flipped query matched the stored row: the query is that row, flipped back.
    query = view.render(stored.render(reference))
    seen = seen_pose(stored, view).render(reference)
    middle = slice(20, -20)
    assert np.abs(seen - query)[middle, middle].max() < 0.02


def test_poses_in_words() -> None:
    assert seen_pose(Pose(), Pose()).label == ""
    assert seen_pose(Pose(4.0), Pose(horizontal=True)).label == (
        "flipped left–right, rotated by -4°"
    )
    assert seen_pose(Pose(4.0), FLIPS[3]).label == "turned by 180°, rotated by +4°"
    assert seen_pose(Pose(vertical=True), FLIPS[2]).label == ""
