"""What copied parts are searched in: plain arrays that are read with numpy alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.encoders.structure import INPUT_SIZE, StructureEncoder
from MemorizationIndexLib.index.whitening import Whitener

SIDE = 112
"""Side at which slices are compared, in pixels."""

VERSION = 1
"""Raise when a change in ``parts`` or ``part_windows`` makes stored parts another thing."""


@dataclass(frozen=True)
class PartWindows:
    """Whitened features of every window of every reference slice.

    Attributes:
        rows: Whitened unit rows, float32, shape (W, N, D) for W windows of N slices.
        whiteners: One per window.
    """

    rows: NDArray[np.float32]
    whiteners: tuple[Whitener, ...]


@dataclass(frozen=True)
class PartReference:
    """What parts of queries are compared with.

    Attributes:
        windows: Features of the windows of N slices.
        pictures: Reduced reference slices, uint8, shape (N, ``SIDE``, ``SIDE``).
        null: Similarities of slices that hold no copied part, shape (n,).
        known: Similarities of slices that hold a copied quarter, shape (m,).
    """

    windows: PartWindows
    pictures: NDArray[np.uint8]
    null: NDArray[np.float64]
    known: NDArray[np.float64]


def part_encoder() -> StructureEncoder:
    """Return the encoder of parts: always the built-in one, which knows where a feature lies."""
    return StructureEncoder(INPUT_SIZE)


def part_fingerprint() -> str:
    """Return what tells whether stored parts can be searched by this library."""
    return f"{part_encoder().fingerprint}-parts-{VERSION}"
