"""The panel over real MRML and real Qt; the worker is played by ``scripted_worker.py``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

slicer = pytest.importorskip("slicer", reason="needs slicer-core from PyPI")
pytest.importorskip("PySide6.QtWidgets", reason="needs PySide6-Essentials from PyPI")

from gui.stage import MODULE, SHAPE, sequence, shows_slice  # noqa: E402
from MemorizationIndexLib.results import Verdict  # noqa: E402
from slicer_host.examples import (  # noqa: E402
    PART_OF,
    audit_result,
    own_nodes,
    rotation,
    translation,
    under_transform,
    verdicts_with,
    volume_node,
)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def long_run(stage, *nodes, before=()):
    """A run that lasts until it is ended; returns the worker's pid."""
    pid_file = stage.tmp_path / "pid"
    pid_file.unlink(missing_ok=True)
    stage.run([["pid", str(pid_file)], *before, ["sleep", 60]], *nodes)
    assert stage.host.wait(20, lambda: pid_file.exists() and pid_file.read_text() != "")
    return int(pid_file.read_text())


# Loading


def test_loading_the_module_and_its_panel_imports_nothing_heavy(tmp_path):
    import subprocess

    code = (
        f"import sys; sys.path[:0] = [{str(Path(__file__).resolve().parents[1])!r}]\n"
        "from slicer_host.boot import boot; boot()\n"
        "from slicer_host.scripted_module import load_module\n"
        f"entry = load_module({str(MODULE)!r})\n"
        "heavy = {'torch', 'scipy.stats', 'SimpleITK', 'matplotlib', 'jinja2', 'requests'}\n"
        "first = sorted(heavy & set(sys.modules))\n"
        "entry.widgetRepresentation().enter()\n"
        "print(first, sorted(heavy & set(sys.modules)), flush=True)\n"
        "import os; os._exit(0)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[] []", run.stdout


def test_the_entry_file_is_thin_and_imports_only_slicer_at_its_top():
    import ast

    tree = ast.parse(MODULE.read_text(encoding="utf-8"))
    top = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).partition(".")[0]
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert top <= {"slicer", *sys.stdlib_module_names}


def test_the_panel_opens_empty_and_says_what_it_needs(stage):
    ui = stage.ui
    assert not ui.applyButton.enabled
    assert "volume" in ui.progressLabel.text and ui.applyButton.toolTip == ui.progressLabel.text
    assert ui.findingLabel.text == "Nothing has been checked yet." and ui.resultsWidget.isHidden()
    assert (
        ui.setupCollapsibleButton.isHidden()
        and ui.messageFrame.isHidden()
        and ui.progressBar.isHidden()
    )


def test_the_panel_opens_without_any_scene_content_and_survives_exit_with_none(stage):
    stage.panel.set_parameter_node(None)
    stage.widget.exit()
    stage.panel.apply()
    stage.panel.update()
    assert not stage.ui.applyButton.enabled
    stage.widget.enter()
    assert stage.panel.parameters is not None


@pytest.mark.parametrize("width", [320, 400, 600])
def test_the_panel_fits_its_width(stage, width):
    stage.finish(audit_result(verdicts_with(6, copy=[1])), volume_node(SHAPE))
    stage.panel.results.table.go_to(1)
    stage.ui.advancedCollapsibleButton.collapsed = False
    frame = stage.widget.parent
    frame.resize(width, 900)
    frame.show()
    stage.host.wait(0.05)
    assert frame.width == width, f"the panel needs {frame.width} pixels"


# Setup


def test_setup_appears_only_where_something_is_missing(stage, monkeypatch):
    from MemorizationIndexLib.gui import setup_section

    monkeypatch.setattr(setup_section, "torch_problem", lambda: "PyTorch is not installed.")
    stage.panel.update()
    ui = stage.ui
    assert not ui.setupCollapsibleButton.isHidden() and not ui.torchSetupButton.isHidden()
    assert ui.torchStatusLabel.text == "PyTorch is not installed."
    assert not ui.applyButton.enabled and "Setup" in ui.applyButton.toolTip
    monkeypatch.setattr(setup_section, "torch_problem", lambda: "")
    stage.panel.update()
    assert ui.setupCollapsibleButton.isHidden()


def test_without_the_pytorch_extension_the_module_opens_and_tells_what_to_install(
    stage, monkeypatch
):
    from MemorizationIndexLib.gui import setup_section

    monkeypatch.setattr(setup_section, "torch_problem", lambda: "PyTorch is not installed.")
    stage.panel.update()
    stage.ui.torchSetupButton.click()
    assert "Extensions Manager" in stage.message and "restart" in stage.message


def test_the_weights_are_asked_for_only_if_the_encoder_needs_them(stage, monkeypatch, tmp_path):
    from MemorizationIndexLib.gui.parameters import EncoderChoice

    monkeypatch.setenv("MEMORIZATION_INDEX_WEIGHTS", str(tmp_path / "none.pth"))
    assert stage.ui.setupCollapsibleButton.isHidden()
    stage.panel.parameters.encoder = EncoderChoice.MRI_CORE
    assert not stage.ui.weightsSetupButton.isHidden()
    stage.ui.weightsSetupButton.click()
    question = stage.answers.asked[-1]
    assert "416 MB" in question and "license" in question and "Google Drive" in question
    assert stage.panel.job is None, "nothing is downloaded without a yes"


def test_a_broken_device_is_told_and_a_working_one_named(stage):
    stage.steps = [["say", {"type": "failed", "message": "No kernel image."}], ["exit", 1]]
    stage.ui.deviceTestButton.click()
    assert stage.ends()
    assert "No kernel image." in stage.message and not stage.ui.setupCollapsibleButton.isHidden()
    assert stage.ui.deviceStatusLabel.text == "No kernel image."
    good = {"type": "finished", "torch": "2.9.0", "device": "cpu", "reason": "cpu computed"}
    stage.steps = [["say", good], ["exit", 0]]
    stage.ui.deviceSetupButton.click()
    assert stage.ends()
    assert "cpu computed" in stage.message and stage.ui.setupCollapsibleButton.isHidden()


