"""The stand-in itself: does it behave as Slicer documents?"""

import textwrap
from enum import Enum
from pathlib import Path
from typing import Annotated

import pytest

slicer = pytest.importorskip("slicer", reason="needs slicer-core from PyPI")
pytest.importorskip("PySide6.QtWidgets", reason="needs PySide6-Essentials from PyPI")

from slicer import vtkMRMLScalarVolumeNode, vtkMRMLScriptedModuleNode  # noqa: E402

from slicer_host.examples import volume_node  # noqa: E402

pytestmark = pytest.mark.usefixtures("slicer_app")


# PythonQt's style


def test_properties_are_attributes_and_cannot_be_called():
    import qt

    button = qt.QPushButton("Apply")
    button.enabled = False
    button.name = "applyButton"
    assert (button.text, button.enabled, button.objectName) == ("Apply", False, "applyButton")
    with pytest.raises(TypeError):
        button.text()
    button.setText("Cancel")
    assert button.text == "Cancel"


def test_attributes_cannot_be_made_up_on_qt_objects_but_on_ones_own_classes():
    import qt

    with pytest.raises(AttributeError, match="'txet'"):
        qt.QLabel().txet = "typo"

    class Label(qt.QLabel):
        pass

    label = Label("a")
    label.mine = 3
    assert (label.mine, label.text) == (3, "a")


def test_slots_get_as_many_arguments_as_they_take():
    import qt

    box, seen = qt.QCheckBox(), []
    box.connect("toggled(bool)", lambda checked: seen.append(checked))
    box.connect("toggled(bool)", lambda: seen.append("none"))
    box.toggled.connect(lambda *rest: seen.append(rest))
    box.checked = True
    assert seen == [True, "none", (True,)]


def test_disconnect_undoes_connect_and_an_unknown_signal_is_refused():
    import qt

    button, seen = qt.QPushButton(), []

    def slot():
        seen.append(1)

    button.connect("clicked()", slot)
    button.click()
    assert button.disconnect("clicked()", slot)
    button.click()
    assert seen == [1] and not button.disconnect("clicked()", slot)
    with pytest.raises(ValueError, match="no signal 'clikced"):
        button.connect("clikced()", slot)


def test_an_exception_in_a_slot_does_not_reach_the_caller_but_is_remembered(slicer_app, capsys):
    import qt

    def slot():
        raise RuntimeError("broken slot")

    for connect in (
        lambda b: b.connect("clicked()", slot),
        lambda b: b.clicked.connect(slot),
    ):
        button = qt.QPushButton()
        connect(button)
        button.click()
        assert [str(error) for error in slicer_app.slot_errors] == ["broken slot"]
        slicer_app.slot_errors.clear()


def test_there_are_no_signals_of_ones_own():
    import qt

    assert not hasattr(qt, "Signal")


# Widgets over MRML


def selector(**properties):
    box = slicer.qMRMLNodeComboBox()
    box.nodeTypes = ["vtkMRMLScalarVolumeNode"]
    for name, value in properties.items():
        setattr(box, name, value)
    return box


def test_a_selector_needs_a_scene_and_takes_the_first_node():
    node = volume_node(name="T1")
    box = selector()
    assert not box.enabled and box.currentNode() is None
    box.setMRMLScene(slicer.mrmlScene)
    assert box.enabled and box.currentNode() is node and box.currentNodeID == node.GetID()


def test_a_selector_follows_the_scene():
    box, changes = selector(noneEnabled=True), []
    box.connect("currentNodeChanged(vtkMRMLNode*)", lambda node: changes.append(node))
    box.setMRMLScene(slicer.mrmlScene)
    node = volume_node(name="T1")
    assert box.currentNode() is None and box.nodeCount() == 1
    box.setCurrentNode(node)
    slicer.mrmlScene.RemoveNode(node)
    assert box.currentNode() is None and changes == [node, None]


def offered(box):
    return [box.nodeFromIndex(index) for index in range(box.nodeCount())]


