"""Whether a match holds when it is laid over the query: SSIM and NCC against their own null."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.comparison.errors import ComparisonError
from MemorizationIndexLib.comparison.registration import Pixels, Registration, register

Picture = NDArray[np.uint8]

_ALPHA = 0.01
_LEAST_PAIRS = 10
_CHECKS = 8


@dataclass(frozen=True)
class VerificationNull:
    """SSIM and NCC of registered pairs of different patients.

    Attributes:
        ssim: Shape (n,).
        ncc: Shape (n,).
        alpha: Significance level asked for.
    """

    ssim: NDArray[np.float64]
    ncc: NDArray[np.float64]
    alpha: float

    @property
    def level(self) -> float:
        """Level that is applied: ``alpha``, or 1 / (n + 1) where so few pairs certify no less."""
        return max(self.alpha, 1.0 / (len(self.ssim) + 1))

    @property
    def ssim_threshold(self) -> float:
        """SSIM that a verified match exceeds."""
        return _threshold(self.ssim, self.level)

    @property
    def ncc_threshold(self) -> float:
        """NCC that a verified match exceeds."""
        return _threshold(self.ncc, self.level)

    @property
    def rule(self) -> str:
        """The rule in one sentence, with its numbers."""
        return (
            f"Verified: laid over the query, the match reaches an SSIM above "
            f"{self.ssim_threshold:.3f} and an NCC above {self.ncc_threshold:.3f}, which at most "
            f"{100 * self.level:.2g} % of {len(self.ssim)} pairs of different patients do for each."
        )


@dataclass(frozen=True)
class Verification:
    """A match laid over the query and judged.

    Attributes:
        ssim: Mean SSIM after registration, in [−1, 1].
        ncc: Normalised cross-correlation after registration, in [−1, 1].
        p_ssim: Share of the null at or above that SSIM, (1 + #)/(n + 1), never 0.
        p_ncc: The same for the NCC.
        verified: Both p-values are at most the null's level.
        registration: How the reference was laid over the query.
    """

    ssim: float
    ncc: float
    p_ssim: float
    p_ncc: float
    verified: bool
    registration: Registration


def verification_null(
    pairs: Iterable[tuple[Pixels, Pixels]],
    *,
    alpha: float = _ALPHA,
    flips: bool = True,
    starts: Iterable[tuple[str, float] | None] | None = None,
) -> VerificationNull:
    """Register pairs of different patients and collect their SSIM and NCC.

    Take the pairs as an audit would: each slice with its nearest slice of another subject. Pairs
    drawn at random are less alike than any match the search returns, and chance would look like
    evidence. About 1/``alpha`` pairs are needed to certify ``alpha``.

    Args:
        pairs: (query, reference), float32 (S, S) in [0, 1], of two different subjects.
        alpha: Significance level in (0, 1).
        flips: As it will be for :func:`verify`: the null must search as the query does.
        starts: A known pose of each pair, as for :func:`verify`; None where none is known.

    Raises:
        ComparisonError: Fewer than 10 pairs, ``alpha`` out of range, or slices that
            :func:`registration.register` refuses.
    """
    if not 0.0 < alpha < 1.0:
        raise ComparisonError(f"The significance level is {alpha}; give a number between 0 and 1.")
    registered = [
        register(query, reference, flips=flips, start=start)
        for (query, reference), start in zip(
            pairs, repeat(None) if starts is None else starts, strict=False
        )
    ]
    if len(registered) < _LEAST_PAIRS:
        raise ComparisonError(
            f"The null of a verification has {len(registered)} pairs of different patients; give "
            f"at least {_LEAST_PAIRS}."
        )
    return VerificationNull(
        np.array([one.ssim for one in registered]), np.array([one.ncc for one in registered]), alpha
    )


def verify(
    query: Pixels,
    reference: Pixels,
    null: VerificationNull,
    *,
    flips: bool = True,
    start: tuple[str, float] | None = None,
) -> Verification:
    """Register a match to the query and judge it against pairs of different patients.

    Args:
        query: float32, shape (S, S), values in [0, 1].
        reference: The matched slice, the same shape.
        null: From :func:`verification_null`, at the same size S.
        flips: Try all four flips.
        start: A known pose, as for :func:`registration.register`. It searches less than the null
            did, so the error rate is not above the level.

    Raises:
        ComparisonError: Slices that :func:`registration.register` refuses.
    """
    registration = register(query, reference, flips=flips, start=start)
    p_ssim = _p_value(registration.ssim, null.ssim)
    p_ncc = _p_value(registration.ncc, null.ncc)
    return Verification(
        ssim=registration.ssim,
        ncc=registration.ncc,
        p_ssim=p_ssim,
        p_ncc=p_ncc,
        verified=max(p_ssim, p_ncc) <= null.level,
        registration=registration,
    )


def side_by_side(query: Pixels, registration: Registration) -> Picture:
    """Return the query and the registered reference next to each other, uint8 (S, 2 S)."""
    return _grey(np.concatenate([query, registration.pixels], axis=1))


def difference(query: Pixels, registration: Registration) -> Picture:
    """Return query minus registered reference, uint8 (S, S).

    128 is no difference, brighter where the query is brighter, full scale ±1; 128 also outside the
    overlap, where there is nothing to compare. The reference is first fitted to the query's grey
    values by least squares (gain and offset over the overlap), as NCC does not see them either.
    """
    known = registration.overlap
    if not known.any():
        return np.full(query.shape, 128, dtype=np.uint8)
    x = registration.pixels[known].astype(np.float64)
    y = query[known].astype(np.float64)
    spread = float(x.var())
    gain = max(float(((x - x.mean()) * (y - y.mean())).mean()), 0.0) / spread if spread > 0 else 0.0
    fitted = y.mean() + gain * (registration.pixels - x.mean())
    return np.where(known, np.clip(128 + 127 * (query - fitted), 1, 255).round(), 128).astype(
        np.uint8
    )


def checkerboard(query: Pixels, registration: Registration, checks: int = _CHECKS) -> Picture:
    """Return fields of the query and the registered reference in turn, uint8 (S, S).

    Contours that run on across the fields agree. The first field is the query's.

    Args:
        query: float32, shape (S, S), values in [0, 1].
        registration: The reference laid over it.
        checks: Fields along each side.

    Raises:
        ComparisonError: Less than one field, or fields of less than a pixel.
    """
    size = len(query)
    if not 1 <= checks <= size:
        raise ComparisonError(f"A checkerboard of {checks} fields does not fit {size} pixels.")
    field = np.arange(size) * checks // size
    from_query = (field[:, None] + field[None, :]) % 2 == 0
    return _grey(np.where(from_query, query, registration.pixels))


def _grey(pixels: Pixels) -> Picture:
    return (np.clip(pixels, 0.0, 1.0) * 255.0).round().astype(np.uint8)


def _p_value(value: float, null: NDArray[np.float64]) -> float:
    return float((1 + (null >= value).sum()) / (len(null) + 1))


def _threshold(null: NDArray[np.float64], level: float) -> float:
    """Value such that whatever exceeds it has p ≤ level, and nothing else has."""
    # A hair, because 0.01 · 100 must allow the one that is the value itself.
    above = int(np.floor(level * (len(null) + 1) + 1e-9)) - 1
    return float(np.sort(null)[::-1][min(above, len(null) - 1)])
