"""Example volumes and results for scene and panel tests; import it after the skip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import slicer
import slicer.util
import vtk
from numpy.typing import NDArray

from MemorizationIndexLib.results import AuditResult, AuditSummary, SliceResult, Verdict


def volume_node(
    shape: tuple[int, int, int] = (5, 6, 7),
    affine: NDArray[np.float64] | None = None,
    name: str = "volume",
    array: NDArray[Any] | None = None,
) -> Any:
    """Add a scalar volume; voxels random unless given, shape (K, J, I)."""
    if array is None:
        array = np.random.default_rng(7).random(shape).astype(np.float32)
    matrix = np.eye(4) if affine is None else np.asarray(affine, float)
    return slicer.util.addVolumeFromArray(array, matrix, name)


def under_transform(node: Any, matrix: NDArray[np.float64]) -> Any:
    """Put a node under a new linear transform."""
    transform = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLinearTransformNode")
    transform.SetMatrixTransformToParent(slicer.util.vtkMatrixFromArray(matrix))
    node.SetAndObserveTransformNodeID(transform.GetID())
    return transform


def translation(*offset: float) -> NDArray[np.float64]:
    matrix = np.eye(4)
    matrix[:3, 3] = offset
    return matrix


def rotation(angle: float, axis: int = 0) -> NDArray[np.float64]:
    """Rotation in radians about R, A or S."""
    matrix = np.eye(4)
    first, second = (a for a in range(3) if a != axis)
    cosine, sine = np.cos(angle), np.sin(angle)
    matrix[first, first] = matrix[second, second] = cosine
    matrix[first, second], matrix[second, first] = -sine, sine
    return matrix


def summary(**changes: Any) -> AuditSummary:
    values: dict[str, Any] = {
        "finding": "2 of 5 slices are copies.",
        "alpha": 0.01,
        "certifiable_alpha": 1 / 28,
        "protocol": "calibrated",
        "rule": "suspicious if p ≤ 0.01",
        "encoder": "structure",
        "encoder_description": "gradient orientations",
        "fingerprint": "abc123",
        "layers": ("fine", "coarse"),
        "widths": (384, 96),
        "shrinkage": (0.1, 0.2),
        "reference_slices": 200,
        "reference_subjects": 27,
        "null_mean": 0.40,
        "null_sd": 0.05,
        "null_size": 200,
        "exact_copy_mi": 12.0,
        "suspicious_threshold": 0.52,
        "copy_threshold": 0.80,
        "statistic": "similarity",
        "power": (),
        "slices": 5,
        "scored": 5,
        "copies": 2,
        "suspicious": 0,
        "mean_oni": -0.1,
        "subject_rule": "one folder, one subject",
        "cohort": "brains",
        "anonymized": False,
        "refused": (),
        "warnings": (),
        "version": "1.0.0",
        "created": "2026-01-01T00:00:00+00:00",
    }
    return AuditSummary(**{**values, **changes})


ONI = {Verdict.COPY: -1.0, Verdict.SUSPICIOUS: -0.75, Verdict.NO_EVIDENCE: 0.5}


def slice_result(volume: str, index: int, verdict: Verdict, **changes: Any) -> SliceResult:
    values: dict[str, Any] = {"reason": "blank"}
    if verdict is not Verdict.NOT_SCORED:
        values = {
            "similarity": 0.5,
            "mi": 2.0,
            "oni": ONI[verdict],
            "p_value": 0.005,
            "q_value": 0.05,
            "nearest_subject": "Doe^Jane",
            "nearest_volume": "Doe^Jane T1",
            "nearest_slice": 3,
            "nearest_source": "Doe^Jane.nii.gz",
            "nearest_row": 17,
            "margin": 0.1,
            "consensus": 2,
        }
    return SliceResult(volume, volume, index, verdict, **{**values, **changes})


PART_OF: dict[str, Any] = {
    "flagged_by": "part",
    "p_value": 0.6,
    "q_value": 0.8,
    "part_p_value": 0.0099,
    "part_similarity": 0.9,
    "part_subject": "Roe^Rick",
    "part_volume": "Roe^Rick T2",
    "part_slice": 5,
    "part_row": 23,
    "part_window": (0.0, 0.5, 0.5, 1.0),
    "part_pose": "flipped left–right",
}
"""Fields of a slice that is suspicious for its upper right quarter alone."""


def audit_result(
    verdicts: Mapping[str, Sequence[Verdict]] | Sequence[Verdict],
    volume: str = "volume",
    **changes: Any,
) -> AuditResult:
    """An audit of one volume, or of several given by name."""
    by_name = verdicts if isinstance(verdicts, Mapping) else {volume: verdicts}
    slices = tuple(
        slice_result(name, index, verdict)
        for name, each in by_name.items()
        for index, verdict in enumerate(each)
    )
    scored = sum(row.oni is not None for row in slices)
    return AuditResult(slices, (), summary(**changes), np.zeros(5), {}, np.full(scored, 0.5))


def verdicts_with(count: int, **which: Sequence[int]) -> list[Verdict]:
    """``count`` times "no evidence", but ``copy=[3], suspicious=[4], not_scored=[0]``."""
    verdicts = [Verdict.NO_EVIDENCE] * count
    for name, indices in which.items():
        for index in indices:
            verdicts[index] = Verdict[name.upper()]
    return verdicts


def segment_array(segmentation: Any, segment_id: str, volume: Any) -> NDArray[np.uint8]:
    """The segment's voxels in the volume's grid, through Slicer's own export."""
    return slicer.util.arrayFromSegmentBinaryLabelmap(segmentation, segment_id, volume)


def own_nodes() -> list[str]:
    """Class names of this extension's nodes in the scene, sorted."""
    nodes = slicer.util.getNodesByClass("vtkMRMLNode")
    return sorted(
        node.GetClassName() for node in nodes if node.GetAttribute("MemorizationIndex.Output")
    )


def ras_of(node: Any, index: Sequence[float]) -> NDArray[np.float64]:
    """RAS of (i, j, k) without parent transforms."""
    matrix = vtk.vtkMatrix4x4()
    node.GetIJKToRASMatrix(matrix)
    return np.array(matrix.MultiplyPoint((*index, 1.0))[:3])
