"""What an encoder is: a batch of slices in, one feature row per slice and layer out."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


class EncoderError(ValueError):
    """An encoder cannot be used; the message is one sentence: what is wrong, where, what to do."""


@runtime_checkable
class Encoder(Protocol):
    """Turns slices into features; built-in, MRI-CORE and a user's own look the same.

    Attributes:
        name: Short name, as on the command line.
        description: One honest sentence for reports.
        layers: Names of the layers, fine to coarse.
        widths: Features per layer, in the order of ``layers``.
        input_size: Height and width S of the slices it takes, in pixels.
        fingerprint: Changes whenever the features of the same slice would change (weights, input
            size, options); equal fingerprints mean comparable features.
    """

    name: str
    description: str
    layers: tuple[str, ...]
    widths: tuple[int, ...]
    input_size: int
    fingerprint: str

    def encode(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
        """Encode a batch.

        Args:
            pixels: float32, shape (B, S, S), values in [0, 1].

        Returns:
            One float32 array of shape (B, width) per layer, in the order of ``layers``. A row
            does not depend on the other rows of the batch (to rounding).
        """
        ...


@runtime_checkable
class FlippingEncoder(Encoder, Protocol):
    """An encoder that knows the features of a flipped slice without encoding it again."""

    def flip(
        self, features: tuple[NDArray[np.float32], ...], *, horizontal: bool, vertical: bool
    ) -> tuple[NDArray[np.float32], ...]:
        """Return what ``encode`` would give for the flipped slices.

        Args:
            features: What ``encode`` gave, one (B, width) array per layer.
            horizontal: Flip left and right.
            vertical: Flip top and bottom.
        """
        ...