def test_derived_classes_and_hidden_nodes_are_filtered():
    labels = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLabelMapVolumeNode")
    hidden = volume_node(name="hidden")
    hidden.SetHideFromEditors(1)
    box = selector(noneEnabled=True)
    box.setMRMLScene(slicer.mrmlScene)
    assert offered(box) == [labels]
    box.showChildNodeTypes = False
    assert offered(box) == []
    box.showHidden = True
    slicer.mrmlScene.InvokeEvent(slicer.vtkMRMLScene.EndImportEvent)
    assert hidden in offered(box)


def test_nodes_are_hidden_by_id():
    one, two = volume_node(name="one"), volume_node(name="two")
    box = selector(noneEnabled=True)
    box.setMRMLScene(slicer.mrmlScene)
    box.sortFilterProxyModel().hiddenNodeIDs = [one.GetID()]
    assert offered(box) == [two]
    box.sortFilterProxyModel().hiddenNodeIDs = []
    assert offered(box) == [one, two]


def test_what_pythonqt_does_not_offer_is_not_offered():
    assert not hasattr(selector(), "nodes")


def test_checked_nodes_leave_with_their_node():
    box, changes = slicer.qMRMLCheckableNodeComboBox(), []
    box.nodeTypes = ["vtkMRMLScalarVolumeNode"]
    box.setMRMLScene(slicer.mrmlScene)
    one, two = volume_node(name="one"), volume_node(name="two")
    box.connect("checkedNodesChanged()", lambda: changes.append(box.checkedNodes()))
    box.check(two)
    box.check(one)
    assert box.checkedNodes() == [one, two]
    slicer.mrmlScene.RemoveNode(one)
    assert box.checkedNodes() == [two] and changes == [[two], [one, two], [two]]


# Parameter node


class Protocol(Enum):
    CALIBRATED = "calibrated"
    PAPER = "paper"

    def label(self):
        return self.value


def wrapped():
    from slicer.parameterNodeWrapper import WithinRange, parameterNodeWrapper

    @parameterNodeWrapper
    class Parameters:
        volume: vtkMRMLScalarVolumeNode
        volumes: list[vtkMRMLScalarVolumeNode]
        alpha: Annotated[float, WithinRange(0, 1)] = 0.01
        protocol: Protocol = Protocol.CALIBRATED
        all_frames: bool = False
        cohort: Path
        note: str | None

    node = slicer.mrmlScene.AddNode(vtkMRMLScriptedModuleNode())
    return Parameters(node), Parameters


def test_parameters_have_types_defaults_and_limits():
    parameters, wrapper = wrapped()
    assert parameters.alpha == 0.01 and parameters.protocol is Protocol.CALIBRATED
    assert parameters.volume is None and list(parameters.volumes) == []
    assert parameters.cohort == Path() and parameters.note is None
    with pytest.raises(ValueError):
        parameters.alpha = 2.0
    with pytest.raises(TypeError):
        parameters.all_frames = "yes"
    parameters.protocol = Protocol.PAPER
    parameters.note = "x"
    again = wrapper(parameters.parameterNode)
    assert again.protocol is Protocol.PAPER and again.note == "x"


def test_node_parameters_forget_deleted_nodes():
    parameters, _ = wrapped()
    one, two = volume_node(name="one"), volume_node(name="two")
    parameters.volume = one
    parameters.volumes = [one, two]
    parameters.volumes.append(one)
    assert list(parameters.volumes) == [one, two, one]
    slicer.mrmlScene.RemoveNode(one)
    assert parameters.volume is None and list(parameters.volumes) == [None, two, None]


def test_widgets_and_parameters_stay_in_step_until_disconnected():
    import ctk
    import qt

    parameters, _ = wrapped()
    panel = qt.QWidget()
    widgets = {
        "alpha": ctk.ctkSliderWidget(panel),
        "protocol": qt.QComboBox(panel),
        "all_frames": qt.QCheckBox(panel),
        "volume": slicer.qMRMLNodeComboBox(panel),
        "cohort": ctk.ctkPathLineEdit(panel),
    }
    for name, widget in widgets.items():
        widget.setProperty("SlicerParameterName", name)
    widgets["volume"].noneEnabled = True
    widgets["volume"].setMRMLScene(slicer.mrmlScene)
    node = volume_node()
    tag = parameters.connectGui(panel)
    widgets["alpha"].value = 0.05
    widgets["protocol"].currentIndex = 1
    widgets["all_frames"].checked = True
    widgets["volume"].setCurrentNode(node)
    widgets["cohort"].currentPath = "/tmp/a cohort"
    assert parameters.alpha == pytest.approx(0.05) and parameters.protocol is Protocol.PAPER
    assert parameters.all_frames and parameters.volume is node
    assert parameters.cohort == Path("/tmp/a cohort")
    parameters.protocol = Protocol.CALIBRATED
    assert widgets["protocol"].currentText == "calibrated"
    parameters.disconnectGui(tag)
    widgets["all_frames"].checked = False
    parameters.protocol = Protocol.PAPER
    assert parameters.all_frames and widgets["protocol"].currentText == "calibrated"


