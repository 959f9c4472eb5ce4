"""How many slices at once: a fixed rule by device and size, halved where memory runs out.

The rule looks at nothing that changes between runs (free memory, timing), so the same machine
computes the same batches and the same numbers, unless memory runs out.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.encoders.encoder import EncoderError

Encode = Callable[[NDArray[np.float32]], tuple[NDArray[np.float32], ...]]

TOKENS_AT_ONCE = {"cpu": 4 * 196, "mps": 32 * 196, "cuda": 128 * 196}
"""Tokens in a batch. On a CPU more only leaves the caches; a GPU needs them to be busy."""

_OUT_OF_MEMORY = re.compile(
    r"out of memory|not enough memory|can.t allocate memory|CUBLAS_STATUS_ALLOC_FAILED"
    r"|CUDNN_STATUS_ALLOC_FAILED|bad alloc|Invalid buffer size",
    re.IGNORECASE,
)


def batch_size(device: str, tokens: int) -> int:
    """Return the number of slices to encode at once.

    Args:
        device: As PyTorch spells it.
        tokens: Tokens (patches) in one slice.
    """
    budget = TOKENS_AT_ONCE[device.partition(":")[0]]
    return max(1, budget // tokens)


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error means that memory ran out, on CUDA, MPS or CPU."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error)) is not None


def encode_in_batches(
    encode: Encode,
    pixels: NDArray[np.float32],
    size: int,
    *,
    halved: Callable[[int], None] | None = None,
) -> tuple[NDArray[np.float32], ...]:
    """Encode slices batch by batch; where memory runs out, halve the batch and go on.

    Args:
        encode: Encodes (b, S, S) to one (b, width) array per layer.
        pixels: float32, shape (B, S, S), B >= 1.
        size: Largest b to try.
        halved: Called with the new size after each halving.

    Returns:
        One float32 array (B, width) per layer.

    Raises:
        EncoderError: Memory runs out for a single slice.
    """
    if size < 1:
        raise EncoderError(f"The batch size is {size}; give at least 1.")
    parts: list[tuple[NDArray[np.float32], ...]] = []
    start = 0
    while start < len(pixels):
        try:
            parts.append(encode(pixels[start : start + size]))
            start += size
            continue
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if size == 1:
                side = pixels.shape[-1]
                raise EncoderError(
                    f"Not enough memory to encode a single slice of {side} x {side} pixels; free "
                    "memory, give a smaller input size or another device."
                ) from error
        # Outside the handler: the error's traceback held the tensors that filled the memory.
        _release_memory()
        size = max(1, min(size, len(pixels) - start) // 2)
        if halved is not None:
            halved(size)
    return tuple(np.concatenate(layer) for layer in zip(*parts, strict=True))


def _release_memory() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()
