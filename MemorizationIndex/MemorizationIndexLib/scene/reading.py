"""Scalar volume node → Volume: strict about what it takes, never touching the node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import slicer
import slicer.util
import vtk

from ..images.volume import Volume
from .errors import SceneError
from .geometry import ijk_to_ras
from .outputs import is_output

VOLUME_CLASS = "vtkMRMLScalarVolumeNode"
VALIDATED_MODALITY = "MR"

_HOUNSFIELD_AIR = (-1100, -900)
_LEAST_AIR = 0.05
"""Share of voxels. MR phase, from -4096 to 4095, has half of it in that range."""
_SAMPLE = 100_000

_REAL_TYPES = frozenset(
    {
        vtk.VTK_CHAR,
        vtk.VTK_SIGNED_CHAR,
        vtk.VTK_UNSIGNED_CHAR,
        vtk.VTK_SHORT,
        vtk.VTK_UNSIGNED_SHORT,
        vtk.VTK_INT,
        vtk.VTK_UNSIGNED_INT,
        vtk.VTK_LONG,
        vtk.VTK_UNSIGNED_LONG,
        vtk.VTK_LONG_LONG,
        vtk.VTK_UNSIGNED_LONG_LONG,
        vtk.VTK_FLOAT,
        vtk.VTK_DOUBLE,
    }
)
_KIND_IN_WORDS = {
    "vtkMRMLLabelMapVolumeNode": "a label map",
    "vtkMRMLVectorVolumeNode": "a color or vector volume",
    "vtkMRMLDiffusionWeightedVolumeNode": "a diffusion-weighted volume",
    "vtkMRMLDiffusionTensorVolumeNode": "a diffusion tensor volume",
    "vtkMRMLTensorVolumeNode": "a tensor volume",
    "vtkMRMLStreamingVolumeNode": "a streamed volume",
    "vtkMRMLMultiVolumeNode": "a multi-volume",
    "vtkMRMLSegmentationNode": "a segmentation",
}


def volume_problem(node: Any) -> str:
    """Return why ``node`` cannot be audited, in one sentence; empty if it can.

    Only the exact scalar class is taken: label maps, color, tensor and streamed volumes derive from
    it and would pass an ``IsA`` test.
    """
    if node is None:
        return "No volume is selected; choose a scalar volume."
    name, kind = node.GetName(), node.GetClassName()
    if kind != VOLUME_CLASS:
        words = _KIND_IN_WORDS.get(kind, f"a {kind}")
        return f"'{name}' is {words}, not a scalar volume; choose a grayscale image."
    if is_output(node):
        return f"'{name}' is itself a result of this module; choose the image it belongs to."
    image = node.GetImageData()
    if image is None or image.GetPointData().GetScalars() is None:
        return f"'{name}' has no image data; load the image again or choose another volume."
    if min(image.GetDimensions()) < 1:
        shape = " × ".join(str(d) for d in image.GetDimensions())
        return f"'{name}' is empty ({shape} voxels); choose a volume with voxels."
    components = image.GetNumberOfScalarComponents()
    if components != 1:
        return (
            f"'{name}' has {components} components per voxel; convert it to one gray value per "
            "voxel first."
        )
    if image.GetScalarType() not in _REAL_TYPES:
        return (
            f"'{name}' stores its voxels as {image.GetScalarTypeAsString()}; cast it to an integer "
            "or floating-point type first."
        )
    affine = ijk_to_ras(node)
    if not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) == 0.0:
        return (
            f"'{name}' has a spacing or direction of zero or not a number; correct its geometry in "
            "the Volumes module."
        )
    return ""


def read_volume(node: Any, *, name: str | None = None, subject: str | None = None) -> Volume:
    """Copy a scalar volume node into a Volume.

    The parent transform is left out on purpose: which slice is a copy does not depend on where the
    volume has been moved to.

    Args:
        node: A vtkMRMLScalarVolumeNode.
        name: Name in the results; the node's name if None.
        subject: Whom the volume shows; see :func:`subject_of` if None.

    Raises:
        SceneError: The node cannot be audited; see :func:`volume_problem`.
    """
    problem = volume_problem(node)
    if problem:
        raise SceneError(problem)
    return Volume(
        name=node.GetName() if name is None else name,
        subject=subject_of(node) if subject is None else subject,
        array=np.array(slicer.util.arrayFromVolume(node)),
        affine=ijk_to_ras(node),
        source=source_of(node),
    )


def read_volumes(nodes: Sequence[Any]) -> list[Volume]:
    """Copy several nodes, their names made unique within the run.

    Raises:
        SceneError: One of the nodes cannot be audited.
    """
    names = unique_names([node.GetName() if node is not None else "" for node in nodes])
    return [read_volume(node, name=name) for node, name in zip(nodes, names, strict=True)]


def unique_names(names: Sequence[str]) -> list[str]:
    """Return ``names`` with " (2)", " (3)"… appended where a name is taken already."""
    taken: set[str] = set()
    result = []
    for name in names:
        candidate, count = name, 1
        while candidate in taken or (count > 1 and candidate in names):
            count += 1
            candidate = f"{name} ({count})"
        taken.add(candidate)
        result.append(candidate)
    return result


def source_of(node: Any) -> str:
    """Return the file a node was read from, or its name in the scene."""
    storage = node.GetStorageNode() if hasattr(node, "GetStorageNode") else None
    file_name = storage.GetFileName() if storage is not None else None
    return file_name or node.GetName()


def subject_of(node: Any) -> str:
    """Return the DICOM patient the node lies under in the subject hierarchy, else its name."""
    hierarchy, item = _hierarchy_item(node)
    while item:
        if hierarchy.GetItemLevel(item) == "Patient":
            return hierarchy.GetItemUID(item, "DICOM") or hierarchy.GetItemName(item)
        item = hierarchy.GetItemParent(item)
    return str(node.GetName())


def modality(node: Any) -> str | None:
    """Return the DICOM Modality of a node (``MR``, ``CT``…); None where nothing says it."""
    hierarchy, item = _hierarchy_item(node)
    from_series = hierarchy.GetItemAttribute(item, "DICOM.Modality") if item else ""
    return from_series or node.GetAttribute("DICOM.Modality") or None


def foreign_kind(node: Any) -> str:
    """Return what kind of image a node is where it is no MR image, in a few words.

    The DICOM modality says so; where there is none, a share of voxels at the Hounsfield value of
    air does, which MR images do not have.
    """
    found = modality(node)
    if found is not None:
        return "" if found == VALIDATED_MODALITY else f"modality {found}"
    return "values like CT" if _has_hounsfield_air(node) else ""


def foreign_warning(node: Any) -> str:
    """Return a sentence if the node is known to be no MR image; empty otherwise."""
    found = foreign_kind(node)
    if not found:
        return ""
    return (
        f"'{node.GetName()}' is no MR image ({found}); the method is validated on "
        f"{VALIDATED_MODALITY} images only, so read its result with care."
    )


def _has_hounsfield_air(node: Any) -> bool:
    if volume_problem(node):
        return False
    voxels = slicer.util.arrayFromVolume(node).ravel()
    sample = voxels[:: max(1, voxels.size // _SAMPLE)]
    low, high = _HOUNSFIELD_AIR
    return bool(np.mean((sample >= low) & (sample <= high)) >= _LEAST_AIR)


def _hierarchy_item(node: Any) -> tuple[Any, int]:
    scene = node.GetScene()
    if scene is None:
        return None, 0
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(scene)
    return hierarchy, hierarchy.GetItemByDataNode(node)
