"""A match laid over the query: 2D similarity registration.

Where the robust search tells the pose, it is refined. Where nothing is known, SimpleITK searches
under four flips, from several rotations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from MemorizationIndexLib.comparison.agreement import measure
from MemorizationIndexLib.comparison.errors import ComparisonError
from MemorizationIndexLib.comparison.placement import Pixels, Placement
from MemorizationIndexLib.comparison.refinement import SCALE_RANGE, Laid, Level, lay, refine
from MemorizationIndexLib.comparison.smoothing import smoothed

if TYPE_CHECKING:
    import SimpleITK

FLIPS = ("none", "horizontal", "vertical", "both")
"""Flip hypotheses by name, in the order in which ties are decided."""

_PYRAMID = ((28, 1.0, 0.5, 0.05), (56, 1.0, 0.5, 0.01), (112, 1.0, 0.7, 0.0))
"""Per level: side; first step in its pixels; factor of the step where the gradient turns; NCC by
which a flip may trail the best and stay."""

_START_ANGLES = (0.0, -12.0, 12.0)
_SMOOTHING, _SMOOTHING_RADIUS = 0.7, 3
_ITERATIONS = 60
_LEAST_SIDE = 16


@dataclass(frozen=True)
class Registration:
    """A reference slice laid over a query.

    The reference was flipped, then turned about the center of the slice, scaled about it, and
    moved.

    Attributes:
        pixels: The registered reference on the query's grid, float32 (S, S), 0 outside.
        overlap: Where the registered reference is known, bool (S, S).
        flip: ``none``, ``horizontal`` (left and right exchanged), ``vertical`` or ``both``.
        angle: Degrees, counter-clockwise as displayed.
        scale: Factor; above 1 the reference was enlarged.
        translation: Pixels to the right and down.
        ssim: Mean SSIM over the overlap's content, in [−1, 1].
        ncc: Normalised cross-correlation over the overlap's content, in [−1, 1].
    """

    pixels: Pixels
    overlap: NDArray[np.bool_]
    flip: str
    angle: float
    scale: float
    translation: tuple[float, float]
    ssim: float
    ncc: float


def register(
    query: Pixels,
    reference: Pixels,
    *,
    flips: bool = True,
    start: tuple[str, float] | None = None,
) -> Registration:
    """Register a reference slice to a query: flip, rotation, scale and translation.

    A known pose is refined on copies of 28, 56 and 112 pixels (``refinement.refine``). Otherwise
    every hypothesis is optimised on a coarse copy (SimpleITK, correlation metric, every pixel
    used), the best and its close rivals on finer ones, and the best then refined. The pose it began
    with is kept where the NCC over the overlap's content is not higher. One thread and no random
    sampling: the same pair gives the same numbers.

    Args:
        query: float32, shape (S, S), values in [0, 1].
        reference: The same shape.
        flips: Try all four flips; otherwise none.
        start: A known pose of the reference, as (flip, degrees counter-clockwise), such as the
            robust search reports; only this one is then refined.

    Raises:
        ComparisonError: The slices are not finite squares of one size in [0, 1], or the start names
            an unknown flip.
    """
    query, reference = _checked(query, "query"), _checked(reference, "reference")
    if query.shape != reference.shape:
        raise ComparisonError(
            f"The query has shape {query.shape} and the reference {reference.shape}; bring both "
            "to one size first."
        )
    starts = _starts(flips, start)
    if min(np.ptp(query), np.ptp(reference)) <= 0.0:
        # Nothing to align by; the measures say so with an NCC of 0.
        best = unmoved = starts[0]
    else:
        best = (
            _searched(query, reference, starts)
            if start is None
            else _refined(query, reference, starts[0])
        )
        unmoved = next(one for one in starts if one.flip == best.flip)
    full = Level(query, np.ascontiguousarray(flipped(reference, best.flip)), 1.0)
    laid = lay(full, best)
    # A copy that was not moved must not be resampled.
    if best != unmoved and (as_it_was := lay(full, unmoved)).ncc >= laid.ncc:
        best, laid = unmoved, as_it_was
    return _measured(query, best, laid)


def flipped(pixels: Pixels, flip: str) -> Pixels:
    """Return the slice under one of ``FLIPS``, a view.

    Raises:
        ComparisonError: There is no such flip.
    """
    if flip not in FLIPS:
        raise ComparisonError(f"There is no flip {flip!r}; choose one of: {', '.join(FLIPS)}.")
    if flip in ("horizontal", "both"):
        pixels = pixels[:, ::-1]
    if flip in ("vertical", "both"):
        pixels = pixels[::-1, :]
    return pixels


def _checked(pixels: Pixels, name: str) -> Pixels:
    pixels = np.asarray(pixels, dtype=np.float32)
    if pixels.ndim != 2 or pixels.shape[0] != pixels.shape[1] or pixels.shape[0] < _LEAST_SIDE:
        raise ComparisonError(
            f"The {name} has shape {pixels.shape}; give a square slice of at least "
            f"{_LEAST_SIDE} × {_LEAST_SIDE} pixels."
        )
    # NaN fails both comparisons.
    if not (pixels.min() >= 0.0 and pixels.max() <= 1.0):
        raise ComparisonError(f"The {name} has values outside [0, 1]; normalise it first.")
    return pixels


def _starts(flips: bool, start: tuple[str, float] | None) -> list[Placement]:
    if start is not None:
        flip, degrees = start
        if flip not in FLIPS or not np.isfinite(degrees):
            raise ComparisonError(
                f"The start {start!r} is no pose; give one of {', '.join(FLIPS)} and an angle in "
                "degrees."
            )
        return [_turned(flip, degrees)]
    return [
        _turned(flip, degrees)
        for flip in (FLIPS if flips else FLIPS[:1])
        for degrees in _START_ANGLES
    ]


def _turned(flip: str, degrees: float) -> Placement:
    return Placement(flip, complex(np.exp(1j * np.deg2rad(degrees))), 0j)


def _levels(query: Pixels, reference: Pixels) -> list[Level]:
    """Return the pair reduced, coarse to fine; the reference must be flipped already."""
    levels: list[Level] = []
    pair = [np.ascontiguousarray(pixels) for pixels in (query, reference)]
    for side in sorted({min(side, len(query)) for side, *_ in _PYRAMID}, reverse=True):
        pair = [_reduced(pixels, side) for pixels in pair]
        # Smoothed, because a copy moved by half a pixel must still look alike.
        smooth = [smoothed(pixels, _SMOOTHING, _SMOOTHING_RADIUS) for pixels in pair]
        levels.insert(0, Level(smooth[0], smooth[1], len(query) / side))
    # Small slices have fewer sizes than the pyramid.
    return levels[:1] * (len(_PYRAMID) - len(levels)) + levels


def _reduced(pixels: Pixels, side: int) -> Pixels:
    if len(pixels) == side:
        return pixels
    if len(pixels) == 2 * side:
        rows = pixels[::2] + pixels[1::2]
        return (rows[:, ::2] + rows[:, 1::2]) * np.float32(0.25)
    picture = Image.fromarray(pixels)
    return np.asarray(picture.resize((side, side), Image.Resampling.BOX), dtype=np.float32)


def _refined(query: Pixels, reference: Pixels, placement: Placement) -> Placement:
    """Return a placement refined from coarse to fine."""
    for level in _levels(query, flipped(reference, placement.flip)):
        placement = refine(level, placement)
    return placement


def _searched(query: Pixels, reference: Pixels, starts: list[Placement]) -> Placement:
    """Return the best placement that SimpleITK finds from several starts."""
    by_flip = {
        flip: _levels(query, flipped(reference, flip)) for flip in {one.flip for one in starts}
    }
    levels = {flip: pyramid[0] for flip, pyramid in by_flip.items()}
    best = _best_per_flip(levels, starts, margin=np.inf)
    for number, (_, stride, relaxation, margin) in enumerate(_PYRAMID):
        levels = {flip: pyramid[number] for flip, pyramid in by_flip.items()}
        optimised = [_optimised(levels[one.flip], one, stride, relaxation) for one in best]
        before, best = best, _best_per_flip(levels, optimised, margin)
    # An optimiser may leave a good placement.
    found = max([*best, *before], key=lambda one: lay(levels[one.flip], one).ncc)
    return refine(levels[found.flip], found)


def _image(level: Level, pixels: Pixels) -> SimpleITK.Image:
    """ITK's picture whose physical points are full-size pixels from the center."""
    import SimpleITK

    image = SimpleITK.GetImageFromArray(np.ascontiguousarray(pixels))
    image.SetSpacing([level.step] * 2)
    image.SetOrigin([-level.step * (len(pixels) - 1) / 2] * 2)
    return image


