from __future__ import annotations

import dataclasses

import numpy as np
import pytest

slicer = pytest.importorskip("slicer", reason="needs slicer-core from PyPI")

import vtk  # noqa: E402

from MemorizationIndexLib.colors import VERDICT_COLORS, oni_color  # noqa: E402
from MemorizationIndexLib.results import Verdict  # noqa: E402
from MemorizationIndexLib.scene.errors import SceneError  # noqa: E402
from MemorizationIndexLib.scene.outputs import INPUT_ROLE  # noqa: E402
from MemorizationIndexLib.scene.overlay import (  # noqa: E402
    NOT_SCORED_VALUE,
    hide_overlay,
    oni_color_node,
    show_overlay,
)
from MemorizationIndexLib.scene.results import (  # noqa: E402
    activate_table_and_chart,
    find_result,
    remove_result,
    write_result,
)
from MemorizationIndexLib.scene.segmentation import (  # noqa: E402
    SEGMENT_IDS,
    write_segmentation,
)
from MemorizationIndexLib.scene.source import remember  # noqa: E402
from MemorizationIndexLib.scene.table import read_table  # noqa: E402
from slicer_host.examples import (  # noqa: E402
    PART_OF,
    audit_result,
    own_nodes,
    ras_of,
    rotation,
    segment_array,
    slice_result,
    translation,
    under_transform,
    verdicts_with,
    volume_node,
)

pytestmark = pytest.mark.usefixtures("host")

SHEARED = np.array([[0.9, -0.1, 0.2, 3], [0.3, 0.8, -0.1, 4], [0, 0.2, 2.5, 5], [0, 0, 0, 1.0]])


def write(volume, verdicts, axis=0, **options):
    return write_result(remember(volume), audit_result(verdicts, volume.GetName()), axis, **options)


def segment_slices(result, verdict, axis=0):
    """Indices of the slices that a segment fills; fails if it fills any only in part."""
    array = segment_array(result.segmentation, SEGMENT_IDS[verdict], result.volume)
    per_slice = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    full, touched = per_slice.all(axis=1), per_slice.any(axis=1)
    assert (full == touched).all()
    return np.flatnonzero(full).tolist()


# Segments, overlay, table


def test_four_named_segments_share_one_labelmap():
    volume = volume_node()
    result = write(volume, verdicts_with(5, copy=[1, 2], suspicious=[3], not_scored=[0]))
    segments = result.segmentation.GetSegmentation()
    names = [segments.GetNthSegment(n).GetName() for n in range(4)]
    assert names == ["Copy", "Suspicious", "No evidence", "Not scored"]
    assert segments.GetNumberOfSegments() == 4 and segments.GetNumberOfLayers() == 1
    assert segment_slices(result, Verdict.COPY) == [1, 2]
    assert segment_slices(result, Verdict.SUSPICIOUS) == [3]
    assert segment_slices(result, Verdict.NO_EVIDENCE) == [4]
    assert segment_slices(result, Verdict.NOT_SCORED) == [0]
    for verdict, segment_id in SEGMENT_IDS.items():
        color = np.array(segments.GetSegment(segment_id).GetColor()) * 255
        np.testing.assert_allclose(color, VERDICT_COLORS[verdict], atol=0.5)


def test_the_segmentation_names_its_volume_as_its_geometry():
    """SLICER.md 7.16: without it Slicer crops it when it is saved, and DICOM export fails."""
    volume = volume_node((6, 10, 8))
    result = write(volume, verdicts_with(6, copy=[1]))
    segmentation = result.segmentation
    role = segmentation.GetReferenceImageGeometryReferenceRole()
    assert segmentation.GetNodeReference(role) is volume
    name = slicer.vtkSegmentationConverter.GetReferenceImageGeometryParameterName()
    assert segmentation.GetSegmentation().GetConversionParameter(name)