def test_the_device_is_kept_for_the_machine_not_for_the_scene(stage):
    from MemorizationIndexLib.gui.settings import setting

    stage.ui.deviceComboBox.currentIndex = 1
    stage.ui.batchSizeSpinBox.value = 4
    assert setting("Device") == "cpu" and setting("BatchSize") == 4
    node = stage.panel.parameters.parameterNode
    assert "cpu" not in [node.GetParameter(name) for name in node.GetParameterNames()]


def test_slices_at_once_can_be_chosen_only_where_they_act(stage, monkeypatch):
    from gui.stage import Facts
    from MemorizationIndexLib.gui.parameters import EncoderChoice

    box = stage.ui.batchSizeSpinBox
    assert not box.enabled and "Only MRI-CORE" in box.toolTip
    stage.panel.parameters.encoder = EncoderChoice.MRI_CORE
    assert box.enabled and "less memory" in box.toolTip
    stage.panel.parameters.encoder = EncoderChoice.BUILTIN
    assert not box.enabled
    monkeypatch.setattr(Facts, "encoder", "mri-core")
    stage.choose(volume_node(SHAPE))
    assert box.enabled


def test_the_memory_of_a_check_is_told_before_it_starts(stage, monkeypatch):
    from gui.stage import Facts
    from MemorizationIndexLib.gui import panel

    monkeypatch.setattr(panel, "free_memory", lambda: 64_000_000_000)
    monkeypatch.setattr(panel, "FREE_MEMORY_LASTS", 0.0)
    label = stage.ui.memoryLabel
    assert label.text == "known once a cohort is chosen"
    stage.choose(volume_node(SHAPE))
    assert label.text == "about 0.5 GB for a check; 64.0 GB free"
    monkeypatch.setattr(Facts, "encoder", "mri-core")
    stage.ui.batchSizeSpinBox.value = 512
    assert float(label.text.split()[1]) > 4, "a batch of 512 slices is large"
    monkeypatch.setattr(panel, "free_memory", lambda: None)
    stage.panel.update()
    assert label.text.endswith("GB for a check"), "nothing is invented where it is unknown"
    monkeypatch.setattr(panel, "free_memory", lambda: 1_000_000_000)
    stage.panel.update()
    assert label.text.startswith("⚠")


def test_too_little_memory_is_asked_about_before_a_check(stage, monkeypatch):
    from MemorizationIndexLib.gui import panel

    monkeypatch.setattr(panel, "free_memory", lambda: 100_000_000)
    stage.choose(volume_node(SHAPE))
    stage.ui.applyButton.click()
    assert stage.panel.job is None and "0.1 GB are free" in stage.answers.asked[-1]
    assert "Not started." in stage.message and "fewer slices at once" in stage.message
    stage.answers.answers = {"confirm": True}
    stage.finish(audit_result(verdicts_with(6, copy=[1])))
    assert stage.panel.results.result is not None
    asked = len(stage.answers.asked)
    monkeypatch.setattr(panel, "free_memory", lambda: None)
    stage.finish(audit_result(verdicts_with(6, copy=[1])))
    assert len(stage.answers.asked) == asked, "where it is unknown there is no question"


@pytest.mark.parametrize("from_folder", [False, True])
def test_too_little_memory_is_asked_about_before_a_cohort_is_built(stage, monkeypatch, from_folder):
    from MemorizationIndexLib.gui import panel

    monkeypatch.setattr(panel, "free_memory", lambda: 100_000_000)
    stage.choose(volume_node(SHAPE))
    stage.answers.answers = {"folder": "/data/training", "new_file": stage.tmp_path / "new"}
    (stage.ui.buildFromFolderButton if from_folder else stage.ui.buildFromVolumesButton).click()
    assert stage.panel.job is None and "Start it anyway?" in stage.answers.asked[-1]
    assert "Not started." in stage.message


# Volumes


def test_the_only_volume_is_chosen_when_the_panel_opens(stage):
    node = volume_node(SHAPE)
    stage.widget.exit()
    stage.widget.enter()
    assert stage.panel.chosen_nodes() == [node]
    assert stage.ui.volumesSelector.checkedNodes() == [node]


def test_checks_and_parameters_stay_in_step(stage):
    one, two = volume_node(SHAPE, name="one"), volume_node(SHAPE, name="two")
    stage.ui.volumesSelector.check(two)
    assert stage.panel.chosen_nodes() == [two]
    stage.panel.parameters.volumes = [one]
    assert stage.ui.volumesSelector.checkedNodes() == [one]


def offered(stage):
    box = stage.ui.volumesSelector
    return [box.nodeFromIndex(index) for index in range(box.nodeCount())]


def test_overlays_of_this_module_are_not_offered_as_inputs(stage):
    node = volume_node(SHAPE)
    stage.finish(audit_result(verdicts_with(6, copy=[1])), node)
    assert any(
        n.GetName() == "volume ONI" for n in slicer.util.getNodesByClass(node.GetClassName())
    )
    assert offered(stage) == [node]
    other = volume_node(SHAPE, name="other")
    assert offered(stage) == [node, other]


def test_overlays_of_a_loaded_scene_are_not_offered_as_inputs(stage, tmp_path):
    stage.finish(audit_result(verdicts_with(6, copy=[1])), volume_node(SHAPE))
    assert slicer.mrmlScene.WriteToMRB(str(tmp_path / "saved.mrb"))
    stage.host.scene.clear()
    assert slicer.mrmlScene.ReadFromMRB(str(tmp_path / "saved.mrb"))
    assert [node.GetName() for node in offered(stage)] == ["volume"]
    assert [node.GetName() for node in stage.panel.chosen_nodes()] == ["volume"]


