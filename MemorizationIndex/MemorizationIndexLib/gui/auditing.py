"""The library's main job as the module's logic sees it. No Qt here."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import slicer.util

from ..comparison.part_reference import part_fingerprint
from ..exchange import read_volumes
from ..images.volume import Volume
from ..results import AuditResult
from ..worker import SUBJECT_RULE, encoder_of

PARTS_IN_WORDS = {
    True: "Copied parts of slices are looked for too.",
    False: "Copied parts of slices are not looked for.",
    None: "Its parts of slices are another version's and not looked for; build it again.",
}


@dataclass(frozen=True)
class CohortFacts:
    """What the panel says of a cohort.

    Attributes:
        name: Its name.
        encoder: Name of its encoder.
        encoder_description: The encoder in one sentence.
        subjects: Number of people.
        slices: Number of scored reference slices.
        plane: Plane of its slices.
        protocol: How it judges.
        anonymized: Whether its subject names are hashes.
        input_size: Side of its slices in pixels.
        widths: Features per layer.
        parts: Whether copied parts can be searched in it by this module; None if it holds some of
            another version.
    """

    name: str
    encoder: str
    encoder_description: str
    subjects: int
    slices: int
    plane: str
    protocol: str
    anonymized: bool
    input_size: int
    widths: tuple[int, ...]
    parts: bool | None = False

    @property
    def certifiable_alpha(self) -> float:
        """Return the smallest significance level that the cohort can certify."""
        return 1 / (self.subjects + 1)

    def sentence(self) -> str:
        """Return the facts for people."""
        plane = "" if self.plane == "auto" else f"{self.plane} "
        names = " Subject names are hashed." if self.anonymized else ""
        return (
            f"{self.slices} {plane}slices of {self.subjects} people; encoder {self.encoder}, "
            f"protocol {self.protocol}. It can certify α = {self.certifiable_alpha:.2g} at best."
            f"{names} {PARTS_IN_WORDS[self.parts]}"
        )


def cohort_facts(path: Path) -> CohortFacts:
    """Read what a cohort says about itself, without checking its arrays: the worker does that.

    Raises:
        CohortError: It is no cohort, or of another version.
    """
    from ..cohort.cohort import CohortError
    from ..cohort.store import FORMAT_VERSION, INDEX

    if not path.exists():
        raise CohortError(f"There is no cohort at {path}: build one, or check the path.")
    if not (path / INDEX).is_file():
        raise CohortError(f"{path} is not a cohort; choose a folder named ….micohort.")
    try:
        facts = json.loads((path / INDEX).read_text(encoding="utf-8"))["facts"]
        if facts["format_version"] != FORMAT_VERSION:
            raise CohortError(
                f"The cohort {path} has format version {facts['format_version']} and this module "
                f"reads version {FORMAT_VERSION}: build the cohort again."
            )
        return CohortFacts(
            name=path.stem,
            encoder=facts["encoder"],
            encoder_description=facts["encoder_description"],
            subjects=len(facts["subjects"]),
            slices=len(np.load(path / "indices.npy", mmap_mode="r", allow_pickle=False)),
            plane=facts["plane"],
            protocol=facts["protocol"],
            anonymized=bool(facts["anonymized"]),
            input_size=int(facts["input_size"]),
            widths=tuple(facts["widths"]),
            parts=_parts(facts.get("parts", "")),
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, CohortError):
            raise
        raise CohortError(
            f"The cohort {path} is damaged ({error}); copy it anew or build it again."
        ) from error


def _parts(stored: str) -> bool | None:
    if not stored:
        return False
    return True if stored == part_fingerprint() else None


def audit_here(
    volumes: Sequence[Volume],
    cohort: Path,
    *,
    alpha: float = 0.01,
    plane: str = "auto",
    device: str = "auto",
    batchSize: int = 0,  # noqa: N803 - the logic's name
) -> AuditResult:
    """Check volumes in this process; see the logic's ``score``."""
    from ..audit import AuditOptions, score_volumes
    from ..cohort import load_cohort

    loaded = load_cohort(cohort)
    encoder, note = encoder_of(loaded, device, batchSize)
    logging.info(note)
    options = AuditOptions(
        alpha=alpha, plane=None if plane == "auto" else plane, device=device, pictures=True
    )
    return score_volumes(
        volumes, loaded, subject_rule=SUBJECT_RULE, options=options, encoder=encoder
    )


def add_volume(folder: Path) -> Any:
    """Add a volume that the worker wrote to the scene."""
    volume = read_volumes(folder)[0]
    node = slicer.util.addVolumeFromArray(volume.array, volume.affine, volume.name)
    node.CreateDefaultDisplayNodes()
    return node
