"""``python -m MemorizationIndexLib`` is the command ``memorization-index``."""

import sys

from MemorizationIndexLib.cli import main

if __name__ == "__main__":
    sys.exit(main())