def test_segments_without_a_slice_are_there_and_empty():
    result = write(volume_node(), verdicts_with(5))
    segments = result.segmentation.GetSegmentation()
    assert segments.GetNumberOfSegments() == 4 and segments.GetNumberOfLayers() == 1
    assert segment_slices(result, Verdict.COPY) == []
    assert segment_slices(result, Verdict.NO_EVIDENCE) == [0, 1, 2, 3, 4]


def test_only_flagged_slices_are_shown_at_first():
    display = write(volume_node(), verdicts_with(5, copy=[1])).segmentation.GetDisplayNode()
    shown = [display.GetSegmentVisibility(segment_id) for segment_id in SEGMENT_IDS.values()]
    assert shown == [True, True, False, False]


def test_the_overlay_holds_the_oni_of_each_slice():
    volume = volume_node(affine=SHEARED)
    overlay = write(volume, verdicts_with(5, copy=[1], suspicious=[3], not_scored=[0])).overlay
    array = slicer.util.arrayFromVolume(overlay)
    assert array.dtype == np.float32 and array.shape == (5, 6, 7)
    expected = [NOT_SCORED_VALUE, -1, 0.5, -0.75, 0.5]
    np.testing.assert_array_equal(
        array, np.broadcast_to(np.reshape(expected, (5, 1, 1)), (5, 6, 7))
    )
    np.testing.assert_allclose(ras_of(overlay, (3, 2, 1)), ras_of(volume, (3, 2, 1)))


def test_the_overlays_colors_are_the_reports():
    write(volume_node(), verdicts_with(5))
    table = oni_color_node()
    color = [0.0] * 4
    for step, oni in ((0, -1.0), (127, 0.0), (254, 1.0)):
        table.GetColor(step, color)
        np.testing.assert_allclose(np.array(color[:3]) * 255, oni_color(oni), atol=0.5)
    assert not table.GetHideFromEditors(), "the Save dialog would leave it out"


def test_the_table_has_a_row_per_slice_and_says_what_a_column_means():
    volume = volume_node()
    table = write(volume, verdicts_with(5, copy=[1], not_scored=[0])).table
    column = {name: table.GetTable().GetColumnByName(name) for name in ("Slice", "ONI", "Reason")}
    assert [column["Slice"].GetValue(row) for row in range(5)] == ["0", "1", "2", "3", "4"]
    assert [column["ONI"].GetValue(row) for row in range(3)] == ["", "-1.0", "0.5"]
    assert [column["Reason"].GetValue(row) for row in range(2)] == ["blank", ""]
    assert table.GetColumnDescription("ONI").startswith("−tanh(MI)")
    assert table.GetColumnTitle("NearestSubject") == "Nearest subject"
    assert table.GetColumnUnitLabel("Consensus") == "layers"
    assert table.GetAttribute("MemorizationIndex.Finding") == "2 of 5 slices are copies."
    assert table.GetAttribute("MemorizationIndex.Alpha") == "0.01"


def test_no_cell_of_the_table_is_nan():
    table = write(volume_node(), verdicts_with(5, not_scored=[0, 4])).table.GetTable()
    cells = [
        str(table.GetValue(row, column)).lower()
        for row in range(table.GetNumberOfRows())
        for column in range(table.GetNumberOfColumns())
    ]
    assert not {"nan", "none", "inf"} & set(cells)


def test_subject_names_are_written_only_if_asked_for():
    volume = volume_node()

    def subjects(**options):
        table = write(volume, verdicts_with(5, not_scored=[0]), **options).table.GetTable()
        names = ("NearestSubject", "NearestVolume", "NearestSource")
        columns = [table.GetColumnByName(name) for name in names]
        return [[column.GetValue(row) for row in (0, 1)] for column in columns]

    assert subjects() == [["", "subject 1"], ["", "volume 1"], ["", "file 1"]]
    shown = [["", "Doe^Jane"], ["", "Doe^Jane T1"], ["", "Doe^Jane.nii.gz"]]
    assert subjects(show_subjects=True) == shown


