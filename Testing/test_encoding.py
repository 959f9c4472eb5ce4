"""From slices to features: the memory it takes does not grow with the run."""

from __future__ import annotations

import numpy as np
import pytest

from MemorizationIndexLib.encoding import LEAST_BATCH, encode_slices
from MemorizationIndexLib.images.volume import Slice
from MemorizationIndexLib.index.poses import Pose


class Encoder:
    name, description, layers, widths = "counting", "counts", ("mean",), (1,)
    input_size, fingerprint = 4, "counting"

    def __init__(self, batch=None):
        self.sizes = []
        if batch is not None:
            self.batch = batch

    def encode(self, pixels):
        self.sizes.append(len(pixels))
        return (pixels.mean(axis=(1, 2))[:, None],)


def slices(count, taken, scorable=lambda _: True):
    for number in range(count):
        taken.append(number)
        pixels = np.full((4, 4), number / count, np.float32) if scorable(number) else None
        yield Slice("v", "v", number, pixels, "" if pixels is not None else "blank", "v")


@pytest.mark.parametrize("batch", [None, 1, 20])
def test_no_more_slices_wait_than_are_encoded_at_once(batch):
    encoder, taken = Encoder(batch), []
    most = 128 if batch is None else max(batch, LEAST_BATCH)
    done = []
    for one in encode_slices(slices(1000, taken), encoder, (Pose(),)):
        done += [each.index for each in one.slices]
        assert len(taken) - len(done) <= most and len(one.slices) <= most
    assert done == list(range(1000)) and max(encoder.sizes) == most


def test_blank_slices_do_not_wait_for_ever():
    encoder, taken = Encoder(16), []
    for one in encode_slices(slices(1000, taken, lambda n: n == 999), encoder, (Pose(),)):
        assert len(one.slices) <= 64 and len(one.scored) == one.features[0].shape[1]
    assert sum(encoder.sizes) == 1
