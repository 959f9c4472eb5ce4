from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

slicer = pytest.importorskip("slicer", reason="needs slicer-core from PyPI")

import vtk  # noqa: E402

from MemorizationIndexLib.scene.errors import SceneError  # noqa: E402
from MemorizationIndexLib.scene.geometry import slice_plane, to_world  # noqa: E402
from MemorizationIndexLib.scene.navigation import jump_to_slice, slice_views  # noqa: E402
from MemorizationIndexLib.scene.pairing import (  # noqa: E402
    LAYOUT_ID,
    REFERENCE_VIEW,
    hide_reference,
    restore_layout,
    show_nearest,
    show_reference,
    show_side_by_side,
)
from slicer_host.examples import (  # noqa: E402
    audit_result,
    rotation,
    translation,
    under_transform,
    verdicts_with,
    volume_node,
)

pytestmark = pytest.mark.usefixtures("host")

SHEARED = np.array([[0.9, -0.1, 0.2, 3], [0.3, 0.8, -0.1, 4], [0, 0.2, 2.5, 5], [0, 0, 0, 1.0]])
GEOMETRIES = {
    "plain": np.eye(4),
    "left-handed": np.diag([1.0, -1, 2, 1]),
    "oblique": rotation(0.4) @ rotation(0.7, 2) @ np.diag([1.0, 1, 3, 1]),
    "permuted": np.array([[0, 0, 2.0, 1], [1, 0, 0, 2], [0, -1, 0, 3], [0, 0, 0, 1]]),
    "sheared": SHEARED,
}


def slice_to_ijk(view, volume):
    """Slice-view coordinates (millimetres in the plane) to voxel indices, shape (4, 4)."""
    from_slice = slicer.util.arrayFromVTKMatrix(view.GetSliceToRAS())
    matrix = vtk.vtkMatrix4x4()
    volume.GetIJKToRASMatrix(matrix)
    to_ras = slicer.util.arrayFromVTKMatrix(matrix)
    if volume.GetParentTransformNode() is not None:
        volume.GetParentTransformNode().GetMatrixTransformToWorld(matrix)
        to_ras = slicer.util.arrayFromVTKMatrix(matrix) @ to_ras
    return np.linalg.inv(to_ras) @ from_slice


@pytest.mark.parametrize("affine", GEOMETRIES.values(), ids=GEOMETRIES)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("transformed", [False, True], ids=["as stored", "transformed"])
def test_the_view_shows_exactly_the_slice(affine, axis, transformed):
    volume = volume_node((5, 6, 7), affine)
    if transformed:
        under_transform(volume, translation(30, -20, 10) @ rotation(0.5, 1))
    index = 3
    view = jump_to_slice(volume, axis, index)
    ijk = slice_to_ijk(view, volume)
    # Every point of the view's plane has the wanted index along the slice axis.
    assert ijk[2 - axis, 3] == pytest.approx(index, abs=1e-6)
    np.testing.assert_allclose(ijk[2 - axis, :2], 0, atol=1e-6)


def test_all_188_indices_are_reached_without_rounding():
    """SLICER.md 7.3."""
    affine = rotation(0.31) @ rotation(0.17, 2) @ np.diag([0.7, 0.7, 0.33, 1.0])
    volume = volume_node(array=np.zeros((188, 4, 5), np.uint8), affine=affine)
    for index in range(188):
        view = jump_to_slice(volume, 0, index)
        assert slice_to_ijk(view, volume)[2, 3] == pytest.approx(index, abs=1e-6)


def test_the_other_views_pass_through_the_centre_of_the_slice():
    volume = volume_node((5, 6, 7), GEOMETRIES["oblique"])
    jump_to_slice(volume, 0, 4)
    center = slice_plane(volume, 0, 4).center
    for view in slice_views():
        matrix = slicer.util.arrayFromVTKMatrix(view.GetSliceToRAS())
        assert (center - matrix[:3, 3]) @ matrix[:3, 2] == pytest.approx(0, abs=1e-6)


def test_left_and_right_are_not_swapped_and_up_stays_up():
    volume = volume_node((5, 6, 7), GEOMETRIES["left-handed"])
    view = jump_to_slice(volume, 0, 2)
    matrix = slicer.util.arrayFromVTKMatrix(view.GetSliceToRAS())[:3, :3]
    assert view.GetName() == "Red"
    np.testing.assert_allclose(matrix, np.diag([-1, 1, 1]), atol=1e-9)
    assert np.linalg.det(matrix) < 0


def test_the_view_is_never_sheared():
    view = jump_to_slice(volume_node(affine=SHEARED), 0, 2)
    matrix = slicer.util.arrayFromVTKMatrix(view.GetSliceToRAS())[:3, :3]
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(3), atol=1e-9)


def test_the_view_nearest_to_the_slices_turns():
    for axis, name in ((0, "Red"), (1, "Green"), (2, "Yellow")):
        assert jump_to_slice(volume_node(), axis, 1).GetName() == name


