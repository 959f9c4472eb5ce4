"""Slice views drawn off the screen by Slicer's own displayable managers, then looked at by pixel.

Set MI_PICTURES_DIR to keep the pictures.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

slicer = pytest.importorskip("slicer", reason="needs slicer-core from PyPI")
pytest.importorskip("PIL", reason="needs Pillow")

from MemorizationIndexLib.colors import VERDICT_COLORS, oni_color  # noqa: E402
from MemorizationIndexLib.results import Verdict  # noqa: E402
from MemorizationIndexLib.scene.geometry import ijk_to_ras, to_world  # noqa: E402
from MemorizationIndexLib.scene.navigation import jump_to_slice  # noqa: E402
from MemorizationIndexLib.scene.overlay import (  # noqa: E402
    OVERLAY_OPACITY,
    hide_overlay,
    show_overlay,
)
from MemorizationIndexLib.scene.pairing import (  # noqa: E402
    REFERENCE_VIEW,
    show_reference,
    show_side_by_side,
)
from MemorizationIndexLib.scene.results import set_segmentation_visible, write_result  # noqa: E402
from MemorizationIndexLib.scene.segmentation import FILL_OPACITY  # noqa: E402
from MemorizationIndexLib.scene.source import remember  # noqa: E402
from slicer_host.examples import (  # noqa: E402
    audit_result,
    rotation,
    translation,
    under_transform,
    verdicts_with,
    volume_node,
)

SHAPE = (16, 40, 48)
GREY = 100


@pytest.fixture(scope="module", autouse=True)
def _offscreen_rendering():
    """Skip where VTK finds no way to draw without a screen (libegl1, libosmesa6)."""
    import vtk

    window = vtk.vtkRenderWindow()
    window.SetOffScreenRendering(1)
    window.SetSize(8, 8)
    window.Render()
    drawn = window.GetCapabilities() if hasattr(window, "GetCapabilities") else "?"
    window.Finalize()
    if not drawn:
        pytest.skip("needs off-screen OpenGL (Debian: libegl1 libgl1 libosmesa6)")


@pytest.fixture
def pictures(tmp_path):
    folder = Path(os.environ.get("MI_PICTURES_DIR", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def grey_volume(affine=None):
    """A uniform volume shown at a known gray, so that every tint can be computed."""
    affine = np.diag([1.0, 1, 3, 1]) if affine is None else affine
    node = volume_node(array=np.full(SHAPE, GREY, np.float32), affine=affine)
    node.CreateDefaultDisplayNodes()
    display = node.GetDisplayNode()
    display.SetAutoWindowLevel(0)
    display.SetWindowLevelMinMax(0, 255)
    return node


def open_views(host, size=(320, 320)):
    return {name: host.slice_view(name, size) for name in ("Red", "Green", "Yellow")}


def slice_index_under(view, volume, axis=0, margin=0.2):
    """For each pixel the slice index under it, −1 outside or within ``margin`` of a border."""
    height, width = view.window.GetSize()[::-1]
    rows, columns = np.mgrid[:height, :width]
    xy = np.stack([columns, height - 1 - rows, 0 * rows, 0 * rows + 1], -1).reshape(-1, 4)
    xy_to_ras = slicer.util.arrayFromVTKMatrix(view.node.GetXYToRAS())
    origin = to_world(volume, np.zeros((1, 3)))[0]
    world = np.eye(4)
    world[:3, :3] = (to_world(volume, np.eye(3)) - origin).T
    world[:3, 3] = origin
    ijk = (xy @ xy_to_ras.T @ np.linalg.inv(world).T)[:, :3]
    size = np.array(volume.GetImageData().GetDimensions())
    inside = ((ijk > -0.5 + margin) & (ijk < size - 0.5 - margin)).all(axis=1)
    along = ijk[:, 2 - axis]
    nearest = np.round(along)
    inside &= np.abs(along - nearest) < 0.5 - margin
    return np.where(inside, nearest, -1).astype(int).reshape(height, width)


def blend(color, opacity):
    return (1 - opacity) * GREY + opacity * np.asarray(color, float)


@pytest.mark.parametrize(
    ("affine", "moved"),
    [
        (np.diag([1.0, 1, 3, 1]), None),
        (np.diag([1.0, -1, 3, 1]), None),
        (rotation(0.35) @ np.diag([1.0, 1, 3, 1]), translation(15, 5, -10) @ rotation(0.2, 2)),
    ],
    ids=["plain", "left-handed", "oblique and transformed"],
)
def test_the_segmentation_covers_exactly_the_flagged_slices(host, pictures, request, affine, moved):
    views = open_views(host)
    volume = grey_volume(affine)
    if moved is not None:
        under_transform(volume, moved)
    verdicts = verdicts_with(SHAPE[0], copy=[3, 4, 9], suspicious=[12], not_scored=[0, 15])
    write_result(remember(volume), audit_result(verdicts), 0)
    slicer.util.setSliceViewerLayers(background=volume)
    jump_to_slice(volume, 0, 9)
    seen = set()
    for name, view in views.items():
        view.fit()
        if name == "Red":
            jump_to_slice(volume, 0, 9)
        picture = view.save(pictures / f"segmentation {request.node.callspec.id} {name}.png")
        under = slice_index_under(view, volume)
        for index in range(SHAPE[0]):
            pixels = picture[under == index].astype(float)
            if len(pixels) == 0:
                continue
            seen.add(index)
            verdict = verdicts[index]
            expected = np.full(3, GREY)
            if verdict in (Verdict.COPY, Verdict.SUSPICIOUS):
                expected = blend(VERDICT_COLORS[verdict], FILL_OPACITY)
            middle = np.median(pixels, axis=0)
            np.testing.assert_allclose(middle, expected, atol=4, err_msg=f"{name}, slice {index}")
            stray = (np.abs(pixels - expected) > 12).any(axis=1).mean()
            assert stray < 0.12, f"{name}, slice {index}: {stray:.0%} of its pixels differ"
    assert seen == set(range(SHAPE[0]))


def test_the_overlay_shows_each_slices_oni_and_leaves_unscored_slices_clear(host, pictures):
    views = open_views(host)
    volume = grey_volume()
    verdicts = verdicts_with(SHAPE[0], copy=[3, 4, 9], suspicious=[12], not_scored=[0, 7])
    audit = audit_result(verdicts)
    result = write_result(remember(volume), audit, 0)
    set_segmentation_visible(result, False)
    show_overlay(volume, result.overlay)
    legend = slicer.vtkSlicerColorLogic.GetColorLegendDisplayNode(result.overlay)
    legend.SetVisibility(0)
    for name in ("Green", "Yellow"):
        view = views[name]
        view.fit()
        picture = view.save(pictures / f"overlay {name}.png")
        under = slice_index_under(view, volume, margin=0.25)
        for index, row in enumerate(audit.slices):
            pixels = picture[under == index].astype(float)
            assert len(pixels) > 100
            expected = np.full(3, GREY, float)
            if row.oni is not None:
                expected = blend(oni_color(row.oni), OVERLAY_OPACITY)
            np.testing.assert_allclose(
                pixels, np.broadcast_to(expected, pixels.shape), atol=4, err_msg=f"slice {index}"
            )
    hide_overlay(result.overlay)
    for name in ("Green", "Yellow"):
        picture = views[name].pixels()
        inside = picture[slice_index_under(views[name], volume) >= 0]
        np.testing.assert_allclose(inside, GREY, atol=2)


def test_the_legend_comes_and_goes_with_the_overlay(host, pictures):
    view = open_views(host, (480, 400))["Red"]
    volume = grey_volume()
    result = write_result(remember(volume), audit_result(verdicts_with(SHAPE[0], copy=[8])), 0)
    set_segmentation_visible(result, False)
    show_overlay(volume, result.overlay)
    view.fit()
    shown = view.save(pictures / "legend.png").astype(int)
    legend = slicer.vtkSlicerColorLogic.GetColorLegendDisplayNode(result.overlay)
    legend.SetVisibility(0)
    without = view.pixels().astype(int)
    changed = (np.abs(shown - without).max(axis=2) > 20).sum()
    assert changed > 1000, "no legend was drawn"
    # Both ends of the scale are in it.
    for oni in (-1.0, 1.0):
        distance = np.abs(shown - np.array(oni_color(oni))).max(axis=2)
        assert (distance < 10).sum() > 5
    legend.SetVisibility(1)
    hide_overlay(result.overlay)
    hidden = view.pixels().astype(int)
    assert (np.abs(hidden - shown).max(axis=2) > 20).sum() > 1000


def test_the_reference_is_drawn_upright_beside_the_query(host, pictures):
    volume = grey_volume()
    show_side_by_side()
    view = host.slice_view(REFERENCE_VIEW, (300, 300))
    pixels = np.zeros((60, 60))
    pixels[:30, :30] = 1.0
    pixels[:30, 30:] = 0.5
    show_reference(pixels, "reference")
    picture = view.save(pictures / "reference.png")[..., 0].astype(int)
    assert picture[75, 75] > 250, "top left is white"
    assert abs(picture[75, 225] - 127) < 6, "top right is gray"
    assert picture[225, 75] < 5 and picture[225, 225] < 5, "the bottom is black"
    assert volume.GetID()


def test_the_affine_of_the_picture_is_that_of_the_volume(host):
    """A guard of the guard: the pixel-to-index map used above agrees with Slicer's own."""
    view = open_views(host)["Green"]
    volume = grey_volume()
    slicer.util.setSliceViewerLayers(background=volume)
    view.fit()
    under = slice_index_under(view, volume)
    row, column = np.argwhere(under == 5)[0]
    ras = view.ras_at(row, column)
    ijk = np.linalg.inv(ijk_to_ras(volume)) @ np.append(ras, 1)
    assert round(ijk[2]) == 5
