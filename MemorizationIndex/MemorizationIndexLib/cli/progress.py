"""Progress on a terminal: one bar per stage."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from MemorizationIndexLib.progress import Progress, ProgressFunction
from MemorizationIndexLib.progress import quiet as silent

SECONDS_IN_A_LOG = 30.0
"""Between two lines of progress where standard error is a file and not a terminal."""


@contextmanager
def progress_bars(quiet: bool) -> Iterator[ProgressFunction]:
    """Give a progress function that draws bars on standard error, or none if quiet."""
    if quiet:
        yield silent
        return
    from tqdm import tqdm

    bar: Any = None
    terminal = sys.stderr.isatty()

    def draw(progress: Progress) -> None:
        nonlocal bar
        if bar is not None and bar.desc.removesuffix(": ") != progress.stage:
            bar.close()
            bar = None
        if bar is None:
            if not terminal and not progress.total:
                if progress.note:
                    print(progress.note, file=sys.stderr)
                return
            scaled = progress.unit == "bytes"
            bar = tqdm(
                desc=progress.stage,
                total=progress.total or None,
                unit="B" if scaled else f" {progress.unit}",
                unit_scale=scaled,
                file=sys.stderr,
                dynamic_ncols=True,
                mininterval=0.1 if terminal else SECONDS_IN_A_LOG,
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