def test_overlays_that_a_script_shows_are_not_offered_as_inputs(stage):
    node = volume_node(SHAPE)
    stage.logic.showResult(node, audit_result(verdicts_with(6, copy=[1])))
    assert offered(stage) == [node]


@pytest.mark.parametrize("kind", ["vtkMRMLVectorVolumeNode", "vtkMRMLLabelMapVolumeNode"])
def test_only_scalar_volumes_are_offered(stage, kind):
    other = slicer.mrmlScene.AddNewNodeByClass(kind)
    assert other not in offered(stage)


def test_three_components_in_a_scalar_volume_are_refused_in_words(stage):
    import vtk

    node = volume_node(SHAPE)
    image = vtk.vtkImageData()
    image.SetDimensions(4, 4, 4)
    image.AllocateScalars(vtk.VTK_UNSIGNED_CHAR, 3)
    node.SetAndObserveImageData(image)
    stage.choose(node)
    assert "3 components" in stage.ui.volumesNoteLabel.text
    assert not stage.ui.applyButton.enabled


def a_ct(name="volume"):
    node = volume_node(SHAPE, name=name)
    node.SetAttribute("DICOM.Modality", "CT")
    return node


def test_a_ct_is_warned_of_but_not_refused(stage):
    stage.choose(a_ct())
    note = stage.ui.volumesNoteLabel.text
    assert "modality CT" in note and "MR images only" in note and stage.ui.applyButton.enabled


def test_the_result_of_a_ct_is_flagged_in_the_finding_the_rows_and_the_files(stage, tmp_path):
    stage.finish(audit_result(verdicts_with(6, copy=[1, 2])), a_ct())
    finding = stage.ui.findingLabel.text
    assert "2 of 5 slices are copies." in finding
    assert "Outside the validated domain: modality CT." in finding
    assert "MR images only" in stage.ui.warningsLabel.text
    model = stage.panel.results.table.model
    headers = [model.horizontalHeaderItem(n).text() for n in range(model.columnCount())]
    assert "outside" in model.item(1, headers.index("Domain")).text()
    stage.panel.results.table.go_to(1)
    assert "Outside validated domain: modality CT." in stage.ui.sliceLabel.text
    table = slicer.util.getFirstNodeByClassByName("vtkMRMLTableNode", "volume memorization")
    column = table.GetTable().GetColumnByName("Domain")
    assert {column.GetValue(row) for row in range(6)} == {"outside validated domain: modality CT"}
    assert "Outside the validated domain" in table.GetDescription()
    stage.panel.results.export_to("slices", tmp_path / "s.csv")
    assert "outside validated domain: modality CT" in (tmp_path / "s.csv").read_text("utf-8")


def test_an_mr_is_not_flagged(stage):
    node = volume_node(SHAPE)
    node.SetAttribute("DICOM.Modality", "MR")
    stage.finish(audit_result(verdicts_with(6, copy=[1])), node)
    model = stage.panel.results.table.model
    headers = [model.horizontalHeaderItem(n).text() for n in range(model.columnCount())]
    assert "Domain" not in headers and "domain" not in stage.ui.findingLabel.text
    assert stage.ui.warningsLabel.isHidden()


def test_one_ct_among_two_volumes_is_counted_not_named(stage):
    nodes = volume_node(SHAPE, name="mr"), a_ct("Doe^Jane")
    stage.finish(audit_result({"mr": verdicts_with(6), "Doe^Jane": verdicts_with(6)}), *nodes)
    assert "1 of 2 volumes, modality CT." in stage.ui.findingLabel.text
    assert "Doe" not in stage.ui.findingLabel.text + stage.ui.warningsLabel.text
    rows = stage.panel.results.result.slices
    assert [row.volume for row in rows if row.domain] == ["Doe^Jane"] * 6


def test_the_choice_of_frames_appears_for_sequences_only(stage):
    stage.choose(volume_node(SHAPE))
    assert stage.ui.framesComboBox.isHidden()
    stage.choose(sequence(3))
    assert not stage.ui.framesComboBox.isHidden()


# Running and results


def test_apply_shows_the_finding_the_table_and_the_nodes(stage):
    node = volume_node(SHAPE, name="synthetic")
    result = audit_result(
        verdicts_with(6, copy=[1, 2], suspicious=[3], not_scored=[0]), "synthetic"
    )
    stage.finish(result, node)
    ui, table = stage.ui, stage.panel.results.table
    assert "2 of 5 slices are copies." in ui.findingLabel.text
    assert [row.slice for row in table.visible_rows()] == list(range(6))
    assert "vtkMRMLSegmentationNode" in own_nodes() and "vtkMRMLTableNode" in own_nodes()
    texts = [table.model.item(row, 1).text() for row in range(6)]
    assert texts == [
        "×  not scored", "C  copy", "C  copy", "S  suspicious", "–  no evidence", "–  no evidence",
    ]  # fmt: skip
    assert stage.message == "" and ui.progressBar.isHidden() and ui.applyButton.text == "Apply"


def test_the_colors_are_those_of_the_oni_and_the_text_is_readable(stage):
    from MemorizationIndexLib.colors import contrast_ratio, oni_color

    stage.finish(audit_result(verdicts_with(6, copy=[1])), volume_node(SHAPE))
    item = stage.panel.results.table.model.item(1, 2)
    assert item.background().color().getRgb()[:3] == oni_color(-1.0)
    shown = [b.color().getRgb()[:3] for b in (item.background(), item.foreground())]
    assert contrast_ratio(*shown) >= 4.5
    tint = stage.panel.results.table.model.item(1, 0).background().color()
    assert tint.getRgb()[:3] == oni_color(-1.0) and 0 < tint.alphaF() < 0.5


