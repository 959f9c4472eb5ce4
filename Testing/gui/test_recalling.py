"""Results that a scene keeps fill the panel again."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

slicer = pytest.importorskip("slicer", reason="needs slicer-core from PyPI")
pytest.importorskip("PySide6.QtWidgets", reason="needs PySide6-Essentials from PyPI")

from gui.stage import sequence, shows_slice  # noqa: E402
from MemorizationIndexLib.scene.geometry import slice_plane  # noqa: E402
from slicer_host.examples import (  # noqa: E402
    PART_OF,
    audit_result,
    rotation,
    slice_result,
    translation,
    under_transform,
    verdicts_with,
    volume_node,
)

SHAPE = (6, 20, 18)


def run_of(verdicts, **changes):
    """A run whose summary counts its slices."""
    result = audit_result(verdicts)
    counts = {"slices": len(result.slices), **changes}
    return dataclasses.replace(result, summary=dataclasses.replace(result.summary, **counts))


def save_and_load(stage, tmp_path, *names):
    bundle = tmp_path / 'Müller\'s "saved" scene.mrb'
    assert slicer.mrmlScene.WriteToMRB(str(bundle))
    stage.host.scene.clear()
    stage.panel.results.begin([])
    assert stage.panel.results.result is None
    assert slicer.mrmlScene.ReadFromMRB(str(bundle))
    return [slicer.util.getNode(name) for name in names]


def texts(stage):
    model = stage.panel.results.table.model
    return [
        [model.item(row, column).text() for column in range(model.columnCount())]
        for row in range(model.rowCount())
    ]


def test_a_loaded_scene_fills_the_results_as_they_were(stage, tmp_path):
    node = volume_node(SHAPE, rotation(0.3) @ np.diag([1.0, 1, 3, 1]), 'T1 "quoted"; name')
    under_transform(node, translation(20, 0, 0))
    result = run_of(
        {node.GetName(): verdicts_with(6, copy=[1, 2], suspicious=[3], not_scored=[0])},
        warnings=('Few people: "27"; mind <that> & more.',),
    )
    stage.finish(result, node)
    before, finding, judged = texts(stage), stage.ui.findingLabel.text, stage.ui.judgedLabel.text
    color = stage.panel.results.table.model.item(1, 2).background().color().getRgb()

    (node,) = save_and_load(stage, tmp_path, 'T1 "quoted"; name')

    ui, table = stage.ui, stage.panel.results.table
    assert texts(stage) == before and len(before) == 6
    assert ui.findingLabel.text == finding and "2 of 5 slices are copies." in finding
    assert ui.judgedLabel.text == judged and "27 people" in judged
    assert 'Few people: "27"; mind <that> & more.' in ui.warningsLabel.text
    assert not ui.resultsWidget.isHidden()
    assert table.model.item(1, 2).background().color().getRgb() == color
    ui.flaggedOnlyCheckBox.checked = True
    assert [row.slice for row in table.visible_rows()] == [1, 2, 3]
    table.go_to(1)
    views = slicer.util.getNodesByClass("vtkMRMLSliceNode")
    assert any(shows_slice(view, slice_plane(node, 0, 2)) for view in views)
    assert stage.message == ""


def test_the_views_can_be_switched_and_another_run_updates_the_same_nodes(stage, tmp_path):
    from MemorizationIndexLib.scene.results import find_result
    from slicer_host.examples import own_nodes

    stage.finish(run_of(verdicts_with(6, copy=[1])), volume_node(SHAPE))
    (node,) = save_and_load(stage, tmp_path, "volume")
    found, before = find_result(node), own_nodes()
    stage.ui.showVerdictsCheckBox.checked = False
    assert not found.segmentation.GetDisplayNode().GetVisibility()
    stage.ui.showOverlayCheckBox.checked = True
    composite = slicer.app.layoutManager().sliceWidget("Red").mrmlSliceCompositeNode()
    assert composite.GetForegroundVolumeID() == found.overlay.GetID()
    stage.finish(run_of(verdicts_with(6, copy=[4])))
    assert own_nodes() == before
    assert [row.slice for row in stage.panel.results.table.visible_rows()] == list(range(6))


def test_the_numbers_come_back_exactly(stage, tmp_path):
    from MemorizationIndexLib.scene.table import read_table

    node = volume_node(SHAPE)
    rows = (
        slice_result("volume", 0, verdicts_with(1, not_scored=[0])[0], reason="blank; too dark"),
        slice_result(
            "volume", 1, verdicts_with(1, copy=[0])[0], oni=-0.1 - 0.2, p_value=1 / 3, ssim=0.7,
            ncc=-0.25, verified=False, pose="mirrored, 90 %", layer_similarity=(0.1 + 0.2, 1.0),
        ),
    )  # fmt: skip
    result = dataclasses.replace(run_of(verdicts_with(2)), slices=rows)
    stage.ui.showSubjectsCheckBox.checked = True
    stage.finish(result, node)
    (node,) = save_and_load(stage, tmp_path, "volume")
    kept = read_table(node)
    expected = [dataclasses.replace(row, source=kept.rows[0].source) for row in rows]
    assert list(kept.rows) == expected
    assert kept.summary == result.summary and kept.axis == 0 and not kept.numbered


def test_names_that_were_not_kept_are_not_promised(stage, tmp_path):
    rows = [
        slice_result("volume", n, verdict, nearest_subject=f"Patient {'BAB'[n]}")
        for n, verdict in enumerate(verdicts_with(3, copy=[0, 1, 2]))
    ]
    result = dataclasses.replace(run_of(verdicts_with(3, copy=[0, 1, 2])), slices=tuple(rows))
    stage.finish(result, volume_node((3, 20, 18)))
    save_and_load(stage, tmp_path, "volume")
    nearest = [cells[5] for cells in texts(stage)]
    assert nearest == ["subject 1", "subject 2", "subject 1"]
    box = stage.ui.showSubjectsCheckBox
    assert not box.enabled and "without the names" in box.toolTip
    stage.finish(result, slicer.util.getNode("volume"))
    assert box.enabled and "screen" in box.toolTip


def test_names_that_were_kept_show_only_if_asked(stage, tmp_path):
    stage.ui.showSubjectsCheckBox.checked = True
    stage.finish(run_of(verdicts_with(6, copy=[1])), volume_node(SHAPE))
    stage.ui.showSubjectsCheckBox.checked = False
    stage.ui.showSubjectsCheckBox.checked = True
    save_and_load(stage, tmp_path, "volume")
    assert texts(stage)[1][5] == "Doe^Jane"
    stage.ui.showSubjectsCheckBox.checked = False
    assert texts(stage)[1][5] == "subject 1"


def test_the_same_number_is_the_same_subject_in_all_tables_of_a_run(stage):
    a, b = (volume_node(SHAPE, name=name) for name in "ab")
    rows = [
        slice_result(name, n, verdict, nearest_subject=f"Patient {who}")
        for name, whom in (("a", "XY"), ("b", "YX"))
        for (n, who), verdict in zip(enumerate(whom), verdicts_with(2, copy=[0, 1]), strict=True)
    ]
    result = dataclasses.replace(run_of({"a": verdicts_with(2), "b": verdicts_with(2)}),
                                 slices=tuple(rows))  # fmt: skip
    stage.finish(result, a, b)
    table = slicer.util.getFirstNodeByClassByName("vtkMRMLTableNode", "b memorization")
    column = table.GetTable().GetColumnByName("NearestSubject")
    assert [column.GetValue(n) for n in range(2)] == ["subject 2", "subject 1"]


def test_a_reloaded_module_shows_what_the_scene_keeps(stage):
    node = volume_node(SHAPE)
    stage.finish(run_of(verdicts_with(6, copy=[1])), node)
    before = texts(stage)
    stage.host.unload()
    again = stage.host.enter(stage.host.load_module(stage.entry.path))
    assert len(again.panel.results.table.rows) == 6 and len(before) == 6
    assert "2 of 5" in again.ui.findingLabel.text


def test_a_chosen_volume_brings_its_results(stage):
    one, two = volume_node(SHAPE, name="one"), volume_node(SHAPE, name="two")
    other = volume_node(SHAPE, name="never checked")
    picture = np.zeros((8, 8), np.uint8)
    first = run_of({"one": verdicts_with(6, copy=[1])}, finding="One is a copy.")
    first = dataclasses.replace(first, pictures={("one", 1): picture})
    stage.finish(first, one)
    stage.finish(run_of({"two": verdicts_with(6)}, finding="Nothing in two."), two)
    assert "Nothing in two." in stage.ui.findingLabel.text
    stage.panel.parameters.volumes = [one]
    assert "One is a copy." in stage.ui.findingLabel.text
    assert {row.volume for row in stage.panel.results.table.rows} == {"one"}
    assert stage.panel.results.result.pictures, "this session still has the pictures"
    stage.panel.parameters.volumes = [two]
    assert "Nothing in two." in stage.ui.findingLabel.text
    stage.panel.parameters.volumes = [other]
    assert stage.ui.resultVolumeComboBox.currentText.startswith("two:"), "it says whose it is"


def test_one_of_two_volumes_of_a_run_is_counted_alone(stage, tmp_path):
    nodes = [volume_node(SHAPE, name=name) for name in ("one", "two")]
    run = run_of({"one": verdicts_with(6, copy=[1]), "two": verdicts_with(6, copy=[1, 2])})
    stage.finish(run, *nodes)
    _, two = save_and_load(stage, tmp_path, "one", "two")
    assert stage.ui.resultVolumeComboBox.count == 2 and "2 of 5" in stage.ui.findingLabel.text
    stage.widget.exit()
    slicer.mrmlScene.RemoveNode(two)
    stage.host.unload()
    again = stage.host.enter(stage.host.load_module(stage.entry.path))
    assert "1 of 6 scored slices in 1 volume is a copy" in again.ui.findingLabel.text


def test_of_two_runs_the_latest_is_shown_until_the_other_is_chosen_alone(stage, tmp_path):
    one, two = (volume_node(SHAPE, name=name) for name in ("one", "two"))
    late = {"created": "2026-02-02T00:00:00+00:00", "finding": "The late run."}
    stage.finish(run_of({"one": verdicts_with(6)}, **late), one)
    stage.finish(run_of({"two": verdicts_with(6, copy=[1])}, finding="The early run."), two)
    stage.panel.parameters.volumes = [one, two]
    one, two = save_and_load(stage, tmp_path, "one", "two")
    assert "The late run." in stage.ui.findingLabel.text
    assert {row.volume for row in stage.panel.results.result.slices} == {"one"}
    stage.panel.parameters.volumes = [two]
    assert "The early run." in stage.ui.findingLabel.text


def test_a_flag_comes_back_of_the_whole_and_of_a_part(stage, tmp_path):
    nodes = [volume_node(SHAPE, name=name) for name in ("one", "two")]
    nodes[0].SetAttribute("DICOM.Modality", "CT")
    run = run_of({"one": verdicts_with(6, copy=[1]), "two": verdicts_with(6, copy=[1, 2])})
    stage.finish(run, *nodes)
    before = stage.ui.findingLabel.text, stage.ui.warningsLabel.text
    assert "1 of 2 volumes, modality CT." in before[0]
    _, two = save_and_load(stage, tmp_path, "one", "two")
    assert (stage.ui.findingLabel.text, stage.ui.warningsLabel.text) == before
    slicer.mrmlScene.RemoveNode(two)
    stage.host.unload()
    again = stage.host.enter(stage.host.load_module(stage.entry.path))
    assert "Outside the validated domain: modality CT." in again.ui.findingLabel.text
    assert again.ui.warningsLabel.text == before[1]


def test_all_frames_of_a_sequence_come_back(stage, tmp_path):
    from MemorizationIndexLib.gui.parameters import Frames
    from MemorizationIndexLib.scene.sequences import frames_of

    proxy = sequence(3)
    name = proxy.GetName()
    stage.panel.parameters.frames = Frames.ALL
    stage.finish(run_of({f"{name} [frame {n}]": verdicts_with(6, copy=[n]) for n in range(3)}),
                 proxy)  # fmt: skip
    stage.host.unload()
    again = stage.host.enter(stage.host.load_module(stage.entry.path))
    assert again.ui.resultVolumeComboBox.count == 3
    again.ui.resultVolumeComboBox.currentIndex = 2
    again.panel.results.table.go_to(2)
    assert frames_of(proxy).selected == 2
    assert again.panel.results.table.current().verdict.value == "copy"


def cohort_with_pictures(folder, *, fingerprint="abc123", slices=200, at_17=3):
    folder.mkdir(exist_ok=True)
    facts = {"facts": {"fingerprint": fingerprint}}
    (folder / "cohort.json").write_text(json.dumps(facts), encoding="utf-8")
    indices = np.zeros(slices, np.int64)
    indices[17] = at_17
    np.save(folder / "indices.npy", indices)
    pictures = np.zeros((slices, 8, 8), np.uint8)
    pictures[17] = np.arange(64).reshape(8, 8)
    np.save(folder / "thumbnails.npy", pictures)


def test_pictures_come_from_the_volume_and_the_cohort_if_it_is_still_the_same(stage, tmp_path):
    node = volume_node(SHAPE)
    array = slicer.util.arrayFromVolume(node)
    array[1, :10] = 0
    slicer.util.arrayFromVolumeModified(node)
    stage.cohort = tmp_path / "brains.micohort"
    cohort_with_pictures(stage.cohort)
    stage.finish(run_of(verdicts_with(6, copy=[1])), node)
    save_and_load(stage, tmp_path, "volume")
    stage.panel.results.table.go_to(1)
    ui, result = stage.ui, stage.panel.results.result
    assert not ui.queryPictureLabel.isHidden() and not ui.referencePictureLabel.isHidden()
    assert result.reference_pictures[17].tolist() == np.arange(64).reshape(8, 8).tolist()
    query = result.pictures["volume", 1]
    # Posterior, the high rows of a volume in RAS, is at the bottom: rows run towards it.
    assert query[:50].mean() > 60 and query[-50:].mean() < 60
    hidden = [
        n for n in slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode") if n.GetHideFromEditors()
    ]
    assert [n.GetName() for n in hidden] == ["Reference: slice 3"]


def with_part(names=("volume",)):
    rows = []
    for name in names:
        suspicious, other = verdicts_with(2, suspicious=[0])
        rows += [slice_result(name, 0, suspicious, **PART_OF), slice_result(name, 1, other)]
    result = run_of({name: verdicts_with(2) for name in names}, part_suspicious=len(names))
    return dataclasses.replace(result, slices=tuple(rows))


def test_a_part_comes_back_in_words_and_its_pictures_from_volume_and_cohort(stage, tmp_path):
    from MemorizationIndexLib.results import PART

    node = volume_node((2, 20, 18))
    stage.cohort = tmp_path / "brains.micohort"
    cohort_with_pictures(stage.cohort)
    indices = np.load(stage.cohort / "indices.npy")
    indices[PART_OF["part_row"]] = PART_OF["part_slice"]
    np.save(stage.cohort / "indices.npy", indices)
    pictures = np.zeros((200, 112, 112), np.uint8)
    pictures[PART_OF["part_row"], :, :56] = 200
    np.save(stage.cohort / "parts.pictures.npy", pictures)
    stage.finish(with_part(), node)
    before = texts(stage)
    save_and_load(stage, tmp_path, "volume")
    assert texts(stage) == before
    stage.panel.results.table.go_to(0)
    ui, result = stage.ui, stage.panel.results.result
    assert result.slices[0].flagged_by == PART and "part of it" in ui.sliceLabel.text
    assert "subject 2, slice 5, flipped left–right (p = 0.0099)" in ui.sliceLabel.text
    assert not ui.queryPictureLabel.isHidden() and not ui.referencePictureLabel.isHidden()
    shown = result.part_pictures["volume", 0].reference
    assert shown[:, 56:].min() == 200 and shown[:, :56].max() == 0, "turned as the part is"
    assert 17 not in result.reference_pictures


def test_one_of_two_volumes_counts_its_own_parts(stage, tmp_path):
    nodes = [volume_node((2, 20, 18), name=name) for name in ("one", "two")]
    stage.finish(with_part(("one", "two")), *nodes)
    _, two = save_and_load(stage, tmp_path, "one", "two")
    assert stage.panel.results.result.summary.part_suspicious == 2
    slicer.mrmlScene.RemoveNode(two)
    stage.host.unload()
    again = stage.host.enter(stage.host.load_module(stage.entry.path))
    assert again.panel.results.result.summary.part_suspicious == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fingerprint": "other"}, "was built anew"),
        ({"at_17": 4}, "was built anew"),
        ({"slices": 100}, "was built anew"),
        (None, "choose the cohort “brains”"),
    ],
)
def test_a_reference_that_cannot_be_shown_is_told(stage, tmp_path, changes, words):
    stage.cohort = tmp_path / "brains.micohort"
    if changes is not None:
        cohort_with_pictures(stage.cohort, **changes)
    stage.finish(run_of(verdicts_with(6, copy=[1])), volume_node(SHAPE))
    save_and_load(stage, tmp_path, "volume")
    stage.panel.results.table.go_to(1)
    assert words in stage.ui.sliceLabel.text and stage.ui.referencePictureLabel.isHidden()
    assert not stage.ui.queryPictureLabel.isHidden()


def test_tables_of_a_loaded_scene_are_exported_but_no_report(stage, tmp_path):
    stage.finish(run_of(verdicts_with(6, copy=[1])), volume_node(SHAPE))
    save_and_load(stage, tmp_path, "volume")
    for kind, name in (("slices", "s.csv"), ("volumes", "v.csv"), ("summary", "s.json")):
        stage.panel.results.export_to(kind, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 0 and "Written to" in stage.message
    stage.panel.results.export_to("report", tmp_path / "r.html")
    assert "press Apply" in stage.message and not (tmp_path / "r.html").exists()


def test_a_table_that_was_changed_by_hand_is_told_not_raised(stage, tmp_path):
    stage.finish(run_of(verdicts_with(6, copy=[1])), volume_node(SHAPE))
    table = slicer.util.getFirstNodeByClassByName("vtkMRMLTableNode", "volume memorization")
    table.GetTable().GetColumnByName("ONI").SetValue(1, "minus one")
    save_and_load(stage, tmp_path, "volume")
    assert "cannot be read" in stage.message and "press Apply" in stage.message
    assert stage.panel.results.result is None


def test_a_new_scene_does_not_take_the_results_of_the_old_for_its_own(stage):
    stage.finish(run_of(verdicts_with(6, copy=[1])), volume_node(SHAPE))
    stage.host.scene.clear()
    fresh = volume_node(SHAPE, name="fresh")
    stage.panel.parameters.volumes = [fresh]
    stage.finish(run_of({"fresh": verdicts_with(6)}, finding="Fresh."), fresh)
    other = volume_node(SHAPE, name="other")
    stage.panel.parameters.volumes = [other]
    stage.panel.parameters.volumes = [fresh]
    assert "Fresh." in stage.ui.findingLabel.text
