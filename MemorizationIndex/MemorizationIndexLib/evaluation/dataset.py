"""Images of one dataset → features of every slice, in every pose and under every disguise."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.encoders.encoder import Encoder
from MemorizationIndexLib.evaluation.features import EvaluationError
from MemorizationIndexLib.images.finding import find_images
from MemorizationIndexLib.images.streaming import stream_images
from MemorizationIndexLib.images.volume import ImageError, Slice
from MemorizationIndexLib.index.poses import Pose
from MemorizationIndexLib.progress import CancelFunction, Progress, ProgressFunction, check
from MemorizationIndexLib.transformations import TRANSFORMATIONS

_BATCH = 64

LayerRows = tuple[NDArray[np.float32], ...]
"""Raw features, one (N, D) array per layer."""


@dataclass(frozen=True)
class SliceSet:
    """The scorable slices of one dataset, grouped by subject.

    Attributes:
        name: Name of the dataset.
        pixels: float32 (N, S, S), values in [0, 1].
        subjects: Subject code of each slice, non-decreasing, shape (N,).
        subject_names: Subject names by code.
        subject_rule: How the subjects were identified, in words.
        digest: Tells whether two sets hold the same slices of the same subjects.
        refused: Inputs that were not read, as (path, sentence).
        warnings: Sentences the user must know.
    """

    name: str
    pixels: NDArray[np.float32]
    subjects: NDArray[np.int64]
    subject_names: tuple[str, ...]
    subject_rule: str
    digest: str
    refused: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class EncodedSet:
    """Features of a dataset; every slice is encoded once per pose and disguise.

    Attributes:
        name: Name of the dataset.
        subjects: Subject code of each slice, non-decreasing, shape (N,).
        posed: One (P, N, D) array per layer: P poses, the stored one first.
        copies: By transformation name, the features of every slice in that disguise.
        control: The same with another draw of the disguise, for the calibration: a planted copy
            must not be compared with itself.
    """

    name: str
    subjects: NDArray[np.int64]
    posed: LayerRows
    copies: dict[str, LayerRows]
    control: dict[str, LayerRows]

    @property
    def subject_count(self) -> int:
        """Number of subjects."""
        return int(self.subjects[-1]) + 1


def read_slices(
    inputs: str | Path | Sequence[str | Path],
    name: str,
    size: int,
    *,
    subjects: str | None = None,
    plane: str = "auto",
    slices_per_subject: int | None = None,
) -> SliceSet:
    """Read the scorable slices of a dataset.

    Args:
        inputs: Files, folders or a manifest.csv; see ``images.find_images``.
        name: Name of the dataset.
        size: Side of the slices in pixels.
        subjects: Pattern that finds the subject in a path.
        plane: A key of ``images.PLANES``.
        slices_per_subject: Most slices of one subject, taken evenly over all that it has; all if
            None.

    Raises:
        ImageError: The inputs hold no usable image.
        EvaluationError: None of the slices can be scored.
    """
    images = find_images([inputs] if isinstance(inputs, (str, Path)) else inputs, subjects=subjects)
    refused = list(images.refused)
    if not images.sources:
        place, why = refused[0] if refused else (name, "it holds no image")
        raise ImageError(f"{place} cannot be used: {why.rstrip('.')}.")
    by_subject: dict[str, list[Slice]] = {}
    for one in stream_images(images, plane, size, lambda *what: refused.append(what)):
        if one.pixels is not None:
            by_subject.setdefault(one.subject, []).append(one)
    if not by_subject:
        raise EvaluationError(
            f"None of the slices in {name} can be scored: they are blank, nearly constant or too "
            "small."
        )
    names = sorted(by_subject)
    taken = [_evenly(by_subject[subject], slices_per_subject) for subject in names]
    digest = hashlib.sha256()
    for subject, members in zip(names, taken, strict=True):
        digest.update(f"{subject}:{len(members)}\n".encode())
        for one in members:
            assert one.pixels is not None
            digest.update(one.pixels.tobytes())
    return SliceSet(
        name,
        np.stack([one.pixels for members in taken for one in members if one.pixels is not None]),
        np.repeat(np.arange(len(names)), [len(members) for members in taken]),
        tuple(names),
        images.subject_rule_sentence,
        digest.hexdigest()[:16],
        tuple(refused),
        images.warnings,
    )


def _evenly(members: list[Slice], most: int | None) -> list[Slice]:
    if most is None or len(members) <= most:
        return members
    places = (np.arange(most) + 0.5) * len(members) / most
    return [members[int(place)] for place in places]


def encode_set(
    data: SliceSet,
    encoder: Encoder,
    poses: Sequence[Pose],
    seed: int,
    progress: ProgressFunction,
    cancelled: CancelFunction,
) -> EncodedSet:
    """Encode every slice once per pose and twice per disguise (once where it is not random).

    Args:
        data: The slices.
        encoder: Their encoder.
        poses: The poses in which reference slices are stored, the slice as it is first.
        seed: Of the disguises.
        progress: Told of the progress.
        cancelled: Asked between batches.

    Raises:
        CancelledError: ``cancelled`` said so.
    """
    count = len(data.pixels)
    total, done = count * (len(poses) + 2 * len(TRANSFORMATIONS)), 0

    def encode(render: Sequence[NDArray[np.float32]]) -> LayerRows:
        nonlocal done
        parts = []
        for start in range(0, count, _BATCH):
            check(cancelled)
            parts.append(encoder.encode(np.stack(render[start : start + _BATCH])))
            done += len(parts[-1][0])
            progress(Progress(f"Encoding {data.name}", done, total))
        return tuple(np.concatenate(layer) for layer in zip(*parts, strict=True))

    posed = [encode([pose.render(one) for one in data.pixels]) for pose in poses]
    copies, control = {}, {}
    for number, transformation in enumerate(TRANSFORMATIONS):
        drawn = []
        for draw in (0, 1):
            rng = np.random.default_rng([seed, 7, number, draw])
            drawn.append([transformation.apply(one, rng) for one in data.pixels])
        name = transformation.name
        copies[name] = encode(drawn[0])
        if all(np.array_equal(*pair) for pair in zip(*drawn, strict=True)):
            control[name] = copies[name]
            total -= count
        else:
            control[name] = encode(drawn[1])
    return EncodedSet(
        data.name,
        data.subjects,
        tuple(np.stack(layer) for layer in zip(*posed, strict=True)),
        copies,
        control,
    )