def with_part(**changes):
    rows = [
        slice_result("volume", 0, Verdict.SUSPICIOUS, **{**PART_OF, **changes}),
        slice_result("volume", 1, Verdict.NO_EVIDENCE, part_p_value=0.5, part_subject="Doe^Jane"),
        slice_result("volume", 2, Verdict.NOT_SCORED),
    ]
    return dataclasses.replace(audit_result([row.verdict for row in rows]), slices=tuple(rows))


def test_the_table_keeps_what_was_found_of_parts():
    volume = volume_node((3, 6, 7))
    result = with_part()
    source = remember(volume)
    write_result(source, result, 0, show_subjects=True)
    kept = read_table(volume)
    assert [dataclasses.replace(row, source="") for row in kept.rows] == list(result.slices)
    assert kept.rows[0].part_window == (0.0, 0.5, 0.5, 1.0) and kept.rows[1].part_window is None


def test_a_subject_has_one_number_whether_the_slice_or_a_part_is_like_it():
    table = write_result(remember(volume_node((3, 6, 7))), with_part(), 0).table.GetTable()

    def cells(name):
        return [table.GetColumnByName(name).GetValue(row) for row in range(3)]

    assert cells("NearestSubject") == ["subject 1", "subject 1", ""]
    assert cells("PartSubject") == ["subject 2", "subject 1", ""]
    assert cells("PartVolume") == ["volume 2", "", ""]
    texts = [str(table.GetValue(r, c)) for r in range(3) for c in range(table.GetNumberOfColumns())]
    assert not [text for text in texts if "Roe" in text or "Doe" in text]


def test_a_table_without_parts_has_no_columns_of_them_and_an_older_one_is_read():
    volume = volume_node()
    node = write(volume, verdicts_with(5, copy=[1])).table
    assert node.GetTable().GetColumnByName("PartSubject") is None
    node.GetTable().RemoveColumnByName("FlaggedBy")
    assert [row.flagged_by for row in read_table(volume).rows] == [""] * 5
    node.GetTable().RemoveColumnByName("ONI")
    with pytest.raises(SceneError, match="cannot be read"):
        read_table(volume)


def test_a_damaged_place_of_a_part_is_told():
    volume = volume_node((3, 6, 7))
    node = write_result(remember(volume), with_part(), 0).table
    node.GetTable().GetColumnByName("PartWindow").SetValue(0, "0.0 0.5 0.5")
    with pytest.raises(SceneError, match="cannot be read"):
        read_table(volume)


def test_the_plot_shows_scored_slices_and_the_thresholds_on_the_oni_axis():
    volume = volume_node()
    chart = write(volume, verdicts_with(5, copy=[1], not_scored=[0])).chart
    series = [chart.GetNthPlotSeriesNode(n) for n in range(chart.GetNumberOfPlotSeriesNodes())]
    names = [node.GetName() for node in series]
    assert names == ["ONI", "Suspicious from here down", "Copy from here down"]
    table = series[0].GetTableNode().GetTable()
    values = {
        name: [table.GetColumnByName(name).GetValue(row) for row in range(4)]
        for name in ("Slice", *names)
    }
    assert values["Slice"] == [1, 2, 3, 4] and values["ONI"] == [-1, 0.5, 0.5, 0.5]
    # MI of the thresholds 0.52 and 0.80 under the null 0.40 ± 0.05.
    assert values[names[1]][0] == pytest.approx(-np.tanh(0.12 / np.sqrt(0.05**2 + 1e-8)))
    assert values[names[2]][0] == pytest.approx(-np.tanh(0.40 / np.sqrt(0.05**2 + 1e-8)))


def test_a_threshold_on_another_statistic_gets_no_line_and_an_old_line_goes():
    volume = volume_node()
    write(volume, verdicts_with(5))
    result = audit_result(verdicts_with(5), statistic="local similarity")
    chart = write_result(remember(volume), result, 0).chart
    assert chart.GetNumberOfPlotSeriesNodes() == 1
    assert own_nodes().count("vtkMRMLPlotSeriesNode") == 1


