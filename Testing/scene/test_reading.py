from __future__ import annotations

import numpy as np
import pytest

slicer = pytest.importorskip("slicer", reason="needs slicer-core from PyPI")

import vtk  # noqa: E402

from MemorizationIndexLib.images.slicing import slice_volume  # noqa: E402
from MemorizationIndexLib.scene.errors import SceneError  # noqa: E402
from MemorizationIndexLib.scene.geometry import slice_axis  # noqa: E402
from MemorizationIndexLib.scene.overlay import write_overlay  # noqa: E402
from MemorizationIndexLib.scene.reading import (  # noqa: E402
    foreign_kind,
    foreign_warning,
    modality,
    read_volume,
    read_volumes,
    subject_of,
    unique_names,
    volume_problem,
)
from slicer_host.examples import rotation, translation, under_transform, volume_node  # noqa: E402

pytestmark = pytest.mark.usefixtures("host")


def image(dimensions=(4, 3, 2), scalar_type=vtk.VTK_FLOAT, components=1):
    data = vtk.vtkImageData()
    data.SetDimensions(*dimensions)
    data.AllocateScalars(scalar_type, components)
    return data


def add(class_name, name="x", data=None):
    node = slicer.mrmlScene.AddNewNodeByClass(class_name, name)
    if data is not None:
        node.SetAndObserveImageData(data)
    return node


def test_no_volume_is_refused():
    assert "choose a scalar volume" in volume_problem(None)


@pytest.mark.parametrize(
    ("class_name", "words"),
    [
        ("vtkMRMLVectorVolumeNode", "color or vector"),
        ("vtkMRMLLabelMapVolumeNode", "label map"),
        ("vtkMRMLDiffusionTensorVolumeNode", "tensor"),
        ("vtkMRMLStreamingVolumeNode", "streamed"),
    ],
)
def test_classes_derived_from_the_scalar_volume_are_refused(class_name, words):
    node = add(class_name, "scan", image())
    assert node.IsA("vtkMRMLScalarVolumeNode")
    assert words in volume_problem(node) and "'scan'" in volume_problem(node)
    with pytest.raises(SceneError, match=words):
        read_volume(node)


def test_three_components_in_a_scalar_volume_are_refused():
    node = add("vtkMRMLScalarVolumeNode", "rgb", image(components=3))
    with pytest.raises(SceneError, match="3 components per voxel"):
        read_volume(node)


def test_a_volume_without_image_data_is_refused():
    with pytest.raises(SceneError, match="no image data"):
        read_volume(add("vtkMRMLScalarVolumeNode"))


def test_an_empty_volume_is_refused():
    node = add("vtkMRMLScalarVolumeNode", "x", image(dimensions=(0, 3, 2)))
    assert volume_problem(node)


def test_a_scalar_type_that_is_no_number_is_refused():
    assert "bit" in volume_problem(add("vtkMRMLScalarVolumeNode", "x", image(scalar_type=1)))


def test_ones_own_overlay_is_refused():
    overlay = write_overlay(volume_node(), [0.0] * 5, 0)
    with pytest.raises(SceneError, match="itself a result"):
        read_volume(overlay)


def test_a_degenerate_geometry_is_refused():
    node = volume_node()
    node.SetIJKToRASDirections(1, 0, 0, 0, 1, 0, 1, 0, 0)
    with pytest.raises(SceneError, match="spacing or direction"):
        read_volume(node)


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "float32", "float64"]
)
def test_every_real_type_is_read_as_it_is(dtype):
    array = (np.arange(24).reshape(2, 3, 4) % 120).astype(dtype)
    read = read_volume(volume_node(array=array))
    assert read.array.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(read.array, array)


def test_the_voxels_are_a_copy_and_the_node_stays_as_it_was():
    node = volume_node()
    before = (node.GetImageData().GetMTime(), node.GetMTime())
    read = read_volume(node)
    expected = read.array.copy()
    slicer.util.arrayFromVolume(node)[:] = -1
    np.testing.assert_array_equal(read.array, expected)
    assert (node.GetImageData().GetMTime(), node.GetMTime()) == before


def test_a_parent_transform_is_neither_hardened_nor_read():
    affine = np.diag([1.0, 2, 3, 1])
    node = volume_node(affine=affine)
    transform = under_transform(node, translation(50, 0, 0) @ rotation(0.3))
    np.testing.assert_allclose(read_volume(node).affine, affine)
    assert node.GetParentTransformNode() is transform


SHEARED = np.array([[0.9, -0.1, 0.2, 3], [0.3, 0.8, -0.1, 4], [0, 0.2, 2.5, 5], [0, 0, 0, 1.0]])


@pytest.mark.parametrize(
    "affine",
    [
        np.diag([-1.0, -1, 1, 1]),
        np.diag([1.0, -1, 1, 1]),
        rotation(0.4) @ rotation(0.7, 2),
        SHEARED,
    ],
    ids=["LPS", "left-handed", "oblique", "sheared"],
)
def test_the_affine_is_the_nodes_own(affine):
    np.testing.assert_allclose(read_volume(volume_node(affine=affine)).affine, affine, atol=1e-9)


def test_names_are_made_unique():
    assert unique_names(["a", "a", "a (2)", "b"]) == ["a", "a (3)", "a (2)", "b"]
    nodes = [volume_node(name="T1"), volume_node(name="T1")]
    assert [volume.name for volume in read_volumes(nodes)] == ["T1", "T1 (2)"]