def test_numbers_sort_as_numbers_and_missing_ones_last(stage):
    stage.finish(
        audit_result(verdicts_with(12, copy=[10], suspicious=[3], not_scored=[0])),
        volume_node((12, 5, 6)),
    )
    table = stage.panel.results.table
    table.sort(0, descending=True)
    assert [row.slice for row in table.visible_rows()] == list(range(11, -1, -1))
    table.sort(1)
    assert [row.verdict for row in table.visible_rows()][:2] == [Verdict.COPY, Verdict.SUSPICIOUS]
    table.sort(2)
    assert table.visible_rows()[0].slice == 10 and table.visible_rows()[-1].slice == 0


def test_flagged_only_hides_the_rest(stage):
    stage.finish(audit_result(verdicts_with(6, copy=[1], suspicious=[4])), volume_node(SHAPE))
    stage.ui.flaggedOnlyCheckBox.checked = True
    assert [row.slice for row in stage.panel.results.table.visible_rows()] == [1, 4]
    assert stage.panel.parameters.flaggedOnly
    stage.ui.flaggedOnlyCheckBox.checked = False
    assert len(stage.panel.results.table.visible_rows()) == 6


def key(widget, name):
    import qt
    from PySide6.QtTest import QTest

    QTest.keyClick(widget, getattr(qt.Qt, name))


@pytest.mark.parametrize(
    "affine", [None, rotation(0.4, 0) @ np.diag([1.0, 1, 3, 1])], ids=["straight", "oblique"]
)
@pytest.mark.parametrize("moved", [False, True])
def test_the_arrow_keys_walk_through_the_slices_and_the_views_follow(stage, affine, moved):
    from MemorizationIndexLib.scene.geometry import slice_plane

    pytest.importorskip("PySide6.QtTest")
    node = volume_node(SHAPE, affine)
    if moved:
        under_transform(node, translation(5, -7, 11) @ rotation(0.3, 1))
    stage.finish(audit_result(verdicts_with(6, copy=[1, 2])), node)
    table = stage.panel.results.table
    table.go_to(0)
    for expected in (1, 2, 3):
        key(table.view, "Key_Down")
        assert table.current().slice == expected
        plane = slice_plane(node, 0, expected)
        views = slicer.util.getNodesByClass("vtkMRMLSliceNode")
        assert any(shows_slice(view, plane) for view in views)


def test_a_row_shows_the_pair_and_the_matched_reference_in_its_own_view(stage):
    import dataclasses

    result = audit_result(verdicts_with(6, copy=[1]))
    picture = np.arange(64, dtype=np.uint8).reshape(8, 8)
    result = dataclasses.replace(
        result, pictures={("volume", 1): picture}, reference_pictures={17: picture}
    )
    stage.finish(result, volume_node(SHAPE))
    layout = slicer.app.layoutManager().layout
    stage.panel.results.table.go_to(1)
    ui = stage.ui
    assert not ui.pairWidget.isHidden() and not ui.queryPictureLabel.pixmap.isNull()
    assert "Nearest: subject 1, slice 3." in ui.sliceLabel.text
    hidden = [
        n for n in slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode") if n.GetHideFromEditors()
    ]
    assert [n.GetName() for n in hidden] == ["Reference: slice 3"]
    assert slicer.app.layoutManager().layout != layout
    ui.sideBySideCheckBox.checked = False
    assert slicer.app.layoutManager().layout == layout
    assert not [
        n for n in slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode") if n.GetHideFromEditors()
    ]


def with_part(*, pictures=True, **changes):
    """A run of two slices; the first is suspicious for its upper right quarter."""
    import dataclasses

    from MemorizationIndexLib.results import PartPictures

    result = audit_result([Verdict.SUSPICIOUS, Verdict.SUSPICIOUS])
    first, second = result.slices
    first = dataclasses.replace(first, **{**PART_OF, **changes})
    side = 112
    gray = np.full((side, side), 90, np.uint8)
    return dataclasses.replace(
        result,
        slices=(first, second),
        pictures={("volume", 0): gray[:96, :96], ("volume", 1): gray[:96, :96]},
        reference_pictures={17: gray[:96, :96]},
        part_pictures={("volume", 0): PartPictures(gray, gray)} if pictures else {},
    )


def pixels_of(label):
    """The pixels of a label's pixmap, shape (rows, columns, 3)."""
    image = label.pixmap.toImage()
    rows, columns = range(image.height()), range(image.width())
    return np.array([[image.pixelColor(x, y).getRgb()[:3] for x in columns] for y in rows])


def outline_of(label):
    """Top, bottom, left and right of what is not gray as it was, as shares of the side."""
    pixels = pixels_of(label)
    rows, columns = np.nonzero((abs(pixels - 90) > 8).any(axis=2))
    side = len(pixels)
    return np.array([rows.min(), rows.max() + 1, columns.min(), columns.max() + 1]) / side


def test_a_slice_flagged_for_a_part_says_so_and_outlines_it_in_both_pictures(stage):
    stage.finish(with_part(), volume_node((2, 10, 8)))
    stage.panel.results.table.go_to(0)
    ui = stage.ui
    assert ui.sliceLabel.text == (
        "Slice 0: suspicious for a part of it. The quarter at the top right is like that of "
        "subject 2, slice 5, flipped left–right (p = 0.0099). As a whole it is nearest to "
        "subject 1, slice 3 (p = 0.6), which is no evidence."
    )
    assert ui.referencePictureTitle.text == "Reference of the part"
    for label in (ui.queryPictureLabel, ui.referencePictureLabel):
        assert not label.isHidden()
        np.testing.assert_allclose(outline_of(label), [0, 0.5, 0.5, 1], atol=0.02)
        dark = pixels_of(label)[0, 64:].max(axis=1) < 60
        assert dark.any() and not dark.all(), "dashes, not color alone"
    hidden = [
        n for n in slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode") if n.GetHideFromEditors()
    ]
    assert [n.GetName() for n in hidden] == ["Reference: slice 5"]
    stage.panel.results.table.go_to(1)
    assert "part" not in ui.sliceLabel.text and ui.referencePictureTitle.text == "Nearest reference"
    assert (abs(pixels_of(ui.queryPictureLabel) - 90) <= 8).all()


