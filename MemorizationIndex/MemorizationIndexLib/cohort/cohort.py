"""A reference cohort: what an audit needs to know of the real training images."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.comparison.apart import PatientsApart
from MemorizationIndexLib.comparison.part_reference import PartReference
from MemorizationIndexLib.encoders.encoder import Encoder
from MemorizationIndexLib.encoders.registry import AUTO, NAMES
from MemorizationIndexLib.index.control import Control
from MemorizationIndexLib.index.null import Null
from MemorizationIndexLib.index.protocols import Protocol, get_protocol
from MemorizationIndexLib.index.reference import Reference


class CohortError(ValueError):
    """A cohort cannot be built, read or used; the message says what is wrong and what to do."""


@dataclass(frozen=True)
class CohortFacts:
    """What a cohort says of itself; every field is plain text or numbers.

    Attributes:
        format_version: Of the files.
        library_version: Of the library that built it.
        created: ISO 8601, UTC.
        encoder: Name of the encoder, as given to ``encoders.get_encoder``.
        encoder_description: The encoder in one honest sentence.
        encoder_options: Further options of the encoder.
        fingerprint: The encoder's fingerprint.
        input_size: Height and width of the encoded slices, in pixels.
        layers: Names of the layers, fine to coarse.
        widths: Features per layer.
        protocol: Name of the protocol.
        plane: How volumes were sliced.
        seed: Of folds and known copies.
        robust: Whether flips and small changes are searched.
        poses: The poses of the stored rows, in words, the slice as it is first.
        anonymized: Whether subject and volume names are hashes.
        subjects: Subject names by code.
        volumes: Volume names by code.
        subject_rule: How the subjects were identified.
        skipped: Number of slices that could not be scored.
        refused: Inputs that were not read, as (path, sentence).
        warnings: Sentences the user must know.
        shrinkage: Shrinkage per layer.
        rightly_named: By transformation, the share of known copies whose subject was named.
        patients_apart: Version of the arithmetic of ``Cohort.patients_apart``; 0 if there is none.
        parts: Tells whether its parts can be searched by this library; empty if it holds none.
    """

    format_version: int
    library_version: str
    created: str
    encoder: str
    encoder_description: str
    encoder_options: dict[str, str]
    fingerprint: str
    input_size: int
    layers: tuple[str, ...]
    widths: tuple[int, ...]
    protocol: str
    plane: str
    seed: int
    robust: bool
    poses: tuple[str, ...]
    anonymized: bool
    subjects: tuple[str, ...]
    volumes: tuple[str, ...]
    subject_rule: str
    skipped: int
    refused: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    shrinkage: tuple[float, ...]
    rightly_named: dict[str, float]
    patients_apart: int = 0
    parts: str = ""


@dataclass(frozen=True)
class Cohort:
    """A cohort in use; the large arrays are memory-mapped.

    Attributes:
        path: Where it lies.
        facts: What it says of itself.
        reference: Whitened rows and whiteners.
        features: Raw features, float32, one (P, N, D) array per layer.
        volume_codes: Volume of each slice, shape (N,).
        indices: Index of each slice in its volume, shape (N,).
        digests: First 8 bytes of the SHA-256 of each slice's pixels, uint64, shape (N,).
        sources: File of each slice; empty strings if the cohort is anonymized.
        null: Similarities of slices that cannot be copies.
        control: Similarities of known copies.
        thumbnails: uint8 (N, T, T), or None.
        patients_apart: The null of verification, or None where it is not stored.
        parts: What copied parts are searched in, or None.
        memory: What was worked out from it and need not be again while it is loaded.
    """

    path: Path
    facts: CohortFacts
    reference: Reference
    features: tuple[NDArray[np.float32], ...]
    volume_codes: NDArray[np.int64]
    indices: NDArray[np.int64]
    digests: NDArray[np.uint64]
    sources: tuple[str, ...]
    null: Null
    control: Control
    thumbnails: NDArray[np.uint8] | None = field(default=None)
    patients_apart: PatientsApart | None = field(default=None)
    parts: PartReference | None = field(default=None)
    memory: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Name of the cohort: its folder without the ending."""
        return self.path.stem

    @property
    def protocol(self) -> Protocol:
        """The protocol it was built for."""
        return get_protocol(self.facts.protocol)

    @property
    def slice_count(self) -> int:
        """Number N of reference slices."""
        return self.reference.slice_count

    @property
    def subject_count(self) -> int:
        """Number of subjects."""
        return self.reference.subject_count

    @property
    def certifiable_alpha(self) -> float:
        """Smallest level the null can certify, 1 / (subjects + 1) (METHOD.md section 3)."""
        return 1 / (self.subject_count + 1)


def encoder_of(cohort: Cohort, asked: str | None = None) -> str:
    """Return the name of the encoder to make for a cohort.

    Args:
        cohort: The cohort.
        asked: What the user named: the cohort's own encoder, which may lie elsewhere now.

    Raises:
        CohortError: It is surely another one. Said before that one's weights are asked for.
    """
    built = cohort.facts.encoder
    if asked in (None, AUTO, built):
        return built
    assert asked is not None
    if asked in NAMES or built in NAMES:
        raise CohortError(
            f"The cohort '{cohort.name}' was built with the encoder {built}, and --encoder asks "
            f"for {asked}: leave out --encoder, or build the cohort again with --encoder {asked}."
        )
    return asked


def check_encoder(cohort: Cohort, encoder: Encoder) -> None:
    """Refuse to compare features of two encoders.

    Raises:
        CohortError: The encoder, its weights, options or input size are not the cohort's.
    """
    facts = cohort.facts
    if encoder.fingerprint == facts.fingerprint:
        return
    raise CohortError(
        f"The cohort '{cohort.name}' was built with the encoder {facts.encoder} at "
        f"{facts.input_size} pixels ({facts.fingerprint}), and this run uses {encoder.name} at "
        f"{encoder.input_size} pixels ({encoder.fingerprint}): score with the same encoder, or "
        "build the cohort again."
    )
