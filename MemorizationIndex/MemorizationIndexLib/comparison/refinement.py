"""A placement made better step by step: the enhanced correlation coefficient, coarse to fine.

Evangelidis and Psarakis 2008 maximise the normalised cross-correlation by Gauss–Newton steps. Here
the gradient is the mean of the query's and of the reference's as it lies (Malis 2004, "efficient
second-order minimization"), which needs about half the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.comparison.agreement import CONTENT, FLAT
from MemorizationIndexLib.comparison.placement import Pixels, Placement, laid_over

SCALE_RANGE = (0.75, 1.0 / 0.75)
"""Scales that are believed."""

LEAST_OVERLAP = 0.5
"""Share of the query's content that the reference must reach."""

_STEPS = 10
_HALVINGS = 2
_SMALL_MOVE = 0.02
"""Pixels of the level, anywhere in the picture, below which a step ends the search."""

_SMALL_GAIN = 1e-5


@dataclass(frozen=True)
class Level:
    """The pair at one resolution.

    Attributes:
        query: Shape (S, S).
        reference: The same shape, already flipped.
        step: Size of its pixels in pixels of the full size.
    """

    query: Pixels
    reference: Pixels
    step: float


@dataclass(frozen=True)
class Laid:
    """A reference as it lies over the query.

    Attributes:
        pixels: The resampled reference, 0 where it is not known.
        known: Where it is known.
        ncc: NCC over the overlap's content; −1 where much of the query's content lies outside it,
            or a picture is even there and so tells nothing.
    """

    pixels: Pixels
    known: NDArray[np.bool_]
    ncc: float


@dataclass(frozen=True)
class _Compared:
    """Query and reference as it lies, each of mean 0 and length 1 over the counted pixels."""

    laid: Laid
    counted: Pixels
    number: float
    query: Pixels
    reference: Pixels


def lay(level: Level, placement: Placement) -> Laid:
    """Lay the reference over the query and compare them."""
    pixels, known = laid_over(level.reference, placement, level.step)
    compared = _compared(level, pixels, known)
    return Laid(pixels, known, -1.0) if compared is None else compared.laid


def refine(level: Level, placement: Placement) -> Placement:
    """Return the placement after steps that each raise the NCC; the start where none does."""
    now = _compared(level, *laid_over(level.reference, placement, level.step))
    if now is None:
        return placement
    for _ in range(_STEPS):
        if now.laid.ncc > 1.0 - _SMALL_GAIN:
            break
        change, move = _step(now)
        if max(abs(change) * len(level.query) / 2, abs(move)) < _SMALL_MOVE:
            break
        for _ in range(_HALVINGS + 1):
            tried = placement.after(change, move * level.step)
            then = None
            if SCALE_RANGE[0] <= abs(tried.turn) <= SCALE_RANGE[1]:
                then = _compared(level, *laid_over(level.reference, tried, level.step))
            if then is not None and then.laid.ncc > now.laid.ncc:
                break
            change, move = change / 2, move / 2
        else:
            break
        gain = then.laid.ncc - now.laid.ncc
        placement, now = tried, then
        if gain < _SMALL_GAIN:
            break
    return placement


def _compared(level: Level, pixels: Pixels, known: NDArray[np.bool_]) -> _Compared | None:
    """Return None where too little overlaps, or a picture is even there."""
    shown = level.query > CONTENT
    if np.count_nonzero(shown & known) < LEAST_OVERLAP * np.count_nonzero(shown):
        return None
    where = known & (shown | (pixels > CONTENT))
    number = float(np.count_nonzero(where))
    if not number:
        return None
    counted = where.astype(np.float32)
    query, query_length = _centered(level.query, counted, number)
    reference, reference_length = _centered(pixels, counted, number)
    if min(query_length, reference_length) <= FLAT * np.sqrt(number):
        return None
    query /= np.float32(query_length)
    reference /= np.float32(reference_length)
    ncc = min(max(_product(query, reference), -1.0), 1.0)
    return _Compared(Laid(pixels, known, ncc), counted, number, query, reference)


def _product(one: Pixels, other: Pixels) -> float:
    return float((one * other).sum())


def _centered(pixels: Pixels, counted: Pixels, number: float) -> tuple[Pixels, float]:
    centered = pixels - np.float32(_product(pixels, counted) / number)
    centered *= counted
    return centered, float(np.sqrt(_product(centered, centered)))


def _step(now: _Compared) -> tuple[complex, complex]:
    """Return the Gauss–Newton step, for ``Placement.after``, in pixels of the level."""
    side = len(now.query)
    line = np.arange(side, dtype=np.float32) - np.float32((side - 1) / 2)
    right, down = _gradient((now.query + now.reference) * np.float32(0.5))
    slopes = np.empty((4, side, side), np.float32)
    np.add(right * line[None], down * line[:, None], out=slopes[0])
    np.subtract(down * line[None], right * line[:, None], out=slopes[1])
    slopes[2], slopes[3] = right, down
    slopes *= now.counted
    flat = slopes.reshape(4, -1)
    flat -= (flat.sum(axis=1, keepdims=True) / np.float32(now.number)) * now.counted.ravel()
    normal: NDArray[np.float64] = (flat @ flat.T).astype(np.float64)
    sides: NDArray[np.float64] = (flat @ (now.query - now.reference).ravel()).astype(np.float64)
    # A hair on the diagonal: pictures may have no structure in some direction.
    normal[np.diag_indices(4)] *= 1.0 + 1e-6
    normal[np.diag_indices(4)] += 1e-12
    scale, turn, along, below = np.linalg.solve(normal, sides)
    return complex(scale, turn), complex(along, below)


def _gradient(pixels: Pixels) -> tuple[Pixels, Pixels]:
    """Return central differences to the right and down; 0 at the border."""
    right, down = np.zeros_like(pixels), np.zeros_like(pixels)
    np.subtract(pixels[:, 2:], pixels[:, :-2], out=right[:, 1:-1])
    np.subtract(pixels[2:], pixels[:-2], out=down[1:-1])
    right *= np.float32(0.5)
    down *= np.float32(0.5)
    return right, down
