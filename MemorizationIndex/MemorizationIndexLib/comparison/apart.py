"""How slices of different patients agree when laid over each other, as a cohort keeps it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

VERSION = 1
"""Raise when a change of the pairs, of their registration or of the measures changes numbers beyond
rounding: what is stored is used only with the arithmetic that made it."""


@dataclass(frozen=True)
class PatientsApart:
    """SSIM and NCC of registered pairs of different patients: the null of verification.

    Attributes:
        ssim: Shape (n,).
        ncc: Shape (n,).
    """

    ssim: NDArray[np.float64]
    ncc: NDArray[np.float64]
