"""The reference cohort: as an object, on disk, and its building."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from MemorizationIndexLib.cohort.building import build_cohort, build_cohort_from_volumes
    from MemorizationIndexLib.cohort.cohort import Cohort, CohortError
    from MemorizationIndexLib.cohort.store import load_cohort

# A cohort is loaded with numpy alone; only building one needs the image libraries.
_HOMES = {
    "Cohort": "cohort",
    "CohortError": "cohort",
    "build_cohort": "building",
    "build_cohort_from_volumes": "building",
    "load_cohort": "store",
}

__all__ = ["Cohort", "CohortError", "build_cohort", "build_cohort_from_volumes", "load_cohort"]


def __getattr__(name: str) -> Any:
    """Load a public name from its file when it is first used."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
