"""From the nodes the user chose to what the worker gets, and back to the nodes. No Qt here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..images.volume import Volume
from ..results import AuditResult
from ..scene.errors import SceneError
from ..scene.geometry import slice_axis
from ..scene.reading import (
    VALIDATED_MODALITY,
    foreign_kind,
    read_volume,
    unique_names,
    volume_problem,
)
from ..scene.results import SceneResult, write_result
from ..scene.sequences import frames_of, read_frames, write_frames
from ..scene.source import VolumeSource, remember


@dataclass(frozen=True)
class AuditInput:
    """One chosen volume node as it was when its voxels were read.

    Attributes:
        source: Which node, and how it was.
        axis: Array axis of its slices (0 K, 1 J, 2 I).
        names: Names of its volumes in the results: one, or one per frame.
        all_frames: Whether all frames of a sequence are checked.
        foreign: What kind of image it is where it is no MR image; empty otherwise.
    """

    source: VolumeSource
    axis: int
    names: tuple[str, ...]
    all_frames: bool
    foreign: str = ""


def problem_of(nodes: Sequence[Any]) -> str:
    """Return why the chosen nodes cannot be checked, in one sentence; empty if they can."""
    if not nodes:
        return "Choose at least one volume."
    return next((problem for problem in map(volume_problem, nodes) if problem), "")


def read_inputs(
    nodes: Sequence[Any], plane: str, *, all_frames: bool = False
) -> tuple[list[AuditInput], list[Volume]]:
    """Copy the chosen nodes.

    Args:
        nodes: Scalar volume nodes.
        plane: ``auto``, ``axial``, ``coronal`` or ``sagittal``.
        all_frames: Read all frames of those that belong to a sequence.

    Returns:
        What is needed to show the results, and the volumes, named uniquely.

    Raises:
        SceneError: One of the nodes cannot be checked.
    """
    problem = problem_of(nodes)
    if problem:
        raise SceneError(problem)
    inputs: list[AuditInput] = []
    volumes: list[Volume] = []
    names = unique_names([node.GetName() for node in nodes])
    for node, name in zip(nodes, names, strict=True):
        frames = frames_of(node)
        whole = frames is not None and all_frames
        read = read_frames(node, name=name) if whole else [read_volume(node, name=name)]
        inputs.append(
            AuditInput(
                source=remember(node, name=name, is_frame=frames is not None),
                axis=slice_axis(node, plane),
                names=tuple(volume.name for volume in read),
                all_frames=whole,
                foreign=foreign_kind(node),
            )
        )
        volumes += read
    return inputs, volumes


def show_inputs(
    inputs: Iterable[AuditInput], result: AuditResult, *, show_subjects: bool = False
) -> tuple[list[SceneResult], list[str]]:
    """Write the results of all volumes that are finished into the scene.

    Returns:
        What was written, and a sentence for each volume that could not be shown, for instance
        because it is gone. Volumes that the result does not name are left out.
    """
    inputs = list(inputs)
    result = flag_foreign(result, inputs)
    shown: list[SceneResult] = []
    problems: list[str] = []
    named = {row.volume for row in result.slices}
    for one in inputs:
        if not named.issuperset(one.names):
            continue
        write = write_frames if one.all_frames else write_result
        try:
            shown.append(write(one.source, result, one.axis, show_subjects=show_subjects))
        except SceneError as error:
            problems.append(str(error))
    return shown, problems


def flag_foreign(result: AuditResult, inputs: Iterable[AuditInput]) -> AuditResult:
    """Say in a result which volumes are no MR images: in the finding, the warnings and the rows.

    Volumes are counted, not named: the finding is handed on where names are not.
    """
    foreign = {name: one.foreign for one in inputs for name in one.names if one.foreign}
    slices = tuple(
        replace(row, domain=f"outside validated domain: {foreign[row.volume]}")
        if row.volume in foreign
        else row
        for row in result.slices
    )
    if slices == result.slices:
        return result
    volumes = list(dict.fromkeys(row.volume for row in slices))
    found = [name for name in volumes if name in foreign]
    which = f"{len(found)} of {len(volumes)} volumes, " if len(volumes) > 1 else ""
    kinds = ", ".join(dict.fromkeys(foreign[name] for name in found))
    finding = f"{result.summary.finding} Outside the validated domain: {which}{kinds}."
    warning = (
        f"The method is validated on {VALIDATED_MODALITY} images only; read the result of other "
        f"images ({kinds}) with care."
    )
    warnings = tuple(text for text in result.summary.warnings if text != warning)
    summary = replace(result.summary, finding=finding, warnings=(warning, *warnings))
    return replace(result, slices=slices, summary=summary)


def input_of(inputs: Sequence[AuditInput], volume: str) -> tuple[AuditInput, int | None] | None:
    """Return the input that a volume of the results came from, and its frame if it is one."""
    for one in inputs:
        if volume in one.names:
            return one, one.names.index(volume) if one.all_frames else None
    return None
