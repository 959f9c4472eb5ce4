"""How a reference lies over a query, and the resampling that lays it there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.float32]


@dataclass(frozen=True)
class Placement:
    """Query point → point of the flipped reference: scaled, turned about the center, moved.

    Points are complex numbers, right + i · down, in pixels of the full size from the center; a
    point p goes to ``turn`` · p + ``shift``.

    Attributes:
        flip: One of ``registration.FLIPS``.
        turn: Its absolute value is the scale and its angle the rotation, clockwise as displayed.
        shift: In pixels of the full size.
    """

    flip: str
    turn: complex
    shift: complex

    def after(self, change: complex, move: complex) -> Placement:
        """Return the placement of a query whose point p lies at p + change · p + move."""
        return Placement(self.flip, self.turn * (1 + change), self.turn * move + self.shift)


def laid_over(
    reference: Pixels, placement: Placement, step: float = 1.0
) -> tuple[Pixels, NDArray[np.bool_]]:
    """Resample a reference on the query's grid, linearly.

    Args:
        reference: Already flipped, shape (S, S).
        placement: Where it lies.
        step: Size of its pixels in pixels of the full size.

    Returns:
        The resampled reference, 0 where it is not known, and where it is known: half a pixel
        beyond the centers of its outer pixels, for a pixel is known as far as it reaches.
    """
    side = len(reference)
    if placement.turn == 1 and placement.shift == 0:
        return reference, np.ones((side, side), bool)
    middle = np.float32((side - 1) / 2)
    line = np.arange(side, dtype=np.float32) - middle
    along, athwart = np.float32(placement.turn.real), np.float32(placement.turn.imag)
    shift = placement.shift / step
    right = (along * line + (np.float32(shift.real) + middle))[None] - (athwart * line)[:, None]
    down = (along * line + (np.float32(shift.imag) + middle))[:, None] + (athwart * line)[None]
    end = np.float32(side - 0.5)
    known = (right >= -0.5) & (right <= end) & (down >= -0.5) & (down <= end)
    np.clip(right, 0, side - 1, out=right)
    np.clip(down, 0, side - 1, out=down)
    column = np.minimum(right.astype(np.int32), side - 2)
    row = np.minimum(down.astype(np.int32), side - 2)
    right -= column
    down -= row
    corner = row * np.int32(side) + column
    flat = np.ascontiguousarray(reference).ravel()
    above = _between(flat.take(corner), flat[1:].take(corner), right)
    below = _between(flat[side:].take(corner), flat[side + 1 :].take(corner), right)
    pixels = _between(above, below, down)
    pixels *= known
    return pixels, known


def _between(one: Pixels, other: Pixels, share: Pixels) -> Pixels:
    """Return one + share · (other − one); ``other`` is overwritten."""
    other -= one
    other *= share
    other += one
    return other
