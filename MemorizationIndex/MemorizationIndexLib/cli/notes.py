"""Notes on standard error: what a user should know and need not act on."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def warn(sentences: Iterable[str]) -> None:
    """Print sentences as notes, each once."""
    for sentence in dict.fromkeys(sentences):
        print(f"memorization-index: note: {sentence}", file=sys.stderr)


def refusals(refused: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Give one sentence for each input that was not read."""
    for place, why in refused:
        yield why if not place or Path(place).name in why else f"{place}: {why}"


@contextmanager
def said_warnings() -> Iterator[None]:
    """Print what the library warns of as notes, once each, without file and line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield
    warn(str(one.message) for one in caught if issubclass(one.category, UserWarning))