# Modules

SOURCE = """
import qt
import slicer
from slicer.i18n import tr as _
from slicer.ScriptedLoadableModule import *
from slicer.util import VTKObservationMixin
from slicer.parameterNodeWrapper import parameterNodeWrapper
from slicer import vtkMRMLScalarVolumeNode


@parameterNodeWrapper
class SampleParameterNode:
    volume: vtkMRMLScalarVolumeNode


class Sample(ScriptedLoadableModule):
    def __init__(self, parent):
        ScriptedLoadableModule.__init__(self, parent)
        parent.title = _("Sample")


class SampleWidget(ScriptedLoadableModuleWidget, VTKObservationMixin):
    def __init__(self, parent=None):
        ScriptedLoadableModuleWidget.__init__(self, parent)
        VTKObservationMixin.__init__(self)
        self.events = []

    def setup(self):
        ScriptedLoadableModuleWidget.setup(self)
        ui = slicer.util.loadUI(self.resourcePath("UI/Sample.ui"))
        self.layout.addWidget(ui)
        self.ui = slicer.util.childWidgetVariables(ui)
        ui.setMRMLScene(slicer.mrmlScene)
        self.logic = SampleLogic()
        self.parameters = SampleParameterNode(self.logic.getParameterNode())
        self.tag = self.parameters.connectGui(self.ui)

    def enter(self):
        self.events.append("enter")

    def exit(self):
        self.events.append("exit")

    def cleanup(self):
        self.events.append("cleanup")
        self.parameters.disconnectGui(self.tag)
        self.removeObservers()


class SampleLogic(ScriptedLoadableModuleLogic):
    pass


class SampleTest(ScriptedLoadableModuleTest):
    def runTest(self):
        slicer.sample_test_ran = True
"""
UI = """<ui version="4.0"><class>Sample</class>
<widget class="qMRMLWidget" name="Sample"><layout class="QVBoxLayout" name="layout">
<item><widget class="qMRMLNodeComboBox" name="selector">
 <property name="nodeTypes"><stringlist notr="true"><string>vtkMRMLScalarVolumeNode</string>
 </stringlist></property>
 <property name="SlicerParameterName" stdset="0"><string>volume</string></property></widget></item>
<item><widget class="ctkCollapsibleButton" name="advanced">
 <property name="text"><string>Advanced</string></property>
 <property name="collapsed"><bool>true</bool></property>
 <layout class="QFormLayout" name="form"><item row="0" column="0">
 <widget class="QLabel" name="label"><property name="text"><string>alpha</string></property>
 </widget>
 </item></layout></widget></item>
<item><widget class="QPushButton" name="applyButton">
 <property name="enabled"><bool>false</bool></property></widget></item></layout></widget>
<connections><connection><sender>Sample</sender><signal>mrmlSceneChanged(vtkMRMLScene*)</signal>
<receiver>selector</receiver><slot>setMRMLScene(vtkMRMLScene*)</slot></connection></connections></ui>
"""


@pytest.fixture
def sample(slicer_app, tmp_path):
    folder = tmp_path / "Müller 患者"
    (folder / "Resources" / "UI").mkdir(parents=True)
    (folder / "Sample.py").write_text(textwrap.dedent(SOURCE), encoding="utf-8")
    (folder / "Resources" / "UI" / "Sample.ui").write_text(UI, encoding="utf-8")
    return slicer_app.load_module(folder / "Sample.py")


def test_a_module_loads_without_its_panel(sample):
    assert slicer.modules.sample is sample and sample.title == "Sample"
    assert not hasattr(slicer.modules, "SampleWidget")
    assert "Sample" in slicer.util.moduleNames()


