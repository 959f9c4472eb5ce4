"""The same physical image gives the same slices, however it is stored."""

from __future__ import annotations

from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813
from hypothesis import given, settings
from hypothesis import strategies as st

from MemorizationIndexLib.images import find_images, read_source
from MemorizationIndexLib.images.slicing import (
    anatomical_axes,
    canonical_stack,
    count_slices,
    slice_axis,
    slice_volume,
)
from MemorizationIndexLib.images.volume import ImageError, Volume

STORAGES = [
    (order, flips) for order in permutations(range(3)) for flips in product((1, -1), repeat=3)
]
PLANES = ("auto", "axial", "coronal", "sagittal")


def volume(array: np.ndarray, affine: np.ndarray, **more: object) -> Volume:
    return Volume("v", "s", array, affine, "v.nii", **more)  # type: ignore[arg-type]


def image(shape: tuple[int, int, int] = (25, 21, 18), seed: int = 0) -> np.ndarray:
    """Random voxels, array order (k, j, i): every slice differs from every other."""
    return np.random.default_rng(seed).random(shape).astype(np.float32)


def affine_of(matrix: np.ndarray) -> np.ndarray:
    affine = np.eye(4)
    affine[:3, :3] = matrix
    affine[:3, 3] = (-10.0, 4.0, 7.0)
    return affine


def stored(array: np.ndarray, affine: np.ndarray, order: tuple, flips: tuple) -> Volume:
    """Store the same physical image with index axes reordered, then flipped."""
    ijk = array.transpose(2, 1, 0).transpose(order)
    matrix, origin = affine[:3, :3][:, list(order)], affine[:3, 3].copy()
    slices = []
    for axis, flip in enumerate(flips):
        slices.append(slice(None, None, flip))
        if flip < 0:
            origin = origin + matrix[:, axis] * (ijk.shape[axis] - 1)
            matrix = matrix.copy()
            matrix[:, axis] *= -1
    new = affine.copy()
    new[:3, :3], new[:3, 3] = matrix, origin
    return volume(ijk[tuple(slices)].transpose(2, 1, 0), new)


def rotation(x: float, y: float, z: float) -> np.ndarray:
    a, b, c = np.deg2rad((x, y, z))
    rx = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    ry = np.array([[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]])
    rz = np.array([[np.cos(c), -np.sin(c), 0], [np.sin(c), np.cos(c), 0], [0, 0, 1]])
    return rz @ ry @ rx


SHEAR = np.array([[1, 0.3, 0], [0, 1, 0], [0, 0.2, 1]])
MATRICES = {
    "axis-aligned": np.diag([1.0, 1.0, 1.0]),
    "coarse superior": np.diag([1.0, 1.1, 1.3]),
    "coarse right": np.diag([1.3, 1.0, 1.1]),
    "oblique": rotation(12, -20, 33) @ np.diag([1.0, 1.0, 1.2]),
    "oblique isotropic": rotation(-31, 24, 8),
    "45 degrees about S": rotation(0, 0, 45),
    "45 degrees about R": rotation(45, 0, 0),
    "45 degrees about R and S": rotation(45, 0, 45),
    "all three alike": rotation(0, np.rad2deg(np.arctan(np.sqrt(0.5))), 45),
    "sheared": SHEAR,
    "sheared oblique": rotation(45, 0, 0) @ SHEAR,
}


@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES.keys())
@pytest.mark.parametrize("plane", PLANES)
def test_all_48_orientations_give_the_same_slices(matrix: np.ndarray, plane: str) -> None:
    array, affine = image(), affine_of(matrix)
    expected = list(slice_volume(volume(array, affine), plane=plane, size=32))
    assert all(one.pixels is not None for one in expected)
    for order, flips in STORAGES:
        got = list(slice_volume(stored(array, affine, order, flips), plane=plane, size=32))
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert np.array_equal(one.pixels, other.pixels), (order, flips)
        indices = [one.index for one in got]
        forward = [one.index for one in expected]
        assert indices in (forward, forward[::-1])