def test_the_row_of_a_part_names_whose_it_is_and_its_tips_say_a_part(stage):
    stage.finish(with_part(), volume_node((2, 10, 8)))
    model = stage.panel.results.table.model
    headers = [model.horizontalHeaderItem(n).text() for n in range(model.columnCount())]

    def cell(row, title):
        return model.item(row, headers.index(title))

    assert [cell(0, title).text() for title in ("Verdict", "p", "Nearest", "Its slice")] == [
        "S  suspicious", "0.0099", "subject 2", "5",
    ]  # fmt: skip
    for title in ("Verdict", "p", "Nearest", "Its slice"):
        assert "a part" in cell(0, title).toolTip() and "a part" not in cell(1, title).toolTip()
    assert cell(1, "Nearest").text() == "subject 1"
    stage.ui.showSubjectsCheckBox.checked = True
    assert cell(0, "Nearest").text() == "Roe^Rick"
    assert model.item(0, headers.index("Its slice") + 1).text() == "–", "its file is not known"
    assert "Roe^Rick" not in stage.panel.diagnostics()


@pytest.mark.parametrize(
    ("note", "words"),
    [
        ("NOT_KEPT", "built without “Find copied parts too”."),
        ("OTHER_VERSION", "another version's; build it again."),
        ("UNSEEN", "known copies of a part do not stand out"),
    ],
)
def test_the_panel_says_why_parts_were_not_looked_for(stage, note, words):
    from MemorizationIndexLib import part_search

    stage.finish(
        audit_result(verdicts_with(6), part_note=getattr(part_search, note)), volume_node(SHAPE)
    )
    text = stage.ui.judgedLabel.text
    assert "Copied parts of slices were not looked for: " in text and words in text
    assert "--parts" not in text
    stage.finish(audit_result(verdicts_with(6), part_threshold=0.7))
    assert "not looked for" not in stage.ui.judgedLabel.text


def test_a_part_beside_the_whole_is_told_and_the_pair_stays_the_whole(stage):
    stage.finish(with_part(flagged_by="slice and part"), volume_node((2, 10, 8)))
    stage.panel.results.table.go_to(0)
    text = stage.ui.sliceLabel.text
    assert text.startswith("Slice 0: suspicious. Nearest: subject 1, slice 3.")
    assert "A part stands out as well. The quarter at the top right is like that of" in text
    assert (abs(pixels_of(stage.ui.referencePictureLabel) - 90) <= 8).all()
    assert "a part" in stage.panel.results.table.model.item(0, 1).toolTip()


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ((0.0, 0.5, 0.0, 0.5), "top left"),
        ((0.5, 1.0, 0.25, 0.75), "bottom"),
        ((0.25, 0.75, 0.25, 0.75), "middle"),
        ((0.3, 0.8, 0.5, 1.0), "right"),
    ],
)
def test_where_a_part_lies_in_words(window, words):
    from MemorizationIndexLib.gui.rows import quarter_in_words

    assert quarter_in_words(window) == words


def test_leaving_the_module_brings_the_views_back(stage):
    stage.finish(audit_result(verdicts_with(6, copy=[1])), volume_node(SHAPE))
    layout = slicer.app.layoutManager().layout
    stage.panel.results.table.go_to(1)
    assert slicer.app.layoutManager().layout != layout
    stage.widget.exit()
    assert slicer.app.layoutManager().layout == layout


def test_subject_names_are_hidden_until_asked_for(stage):
    stage.finish(audit_result(verdicts_with(6, copy=[1])), volume_node(SHAPE))
    table = stage.panel.results.table

    def everything():
        node = slicer.util.getFirstNodeByClassByName("vtkMRMLTableNode", "volume memorization")
        cells = [node.GetCellText(r, c) for r in range(6) for c in range(node.GetNumberOfColumns())]
        columns = range(table.model.columnCount())
        cells += [table.model.item(r, c).text() for r in range(6) for c in columns]
        return " ".join([*cells, stage.ui.sliceLabel.text])

    table.go_to(1)
    assert "Doe" not in everything() and "subject 1" in everything()
    stage.ui.showSubjectsCheckBox.checked = True
    assert "Doe^Jane.nii.gz" in everything()
    stage.ui.showSubjectsCheckBox.checked = False
    assert "Doe" not in everything()


def test_the_overlay_and_the_verdicts_can_be_switched(stage):
    from MemorizationIndexLib.scene.results import find_result

    node = volume_node(SHAPE)
    stage.finish(audit_result(verdicts_with(6, copy=[1])), node)
    found = find_result(node)
    composite = slicer.app.layoutManager().sliceWidget("Red").mrmlSliceCompositeNode()
    assert composite.GetBackgroundVolumeID() == node.GetID()
    assert composite.GetForegroundVolumeID() != found.overlay.GetID()
    stage.ui.showOverlayCheckBox.checked = True
    assert composite.GetForegroundVolumeID() == found.overlay.GetID()
    stage.ui.showOverlayCheckBox.checked = False
    assert composite.GetForegroundVolumeID() != found.overlay.GetID()
    assert found.segmentation.GetDisplayNode().GetVisibility()
    stage.ui.showVerdictsCheckBox.checked = False
    assert not found.segmentation.GetDisplayNode().GetVisibility()