def test_the_panel_is_made_from_the_ui_file(slicer_app, sample):
    widget = slicer_app.enter(sample)
    assert slicer.util.getModuleWidget("Sample") is widget
    assert slicer.util.getModuleLogic("Sample") is widget.logic
    assert widget.ui.selector.nodeTypes == ["vtkMRMLScalarVolumeNode"]
    assert widget.ui.selector.mrmlScene() is slicer.mrmlScene
    assert not widget.ui.applyButton.enabled
    assert widget.ui.advanced.text == "Advanced" and widget.ui.advanced.collapsed
    node = volume_node()
    assert widget.parameters.volume is node
    assert not widget.parent.grab().isNull()


def test_entering_leaving_reloading_and_unloading(slicer_app, sample):
    widget = slicer_app.enter(sample)
    assert widget.parent.isEntered
    widget.parent.exit()
    assert not widget.parent.isEntered
    widget.onReload()
    again = slicer.util.getModuleWidget("Sample")
    assert again is not widget and widget.events == ["enter", "exit", "cleanup"]
    assert again.ui.selector.enabled
    slicer_app.unload()
    assert again.events == ["cleanup"] and "Sample" not in slicer.util.moduleNames()


def test_the_modules_own_test_runs(sample):
    slicer.selfTests["Sample"](msec=0)
    assert slicer.sample_test_ran


def test_the_parameter_node_is_a_singleton_that_survives_closing(slicer_app, sample):
    widget = slicer_app.enter(sample)
    first = widget.logic.getParameterNode()
    assert widget.logic.getParameterNode() is first
    widget.parameters.disconnectGui(widget.tag)
    slicer_app.scene.clear()
    assert widget.logic.getParameterNode().GetAttribute("ModuleName") == "Sample"


# Application


def test_no_main_window_and_messages_answer_themselves(slicer_app):
    assert slicer.util.mainWindow() is None
    # Documented as True in testing mode; Slicer compares that True with the button, hence False.
    assert slicer.util.confirmYesNoDisplay("Really?") is False
    slicer.util.errorDisplay("only logged")


def test_settings_are_not_the_users(slicer_app):
    import qt

    qt.QSettings().setValue("MemorizationIndex/Device", "cpu")
    assert slicer.util.settingsValue("MemorizationIndex/Device", "") == "cpu"
    assert "slicer_host" in qt.QSettings().fileName()
    qt.QSettings().remove("MemorizationIndex")


def test_a_wait_cursor_left_behind_is_noticed():
    from slicer_host.fixtures import take_override_cursors

    with pytest.raises(RuntimeError), slicer.util.WaitCursor():
        raise RuntimeError
    assert take_override_cursors() == 0
    import qt

    slicer.app.setOverrideCursor(qt.Qt.WaitCursor)
    assert take_override_cursors() == 1


def test_quitting_is_announced(slicer_app):
    seen = []
    slicer.app.connect("aboutToQuit()", lambda: seen.append("quit"))
    slicer.app.quit()
    assert seen == ["quit"]


def test_slice_widgets_lead_to_nodes_and_logics(slicer_app):
    manager = slicer.app.layoutManager()
    assert {"Red", "Green", "Yellow"} <= set(manager.sliceViewNames())
    widget = manager.sliceWidget("Red")
    assert widget.mrmlSliceNode().GetLayoutName() == "Red"
    assert widget.sliceLogic().GetSliceCompositeNode() is widget.mrmlSliceCompositeNode()
    slicer.util.setSliceViewerLayers(background=volume_node(), fit=True)


def test_timers_and_processes_run(slicer_app):
    import sys

    import qt

    fired = []
    qt.QTimer.singleShot(1, lambda: fired.append(1))
    assert slicer_app.wait(2, lambda: bool(fired))
    process, done = qt.QProcess(), []
    process.connect("finished(int,QProcess::ExitStatus)", lambda code, status: done.append(code))
    process.start(sys.executable, ["-c", "print('ü'); raise SystemExit(3)"])
    assert slicer_app.wait(20, lambda: bool(done)) and done == [3]
    assert bytes(process.readAllStandardOutput()).decode("utf-8", "replace").strip() == "ü"
