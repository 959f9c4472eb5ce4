"""The three named ways to compute the index, with every choice in one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class CalibrationError(ValueError):
    """The index cannot be calibrated; the message says what is wrong and what to do."""


class TooFewSubjectsError(CalibrationError):
    """A reference has too few subjects; ``subjects`` says how many.

    Args:
        subjects: Their number.
    """

    def __init__(self, subjects: int) -> None:
        self.subjects = subjects
        super().__init__(
            f"The reference has {subjects} subject{'s' * (subjects != 1)} and calibration needs at "
            f"least {LEAST_SUBJECTS}: add subjects, or say with --subjects or a manifest.csv whose "
            "image is whose."
        )


@dataclass(frozen=True)
class Protocol:
    """One way to compute the index (METHOD.md section 1).

    Attributes:
        name: As on the command line and in every result.
        description: One sentence for people.
        whitening: ``oas`` (analytic shrinkage), ``ridge`` (C + 1e-6 I) or ``clip`` (the released
            code's eigenvalues clipped at 1e-8).
        null: ``subjects`` (cross-fitted by subject) or ``halves`` (random halves of the slices).
        floor: Added to a similarity before the logarithm of the geometric mean.
        clamp: Whether negative cosines become 0 before the logarithm.
        robust: Whether flips and small rotations may be searched.
        variance_floor: Added to the null's variance before the square root.
        sd_floor: Added to the null's standard deviation after it.
    """

    name: str
    description: str
    whitening: Literal["oas", "ridge", "clip"]
    null: Literal["subjects", "halves"]
    floor: float
    clamp: bool
    robust: bool
    variance_floor: float = 0.0
    sd_floor: float = 0.0


PROTOCOLS: dict[str, Protocol] = {
    "calibrated": Protocol(
        name="calibrated",
        description="Shrunk whitening and a null in which no slice meets its own subject.",
        whitening="oas",
        null="subjects",
        floor=1e-6,
        clamp=True,
        robust=True,
        variance_floor=1e-8,
    ),
    "paper": Protocol(
        name="paper",
        description="The equations of arXiv 2602.13066 as printed; undefined for small cohorts.",
        whitening="ridge",
        null="halves",
        floor=1e-6,
        clamp=False,
        robust=False,
        variance_floor=1e-8,
    ),
    "reference": Protocol(
        name="reference",
        description="What the paper's released code computes, faults included; for comparison.",
        whitening="clip",
        null="halves",
        floor=1e-8,
        clamp=False,
        robust=False,
        sd_floor=1e-8,
    ),
}

FOLDS = 10
"""Folds of subjects in the cross-fitted null."""

HALVINGS = 10
"""Random halvings of the reference in the published null."""

PUBLISHED_SEED = 1234
"""Seed of the released code's null."""

LEAST_SUBJECTS = 5
"""Fewest subjects from which a null is cross-fitted."""


def get_protocol(name: str) -> Protocol:
    """Return a protocol by name.

    Raises:
        CalibrationError: The name is unknown.
    """
    try:
        return PROTOCOLS[name]
    except KeyError:
        known = ", ".join(PROTOCOLS)
        raise CalibrationError(f"There is no protocol '{name}'; choose one of {known}.") from None