# Where the outputs are


def test_outputs_lie_beside_the_input_in_the_subject_hierarchy():
    volume = volume_node()
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(slicer.mrmlScene)
    patient = hierarchy.CreateSubjectItem(hierarchy.GetSceneItemID(), "patient")
    hierarchy.SetItemParent(hierarchy.GetItemByDataNode(volume), patient)
    result = write(volume, verdicts_with(5))
    for node in (result.segmentation, result.overlay, result.table, result.chart):
        assert hierarchy.GetItemParent(hierarchy.GetItemByDataNode(node)) == patient


@pytest.mark.parametrize(
    "matrix",
    [translation(2, 0, 0), translation(50, 0, 0), rotation(np.radians(17))],
    ids=["2 mm", "50 mm", "17 degrees"],
)
def test_no_voxel_is_lost_under_a_transform(matrix):
    """SLICER.md 7.5."""
    volume = volume_node()
    transform = under_transform(volume, matrix)
    result = write(volume, verdicts_with(5, copy=[2]))
    assert segment_array(result.segmentation, "Copy", volume).sum() == 6 * 7
    assert segment_slices(result, Verdict.COPY) == [2]
    for node in (result.segmentation, result.overlay):
        assert node.GetParentTransformNode() is transform
    assert volume.GetParentTransformNode() is transform


def test_outputs_follow_when_the_volume_leaves_its_transform():
    volume = volume_node()
    under_transform(volume, translation(50, 0, 0))
    write(volume, verdicts_with(5, copy=[2]))
    volume.SetAndObserveTransformNodeID(None)
    result = write(volume, verdicts_with(5, copy=[2]))
    assert result.segmentation.GetParentTransformNode() is None
    assert result.overlay.GetParentTransformNode() is None
    assert segment_slices(result, Verdict.COPY) == [2]


def test_a_nonlinear_transform_neither_hangs_nor_moves_the_verdicts():
    """SLICER.md 7.6: the acquisition transform of an irregular series is a grid."""
    volume = volume_node((12, 20, 24), np.diag([1.0, 1, 3, 1]))
    grid = vtk.vtkImageData()
    grid.SetDimensions(5, 5, 5)
    grid.SetSpacing(10, 10, 10)
    grid.SetOrigin(-10, -10, -10)
    grid.AllocateScalars(vtk.VTK_DOUBLE, 3)
    displacement = np.random.default_rng(3).normal(0, 8, (125, 3))
    for point, vector in enumerate(displacement):
        grid.GetPointData().GetScalars().SetTuple(point, vector)
    warp = slicer.vtkOrientedGridTransform()
    warp.SetDisplacementGridData(grid)
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLGridTransformNode")
    node.SetAndObserveTransformFromParent(warp)
    volume.SetAndObserveTransformNodeID(node.GetID())
    result = write(volume, verdicts_with(12, copy=[4, 5]))
    assert result.segmentation.GetParentTransformNode() is node
    labelmap = slicer.vtkOrientedImageData()
    result.segmentation.GetBinaryLabelmapRepresentation("Copy", labelmap)
    array = slicer.util.arrayFromSegmentInternalBinaryLabelmap(result.segmentation, "Copy")
    assert np.unique(np.nonzero(array == 1)[0]).tolist() == [4, 5]
    assert (array == 1).sum() == 2 * 20 * 24


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
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_verdicts_land_on_their_slices_in_every_geometry(affine, axis):
    """SLICER.md 7.7 and 7.8."""
    volume = volume_node((5, 6, 7), affine)
    result = write(volume, verdicts_with((5, 6, 7)[axis], copy=[1, 3], not_scored=[0]), axis)
    assert segment_slices(result, Verdict.COPY, axis) == [1, 3]
    overlay = np.moveaxis(slicer.util.arrayFromVolume(result.overlay), axis, 0)
    assert (overlay[[1, 3]] == -1).all() and (overlay[0] == NOT_SCORED_VALUE).all()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_three_different_sizes_are_never_swapped(axis):
    """SLICER.md 7.4."""
    shape = (150, 146, 249)
    volume = volume_node(array=np.zeros(shape, np.uint8))
    last = shape[axis] - 1
    result = write(volume, verdicts_with(shape[axis], copy=[last]), axis)
    assert segment_slices(result, Verdict.COPY, axis) == [last]
    assert slicer.util.arrayFromVolume(result.overlay).shape == shape


