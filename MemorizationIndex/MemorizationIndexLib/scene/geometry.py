"""Where a slice of a volume node lies in the world: IJK → RAS → parent transforms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import vtk
from numpy.typing import NDArray

from ..images.slicing import anatomical_axes
from ..images.slicing import slice_axis as anatomical_slice_axis
from ..images.volume import ImageError
from .errors import SceneError


@dataclass(frozen=True)
class SlicePlane:
    """A slice's centre and directions in the world, millimetres.

    Attributes:
        center: The middle of the slice, shape (3,).
        first: Unit vector along the lower of the two in-plane index axes (I before J before K).
        second: Unit vector along the other one; not square to ``first`` in a sheared volume.
        normal: Unit vector perpendicular to both.
    """

    center: NDArray[np.float64]
    first: NDArray[np.float64]
    second: NDArray[np.float64]
    normal: NDArray[np.float64]


def ijk_to_ras(node: Any) -> NDArray[np.float64]:
    """Return a volume node's IJK-to-RAS matrix, shape (4, 4)."""
    matrix = vtk.vtkMatrix4x4()
    node.GetIJKToRASMatrix(matrix)
    return np.array([[matrix.GetElement(r, c) for c in range(4)] for r in range(4)])


def slice_axis(node: Any, plane: str = "auto") -> int:
    """Return the array axis (0 K, 1 J, 2 I) that an audit slices a volume node along.

    Args:
        node: A volume node.
        plane: ``auto``, ``axial``, ``coronal`` or ``sagittal``, as in the audit.

    Raises:
        SceneError: Unknown plane, or a geometry that cannot be used.
    """
    affine = ijk_to_ras(node)
    try:
        along = anatomical_slice_axis(node.GetImageData().GetDimensions(), affine, plane)
        axes, _ = anatomical_axes(affine)
    except ImageError as error:
        raise SceneError(f"'{node.GetName()}': {error}.") from None
    return 2 - axes[along]


def slice_count(node: Any, axis: int) -> int:
    """Return how many slices a volume node has along an array axis (0 K, 1 J, 2 I).

    Raises:
        SceneError: The axis is not 0, 1 or 2.
    """
    return int(node.GetImageData().GetDimensions()[ijk_axis(axis)])


def ijk_axis(axis: int) -> int:
    """Return the position in (i, j, k) of an array axis (0 K, 1 J, 2 I).

    Raises:
        SceneError: The axis is not 0, 1 or 2.
    """
    if axis not in (0, 1, 2):
        raise SceneError(f"A volume has no array axis {axis}; give 0 (K), 1 (J) or 2 (I).")
    return 2 - axis


def to_world(node: Any, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map voxel positions (i, j, k), shape (n, 3), through the node's transforms to the world.

    Each point is mapped on its own, so that non-linear transforms (the acquisition transform of an
    irregular DICOM series) cost nothing.
    """
    homogeneous = np.column_stack([points, np.ones(len(points))])
    ras = (homogeneous @ ijk_to_ras(node).T)[:, :3]
    transform_node = node.GetParentTransformNode()
    if transform_node is None:
        return ras
    transform = vtk.vtkGeneralTransform()
    transform_node.GetTransformToWorld(transform)
    return np.array([transform.TransformPoint(point) for point in ras])


def slice_plane(node: Any, axis: int, index: int) -> SlicePlane:
    """Return where slice ``index`` along array ``axis`` lies.

    Under a non-linear transform the plane is the tangent at the slice's centre.

    Raises:
        SceneError: There is no such axis or slice.
    """
    count = slice_count(node, axis)
    if not 0 <= index < count:
        raise SceneError(
            f"'{node.GetName()}' has no slice {index} along array axis {axis}; give 0 to "
            f"{count - 1}."
        )
    normal_axis = ijk_axis(axis)
    center = (np.array(node.GetImageData().GetDimensions(), float) - 1) / 2
    center[normal_axis] = index
    points = [center]
    for in_plane in (a for a in range(3) if a != normal_axis):
        step = np.zeros(3)
        step[in_plane] = 0.5
        points += [center - step, center + step]
    world = to_world(node, np.array(points))
    first = _unit(world[2] - world[1])
    second = _unit(world[4] - world[3])
    return SlicePlane(world[0], first, second, _unit(np.cross(first, second)))


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    length = float(np.linalg.norm(vector))
    if length == 0.0:
        raise SceneError("The volume's transform flattens its slices; correct the transform.")
    return vector / length
