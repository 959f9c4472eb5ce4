"""Batches: all slices once, halved where memory runs out, never in silence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from MemorizationIndexLib.encoders.batching import (
    batch_size,
    encode_in_batches,
    is_out_of_memory,
)
from MemorizationIndexLib.encoders.encoder import EncoderError


class Recorder:
    """Means of the slices; runs out of memory above a number of slices."""

    def __init__(self, most: int, error: Exception | None = None) -> None:
        self.most = most
        self.error = error or MemoryError()
        self.sizes: list[int] = []

    def __call__(self, pixels):
        self.sizes.append(len(pixels))
        if len(pixels) > self.most:
            raise self.error
        return pixels.mean(axis=(1, 2))[:, None], pixels[:, 0]


def slices(count: int) -> np.ndarray:
    return np.random.default_rng(1).random((count, 4, 4), dtype=np.float32)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 11])
@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_every_slice_is_encoded_once_in_order(count: int, most: int):
    pixels = slices(count)
    means, rows = encode_in_batches(Recorder(most), pixels, 4)
    np.testing.assert_array_equal(means[:, 0], pixels.mean(axis=(1, 2)))
    np.testing.assert_array_equal(rows, pixels[:, 0])


OUT_OF_MEMORY = [
    MemoryError(),
    RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    torch.cuda.OutOfMemoryError("CUDA out of memory."),
    RuntimeError("MPS backend out of memory (MPS allocated: 1.0 GB)"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_memory_running_out_halves_and_goes_on(error: Exception):
    recorder = Recorder(2, error)
    halved: list[int] = []
    encode_in_batches(recorder, slices(10), 8, halved=halved.append)
    assert recorder.sizes == [8, 4, 2, 2, 2, 2, 2]
    assert halved == [4, 2]


def test_a_short_last_batch_is_halved_from_its_own_length():
    recorder = Recorder(2)
    encode_in_batches(recorder, slices(3), 64)
    assert recorder.sizes == [3, 1, 1, 1]


def test_a_single_slice_too_large_is_an_error():
    with pytest.raises(EncoderError, match="single slice of 4 x 4 pixels"):
        encode_in_batches(Recorder(0), slices(2), 2)


def test_other_errors_are_not_taken_for_memory():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        encode_in_batches(Recorder(0, RuntimeError("shapes cannot be multiplied")), slices(2), 2)
    assert not is_out_of_memory(ValueError("out of memory"))


def test_really_running_out_of_cpu_memory_is_recognized():
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_a_batch_of_none_is_refused():
    with pytest.raises(EncoderError, match="batch size is 0"):
        encode_in_batches(Recorder(9), slices(2), 0)


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "cuda:1", "mps"])
def test_batch_sizes_fall_with_the_size_of_a_slice_and_never_to_none(device: str):
    sizes = [batch_size(device, (px // 16) ** 2) for px in (224, 448, 1024, 4096)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 1
    assert min(sizes) >= 1


def test_batch_size_is_a_rule_without_chance():
    assert batch_size("cpu", 196) == batch_size("cpu", 196) == 4