def test_all_of_188_slices_land_on_their_own_index():
    """SLICER.md 7.3: an oblique, finely spaced volume, where RAS rounding lost every second."""
    affine = rotation(0.31) @ rotation(0.17, 2) @ np.diag([0.7, 0.7, 0.33, 1.0])
    volume = volume_node(array=np.zeros((188, 4, 5), np.uint8), affine=affine)
    even = list(range(0, 188, 2))
    result = write(volume, verdicts_with(188, copy=even))
    assert segment_slices(result, Verdict.COPY) == even
    oni = slicer.util.arrayFromVolume(result.overlay)[:, 0, 0]
    assert np.flatnonzero(oni == -1).tolist() == even


def test_the_same_image_stored_otherwise_gets_the_same_overlay_in_space():
    """SLICER.md 7.1."""
    affine = rotation(0.2) @ np.diag([1.0, 1, 4, 1])
    plain = volume_node((8, 6, 5), affine, "plain")
    turned_affine = np.eye(4)
    turned_affine[:3, 0] = -affine[:3, 2]
    turned_affine[:3, 1] = affine[:3, 0]
    turned_affine[:3, 2] = affine[:3, 1]
    turned_affine[:3, 3] = affine[:3, 3] + 7 * affine[:3, 2]
    turned = volume_node((6, 5, 8), turned_affine, "turned")
    first = write(plain, verdicts_with(8, copy=[1]), 0)
    second = write(turned, verdicts_with(8, copy=[6]), 2)
    where = [
        np.array(
            [
                ras_of(node.overlay, (i, j, k))
                for k, j, i in np.argwhere(slicer.util.arrayFromVolume(node.overlay) == -1)
            ]
        )
        for node in (first, second)
    ]
    first_points, second_points = (np.round(points, 6) + 0.0 for points in where)
    assert {tuple(p) for p in first_points} == {tuple(p) for p in second_points}


@pytest.mark.parametrize(
    ("shape", "axis"), [((1, 9, 8), 0), ((3, 9, 8), 0), ((6, 1, 8), 0), ((6, 9, 1), 2)]
)
def test_thin_volumes(shape, axis):
    """SLICER.md 7.13."""
    volume = volume_node(shape)
    result = write(volume, verdicts_with(shape[axis], copy=[0]), axis)
    assert segment_slices(result, Verdict.COPY, axis) == [0]
    assert slicer.util.arrayFromVolume(result.overlay).shape == shape
    assert result.chart.GetNumberOfPlotSeriesNodes() == 3


def test_a_strongly_anisotropic_volume_keeps_its_geometry():
    """SLICER.md 7.14."""
    affine = np.diag([0.5, 0.5, 12.0, 1.0])
    result = write(volume_node((5, 6, 7), affine), verdicts_with(5, copy=[4]))
    np.testing.assert_allclose(result.overlay.GetSpacing(), (0.5, 0.5, 12))
    assert segment_slices(result, Verdict.COPY) == [4]


# Run again


def test_a_second_run_updates_its_own_nodes():
    volume = volume_node()
    first = write(volume, verdicts_with(5, copy=[1]))
    count = slicer.mrmlScene.GetNumberOfNodes()
    names = own_nodes()
    second = write(volume, verdicts_with(5, copy=[3], suspicious=[4]))
    assert slicer.mrmlScene.GetNumberOfNodes() == count and own_nodes() == names
    for part in ("segmentation", "overlay", "table", "chart"):
        assert getattr(first, part) is getattr(second, part)
    assert segment_slices(second, Verdict.COPY) == [3]
    assert second.segmentation.GetSegmentation().GetNumberOfSegments() == 4
    assert second.segmentation.GetSegmentation().GetNumberOfLayers() == 1


