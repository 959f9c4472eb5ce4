"""From slices to features, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.encoders.encoder import Encoder
from MemorizationIndexLib.images.volume import Slice
from MemorizationIndexLib.index.poses import Pose

BATCH = 128
"""Slices handed at once to an encoder that does not say how many it computes at once."""

LEAST_BATCH = 16
"""Fewer slices at once than this and reading the reference costs as much as the search itself."""


@dataclass(frozen=True)
class EncodedBatch:
    """Some slices in order, with the features of those that can be scored.

    Attributes:
        slices: All slices, scorable or not.
        scored: Those with pixels.
        features: One (P, n, D) float32 array per layer: P poses of the n scored slices.
    """

    slices: tuple[Slice, ...]
    scored: tuple[Slice, ...]
    features: tuple[NDArray[np.float32], ...]


def encode_slices(
    slices: Iterable[Slice], encoder: Encoder, poses: Sequence[Pose], batch: int | None = None
) -> Iterator[EncodedBatch]:
    """Encode slices under every pose, ``batch`` scorable slices at a time.

    By default as many as the encoder computes at once, so that a slow one reports its progress and
    hears of a cancellation within seconds.
    """
    if batch is None:
        batch = max(LEAST_BATCH, min(BATCH, getattr(encoder, "batch", BATCH)))
    waiting: list[Slice] = []
    count = 0
    for one in slices:
        waiting.append(one)
        count += one.pixels is not None
        if count == batch or len(waiting) == 4 * batch:
            yield _encode(waiting, encoder, poses)
            waiting, count = [], 0
    if waiting:
        yield _encode(waiting, encoder, poses)


def _encode(slices: list[Slice], encoder: Encoder, poses: Sequence[Pose]) -> EncodedBatch:
    scored = tuple(one for one in slices if one.pixels is not None)
    by_pose = []
    if scored:
        for pose in poses:
            rendered = [pose.render(one.pixels) for one in scored if one.pixels is not None]
            by_pose.append(encoder.encode(np.stack(rendered)))
    else:
        by_pose = [tuple(np.zeros((0, width), np.float32) for width in encoder.widths)] * len(poses)
    return EncodedBatch(
        tuple(slices), scored, tuple(np.stack(layer) for layer in zip(*by_pose, strict=True))
    )
