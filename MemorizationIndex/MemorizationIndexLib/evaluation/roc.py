"""How well scores separate copies from clean slices: AUC, and TPR at a given FPR."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from MemorizationIndexLib.evaluation.features import EvaluationError

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class RocCurve:
    """Operating points, from flagging nothing to flagging everything.

    Attributes:
        fpr: Share of negatives flagged, shape (P,), rising from 0 to 1.
        tpr: Share of positives flagged, shape (P,), rising from 0 to 1.
        thresholds: Scores at or above which a slice is flagged, shape (P,), falling from +inf.
    """

    fpr: Scores
    tpr: Scores
    thresholds: Scores


def auc(positive: ArrayLike, negative: ArrayLike) -> float:
    """Return the area under the ROC curve: P(positive > negative) + ½ P(equal).

    The Mann–Whitney U over the number of pairs (Hanley and McNeil 1982).

    Args:
        positive: Scores of copies, shape (n,); a higher score speaks for a copy.
        negative: Scores of clean slices, shape (m,).

    Raises:
        EvaluationError: No positives or no negatives, or scores that are NaN.
    """
    copies, clean = _checked_scores(positive, negative)
    ordered = np.sort(clean)
    below = np.searchsorted(ordered, copies, side="left")
    not_above = np.searchsorted(ordered, copies, side="right")
    return float((below + not_above).mean() / (2 * len(clean)))


def tpr_at_fpr(positive: ArrayLike, negative: ArrayLike, fpr: float = 0.01) -> float:
    """Return the largest share of positives flagged while at most ``fpr`` of negatives are.

    No interpolation: with fewer than 1/fpr negatives none of them may be flagged.

    Args:
        positive: Scores of copies, shape (n,); a higher score speaks for a copy.
        negative: Scores of clean slices, shape (m,).
        fpr: Highest share of negatives that may be flagged, in [0, 1].

    Raises:
        EvaluationError: No positives or no negatives, scores that are NaN, or ``fpr`` out of range.
    """
    copies, clean = _checked_scores(positive, negative)
    if not 0.0 <= fpr <= 1.0:
        raise EvaluationError(f"The false-positive rate is {fpr}; give a number from 0 to 1.")
    # 0.07 · 100 is a hair above 7, and 0.29 · 100 a hair below 29.
    allowed = int(np.floor(fpr * len(clean) + 1e-9))
    if allowed >= len(clean):
        return 1.0
    highest_unflagged = np.sort(clean)[len(clean) - 1 - allowed]
    return float((copies > highest_unflagged).mean())


def roc_curve(positive: ArrayLike, negative: ArrayLike) -> RocCurve:
    """Return the operating points at every different score.

    Args:
        positive: Scores of copies, shape (n,); a higher score speaks for a copy.
        negative: Scores of clean slices, shape (m,).

    Raises:
        EvaluationError: No positives or no negatives, or scores that are NaN.
    """
    copies, clean = _checked_scores(positive, negative)
    thresholds = np.append(np.inf, np.unique(np.concatenate([copies, clean]))[::-1])

    def flagged(scores: Scores) -> Scores:
        below = np.searchsorted(np.sort(scores), thresholds, side="left")
        return (len(scores) - below) / len(scores)

    return RocCurve(flagged(clean), flagged(copies), thresholds)


def _checked_scores(positive: ArrayLike, negative: ArrayLike) -> tuple[Scores, Scores]:
    copies, clean = (np.asarray(scores, dtype=np.float64) for scores in (positive, negative))
    for name, scores in (("copies", copies), ("clean slices", clean)):
        if scores.ndim != 1 or scores.size == 0:
            raise EvaluationError(
                f"The scores of the {name} have shape {scores.shape}; give at least one, as (n,)."
            )
        if np.isnan(scores).any():
            raise EvaluationError(
                f"The scores of the {name} hold NaN; leave slices without a score out."
            )
    return copies, clean