def test_a_second_run_keeps_what_the_user_chose():
    volume = volume_node()
    first = write(volume, verdicts_with(5, copy=[1]))
    first.segmentation.SetName("my verdicts")
    display = first.segmentation.GetDisplayNode()
    display.SetSegmentVisibility("Copy", False)
    display.SetSegmentVisibility("NoEvidence", True)
    first.overlay.GetDisplayNode().SetInterpolate(1)
    second = write(volume, verdicts_with(5, copy=[2]))
    assert second.segmentation.GetName() == "my verdicts"
    assert not display.GetSegmentVisibility("Copy") and display.GetSegmentVisibility("NoEvidence")
    assert second.overlay.GetDisplayNode().GetInterpolate() == 1


def test_two_volumes_have_their_own_results():
    one, two = volume_node(name="one"), volume_node(name="two")
    both = audit_result({"one": verdicts_with(5, copy=[0]), "two": verdicts_with(5, copy=[4])})
    results = [write_result(remember(node), both, 0) for node in (one, two)]
    assert segment_slices(results[0], Verdict.COPY) == [0]
    assert segment_slices(results[1], Verdict.COPY) == [4]
    assert own_nodes().count("vtkMRMLColorTableNode") == 1
    remove_result(one)
    assert find_result(one) is None and find_result(two) == results[1]


def test_removing_a_result_leaves_the_scene_as_it_was():
    volume = volume_node()
    oni_color_node()
    before = slicer.mrmlScene.GetNumberOfNodes()
    write(volume, verdicts_with(5, copy=[1]))
    remove_result(volume)
    leftover = slicer.mrmlScene.GetNumberOfNodes() - before
    assert leftover == 0 and slicer.mrmlScene.GetNodeByID(volume.GetID()) is volume


def test_a_new_node_says_whose_it_is_when_it_enters_the_scene():
    volume = volume_node()
    seen = []

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def on_added(_caller, _event, node):
        if node.IsA("vtkMRMLVolumeNode"):
            seen.append(
                (node.GetAttribute("MemorizationIndex.Output"), node.GetNodeReferenceID(INPUT_ROLE))
            )

    tag = slicer.mrmlScene.AddObserver(slicer.vtkMRMLScene.NodeAddedEvent, on_added)
    write(volume, verdicts_with(5))
    slicer.mrmlScene.RemoveObserver(tag)
    assert seen == [("Overlay", volume.GetID())]


def test_no_helper_node_is_left_behind():
    volume = volume_node()
    added = []

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def on_added(_caller, _event, node):
        added.append(node.GetClassName())

    tag = slicer.mrmlScene.AddObserver(slicer.vtkMRMLScene.NodeAddedEvent, on_added)
    write(volume, verdicts_with(5, copy=[1]))
    slicer.mrmlScene.RemoveObserver(tag)
    assert "vtkMRMLLabelMapVolumeNode" not in added
    labelmaps = slicer.mrmlScene.GetNumberOfNodesByClass("vtkMRMLLabelMapVolumeNode")
    assert labelmaps == 0


# What is refused


def test_nothing_is_made_when_the_result_does_not_fit():
    volume = volume_node()
    before = slicer.mrmlScene.GetNumberOfNodes()
    with pytest.raises(SceneError, match="slice 5"):
        write(volume, verdicts_with(6))
    with pytest.raises(SceneError, match="twice"):
        result = audit_result(verdicts_with(5))
        doubled = type(result)(
            (*result.slices, result.slices[0]), (), result.summary, result.null, {}, result.null
        )
        write_result(remember(volume), doubled, 0)
    with pytest.raises(SceneError, match="no slice of a volume named 'volume'"):
        write_result(remember(volume), audit_result(verdicts_with(5), "other"), 0)
    with pytest.raises(SceneError, match="array axis 3"):
        write(volume, verdicts_with(5), 3)
    assert slicer.mrmlScene.GetNumberOfNodes() == before


