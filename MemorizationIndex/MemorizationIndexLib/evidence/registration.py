"""A match laid over the query: 2D similarity registration with flip hypotheses (SimpleITK)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from MemorizationIndexLib.evidence.agreement import CONTENT, content, mean_ssim, ncc
from MemorizationIndexLib.evidence.errors import EvidenceError

if TYPE_CHECKING:
    import SimpleITK

Pixels = NDArray[np.float32]

FLIPS = ("none", "horizontal", "vertical", "both")
"""Flip hypotheses by name, in the order in which ties are decided."""

_PYRAMID = ((28, 1.0, 0.5, 0.05), (56, 1.0, 0.5, 0.01), (112, 1.0, 0.7, 0.0))
"""Per level: side; first step in its pixels; factor of the step where the gradient turns; NCC by
which a flip may trail the best and stay."""

_START_ANGLES = (0.0, -12.0, 12.0)
_SMOOTHING = 0.7
_SCALE_RANGE = (0.75, 1.0 / 0.75)
_LEAST_OVERLAP = 0.5
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


@dataclass(frozen=True)
class _Pose:
    """Query point → point of the flipped reference, ITK's similarity about the center.

    Points are (right, down) in pixels of the full size.
    """

    flip: str
    scale: float
    radians: float
    shift: tuple[float, float]


@dataclass(frozen=True)
class _Level:
    """The pair at one resolution; ``step`` is the size of its pixels in full-size pixels."""

    query: Pixels
    reference: Pixels
    step: float

    @classmethod
    def of(cls, query: Pixels, reference: Pixels, side: int) -> _Level:
        size = len(query)
        side = min(side, size)
        return cls(_resized(query, side), _resized(reference, side), size / side)


def register(
    query: Pixels,
    reference: Pixels,
    *,
    flips: bool = True,
    start: tuple[str, float] | None = None,
) -> Registration:
    """Register a reference slice to a query: flip, rotation, scale and translation.

    Every hypothesis is optimised on a coarse copy (SimpleITK, correlation metric, every pixel
    used), the best and its close rivals on finer ones; the one with the highest NCC over the
    overlap's content is kept. One thread and no random sampling: the same pair gives the same
    numbers.

    Args:
        query: float32, shape (S, S), values in [0, 1].
        reference: The same shape.
        flips: Try all four flips; otherwise none.
        start: A known pose of the reference, as (flip, degrees counter-clockwise), such as the
            robust search reports; only this one is then refined.

    Raises:
        EvidenceError: The slices are not finite squares of one size in [0, 1], or the start names
            an unknown flip.
    """
    query, reference = _checked(query, "query"), _checked(reference, "reference")
    if query.shape != reference.shape:
        raise EvidenceError(
            f"The query has shape {query.shape} and the reference {reference.shape}; bring both "
            "to one size first."
        )
    starts = _starts(flips, start)
    if min(np.ptp(query), np.ptp(reference)) <= 0.0:
        # Nothing to align by; the measures say so with an NCC of 0.
        return _measured(query, reference, starts[0])
    coarsest = _Level.of(query, reference, _PYRAMID[0][0])
    poses = _best_per_flip(coarsest, starts, margin=np.inf)
    for side, stride, relaxation, margin in _PYRAMID:
        level = _Level.of(query, reference, side)
        refined = [_refined(level, pose, stride, relaxation) for pose in poses]
        before, poses = poses, _best_per_flip(level, refined, margin)
    # An optimiser may leave a good pose, and a copy that was not moved must not be resampled.
    best = max([*poses, *before], key=lambda pose: _agreement(level, pose))
    full = _Level(query, reference, 1.0)
    finalists = [next(pose for pose in starts if pose.flip == best.flip), best]
    return _measured(query, reference, max(finalists, key=lambda pose: _agreement(full, pose)))


def flipped(pixels: Pixels, flip: str) -> Pixels:
    """Return the slice under one of ``FLIPS``, a view.

    Raises:
        EvidenceError: There is no such flip.
    """
    if flip not in FLIPS:
        raise EvidenceError(f"There is no flip {flip!r}; choose one of: {', '.join(FLIPS)}.")
    if flip in ("horizontal", "both"):
        pixels = pixels[:, ::-1]
    if flip in ("vertical", "both"):
        pixels = pixels[::-1, :]
    return pixels


def _checked(pixels: Pixels, name: str) -> Pixels:
    pixels = np.asarray(pixels, dtype=np.float32)
    if pixels.ndim != 2 or pixels.shape[0] != pixels.shape[1] or pixels.shape[0] < _LEAST_SIDE:
        raise EvidenceError(
            f"The {name} has shape {pixels.shape}; give a square slice of at least "
            f"{_LEAST_SIDE} × {_LEAST_SIDE} pixels."
        )
    # NaN fails both comparisons.
    if not (pixels.min() >= 0.0 and pixels.max() <= 1.0):
        raise EvidenceError(f"The {name} has values outside [0, 1]; normalise it first.")
    return pixels


def _starts(flips: bool, start: tuple[str, float] | None) -> list[_Pose]:
    if start is not None:
        flip, degrees = start
        if flip not in FLIPS or not np.isfinite(degrees):
            raise EvidenceError(
                f"The start {start!r} is no pose; give one of {', '.join(FLIPS)} and an angle in "
                "degrees."
            )
        return [_Pose(flip, 1.0, float(np.deg2rad(degrees)), (0.0, 0.0))]
    return [
        _Pose(flip, 1.0, float(np.deg2rad(degrees)), (0.0, 0.0))
        for flip in (FLIPS if flips else FLIPS[:1])
        for degrees in _START_ANGLES
    ]


def _resized(pixels: Pixels, side: int) -> Pixels:
    """Reduce and smooth; smoothed, because a copy moved by half a pixel must still look alike."""
    from scipy import ndimage

    picture = Image.fromarray(np.ascontiguousarray(pixels))
    reduced = np.asarray(picture.resize((side, side), Image.Resampling.BOX), dtype=np.float32)
    return ndimage.gaussian_filter(reduced, _SMOOTHING, mode="nearest")


def _image(level: _Level, pixels: Pixels) -> SimpleITK.Image:
    """ITK's picture whose physical points are full-size pixels from the center."""
    import SimpleITK

    image = SimpleITK.GetImageFromArray(np.ascontiguousarray(pixels))
    image.SetSpacing([level.step] * 2)
    image.SetOrigin([-level.step * (len(pixels) - 1) / 2] * 2)
    return image