def test_the_tints_of_the_views_are_explained_in_their_colors(stage):
    from MemorizationIndexLib.scene.segmentation import SEGMENT_IDS

    node = volume_node(SHAPE)
    stage.finish(audit_result(verdicts_with(6, copy=[1], suspicious=[2])), node)
    segmentation = slicer.util.getNodesByClass("vtkMRMLSegmentationNode")[0].GetSegmentation()
    for verdict in (Verdict.COPY, Verdict.SUSPICIOUS):
        color = segmentation.GetSegment(SEGMENT_IDS[verdict]).GetColor()
        shown = tuple(round(part * 255) for part in color)
        assert f'rgb{shown}">■</span> {verdict.value}' in stage.ui.legendLabel.text


def test_a_second_run_adds_no_nodes(stage):
    node = volume_node(SHAPE)
    stage.finish(audit_result(verdicts_with(6, copy=[1])), node)
    before = own_nodes()
    stage.finish(audit_result(verdicts_with(6, copy=[4])))
    assert own_nodes() == before


def test_two_volumes_each_have_their_rows_and_a_third_takes_its_place_when_finished(stage):
    nodes = [volume_node(SHAPE, name=name) for name in ("a", "a", "b")]
    names = ["a", "a (2)", "b"]
    parts = [
        audit_result({name: verdicts_with(6, copy=[1]) for name in names[:count]})
        for count in (1, 2)
    ]
    go_on = stage.tmp_path / "go on"
    steps = [["result", "partial0", parts[0]], ["result", "partial1", parts[1]]]
    steps += [["wait", str(go_on)], ["say", {"type": "failed", "message": "No more."}], ["exit", 1]]
    stage.run(steps, *nodes)
    box = stage.ui.resultVolumeComboBox
    assert stage.host.wait(20, lambda: box.count == 2)
    assert box.itemText(1) == "a (2): 1 of 6 slices flagged"
    box.currentIndex = 1
    stage.panel.results.table.go_to(3)
    go_on.touch()
    assert stage.ends()
    assert "No more." in stage.message and "2 of 3 volumes were finished" in stage.message
    assert stage.panel.results.table.current().volume == "a (2)"
    assert own_nodes().count("vtkMRMLSegmentationNode") == 2


def test_all_frames_of_a_sequence_are_checked_if_asked(stage):
    from MemorizationIndexLib.gui.parameters import Frames

    proxy = sequence(3)
    name = proxy.GetName()
    stage.panel.parameters.frames = Frames.ALL
    result = audit_result({f"{name} [frame {n}]": verdicts_with(6, copy=[n]) for n in range(3)})
    stage.finish(result, proxy)
    assert stage.message == ""
    from MemorizationIndexLib.scene.sequences import frames_of

    assert frames_of(proxy).selected == 1, "the selection is restored"
    stage.ui.resultVolumeComboBox.currentIndex = 2
    stage.panel.results.table.go_to(2)
    assert frames_of(proxy).selected == 2, "a row leads to its frame"


def test_a_large_volume_is_in_the_scene_as_one_layer(stage):
    node = volume_node(array=np.zeros((160, 320, 320), np.int16))
    go_on = stage.tmp_path / "go on"
    result = audit_result(verdicts_with(160, copy=range(40, 60)))
    steps = [["wait", str(go_on)], ["result", "result", result], ["say", {"type": "finished"}]]
    stage.run([*steps, ["exit", 0]], node)
    stage.host.wait(0.5)
    go_on.touch()
    assert stage.ends()
    segmentation = slicer.util.getNodesByClass("vtkMRMLSegmentationNode")[0]
    assert segmentation.GetSegmentation().GetNumberOfLayers() == 1


def test_progress_is_told_in_slices_with_the_time_left(stage):
    go_on = stage.tmp_path / "go on"
    report = {"type": "progress", "stage": "Scoring", "unit": "slices", "total": 100}
    steps = [
        ["say", {**report, "done": 0}], ["sleep", 1.1], ["say", {**report, "done": 50}],
        ["wait", str(go_on)], ["say", {"type": "failed", "message": "x"}], ["exit", 1],
    ]  # fmt: skip
    stage.run(steps, volume_node(SHAPE))
    ui = stage.ui
    assert ui.applyButton.text == "Cancel"
    assert stage.host.wait(20, lambda: "50 of 100" in ui.progressLabel.text)
    assert ui.progressLabel.text == "Scoring: 50 of 100 slices, a few seconds left"
    assert (ui.progressBar.value, ui.progressBar.maximum) == (50, 100)
    assert not ui.volumesCollapsibleButton.enabled
    go_on.touch()
    assert stage.ends() and ui.volumesCollapsibleButton.enabled


# Everything that can happen during a run


def test_cancel_keeps_finished_volumes_and_leaves_nothing_behind(stage):
    nodes = [volume_node(SHAPE, name=name) for name in ("a", "b")]
    part = audit_result({"a": verdicts_with(6, copy=[1])})
    pid = long_run(stage, *nodes, before=[["result", "partial0", part]])
    folder = stage.last_job.folder
    assert stage.host.wait(20, lambda: stage.panel.results.result is not None)
    stage.ui.applyButton.click()
    assert stage.ends() and not alive(pid) and not folder.exists()
    assert "1 of 2 volumes were finished" in stage.message
    assert len(stage.panel.results.table.rows) == 6 and stage.ui.applyButton.text == "Apply"


def test_the_scene_is_closed_during_a_run(stage):
    node = volume_node(SHAPE)
    part = audit_result(verdicts_with(6, copy=[1]))
    pid = long_run(stage, node, before=[["result", "partial0", part]])
    assert stage.host.wait(20, lambda: stage.panel.results.result is not None)
    stage.panel.results.table.go_to(1)
    stage.host.scene.clear()
    assert not alive(pid) and stage.panel.job is None
    assert "scene was closed" in stage.message and "listed below" in stage.message
    assert own_nodes() == [] and not stage.ui.applyButton.enabled
    stage.panel.results.table.go_to(2)
    assert "no longer in the scene" in stage.ui.sliceLabel.text
    again = volume_node(SHAPE, name="again")
    stage.finish(audit_result(verdicts_with(6), "again"), again)
    assert "vtkMRMLSegmentationNode" in own_nodes()


