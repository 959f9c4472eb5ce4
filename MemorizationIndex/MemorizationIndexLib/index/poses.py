"""The poses in which query and reference are compared: flips and small rotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from MemorizationIndexLib.encoders.encoder import Encoder, FlippingEncoder
from MemorizationIndexLib.index.reference import Views, as_stored
from MemorizationIndexLib.index.similarity import Layers


@dataclass(frozen=True)
class Pose:
    """How a slice is turned before it is encoded: flipped, then rotated, then cropped.

    Attributes:
        rotation: Degrees, counterclockwise as displayed.
        horizontal: Whether left and right are exchanged.
        vertical: Whether top and bottom are exchanged.
        window: Side of the square that is kept and enlarged, as a share of the slice's side.
        center: Middle of that square (x, y), from the middle of the slice, as a share of its side.
    """

    rotation: float = 0.0
    horizontal: bool = False
    vertical: bool = False
    window: float = 1.0
    center: tuple[float, float] = (0.0, 0.0)

    @property
    def label(self) -> str:
        """The pose in words, empty for the stored one."""
        words = []
        if self.horizontal and self.vertical:
            words.append("turned by 180°")
        elif self.horizontal:
            words.append("flipped left–right")
        elif self.vertical:
            words.append("flipped top–bottom")
        if self.rotation:
            words.append(f"rotated by {self.rotation:+g}°")
        if self.window != 1:
            words.append(f"cropped to {self.window:.0%}")
        return ", ".join(words)

    def render(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Turn a normalised slice (S, S); what comes into view is 0."""
        turned = pixels[:: -1 if self.vertical else 1, :: -1 if self.horizontal else 1]
        if self.rotation or self.window != 1:
            picture = Image.fromarray(np.ascontiguousarray(turned, dtype=np.float32))
            if self.rotation:
                picture = picture.rotate(self.rotation, Image.Resampling.BILINEAR)
            if self.window != 1:
                side = picture.width
                left, top = (side * (0.5 + c - self.window / 2) for c in self.center)
                box = (left, top, left + side * self.window, top + side * self.window)
                picture = picture.resize((side, side), Image.Resampling.BILINEAR, box=box)
            turned = np.asarray(picture)
            low, high = float(turned.min()), float(turned.max())
            turned = (turned - low) / (high - low) if high > low else np.zeros_like(turned)
        return np.ascontiguousarray(turned, dtype=np.float32)


def seen_pose(reference: Pose, view: Pose) -> Pose:
    """Return how a query stands to the slice it matched: the slice in this pose is like the query.

    Args:
        reference: The pose of the stored row that matched.
        view: The flip under which the query matched it, one of ``FLIPS``.
    """
    mirrored = view.horizontal != view.vertical
    x, y = reference.center
    return Pose(
        -reference.rotation if mirrored and reference.rotation else reference.rotation,
        reference.horizontal != view.horizontal,
        reference.vertical != view.vertical,
        reference.window,
        (-x if view.horizontal else x, -y if view.vertical else y),
    )


ROTATIONS = (0.0, 4.0, -4.0)
"""A copy turned by up to 6° lies within 2° of one of these."""

WINDOW = 0.9
"""Side of a cropped window, as a share of the slice's side."""

CORNER = 0.025
"""Half way from the middle to where such a window would leave the slice."""

SMALL_CHANGES = tuple(Pose(rotation) for rotation in ROTATIONS) + tuple(
    Pose(window=WINDOW, center=(x, y)) for y in (-CORNER, CORNER) for x in (-CORNER, CORNER)
)
"""What flips are combined with: small rotations and crops."""

FLIPS = (
    Pose(),
    Pose(horizontal=True),
    Pose(vertical=True),
    Pose(horizontal=True, vertical=True),
)


def reference_poses(encoder: Encoder, *, robust: bool) -> tuple[Pose, ...]:
    """Return the poses in which reference slices are stored, the slice as it is first.

    The cost of small changes is paid once, when the cohort is built. Flips cost nothing where the
    encoder can flip features, and are then seen on the query's side.
    """
    if not robust:
        return (Pose(),)
    flips = FLIPS[:1] if isinstance(encoder, FlippingEncoder) else FLIPS
    return tuple(
        replace(change, horizontal=flip.horizontal, vertical=flip.vertical)
        for flip in flips
        for change in SMALL_CHANGES
    )


def query_views(encoder: Encoder, *, robust: bool) -> Views:
    """Return the function that gives query features under every pose queries are seen in.

    These are the flips, where the encoder can flip features; otherwise the slice as it is, and the
    flips are stored with the reference.
    """
    if not robust or not isinstance(encoder, FlippingEncoder):
        return as_stored
    flipping = encoder

    def views(features: Layers) -> Sequence[Layers]:
        return [
            flipping.flip(tuple(features), horizontal=pose.horizontal, vertical=pose.vertical)
            for pose in FLIPS
        ]

    return views
