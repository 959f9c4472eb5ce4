"""Made statistics of a set whose share of copies is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DISGUISES = np.array([4, 4.5, 5, 5.5, 6, 6, 6.5, 7, 7, 7.5, 8, 8, 8.5, 9, 10, 12], float)
"""Mean statistic of the known copies under each disguise, in standard deviations of the null."""

_BETWEEN = 0.5
_WITHIN = np.sqrt(1 - _BETWEEN**2)
_SPREAD_OF_CLEAN = 1.05


@dataclass(frozen=True)
class SimulatedSet:
    statistics: NDArray[np.float64]
    volumes: NDArray[np.int64]
    null: NDArray[np.float64]
    null_subjects: NDArray[np.int64]
    control: dict[str, NDArray[np.float64]]
    control_subjects: dict[str, NDArray[np.int64]]


def simulated_set(
    rng: np.random.Generator,
    share: float,
    *,
    copying: str = "slices",
    drift: float = 0.3,
    volumes: int = 40,
    slices: int = 6,
    subjects: int = 30,
) -> SimulatedSet:
    """Draw a set, its null and its control.

    Slices of one volume or subject are alike (a quarter of the variance lies between them); clean
    slices lie ``drift`` standard deviations above the null and spread 5 % wider; the generator
    mixes the disguises in a way of its own, drawn anew for each set.

    Args:
        rng: Random generator.
        share: Share at which the generator copies.
        copying: ``slices`` independently, ``volumes`` as a whole, or ``mixed``: each volume at a
            rate of its own.
        drift: Shift of the clean slices, in standard deviations of the null.
        volumes: Volumes of the set.
        slices: Slices of each volume and of each reference subject.
        subjects: Reference subjects.
    """

    def alike(groups: int, members: int) -> NDArray[np.float64]:
        between = rng.normal(0, _BETWEEN, (groups, 1))
        return between + rng.normal(0, _WITHIN, (groups, members))

    rate = {
        "slices": lambda: np.full(volumes, share),
        "mixed": lambda: rng.beta(2.3 * share + 1e-9, 2.3 * (1 - share), volumes),
        "volumes": lambda: (rng.random(volumes) < share).astype(float),
    }[copying]()
    copied = rng.random((volumes, slices)) < rate[:, None]
    mixture = rng.dirichlet(np.ones(len(DISGUISES)))
    disguise = DISGUISES[rng.choice(len(DISGUISES), (volumes, slices), p=mixture)]
    values = np.where(
        copied,
        disguise + alike(volumes, slices),
        drift + _SPREAD_OF_CLEAN * alike(volumes, slices),
    )
    names = [f"disguise {number}" for number in range(len(DISGUISES))]
    return SimulatedSet(
        statistics=values.ravel(),
        volumes=np.repeat(np.arange(volumes), slices),
        null=alike(subjects, slices).ravel(),
        null_subjects=np.repeat(np.arange(subjects), slices),
        control={
            name: (mean + alike(subjects, 2)).ravel()
            for name, mean in zip(names, DISGUISES, strict=True)
        },
        control_subjects={name: np.repeat(np.arange(subjects), 2) for name in names},
    )
