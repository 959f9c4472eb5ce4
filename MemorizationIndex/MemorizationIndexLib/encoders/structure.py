"""The built-in encoder: oriented gradients at three scales, without training or download.

In the manner of dense descriptors (SIFT, HOG, DAISY): each layer smooths the slice, measures the
gradient's strength in eight directions, pools it over a grid of overlapping Gaussian windows and
evens out the contrast of each cell. Everything but the pointwise steps is a product with a small
fixed matrix, and every such matrix is symmetric about the middle of the slice, so that the
features of a flipped slice are a permutation of the features.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.encoders.encoder import EncoderError

if TYPE_CHECKING:
    import torch

INPUT_SIZE = 224
"""Height and width of the slices it takes unless the user says otherwise."""

SMALLEST_INPUT, LARGEST_INPUT = 64, 1024

ORIENTATIONS = 8
BATCH = 16
"""Slices computed at once: about what fits the processor's cache."""

ARITHMETIC_VERSION = 1
"""Raise when a change here changes features beyond rounding."""


@dataclass(frozen=True)
class Scale:
    """One layer.

    Attributes:
        name: Name of the layer.
        smoothing: Standard deviation of the blur, in pixels of a 224-pixel slice.
        samples: Gradient samples along a side.
        grid: Cells along a side.
    """

    name: str
    smoothing: float
    samples: int
    grid: int


SCALES = (
    Scale("fine", 1.7, 112, 16),
    Scale("middle", 3.2, 112, 10),
    Scale("coarse", 6.1, 56, 6),
)

POOLING = 0.7
"""Standard deviation of a pooling window, in cells."""

SHARPNESS = 4
"""Power of the cosine that shares a gradient among the directions; the code squares twice."""

CONTRAST_FLOOR = 0.01
"""Gradient per sample, of a slice from 0 to 1, below which contrast is not evened out."""

CONTRAST_SHARE = 0.1
"""Share of the slice's mean contrast added to that of each cell."""


