"""MemorizationIndex: has a generative MRI model copied its training patients?

The main job in two calls::

    from MemorizationIndexLib import build_cohort, score

    build_cohort("training/", "training.micohort")
    result = score("synthetic/", "training.micohort")
    print(result.summary.finding)

Importing this package loads no deep-learning library; what computes loads it when it computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .audit import AuditOptions, score, score_volumes
    from .cohort import (
        Cohort,
        build_cohort,
        build_cohort_from_volumes,
        load_cohort,
    )
    from .cohort.building import CohortOptions
    from .images.volume import Volume
    from .outputs import write_outputs
    from .results import AuditResult, Verdict

_HOMES = {
    "AuditOptions": "audit",
    "AuditResult": "results",
    "Cohort": "cohort",
    "CohortOptions": "cohort.building",
    "Verdict": "results",
    "Volume": "images.volume",
    "build_cohort": "cohort",
    "build_cohort_from_volumes": "cohort",
    "load_cohort": "cohort",
    "score": "audit",
    "score_volumes": "audit",
    "write_outputs": "outputs",
}

__all__ = [
    "AuditOptions",
    "AuditResult",
    "Cohort",
    "CohortOptions",
    "Verdict",
    "Volume",
    "__version__",
    "build_cohort",
    "build_cohort_from_volumes",
    "load_cohort",
    "score",
    "score_volumes",
    "write_outputs",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its room when it is first used."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
