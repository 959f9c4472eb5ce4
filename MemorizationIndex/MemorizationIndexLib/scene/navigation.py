"""Take the slice views to a slice of a volume, oblique and transformed ones too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import slicer.util
from numpy.typing import NDArray

from .geometry import SlicePlane, slice_plane
from .outputs import OUTPUT_ATTRIBUTE


def jump_to_slice(
    volume: Any, axis: int, index: int, *, views: Sequence[Any] | None = None
) -> Any | None:
    """Show slice ``index`` along array ``axis`` of a volume.

    All views pass through the slice's centre. The view that looks most along the slice's normal is
    turned into its plane, so that it shows exactly this slice; its handedness (which side of the
    patient is on the left) and, as near as can be, its up stay.

    Args:
        volume: A volume node.
        axis: Array axis of the slices (0 K, 1 J, 2 I).
        index: Slice index along that axis.
        views: vtkMRMLSliceNodes to move; all but this extension's own if None.

    Returns:
        The view that shows the slice, or None without a view.

    Raises:
        SceneError: There is no such axis or slice.
    """
    plane = slice_plane(volume, axis, index)
    views = slice_views() if views is None else list(views)
    if not views:
        return None
    best = max(views, key=lambda view: abs(float(_column(view, 2) @ plane.normal)))
    _turn_into(best, plane)
    for view in views:
        view.JumpSliceByOffsetting(*plane.center)
    return best


def slice_views() -> list[Any]:
    """Return the slice views that show the user's own data."""
    views = slicer.util.getNodesByClass("vtkMRMLSliceNode")
    return [view for view in views if not view.GetAttribute(OUTPUT_ATTRIBUTE)]


def _turn_into(view: Any, plane: SlicePlane) -> None:
    x, y, z = (_column(view, column) for column in range(3))
    candidates = [sign * axis for axis in (plane.first, plane.second) for sign in (1, -1)]
    new_x = max(candidates, key=lambda candidate: float(candidate @ x))
    new_y = np.cross(plane.normal, new_x)
    if new_y @ y < 0:
        new_y = -new_y
    new_z = np.cross(new_x, new_y)
    if np.linalg.det(np.column_stack([x, y, z])) < 0:
        new_z = -new_z
    matrix = view.GetSliceToRAS()
    for column, vector in enumerate((new_x, new_y, new_z)):
        for row in range(3):
            matrix.SetElement(row, column, vector[row])
    view.UpdateMatrices()


def _column(view: Any, column: int) -> NDArray[np.float64]:
    matrix = view.GetSliceToRAS()
    vector = np.array([matrix.GetElement(row, column) for row in range(3)])
    return vector / np.linalg.norm(vector)