def test_a_slice_that_the_audit_left_out_is_shown_as_not_scored():
    result = write(volume_node(), verdicts_with(3, copy=[2]))
    assert segment_slices(result, Verdict.COPY) == [2]
    assert segment_slices(result, Verdict.NOT_SCORED) == [3, 4]


def test_a_deleted_volume_is_noticed():
    """SLICER.md 7.17."""
    volume = volume_node(name="scan")
    source = remember(volume)
    slicer.mrmlScene.RemoveNode(volume)
    with pytest.raises(SceneError, match="'scan' is no longer in the scene"):
        write_result(source, audit_result(verdicts_with(5), "scan"), 0)
    assert own_nodes() == []


def test_a_closed_scene_is_noticed(host):
    """SLICER.md 7.17."""
    source = remember(volume_node())
    host.clear()
    with pytest.raises(SceneError, match="no longer in the scene"):
        write_result(source, audit_result(verdicts_with(5)), 0)
    assert own_nodes() == []


def test_changed_voxels_or_geometry_are_noticed():
    volume = volume_node()
    source = remember(volume)
    volume.SetName("renamed")
    under_transform(volume, translation(1, 2, 3))
    assert source.node() is volume, "a name and a transform may change"
    volume.SetSpacing(1, 1, 2)
    with pytest.raises(SceneError, match="geometry of 'renamed' has changed"):
        source.node()
    volume.SetSpacing(1, 1, 1)
    slicer.util.arrayFromVolume(volume)[:] = 0
    slicer.util.arrayFromVolumeModified(volume)
    with pytest.raises(SceneError, match="voxels of 'renamed' have changed"):
        source.node()


# Existing segmentations, saving


def test_a_closed_surface_segmentation_can_be_the_output():
    """SLICER.md 7.16: what is in it stays, and the verdicts are exact."""
    volume = volume_node((10, 12, 14))
    existing = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", "mine")
    existing.CreateDefaultDisplayNodes()
    existing.SetReferenceImageGeometryParameterFromVolumeNode(volume)
    sphere = vtk.vtkSphereSource()
    sphere.SetCenter(6, 6, 5)
    sphere.SetRadius(3)
    sphere.Update()
    surface = slicer.vtkSegmentationConverter.GetClosedSurfaceRepresentationName()
    existing.GetSegmentation().SetSourceRepresentationName(surface)
    existing.AddSegmentFromClosedSurfaceRepresentation(sphere.GetOutput(), "tumor", (1, 0, 0), "t")
    for _ in range(2):
        result = write(volume, verdicts_with(10, copy=[2]), segmentation=existing)
        assert result.segmentation is existing
        assert existing.GetSegmentation().GetNumberOfSegments() == 5
        assert segment_slices(result, Verdict.COPY) == [2]
        assert segment_array(existing, "t", volume).sum() > 30
    assert own_nodes().count("vtkMRMLSegmentationNode") == 1


