from __future__ import annotations

import numpy as np
import pytest

slicer = pytest.importorskip("slicer", reason="needs slicer-core from PyPI")

from MemorizationIndexLib.results import Verdict  # noqa: E402
from MemorizationIndexLib.scene.errors import SceneError  # noqa: E402
from MemorizationIndexLib.scene.sequences import (  # noqa: E402
    frame_name,
    frames_of,
    read_frames,
    read_this_frame,
    write_frames,
)
from MemorizationIndexLib.scene.source import remember  # noqa: E402
from slicer_host.examples import (  # noqa: E402
    audit_result,
    own_nodes,
    segment_array,
    translation,
    under_transform,
    verdicts_with,
    volume_node,
)

pytestmark = pytest.mark.usefixtures("host")


def cine(count=3, shape=(5, 6, 7), selected=1):
    """A browser whose proxy volume shows one of ``count`` frames filled with their index."""
    sequence = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSequenceNode", "cine")
    sequence.SetIndexName("time")
    sequence.SetIndexUnit("s")
    for frame in range(count):
        node = volume_node(array=np.full(shape, frame, np.float32), name="cine")
        sequence.SetDataNodeAtValue(node, str(0.5 * frame))
        slicer.mrmlScene.RemoveNode(node)
    browser = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSequenceBrowserNode", "browser")
    browser.SetAndObserveMasterSequenceNodeID(sequence.GetID())
    browser.SetSelectedItemNumber(selected)
    update()
    return browser, sequence, browser.GetProxyNode(sequence)


def update():
    slicer.modules.sequences.logic().UpdateAllProxyNodes()


def test_an_ordinary_volume_has_no_frames():
    volume = volume_node()
    assert frames_of(volume) is None
    with pytest.raises(SceneError, match="is no sequence"):
        read_frames(volume)


def test_the_proxy_of_a_browser_is_recognised():
    browser, sequence, proxy = cine()
    frames = frames_of(proxy)
    assert frames.browser is browser and frames.sequence is sequence
    assert (frames.count, frames.selected) == (3, 1)


def test_this_frame_is_the_one_shown():
    browser, _, proxy = cine()
    assert (read_this_frame(proxy).array == 1).all()
    browser.SetSelectedItemNumber(2)
    update()
    assert (read_this_frame(proxy).array == 2).all()


def test_all_frames_are_read_and_the_selection_stays():
    """SLICER.md 7.12."""
    browser, _, proxy = cine()
    moved = []
    browser.AddObserver("ModifiedEvent", lambda *_: moved.append(browser.GetSelectedItemNumber()))
    volumes = read_frames(proxy)
    assert [float(volume.array.max()) for volume in volumes] == [0, 1, 2]
    assert [volume.name for volume in volumes] == [frame_name("cine", n) for n in range(3)]
    assert len({volume.subject for volume in volumes}) == 1
    assert browser.GetSelectedItemNumber() == 1 and moved == []
    assert (slicer.util.arrayFromVolume(proxy) == 1).all()


def test_what_was_read_does_not_change_when_the_browser_moves():
    browser, _, proxy = cine()
    volume = read_this_frame(proxy)
    browser.SetSelectedItemNumber(0)
    update()
    assert (volume.array == 1).all()


def test_a_frame_that_cannot_be_used_is_named():
    _, sequence, proxy = cine()
    sequence.GetNthDataNode(2).SetAndObserveImageData(None)
    with pytest.raises(SceneError, match=r"Frame 2 of 'cine'.*no image data"):
        read_frames(proxy)


def result_of_frames():
    flagged = {0: [0], 1: [2], 2: []}
    return audit_result(
        {frame_name("cine", n): verdicts_with(5, copy=which) for n, which in flagged.items()}
    )


def copies_shown(result):
    array = segment_array(result.segmentation, "Copy", result.volume)
    return np.unique(np.nonzero(array)[0]).tolist()


def test_each_frame_shows_its_own_verdicts():
    """SLICER.md 7.12: the same mask for all frames was the complaint."""
    browser, _, proxy = cine()
    result = write_frames(remember(proxy, is_frame=True), result_of_frames(), 0)
    assert browser.GetSelectedItemNumber() == 1
    assert copies_shown(result) == [2]
    for frame, expected in ((0, [0]), (2, []), (1, [2])):
        browser.SetSelectedItemNumber(frame)
        update()
        assert copies_shown(result) == expected
        oni = slicer.util.arrayFromVolume(result.overlay)[:, 0, 0]
        assert np.flatnonzero(oni == -1).tolist() == expected


def test_the_table_has_a_frame_column():
    _, _, proxy = cine()
    table = write_frames(remember(proxy, is_frame=True), result_of_frames(), 0).table.GetTable()
    assert table.GetNumberOfRows() == 15
    frames = [table.GetColumnByName("Frame").GetValue(row) for row in (0, 5, 14)]
    assert frames == ["0", "1", "2"]


def test_a_second_run_over_frames_adds_nothing():
    browser, _, proxy = cine()
    under_transform(proxy, translation(40, 0, 0))
    write_frames(remember(proxy, is_frame=True), result_of_frames(), 0)
    count, names = slicer.mrmlScene.GetNumberOfNodes(), own_nodes()
    result = write_frames(remember(proxy, is_frame=True), result_of_frames(), 0)
    assert slicer.mrmlScene.GetNumberOfNodes() == count and own_nodes() == names
    assert copies_shown(result) == [2]
    assert result.segmentation.GetParentTransformNode() is proxy.GetParentTransformNode()
    browser.SetSelectedItemNumber(0)
    update()
    assert copies_shown(result) == [0]


def test_a_frame_may_move_on_during_the_run_but_not_change_its_geometry():
    browser, _, proxy = cine()
    source = remember(proxy, is_frame=True)
    browser.SetSelectedItemNumber(2)
    update()
    assert source.node() is proxy
    proxy.SetSpacing(2, 2, 2)
    with pytest.raises(SceneError, match="geometry"):
        source.node()


def test_a_result_that_lacks_a_frame_is_refused():
    _, _, proxy = cine()
    before = own_nodes()
    result = audit_result({frame_name("cine", 0): [Verdict.COPY] * 5})
    with pytest.raises(SceneError, match=r"named 'cine \[frame 1\]'"):
        write_frames(remember(proxy, is_frame=True), result, 0)
    assert own_nodes() == before == []