def test_the_scene_is_closed_while_another_module_is_open(stage):
    pid = long_run(stage, volume_node(SHAPE))
    stage.widget.parent.exit()
    stage.host.scene.clear()
    assert not alive(pid)
    stage.widget.parent.enter()
    assert stage.panel.parameters is not None and stage.panel.chosen_nodes() == []


def test_the_volume_is_deleted_during_a_run(stage):
    one, two = volume_node(SHAPE, name="one"), volume_node(SHAPE, name="two")
    go_on = stage.tmp_path / "go on"
    result = audit_result({"one": verdicts_with(6, copy=[1]), "two": verdicts_with(6)})
    steps = [["wait", str(go_on)], ["result", "result", result], ["say", {"type": "finished"}]]
    stage.run([*steps, ["exit", 0]], one, two)
    slicer.mrmlScene.RemoveNode(one)
    go_on.touch()
    assert stage.ends()
    assert "'one' is no longer in the scene" in stage.message
    assert stage.ui.resultVolumeComboBox.count == 2
    assert own_nodes().count("vtkMRMLSegmentationNode") == 1
    stage.panel.results.table.go_to(1)


def test_the_voxels_change_during_a_run(stage):
    node = volume_node(SHAPE)
    go_on = stage.tmp_path / "go on"
    result = audit_result(verdicts_with(6, copy=[1]))
    steps = [["wait", str(go_on)], ["result", "result", result], ["say", {"type": "finished"}]]
    stage.run([*steps, ["exit", 0]], node)
    slicer.util.arrayFromVolume(node)[:] = 0
    slicer.util.arrayFromVolumeModified(node)
    node.GetImageData().Modified()
    go_on.touch()
    assert stage.ends()
    assert "have changed since they were read" in stage.message and own_nodes() == []


def test_the_module_is_reloaded_during_a_run(stage):
    pid = long_run(stage, volume_node(SHAPE))
    kept = {name: module for name, module in sys.modules.items() if "MemorizationIndexLib" in name}
    try:
        stage.widget.onReload()
        assert not alive(pid)
        again = slicer.util.getModuleWidget("MemorizationIndex")
        assert again is not stage.widget and again.panel is not None
        fresh = sys.modules["MemorizationIndexLib.gui.panel"]
        assert fresh is not kept["MemorizationIndexLib.gui.panel"]
        stage.host.unload()
    finally:
        sys.modules.update(kept)


def test_slicer_quits_during_a_run(stage):
    pid = long_run(stage, volume_node(SHAPE))
    slicer.app.quit()
    assert not alive(pid)
    stage.host.unload()


def test_the_worker_is_killed_during_a_run(stage):
    nodes = [volume_node(SHAPE, name=name) for name in ("a", "b")]
    part = audit_result({"a": verdicts_with(6, copy=[1])})
    pid = long_run(stage, *nodes, before=[["result", "partial0", part]])
    assert stage.host.wait(20, lambda: stage.panel.results.result is not None)
    os.kill(pid, signal.SIGKILL)
    assert stage.ends()
    assert "without a word" in stage.message and "1 of 2 volumes" in stage.message
    assert len(stage.panel.results.table.rows) == 6


def test_the_worker_falls_silent_during_a_run(stage, monkeypatch):
    from MemorizationIndexLib.gui import process

    monkeypatch.setattr(process, "SILENT_AFTER", 0.3)
    monkeypatch.setattr(process, "KILL_AFTER", 0.3)
    pid = long_run(stage, volume_node(SHAPE))
    os.kill(pid, signal.SIGSTOP)
    assert stage.host.wait(10, lambda: "has not answered" in stage.message)
    stage.ui.applyButton.click()
    assert stage.ends() and not alive(pid)


def test_an_error_is_shown_with_the_log_and_another_run_takes_it_away(stage):
    steps = [
        ["complain", "Traceback: something"],
        ["say", {"type": "failed", "message": "Not enough memory."}],
        ["exit", 1],
    ]
    stage.run(steps, volume_node(SHAPE))
    assert stage.ends()
    ui = stage.ui
    assert "Not enough memory." in stage.message and not ui.messageDetailsButton.isHidden()
    ui.messageDetailsButton.checked = True
    assert ui.messageDetailsText.toPlainText() == "Traceback: something"
    stage.finish(audit_result(verdicts_with(6)))
    assert stage.message == ""


def test_a_damaged_result_is_an_error_not_an_exception(stage):
    stage.run([["say", {"type": "finished"}], ["exit", 0]], volume_node(SHAPE))
    result = stage.last_job.folder / "result"
    result.mkdir()
    (result / "result.json").write_text('{"format": 1}')
    assert stage.ends()
    assert "damaged" in stage.message


def test_a_full_disk_is_an_error_not_an_exception(stage, monkeypatch):
    from MemorizationIndexLib.gui import jobs

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jobs, "write_volumes", full)
    stage.choose(volume_node(SHAPE))
    stage.ui.applyButton.click()
    assert stage.panel.job is None and "No space left" in stage.message
    assert not stage.last_job.folder.exists()


# Cohorts


def test_a_cohort_is_built_from_a_folder_and_chosen(stage):
    stage.answers.answers = {"folder": "/data/training", "new_file": stage.tmp_path / "brains"}
    stage.steps = [["say", {"type": "finished", "warnings": ["Few people."], "refused": ["x"]}]]
    stage.steps.append(["exit", 0])
    (stage.tmp_path / "brains.micohort").mkdir()
    stage.ui.buildFromFolderButton.click()
    job = stage.last_job.process._job
    assert job["inputs"] == ["/data/training"] and job["path"].endswith("brains.micohort")
    assert stage.ends()
    assert stage.panel.parameters.cohort.endswith("brains.micohort")
    assert "Few people." in stage.message and "1 inputs were left out" in stage.message