def test_the_subject_is_the_dicom_patient_and_else_the_name():
    node = volume_node(name="T1")
    assert subject_of(node) == "T1"
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(slicer.mrmlScene)
    patient = hierarchy.CreateSubjectItem(hierarchy.GetSceneItemID(), "Jane Doe")
    study = hierarchy.CreateStudyItem(patient, "Study")
    hierarchy.SetItemParent(hierarchy.GetItemByDataNode(node), study)
    assert subject_of(node) == "Jane Doe"
    hierarchy.SetItemUID(patient, "DICOM", "P-17")
    assert subject_of(node) == "P-17"


def test_a_modality_other_than_mr_is_warned_of():
    node = volume_node(name="head")
    assert modality(node) is None and foreign_warning(node) == ""
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(slicer.mrmlScene)
    name = slicer.vtkMRMLSubjectHierarchyConstants.GetDICOMSeriesModalityAttributeName()
    item = hierarchy.GetItemByDataNode(node)
    hierarchy.SetItemAttribute(item, name, "MR")
    assert foreign_warning(node) == ""
    hierarchy.SetItemAttribute(item, name, "CT")
    assert "CT" in foreign_warning(node) and "'head'" in foreign_warning(node)


def test_values_like_those_of_a_ct_are_noticed_without_a_modality():
    random = np.random.default_rng(3)
    ct = random.normal(40, 30, (4, 40, 40))
    ct[:, :10] = random.normal(-1000, 10, (4, 10, 40))
    node = volume_node(array=ct.astype(np.int16), name="head")
    assert foreign_kind(node) == "values like CT"
    node.SetAttribute("DICOM.Modality", "MR")
    assert foreign_kind(node) == "", "the modality is known"


@pytest.mark.parametrize(
    "array",
    [
        np.random.default_rng(3).integers(-4096, 4096, (4, 40, 40)).astype(np.int16),
        np.random.default_rng(3).normal(0, 1, (4, 40, 40)),
        np.random.default_rng(3).integers(0, 4096, (4, 40, 40)).astype(np.uint16),
        np.full((4, 40, 40), np.nan),
    ],
    ids=["phase", "standardized", "magnitude", "nan"],
)
def test_mr_values_are_not_taken_for_ct(array):
    assert foreign_kind(volume_node(array=array)) == ""


def test_blank_and_non_finite_slices_get_a_reason_and_the_others_stay_finite():
    array = np.random.default_rng(1).random((6, 40, 48)).astype(np.float32)
    array[0] = array[5] = 0
    array[2] = np.nan
    array[3, 4, 5], array[3, 6, 7] = np.inf, np.nan
    read = read_volume(volume_node(array=array, affine=np.diag([1.0, 1, 3, 1])))
    slices = {each.index: each for each in slice_volume(read)}
    assert all(slices[index].reason for index in (0, 2, 5))
    for index in (1, 4):
        assert not slices[index].reason and np.isfinite(slices[index].pixels).all()
    if slices[3].pixels is not None:
        assert np.isfinite(slices[3].pixels).all()


def test_slices_do_not_depend_on_the_storage_order():
    """SLICER.md 7.1: the same physical image with permuted and flipped index axes."""
    array = np.random.default_rng(2).random((8, 30, 20)).astype(np.float32)
    affine = rotation(0.2) @ np.diag([1.0, 1, 4, 1])
    plain = volume_node(array=array, affine=affine, name="plain")
    # New index axes (i, j, k) = (old k flipped, old i, old j): array axes are their reverse.
    turned_array = array.transpose(1, 2, 0)[:, :, ::-1]
    turned_affine = np.eye(4)
    turned_affine[:3, 0] = -affine[:3, 2]
    turned_affine[:3, 1] = affine[:3, 0]
    turned_affine[:3, 2] = affine[:3, 1]
    turned_affine[:3, 3] = affine[:3, 3] + (array.shape[0] - 1) * affine[:3, 2]
    turned = volume_node(array=np.ascontiguousarray(turned_array), affine=turned_affine)
    assert (slice_axis(plain), slice_axis(turned)) == (0, 2)
    first = list(slice_volume(read_volume(plain), size=32))
    second = list(slice_volume(read_volume(turned), size=32))
    assert [each.index for each in first] == [7 - each.index for each in second]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.pixels, other.pixels)


@pytest.mark.parametrize(
    ("columns", "plane", "axis"),
    [
        ((0, 1, 2), "axial", 0),
        ((0, 1, 2), "coronal", 1),
        ((0, 1, 2), "sagittal", 2),
        ((1, 2, 0), "axial", 1),
        ((1, 2, 0), "sagittal", 0),
        ((2, 0, 1), "axial", 2),
    ],
)
def test_the_axis_comes_from_the_matrix(columns, plane, axis):
    """SLICER.md 7.2: no array axis is taken for granted."""
    affine = np.eye(4)
    affine[:3, :3] = np.eye(3)[:, columns]
    assert slice_axis(volume_node(affine=affine), plane) == axis


def test_the_coarsest_axis_is_the_slice_axis_by_default():
    for ijk in range(3):
        spacing = np.ones(4)
        spacing[ijk] = 5
        assert slice_axis(volume_node(affine=np.diag(spacing))) == 2 - ijk


def test_an_unknown_plane_is_refused():
    with pytest.raises(SceneError, match="plane"):
        slice_axis(volume_node(), "diagonal")