class StructureEncoder:
    """The built-in encoder; see ``encoder.Encoder`` for the attributes.

    Args:
        input_size: Height and width S of the slices, 64 to 1024.

    Raises:
        EncoderError: The input size is out of range.
    """

    name = "builtin"
    description = (
        "built-in structure encoder: for trying out and for hosts without MRI-CORE weights"
    )

    def __init__(self, input_size: int = INPUT_SIZE) -> None:
        if not SMALLEST_INPUT <= input_size <= LARGEST_INPUT:
            raise EncoderError(
                f"The built-in encoder takes slices of {SMALLEST_INPUT} to {LARGEST_INPUT} pixels, "
                f"not {input_size}."
            )
        self.input_size = input_size
        self.layers = tuple(scale.name for scale in SCALES)
        self.widths = tuple(ORIENTATIONS * scale.grid**2 for scale in SCALES)
        choices: dict[str, Any] = {
            "version": ARITHMETIC_VERSION,
            "input": input_size,
            "scales": [asdict(scale) for scale in SCALES],
            "pooling": POOLING,
            "sharpness": SHARPNESS,
            "contrast": (CONTRAST_FLOOR, CONTRAST_SHARE),
        }
        digest = hashlib.sha256(repr(sorted(choices.items())).encode()).hexdigest()[:16]
        self.fingerprint = f"builtin-{input_size}-{digest}"
        self._operators: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def encode(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
        """Encode slices, shape (B, S, S); see ``encoder.Encoder.encode``."""
        import torch

        if pixels.ndim != 3 or pixels.shape[1:] != (self.input_size, self.input_size):
            raise EncoderError(
                f"The built-in encoder takes slices of {self.input_size}×{self.input_size} pixels, "
                f"not an array of shape {pixels.shape}."
            )
        if not self._operators:
            for scale in SCALES:
                smooth, differentiate, pool = _operators(scale, self.input_size)
                self._operators.append(
                    (
                        torch.from_numpy(smooth),
                        torch.from_numpy(differentiate),
                        torch.from_numpy(pool),
                    )
                )
        encoded: list[list[NDArray[np.float32]]] = [[] for _ in SCALES]
        with torch.inference_mode(), _one_thread():
            for start in range(0, len(pixels), BATCH):
                batch = torch.from_numpy(
                    np.ascontiguousarray(pixels[start : start + BATCH], dtype=np.float32)
                )
                for rows, scale, operators in zip(encoded, SCALES, self._operators, strict=True):
                    rows.append(_layer(batch, scale, *operators).numpy())
        return tuple(
            np.concatenate(rows) if rows else np.zeros((0, width), np.float32)
            for rows, width in zip(encoded, self.widths, strict=True)
        )

    def flip(
        self, features: tuple[NDArray[np.float32], ...], *, horizontal: bool, vertical: bool
    ) -> tuple[NDArray[np.float32], ...]:
        """Return the features of the flipped slices; see ``encoder.FlippingEncoder``."""
        direction = np.arange(ORIENTATIONS)
        if horizontal:
            direction = (ORIENTATIONS // 2 - direction) % ORIENTATIONS
        if vertical:
            direction = -direction % ORIENTATIONS
        flipped = []
        for rows, scale in zip(features, SCALES, strict=True):
            cells = rows.reshape(-1, ORIENTATIONS, scale.grid, scale.grid)[:, direction]
            cells = cells[:, :, :: -1 if vertical else 1, :: -1 if horizontal else 1]
            flipped.append(np.ascontiguousarray(cells).reshape(rows.shape))
        return tuple(flipped)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep torch to one thread.

    The many small products gain little from more, and lose tenfold where other programs hold the
    cores: every one of them would wait for all its threads.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _layer(
    batch: torch.Tensor,
    scale: Scale,
    smooth: torch.Tensor,
    differentiate: torch.Tensor,
    pool: torch.Tensor,
) -> torch.Tensor:
    import torch

    along_x = smooth @ batch @ differentiate.T
    along_y = differentiate @ batch @ smooth.T
    # A gradient of strength g at an angle t to a direction counts g cos(t)^4 = (g^1/4 cos t)^4
    # there: scaling both components once spares a division per direction.
    scaling = (along_x.square() + along_y.square()).add_(1e-12).pow_(1 / (2 * SHARPNESS) - 0.5)
    along_x, along_y = along_x.mul_(scaling)[:, None], along_y.mul_(scaling)[:, None]
    angle = torch.arange(ORIENTATIONS // 2)[:, None, None] * (2 * math.pi / ORIENTATIONS)
    half = torch.addcmul(along_x * torch.cos(angle), along_y, torch.sin(angle))
    toward = torch.cat([half.clamp(min=0), half.neg_().clamp_(min=0)], 1)
    cells = pool @ toward.square_().square_() @ pool.T
    contrast = cells.square().sum(1, keepdim=True).sqrt()
    floor = CONTRAST_FLOOR * (INPUT_SIZE / 2 / scale.samples)
    cells = cells / (contrast + floor + CONTRAST_SHARE * contrast.mean((2, 3), keepdim=True))
    return cells.clamp_(min=0).sqrt_().flatten(1)


def _operators(scale: Scale, size: int) -> tuple[NDArray[np.float32], ...]:
    """Return smoothing and its derivative (samples × size), and pooling (grid × samples)."""
    samples = (np.arange(scale.samples) + 0.5) * (size / scale.samples) - 0.5
    smooth = _gaussians(samples, np.arange(size), scale.smoothing * size / INPUT_SIZE)
    difference = np.zeros((scale.samples, scale.samples))
    inner = np.arange(1, scale.samples - 1)
    difference[inner, inner + 1], difference[inner, inner - 1] = 1, -1
    cell = scale.samples / scale.grid
    centers = (np.arange(scale.grid) + 0.5) * cell - 0.5
    pool = _gaussians(centers, np.arange(scale.samples), POOLING * cell)
    return tuple(a.astype(np.float32) for a in (smooth, difference @ smooth, pool))


def _gaussians(centers: NDArray, positions: NDArray, sd: float) -> NDArray[np.float64]:
    distance = np.abs(centers[:, None] - positions[None]) / sd
    # Beyond four standard deviations the weights would underflow to denormal numbers, which slow
    # every product tenfold and more.
    windows = np.where(distance <= 4, np.exp(-(distance**2) / 2), 0.0)
    return windows / windows.sum(1, keepdims=True)