def _refined(level: _Level, pose: _Pose, stride: float, relaxation: float) -> _Pose:
    """Return the pose after optimisation; the start itself where it left the believable range."""
    import SimpleITK

    transform = SimpleITK.Similarity2DTransform()
    transform.SetParameters([pose.scale, pose.radians, *pose.shift])
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
        framed = np.pad(flipped(level.reference, pose.flip), len(level.reference) // 4)
        method.Execute(_image(level, level.query), _image(level, framed))
    except RuntimeError:
        # ITK's way to say that the pictures lost each other; the start remains a candidate.
        return pose
    scale, radians, right, down = transform.GetParameters()
    if not _SCALE_RANGE[0] <= scale <= _SCALE_RANGE[1]:
        return pose
    return _Pose(pose.flip, scale, radians, (right, down))


def _laid_over(level: _Level, pose: _Pose) -> tuple[Pixels, NDArray[np.bool_]]:
    """Resample the reference on the query's grid; return it with where it is known."""
    from scipy import ndimage

    reference = np.ascontiguousarray(flipped(level.reference, pose.flip))
    side = len(reference)
    cosine, sine = np.cos(pose.radians), np.sin(pose.radians)
    matrix = pose.scale * np.array([[cosine, sine], [-sine, cosine]])
    center = np.full(2, (side - 1) / 2)
    shift = np.array(pose.shift[::-1]) / level.step
    offset = center + shift - matrix @ center
    resampled = ndimage.affine_transform(reference, matrix, offset, order=1, mode="nearest")
    points = np.tensordot(matrix, np.indices((side, side)), axes=1) + offset[:, None, None]
    # Half a pixel: a pixel is known as far as it reaches.
    overlap = ((points >= -0.5) & (points <= side - 0.5)).all(axis=0)
    return np.where(overlap, resampled, np.float32(0.0)), overlap


def _agreement(level: _Level, pose: _Pose) -> float:
    """NCC over the overlap's content; −1 if much of the query's content lies outside."""
    registered, overlap = _laid_over(level, pose)
    shown = level.query > CONTENT
    where = overlap & (shown | (registered > CONTENT))
    if (shown & overlap).sum() < _LEAST_OVERLAP * shown.sum():
        return -1.0
    return ncc(level.query, registered, where)


def _best_per_flip(level: _Level, poses: list[_Pose], margin: float) -> list[_Pose]:
    """Return the best pose of each flip, without the flips that trail by more than the margin."""
    best: dict[str, tuple[float, _Pose]] = {}
    for pose in poses:
        agreement = _agreement(level, pose)
        if pose.flip not in best or agreement > best[pose.flip][0]:
            best[pose.flip] = (agreement, pose)
    highest = max(agreement for agreement, _ in best.values())
    return [pose for agreement, pose in best.values() if agreement >= highest - margin]


def _measured(query: Pixels, reference: Pixels, pose: _Pose) -> Registration:
    registered, overlap = _laid_over(_Level(query, reference, 1.0), pose)
    where = overlap & (content(query) | content(registered))
    cosine, sine = np.cos(pose.radians), np.sin(pose.radians)
    right, down = pose.shift
    return Registration(
        pixels=registered,
        overlap=overlap,
        flip=pose.flip,
        # The pose takes query points to the reference; pictures move the other way.
        angle=float(np.rad2deg(np.arctan2(sine, cosine))),
        scale=float(1.0 / pose.scale),
        translation=(
            float(-(cosine * right + sine * down) / pose.scale),
            float(-(cosine * down - sine * right) / pose.scale),
        ),
        ssim=mean_ssim(query, registered, overlap, where),
        ncc=ncc(query, registered, where),
    )