@settings(max_examples=40, deadline=None)
@given(
    angles=st.tuples(*[st.floats(-180, 180, allow_nan=False)] * 3),
    spacing=st.tuples(*[st.sampled_from([0.9, 1.0, 1.2])] * 3),
    storage=st.sampled_from(STORAGES),
    plane=st.sampled_from(PLANES),
)
def test_any_rotation_any_storage(
    angles: tuple, spacing: tuple, storage: tuple, plane: str
) -> None:
    array, affine = image(), affine_of(rotation(*angles) @ np.diag(spacing))
    one, _, _ = canonical_stack(volume(array, affine), plane)
    other, _, _ = canonical_stack(stored(array, affine, *storage), plane)
    assert np.array_equal(one, other)


@pytest.mark.parametrize("name", ["45 degrees about R and S", "all three alike", "oblique"])
def test_files_round_directions_without_effect(tmp_path: Path, name: str) -> None:
    array, affine = image(), affine_of(MATRICES[name])
    expected = list(slice_volume(volume(array, affine), size=32))
    for number, storage in enumerate(STORAGES[::5]):
        one = stored(array, affine, *storage)
        lps = np.diag([-1.0, -1.0, 1.0]) @ one.affine[:3]
        spacing = np.linalg.norm(lps[:, :3], axis=0)
        picture = sitk.GetImageFromArray(np.ascontiguousarray(one.array))
        picture.SetSpacing(spacing)
        picture.SetDirection((lps[:, :3] / spacing).ravel())
        picture.SetOrigin(lps[:, 3])
        path = tmp_path / f"{number}.nii"
        sitk.WriteImage(picture, str(path))
        (source,) = find_images([path]).sources
        (read,) = read_source(source)
        got = list(slice_volume(read, size=32))
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            assert np.allclose(a.pixels, b.pixels, atol=1e-3)


def test_index_is_the_storage_index() -> None:
    array, affine = image(), affine_of(np.diag([1.0, 1.0, -1.0]))
    slices = list(slice_volume(volume(array, affine), plane="axial", size=32))
    assert [one.index for one in slices] == list(range(24, -1, -1))


@pytest.mark.parametrize(
    ("plane", "top", "left", "first"),
    [
        ("axial", "A", "R", "I"),
        ("coronal", "S", "R", "P"),
        ("sagittal", "S", "A", "L"),
    ],
)
def test_canonical_orientation(plane: str, top: str, left: str, first: str) -> None:
    """A ramp towards each direction is brightest at that side of the slice."""
    shape = (20, 22, 24)
    k, j, i = np.meshgrid(*[np.arange(n, dtype=float) for n in shape], indexing="ij")
    towards = {"R": i, "A": j, "S": k, "L": -i, "P": -j, "I": -k}
    for direction, place in ((top, np.s_[0, :]), (left, np.s_[:, 0])):
        stack, _, _ = canonical_stack(volume(towards[direction], np.eye(4)), plane)
        assert (stack[5][place] == stack[5].max()).all()
    stack, _, _ = canonical_stack(volume(towards[first], np.eye(4)), plane)
    assert (stack[0] == stack.max()).all()


def test_auto_takes_the_coarsest_axis_only_if_it_is_clearly_so() -> None:
    array = image((20, 21, 22))
    for spacing, count in (
        ((1, 1.02, 1), 21),
        ((1, 1.005, 1), 20),
        ((2, 2, 1), 20),
        ((3, 1, 2), 22),
    ):
        stack, _, _ = canonical_stack(volume(array, affine_of(np.diag(spacing))))
        assert len(stack) == count, spacing


def test_auto_takes_the_single_axis() -> None:
    array = image((20, 1, 30))
    assert len(list(slice_volume(volume(array, np.eye(4)), size=32))) == 1
    assert len(list(slice_volume(volume(array, affine_of(np.diag([5.0, 1, 1]))), size=32))) == 1


def test_auto_does_not_cut_across_a_thin_slab() -> None:
    array = image((40, 40, 4))
    slices = list(slice_volume(volume(array, np.eye(4)), size=32))
    assert len(slices) == 4 == count_slices((4, 40, 40), np.eye(4))
    assert all(one.pixels is not None for one in slices)


def test_named_plane_is_obeyed() -> None:
    array = image((20, 21, 22))
    affine = affine_of(np.diag([1.0, 1.0, 5.0]))
    counts = [len(list(slice_volume(volume(array, affine), plane=p, size=32))) for p in PLANES]
    assert counts == [20, 20, 21, 22]