def test_a_cohort_is_built_from_the_chosen_volumes(stage):
    nodes = [volume_node(SHAPE, name=f"p{n}") for n in range(2)]
    stage.choose(*nodes)
    stage.answers.answers = {"new_file": stage.tmp_path / "two.micohort"}
    stage.steps = [["say", {"type": "failed", "message": "At least 5 people."}], ["exit", 1]]
    stage.ui.buildFromVolumesButton.click()
    volumes = stage.last_job.folder / "volumes"
    assert (volumes / "1.npy").is_file() and "inputs" not in stage.last_job.process._job
    assert stage.ends() and "At least 5 people." in stage.message


def test_declining_the_dialogs_does_nothing(stage):
    stage.ui.buildFromFolderButton.click()
    stage.panel.results.export("slices")
    assert stage.panel.job is None and stage.message == ""


def test_a_path_that_is_no_cohort_is_told_at_once(stage, monkeypatch, tmp_path):
    from MemorizationIndexLib.gui.auditing import cohort_facts

    monkeypatch.setattr(type(stage.logic), "cohortFacts", lambda _s, path: cohort_facts(path))
    stage.choose(volume_node(SHAPE))
    for name, words in (("none.micohort", "no cohort at"), ("", "is not a cohort")):
        stage.ui.cohortPathLineEdit.currentPath = str(tmp_path / name)
        assert words in stage.ui.cohortFactsLabel.text and not stage.ui.applyButton.enabled
    damaged = tmp_path / "damaged.micohort"
    damaged.mkdir()
    (damaged / "cohort.json").write_text("{")
    stage.ui.cohortPathLineEdit.currentPath = str(damaged)
    assert "damaged" in stage.ui.cohortFactsLabel.text


# Files and diagnostics


def test_tables_are_exported_without_names_unless_they_are_shown(stage, tmp_path):
    stage.finish(audit_result(verdicts_with(6, copy=[1])), volume_node(SHAPE))
    for kind, name in (("slices", "s.csv"), ("volumes", "v.csv"), ("summary", "s.json")):
        stage.answers.answers = {"new_file": tmp_path / name}
        stage.panel.results.export(kind)
        assert "Written to" in stage.message and (tmp_path / name).stat().st_size > 0
    assert "Doe" not in (tmp_path / "s.csv").read_text(encoding="utf-8")
    stage.ui.showSubjectsCheckBox.checked = True
    stage.answers.answers = {"new_file": tmp_path / "s.csv"}
    stage.panel.results.export("slices")
    assert "Doe^Jane" in (tmp_path / "s.csv").read_text(encoding="utf-8")


def test_a_place_that_cannot_be_written_is_told(stage, tmp_path):
    stage.finish(audit_result(verdicts_with(6, copy=[1])), volume_node(SHAPE))
    stage.panel.results.export_to("slices", tmp_path / "none" / "s.csv")
    assert "cannot be written" in stage.message


def test_only_the_report_asks_to_install_and_a_no_is_taken(stage, tmp_path, monkeypatch):
    from MemorizationIndexLib.gui import packages

    monkeypatch.setattr(packages, "installed_version", lambda _: None)
    stage.finish(audit_result(verdicts_with(6, copy=[1])), volume_node(SHAPE))
    stage.panel.results.export_to("slices", tmp_path / "s.csv")
    assert stage.answers.asked == []
    stage.panel.results.export_to("report", tmp_path / "r.html")
    assert "jinja2" in stage.answers.asked[-1]
    assert "no report can be written" in stage.message and not (tmp_path / "r.html").exists()


def test_the_report_is_written(stage, tmp_path):
    pytest.importorskip("jinja2")
    stage.finish(audit_result(verdicts_with(6, copy=[1])), volume_node(SHAPE))
    stage.panel.results.export_to("report", tmp_path / "Bericht 患者.html")
    assert "<html" in (tmp_path / "Bericht 患者.html").read_text(encoding="utf-8")


def test_diagnostics_name_versions_and_geometry_but_no_patient(stage, tmp_path):
    node = volume_node(SHAPE, name="Doe^Jane T1")
    steps = [
        ["complain", f'File "/home/someone/Doe/{"MemorizationIndexLib"}/worker.py", line 3'],
        ["complain", "cannot read /data/patients/Doe/scan.nii.gz"],
        ["complain", "Doe^Jane T1 has no slices"],
        ["say", {"type": "failed", "message": "Doe^Jane T1 cannot be used."}],
        ["exit", 1],
    ]
    stage.run(steps, node)
    assert stage.ends()
    stage.ui.diagnosticsButton.click()
    text = slicer.app.clipboard().text()
    assert "MemorizationIndex 0" in text and "Slicer 5" in text and "8×10×6 voxels" in text
    assert "MemorizationIndexLib/worker.py" in text and "line 3" in text
    assert "Doe" not in text and "patients" not in text and str(tmp_path) not in text


def test_the_plot_is_shown_in_the_layout(stage):
    node = volume_node(SHAPE)
    stage.finish(audit_result(verdicts_with(6, copy=[1])), node)
    stage.ui.plotButton.click()
    selection = slicer.mrmlScene.GetSingletonNode("Singleton", "vtkMRMLSelectionNode")
    assert selection.GetActivePlotChartID()
    slicer.mrmlScene.RemoveNode(node)
    stage.ui.plotButton.click()
    assert "no longer in the scene" in stage.message


def test_the_choices_are_kept_with_the_scene(stage, tmp_path):
    from MemorizationIndexLib.gui.parameters import MemorizationIndexParameters, Plane

    stage.panel.parameters.plane = Plane.CORONAL
    stage.ui.alphaSpinBox.value = 0.05
    again = MemorizationIndexParameters(stage.logic.getParameterNode())
    assert again.plane is Plane.CORONAL and again.alpha == pytest.approx(0.05)
