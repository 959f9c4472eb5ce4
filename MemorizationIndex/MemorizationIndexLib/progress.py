"""How long work reports where it is and learns that it is no longer wanted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Where a run is.

    Attributes:
        stage: What is being done, in words.
        done: Units finished.
        total: Units to do, as far as known.
        unit: What is counted.
        note: A sentence to be shown once and kept in sight; mostly empty.
    """

    stage: str
    done: int
    total: int
    unit: str = "slices"
    note: str = ""


class CancelledError(Exception):
    """The user cancelled; what was finished is kept."""


ProgressFunction = Callable[[Progress], None]
CancelFunction = Callable[[], bool]


def quiet(progress: Progress) -> None:
    """Report to nobody."""


def never() -> bool:
    """Never cancel."""
    return False


def check(cancelled: CancelFunction) -> None:
    """Stop the run if it was cancelled.

    Raises:
        CancelledError: It was.
    """
    if cancelled():
        raise CancelledError("The run was cancelled; what was encoded is kept for the next run.")
