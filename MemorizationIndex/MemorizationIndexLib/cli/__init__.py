"""The command ``memorization-index``: the door for people at a shell."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from MemorizationIndexLib.cli.arguments import parser

OK, BAD_INPUT, FOUND, INTERRUPTED = 0, 2, 3, 130
"""Exit codes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _show_any_name()
    given = parser().parse_args(arguments)
    try:
        return _run(given)
    except KeyboardInterrupt:
        print(
            "\nmemorization-index: interrupted; what was encoded is kept and the next run starts "
            "from there.",
            file=sys.stderr,
        )
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left, as `| head` does; the interpreter would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"memorization-index: {where}{error.strerror or error}.", file=sys.stderr)
        return BAD_INPUT
    except MemoryError:
        print(
            "memorization-index: this machine has not enough memory for that: use a smaller "
            "--input-size or fewer, smaller images.",
            file=sys.stderr,
        )
        return BAD_INPUT


def _run(given: argparse.Namespace) -> int:
    from MemorizationIndexLib.cohort.cohort import CohortError
    from MemorizationIndexLib.curation import CurationError
    from MemorizationIndexLib.encoders.encoder import EncoderError
    from MemorizationIndexLib.evaluation.features import EvaluationError
    from MemorizationIndexLib.images.volume import ImageError
    from MemorizationIndexLib.index.protocols import CalibrationError
    from MemorizationIndexLib.outputs import OutputError
    from MemorizationIndexLib.phantoms import PhantomError
    from MemorizationIndexLib.report.errors import ReportError

    try:
        return int(given.run(given))
    except (
        CalibrationError,
        CohortError,
        CurationError,
        EncoderError,
        EvaluationError,
        ImageError,
        OutputError,
        PhantomError,
        ReportError,
    ) as error:
        print(f"memorization-index: {error}", file=sys.stderr)
        return BAD_INPUT


def _show_any_name() -> None:
    """Print names that the terminal's encoding lacks with escapes, rather than fail over them."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