def _optimised(level: Level, start: Placement, stride: float, relaxation: float) -> Placement:
    """Return the placement after ITK; the start itself where it left the believable range."""
    import SimpleITK

    transform = SimpleITK.Similarity2DTransform()
    transform.SetParameters(
        [abs(start.turn), float(np.angle(start.turn)), start.shift.real, start.shift.imag]
    )
    method = SimpleITK.ImageRegistrationMethod()
    # More threads would sum in another order.
    method.SetNumberOfThreads(1)
    method.SetMetricAsCorrelation()
    method.SetInterpolator(SimpleITK.sitkLinear)
    method.SetOptimizerAsRegularStepGradientDescent(
        learningRate=stride * level.step,
        minStep=0.02 * level.step,
        numberOfIterations=_ITERATIONS,
        relaxationFactor=relaxation,
    )
    method.SetOptimizerScalesFromPhysicalShift()
    method.SetInitialTransform(transform, inPlace=True)
    try:
        # Framed in air: without it, points that enter and leave the reference make the metric jump
        # wherever tissue is cut by the frame, and the optimiser stops there.
        framed = np.pad(level.reference, len(level.reference) // 4)
        method.Execute(_image(level, level.query), _image(level, framed))
    except RuntimeError:
        # ITK's way to say that the pictures lost each other; the start remains a candidate.
        return start
    scale, radians, right, down = transform.GetParameters()
    if not SCALE_RANGE[0] <= scale <= SCALE_RANGE[1]:
        return start
    return Placement(start.flip, complex(scale * np.exp(1j * radians)), complex(right, down))


def _best_per_flip(
    levels: dict[str, Level], placements: list[Placement], margin: float
) -> list[Placement]:
    """Return the best placement of each flip, without flips that trail by more than the margin."""
    best: dict[str, tuple[float, Placement]] = {}
    for one in placements:
        agrees = lay(levels[one.flip], one).ncc
        if one.flip not in best or agrees > best[one.flip][0]:
            best[one.flip] = (agrees, one)
    highest = max(agrees for agrees, _ in best.values())
    return [one for agrees, one in best.values() if agrees >= highest - margin]


def _measured(query: Pixels, placement: Placement, laid: Laid) -> Registration:
    agrees = measure(query, laid.pixels, laid.known)
    # The placement takes query points to the reference; pictures move the other way.
    back = -placement.shift / placement.turn
    return Registration(
        pixels=laid.pixels,
        overlap=laid.known,
        flip=placement.flip,
        angle=float(np.rad2deg(np.angle(placement.turn))),
        scale=float(1.0 / abs(placement.turn)),
        translation=(back.real, back.imag),
        ssim=agrees.ssim,
        ncc=agrees.ncc,
    )
