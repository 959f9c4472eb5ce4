"""Progress on a terminal: one bar per stage."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from MemorizationIndexLib.progress import Progress, ProgressFunction
from MemorizationIndexLib.progress import quiet as silent


@contextmanager
def progress_bars(quiet: bool) -> Iterator[ProgressFunction]:
    """Give a progress function that draws bars on standard error, or none if quiet."""
    if quiet:
        yield silent
        return
    from tqdm import tqdm

    bar: Any = None

    def draw(progress: Progress) -> None:
        nonlocal bar
        if bar is not None and bar.desc.removesuffix(": ") != progress.stage:
            bar.close()
            bar = None
        if bar is None:
            scaled = progress.unit == "bytes"
            bar = tqdm(
                desc=progress.stage,
                total=progress.total or None,
                unit="B" if scaled else f" {progress.unit}",
                unit_scale=scaled,
                file=sys.stderr,
                dynamic_ncols=True,
                leave=bool(progress.total),
            )
        if progress.total:
            bar.total = progress.total
        if progress.note:
            bar.write(progress.note, file=sys.stderr)
        bar.update(progress.done - bar.n)

    try:
        yield draw
    finally:
        if bar is not None:
            bar.close()
