"""The command ``memorization-index``: the door for people at a shell."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from MemorizationIndexLib.cli.arguments import parser

OK, BAD_INPUT, FOUND, INTERRUPTED = 0, 2, 3, 130
"""Exit codes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = parser().parse_args(arguments)
    from MemorizationIndexLib.cohort.cohort import CohortError
    from MemorizationIndexLib.encoders.encoder import EncoderError
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
        EncoderError,
        ImageError,
        OutputError,
        PhantomError,
        ReportError,
    ) as error:
        print(f"memorization-index: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print(
            "\nmemorization-index: interrupted; what was encoded is kept and the next run starts "
            "from there.",
            file=sys.stderr,
        )
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left, as `| head` does.
        sys.stderr.close()
        return OK