def test_aspect_is_physical() -> None:
    array = np.random.default_rng(0).random((3, 40, 40)) + 1.0
    (one, *_) = slice_volume(volume(array, affine_of(np.diag([1.0, 0.5, 9.0]))), size=64)
    assert one.pixels is not None
    rows = np.flatnonzero(one.pixels.any(axis=1))
    assert (rows[0], rows[-1]) == (16, 47)
    assert np.flatnonzero(one.pixels.any(axis=0)).size == 64


def test_planar_slices_keep_their_orientation_and_labels() -> None:
    array = image((3, 32, 32))
    planar = volume(array, np.eye(4), planar=True, slice_indices=(7, 3, 5))
    slices = list(slice_volume(planar, size=32))
    assert [one.index for one in slices] == [7, 3, 5]
    assert np.allclose(slices[0].pixels, (array[0] - array[0].min()) / np.ptp(array[0]), atol=1e-6)


@pytest.mark.parametrize("plane", ["axial", "oblique"])
def test_planar_refuses_other_planes(plane: str) -> None:
    with pytest.raises(ImageError, match=plane):
        list(slice_volume(volume(image(), np.eye(4), planar=True), plane=plane))


def test_selected_slices_only() -> None:
    chosen = volume(image(), affine_of(np.diag([1, 1, -1.0])), selected=(2, 9))
    assert [one.index for one in slice_volume(chosen, size=32)] == [9, 2]
    with pytest.raises(ImageError, match="slice_index 99"):
        list(slice_volume(volume(image(), np.eye(4), selected=(99,)), size=32))


@pytest.mark.parametrize(
    "matrix", [np.zeros((3, 3)), np.full((3, 3), np.nan), np.ones((3, 3)), np.diag([1, 1, 0])]
)
def test_singular_geometry_is_refused(matrix: np.ndarray) -> None:
    with pytest.raises(ImageError, match=r"^v\.nii: its direction matrix is singular"):
        list(slice_volume(volume(image(), affine_of(matrix))))


def test_axes_of_known_orientations() -> None:
    assert anatomical_axes(np.eye(4)) == ((0, 1, 2), (1, 1, 1))
    lps = np.diag([-1.0, -1.0, 1.0, 1.0])
    assert anatomical_axes(lps) == ((0, 1, 2), (-1, -1, 1))
    psr = affine_of(np.array([[0, 0, 1.0], [-1, 0, 0], [0, 1, 0]]))
    assert anatomical_axes(psr) == ((2, 0, 1), (1, -1, 1))


def test_a_problem_becomes_the_reason() -> None:
    broken = volume(np.empty((0, 0, 0)), np.eye(4), slice_indices=(4,), problem="Cut off.")
    (one,) = slice_volume(broken)
    assert (one.index, one.pixels, one.reason) == (4, None, "Cut off.")


def test_slices_do_not_change_the_volume() -> None:
    array = image()
    array[3, 3, 3] = np.nan
    before = array.copy()
    list(slice_volume(volume(array, np.eye(4)), size=32))
    assert np.array_equal(array, before, equal_nan=True)


def test_the_axis_with_a_single_voxel_is_the_slice_axis_however_small_the_slice():
    """SLICER.md 7.13: no axis gives slices that can be scored, and another one is coarser."""
    affine = np.diag([3.0, 1.0, 1.0, 1.0])
    assert slice_axis((8, 8, 1), affine) == 2
    assert slice_axis((8, 1, 8), affine) == 1
    assert slice_axis((8, 8, 8), affine) == 0


@pytest.mark.parametrize(
    ("array", "affine"),
    [
        (np.zeros((4, 32, 32)), np.zeros((4, 4))),
        (np.zeros((4, 32, 32), complex), np.eye(4)),
        (np.zeros((0, 32, 32)), np.eye(4)),
    ],
)
def test_what_is_wrong_with_a_volume_in_memory_names_it(array, affine) -> None:
    with pytest.raises(ImageError, match=r"^head in scene"):
        list(slice_volume(Volume("head in scene", "s", array, affine, "")))
