"""What all tests share: a cache of their own, and one small audit on phantoms."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs the tests in the background ignores Ctrl-C, and programs that a test
    # interrupts would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Keep the user's feature cache out of every test, and out of programs that tests start."""
    name = "MEMORIZATION_INDEX_CACHE"
    before = os.environ.get(name)
    os.environ[name] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ[name]
    else:
        os.environ[name] = before


@dataclass(frozen=True)
class SmallAudit:
    """Six phantom patients of four slices, two others, and a cohort of the six.

    Attributes:
        reference: Folder of the six, a folder each, p0 to p5.
        queries: Folder of the two others, q0 and q1.
        cohort: The cohort; not to be changed.
    """

    reference: Path
    queries: Path
    cohort: Path


INPUT_SIZE = 96
"""Small, so that tests are fast."""

ARGUMENTS = ("--encoder", "builtin", "--input-size", str(INPUT_SIZE))
"""What ``small_audit``'s cohort was built with."""


@pytest.fixture(scope="session")
def small_images(tmp_path_factory) -> tuple[Path, Path]:
    """Write the phantoms of ``small_audit``."""
    from phantom_files import phantom_file

    folder = tmp_path_factory.mktemp("phantoms")
    for number in range(6):
        phantom_file(folder / "reference" / f"p{number}" / "head.nii.gz", number)
    for number in range(2):
        phantom_file(folder / "queries" / f"q{number}" / "head.nii.gz", 100 + number)
    return folder / "reference", folder / "queries"


@pytest.fixture(scope="session")
def small_audit(small_images, tmp_path_factory) -> SmallAudit:
    """Build the cohort once."""
    from MemorizationIndexLib import CohortOptions, build_cohort

    reference, queries = small_images
    path = tmp_path_factory.mktemp("cohort") / "small.micohort"
    build_cohort(reference, path, options=CohortOptions(encoder="builtin", input_size=INPUT_SIZE))
    return SmallAudit(reference, queries, path)
