"""The reference cohort: as an object, on disk, and its building."""

from MemorizationIndexLib.cohort.building import build_cohort, build_cohort_from_volumes
from MemorizationIndexLib.cohort.cohort import Cohort, CohortError
from MemorizationIndexLib.cohort.store import load_cohort

__all__ = ["Cohort", "CohortError", "build_cohort", "build_cohort_from_volumes", "load_cohort"]