def test_a_saved_scene_brings_everything_back(host, tmp_path):
    """SLICER.md 7.16."""
    volume = volume_node((5, 6, 7), rotation(0.3) @ np.diag([1.0, 1, 3, 1]), 'T1 "quoted" name')
    under_transform(volume, translation(20, 0, 0))
    write(volume, verdicts_with(5, copy=[1, 2], suspicious=[3], not_scored=[0]))
    bundle = tmp_path / "Müller scene.mrb"
    assert slicer.mrmlScene.WriteToMRB(str(bundle))
    host.clear()
    assert own_nodes() == []
    assert slicer.mrmlScene.ReadFromMRB(str(bundle))
    volume = slicer.util.getNode('T1 "quoted" name')
    result = find_result(volume)
    assert result is not None
    assert segment_slices(result, Verdict.COPY) == [1, 2]
    assert segment_slices(result, Verdict.NOT_SCORED) == [0]
    oni = slicer.util.arrayFromVolume(result.overlay)[:, 0, 0]
    np.testing.assert_allclose(oni, [NOT_SCORED_VALUE, -1, -1, -0.75, 0.5])
    colors = result.overlay.GetDisplayNode().GetColorNode()
    color = [0.0] * 4
    colors.GetColor(0, color)
    np.testing.assert_allclose(np.array(color[:3]) * 255, oni_color(-1.0), atol=1)
    table = result.table.GetTable()
    assert [str(table.GetColumnByName("ONI").GetValue(row)) for row in range(2)] == ["", "-1.0"]
    assert result.table.GetColumnDescription("ONI").startswith("−tanh(MI)")
    assert result.chart.GetNumberOfPlotSeriesNodes() == 3
    count = len(own_nodes())
    again = write(volume, verdicts_with(5, copy=[4]))
    assert again == result and len(own_nodes()) == count
    assert segment_slices(again, Verdict.COPY) == [4]


# Types, time, display


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.float16, np.bool_])
def test_arrays_that_slicer_refuses_never_reach_it(dtype):
    """SLICER.md 7.20: int64, bool and float16 have no VTK type in updateVolumeFromArray."""
    from MemorizationIndexLib.scene.pairing import show_reference

    node = show_reference(np.arange(12).reshape(3, 4).astype(dtype), "reference")
    assert slicer.util.arrayFromVolume(node).dtype == np.float32
    oni = [np.float64(-1.0), np.float16(0.5), None, -0.5, 0.0]
    from MemorizationIndexLib.scene.overlay import write_overlay

    overlay = write_overlay(volume_node(), oni, 0)
    assert slicer.util.arrayFromVolume(overlay).dtype == np.float32


def test_the_wrong_number_of_verdicts_is_refused():
    with pytest.raises(SceneError, match="5 slices along array axis 0, but the result has 4"):
        write_segmentation(volume_node(), verdicts_with(4), 0)


def test_a_large_volume_takes_one_layer():
    """160 × 320 × 320; ``benchmarks/scene_speed.py`` says how long it takes."""
    volume = volume_node(array=np.zeros((160, 320, 320), np.float32), name="large")
    result = audit_result(verdicts_with(160, copy=[80], suspicious=[81]), "large")
    written = write_result(remember(volume), result, 0)
    assert written.segmentation.GetSegmentation().GetNumberOfLayers() == 1


def test_the_overlay_is_shown_and_hidden_and_other_layers_stay(host):
    volume, other = volume_node(), volume_node(name="other")
    result = write(volume, verdicts_with(5, copy=[1]))
    composites = slicer.util.getNodesByClass("vtkMRMLSliceCompositeNode")
    show_overlay(volume, result.overlay, opacity=0.3)
    assert {c.GetBackgroundVolumeID() for c in composites} == {volume.GetID()}
    assert {c.GetForegroundVolumeID() for c in composites} == {result.overlay.GetID()}
    assert {round(c.GetForegroundOpacity(), 6) for c in composites} == {0.3}
    composites[0].SetForegroundVolumeID(other.GetID())
    hide_overlay(result.overlay)
    assert composites[0].GetForegroundVolumeID() == other.GetID()
    assert composites[1].GetForegroundVolumeID() is None
    assert composites[1].GetBackgroundVolumeID() == volume.GetID()
    legend = slicer.vtkSlicerColorLogic.GetColorLegendDisplayNode(result.overlay)
    assert not legend.GetVisibility()


def test_table_and_chart_become_the_active_ones(host):
    result = write(volume_node(), verdicts_with(5))
    activate_table_and_chart(result)
    selection = slicer.mrmlScene.GetSingletonNode("Singleton", "vtkMRMLSelectionNode")
    assert selection.GetActiveTableID() == result.table.GetID()
    assert selection.GetActivePlotChartID() == result.chart.GetID()
