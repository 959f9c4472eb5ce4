"""The field's own measures of a generated set, on the features of the audit."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.evaluation.authenticity import authenticity
from MemorizationIndexLib.evaluation.data_copying import data_copying
from MemorizationIndexLib.evaluation.features import EvaluationError, EvaluationWarning
from MemorizationIndexLib.evaluation.frechet import frechet_distance
from MemorizationIndexLib.evaluation.kernel_distance import kernel_distance
from MemorizationIndexLib.evaluation.vendi import vendi_score

_CELLS = 3

BASELINES = {
    "fid": "FID",
    "kid": "KID",
    "c_t": "C_T",
    "authpct": "AuthPct",
    "vendi": "Vendi",
}
"""Baselines by their name in tables, with the name that people know."""


@dataclass(frozen=True)
class BaselineValues:
    """Baselines of one set.

    Attributes:
        values: By key of ``BASELINES``; None where a measure is undefined on so few slices.
        notes: What weakens them, in sentences.
    """

    values: dict[str, float | None]
    notes: tuple[str, ...]


def baselines_of(
    reference: NDArray[np.floating],
    test: NDArray[np.floating],
    generated: NDArray[np.floating],
    seed: int,
) -> BaselineValues:
    """Return FID, KID, C_T, AuthPct and Vendi of a generated set (METHOD.md section 7).

    C_T has three cells, and one where no cell of three would hold its twenty generated samples.

    Args:
        reference: Training features, shape (N, D).
        test: Features of clean slices of other subjects, shape (T, D); for C_T only.
        generated: Features of the set, shape (M, D).
        seed: Of the cells of C_T.
    """
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", EvaluationWarning)
        values: dict[str, float | None] = {
            "fid": frechet_distance(reference, generated),
            "kid": kernel_distance(reference, generated),
            "c_t": _data_copying(reference, test, generated, seed, notes),
            "authpct": authenticity(reference, generated),
            "vendi": vendi_score(generated),
        }
    notes += [str(one.message) for one in caught if issubclass(one.category, EvaluationWarning)]
    return BaselineValues(values, tuple(dict.fromkeys(notes)))


def _data_copying(
    reference: NDArray[np.floating],
    test: NDArray[np.floating],
    generated: NDArray[np.floating],
    seed: int,
    notes: list[str],
) -> float | None:
    reason = ""
    for cells in (_CELLS, 1):
        try:
            score = data_copying(reference, test, generated, seed, cells).score
        except EvaluationError as error:
            reason = str(error)
            continue
        if cells == 1:
            notes.append("C_T has one cell here: three would each hold too few slices.")
        return score
    notes.append(reason)
    return None