def test_a_nonlinear_transform_is_followed_at_the_centre():
    """SLICER.md 7.6: Slicer's own RotateToVolumePlane refuses these."""
    volume = volume_node((5, 20, 20), np.diag([1.0, 1, 3, 1]))
    warp = vtk.vtkThinPlateSplineTransform()
    points, moved = vtk.vtkPoints(), vtk.vtkPoints()
    for corner in np.argwhere(np.ones((2, 2, 2))) * (20, 20, 15):
        points.InsertNextPoint(*corner.astype(float))
        moved.InsertNextPoint(*(corner + np.array([3.0, 0, corner[0] * 0.2])))
    warp.SetSourceLandmarks(points)
    warp.SetTargetLandmarks(moved)
    warp.SetBasisToR()
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLTransformNode")
    node.SetAndObserveTransformToParent(warp)
    volume.SetAndObserveTransformNodeID(node.GetID())
    view = jump_to_slice(volume, 0, 3)
    expected = np.array(warp.TransformPoint(9.5, 9.5, 9.0))
    assert to_world(volume, np.array([[9.5, 9.5, 3.0]]))[0] == pytest.approx(expected, abs=1e-3)
    assert abs(expected[2] - 9.0) > 1.0, "the transform moves the slice"
    matrix = slicer.util.arrayFromVTKMatrix(view.GetSliceToRAS())
    assert (expected - matrix[:3, 3]) @ matrix[:3, 2] == pytest.approx(0, abs=1e-6)
    assert np.isfinite(matrix).all()


def test_a_slice_beyond_the_volume_is_refused():
    for index in (-1, 5):
        with pytest.raises(SceneError, match="give 0 to 4"):
            jump_to_slice(volume_node(), 0, index)


def test_without_a_view_nothing_happens():
    assert jump_to_slice(volume_node(), 0, 1, views=[]) is None


# Side by side


def reference_view():
    return slicer.mrmlScene.GetSingletonNode(REFERENCE_VIEW, "vtkMRMLSliceNode")


def test_side_by_side_adds_a_view_and_the_old_layout_returns(host):
    before = host.layout_node.GetViewArrangement()
    assert show_side_by_side() == before
    four = int(host.layout_node.SlicerLayoutFourUpView)
    assert show_side_by_side() == four, "a scene that was saved side by side gets out of it"
    assert host.layout_node.GetViewArrangement() == LAYOUT_ID
    groups = {view.GetViewGroup() for view in slice_views()}
    assert reference_view().GetViewGroup() not in groups, "linked views would drag it along"
    restore_layout(before)
    assert host.layout_node.GetViewArrangement() == before


def test_the_reference_has_a_view_of_its_own(host):
    show_side_by_side()
    host.slice_logic(REFERENCE_VIEW)
    pixels = np.linspace(0, 1, 12).reshape(3, 4)
    node = show_reference(pixels, "nearest reference slice")
    np.testing.assert_allclose(slicer.util.arrayFromVolume(node)[0], pixels, atol=1e-6)
    shown = {
        composite.GetLayoutName()
        for composite in slicer.util.getNodesByClass("vtkMRMLSliceCompositeNode")
        if composite.GetBackgroundVolumeID() == node.GetID()
    }
    assert shown == {REFERENCE_VIEW}
    before = slicer.util.arrayFromVTKMatrix(reference_view().GetSliceToRAS()).copy()
    jump_to_slice(volume_node(), 0, 3)
    after = slicer.util.arrayFromVTKMatrix(reference_view().GetSliceToRAS())
    np.testing.assert_array_equal(before, after)


def test_the_reference_is_hidden_never_saved_and_reused():
    first = show_reference(np.zeros((3, 4)), "one")
    second = show_reference(np.ones((5, 6)), "two")
    assert second is first and second.GetName() == "two"
    assert first.GetHideFromEditors() and not first.GetSaveWithScene()
    count = slicer.mrmlScene.GetNumberOfNodes()
    hide_reference()
    assert slicer.mrmlScene.GetNumberOfNodes() == count - 2
    hide_reference()


def test_the_nearest_reference_is_shown_where_its_picture_is_at_hand():
    picture = np.arange(12, dtype=np.uint8).reshape(3, 4)
    result = replace(
        audit_result(verdicts_with(2, not_scored=[0])), reference_pictures={17: picture}
    )
    node = show_nearest(result, result.slices[1])
    assert (slicer.util.arrayFromVolume(node)[0] == picture).all()
    assert node.GetName() == "Reference: slice 3"
    named = show_nearest(result, result.slices[1], show_subjects=True)
    assert named is node and named.GetName() == "Reference: Doe^Jane, slice 3"
    assert show_nearest(result, result.slices[0]) is None
    hidden = slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode")
    assert hidden == [], "someone else's slice must not stay on show"


def test_the_reference_must_be_one_picture():
    with pytest.raises(SceneError, match="one gray picture"):
        show_reference(np.zeros((3, 4, 3)), "rgb")
