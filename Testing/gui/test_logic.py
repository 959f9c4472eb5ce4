"""The module's logic as a script uses it, with the real worker: from nodes to nodes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

slicer = pytest.importorskip("slicer", reason="needs slicer-core from PyPI")
pytest.importorskip("PySide6.QtWidgets", reason="needs PySide6-Essentials from PyPI")
pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("SimpleITK", reason="needs SimpleITK")

from MemorizationIndexLib.phantoms import make_patient  # noqa: E402
from MemorizationIndexLib.results import Verdict  # noqa: E402
from slicer_host.examples import own_nodes, rotation, volume_node  # noqa: E402

MODULE = Path(__file__).resolve().parents[2] / "MemorizationIndex" / "MemorizationIndex.py"
AFFINE = np.diag([1.8, 1.8, 7.0, 1.0])
PATIENTS, SLICES, SIZE = 8, 5, 64


@pytest.fixture
def logic(slicer_app):
    slicer_app.load_module(MODULE)
    return slicer.util.getModuleLogic("MemorizationIndex")


@pytest.fixture(scope="module")
def heads():
    return [make_patient(number, slices=SLICES, size=SIZE) for number in range(PATIENTS)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("Kohorte 患者")


@pytest.fixture
def cohort(logic, heads, place):
    path = place / "phantoms.micohort"
    if not path.exists():
        nodes = [
            volume_node(array=head, affine=AFFINE, name=f"p{number}")
            for number, head in enumerate(heads)
        ]
        assert logic.buildCohort(nodes, path, encoder="builtin", inputSize=SIZE) == path
        for node in nodes:
            slicer.mrmlScene.RemoveNode(node)
    return path


def options(**more):
    return {"alpha": 0.05, "device": "cpu", **more}


def test_a_copy_is_found_and_shown(logic, cohort, heads):
    array = np.concatenate([heads[2][:3], make_patient(77, slices=2, size=SIZE)])
    node = volume_node(array=array, affine=AFFINE, name="T1 \"post\" 'Gd'")
    result = logic.score(node, cohort, **options())
    assert [row.nearest_subject for row in result.slices[:3]] == ["p2"] * 3
    assert [row.verdict for row in result.slices[:3]] == [Verdict.COPY] * 3
    shown = logic.showResult(node, result)
    assert [one.volume for one in shown] == [node]
    assert shown[0].table.GetNumberOfRows() == 5
    before = own_nodes()
    logic.showResult(node, result)
    assert own_nodes() == before


def test_the_same_image_stored_in_another_order_gets_the_same_scores(logic, cohort, heads):
    array, size = heads[3], SIZE
    plain = volume_node(array=array, affine=AFFINE, name="plain")
    # K backwards: slice k of the one is slice 4 − k of the other.
    flipped = AFFINE @ np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, -1, 4], [0, 0, 0, 1.0]])
    backwards = volume_node(array=array[::-1].copy(), affine=flipped, name="backwards")
    # Axes permuted: the slices run along array axis 2 (I).
    permuted = AFFINE @ np.array([[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1.0]])
    across = volume_node(
        array=np.transpose(array, (1, 2, 0)).copy(), affine=permuted, name="across"
    )
    left_handed = AFFINE @ np.diag([-1.0, 1, 1, 1])
    left_handed[0, 3] = AFFINE[0, 0] * (size - 1)
    mirrored = volume_node(array=array[:, :, ::-1].copy(), affine=left_handed, name="mirrored")
    nodes = [plain, backwards, across, mirrored]
    result = logic.score(nodes, cohort, **options())
    by_name = {
        node.GetName(): [row for row in result.slices if row.volume == node.GetName()]
        for node in nodes
    }
    found = {name: {row.slice: row.similarity for row in rows} for name, rows in by_name.items()}
    for index in range(SLICES):
        for name, other in (
            ("backwards", SLICES - 1 - index),
            ("across", index),
            ("mirrored", index),
        ):
            assert found[name][other] == pytest.approx(found["plain"][index], abs=1e-5), (
                name,
                index,
            )
    logic.showResult(nodes, result)


def test_scores_do_not_depend_on_spacing_or_on_where_the_volume_lies(logic, cohort, heads):
    wide = np.diag([1.8, 1.8, 21.0, 1.0])
    nodes = [
        volume_node(array=heads[1], affine=AFFINE, name="a"),
        volume_node(array=heads[1], affine=wide, name="b"),
        volume_node(array=heads[1], affine=rotation(0.3, 0) @ AFFINE, name="c"),
    ]
    result = logic.score(nodes, cohort, **options())
    rows = [[r.similarity for r in result.slices if r.volume == name] for name in "abc"]
    np.testing.assert_allclose(rows[1], rows[0], atol=1e-5)
    np.testing.assert_allclose(rows[2], rows[0], atol=1e-5)


@pytest.mark.parametrize("count", [1, 3])
def test_thin_volumes_are_scored(logic, cohort, heads, count):
    node = volume_node(array=heads[0][:count], affine=AFFINE)
    result = logic.score(node, cohort, **options(plane="axial"))
    assert len(result.slices) == count and result.slices[0].nearest_subject == "p0"
    logic.showResult(node, result, plane="axial")


def test_a_sheared_volume_needs_no_file_format_on_the_way(logic, cohort, heads):
    sheared = AFFINE.copy()
    sheared[0, 1] = 0.5
    node = volume_node(array=heads[0], affine=sheared)
    result = logic.score(node, cohort, **options())
    assert logic.showResult(node, result)[0].overlay.GetImageData().GetDimensions()[2] == SLICES


def test_in_this_process_and_in_its_own_give_the_same(logic, cohort, heads):
    node = volume_node(array=heads[4] * 0.5, affine=AFFINE)
    apart = logic.score(node, cohort, **options())
    here = logic.score(node, cohort, inProcess=True, **options())
    np.testing.assert_allclose(
        [row.similarity for row in apart.slices],
        [row.similarity for row in here.slices],
        rtol=1e-5,
    )


def test_a_failure_is_an_exception_with_the_workers_words(logic, place, heads):
    from MemorizationIndexLib.gui.jobs import JobError

    node = volume_node(array=heads[0], affine=AFFINE)
    with pytest.raises(JobError, match="subject"):
        logic.buildCohort([node], place / "one.micohort", encoder="builtin", inputSize=SIZE)
    with pytest.raises(ValueError, match="no cohort at"):
        logic.score(node, place / "none.micohort")


def test_a_running_job_can_be_waited_for_or_stopped(logic, cohort, heads):
    node = volume_node(array=heads[0], affine=AFFINE)
    job = logic.score(node, cohort, wait=False, **options())
    seen = []
    job.on_progress = seen.append
    result = job.wait()
    assert result.slices and any(one.stage == "Scoring" for one in seen)
    assert logic.showResult(node, result)
    job = logic.score(node, cohort, wait=False, **options())
    job.stop()
    assert not job.running and not job.folder.exists()


def test_a_pasted_quarter_is_found_if_the_cohort_was_built_for_it(logic, cohort, heads, place):
    path = place / "parts.micohort"
    nodes = [volume_node(array=h, affine=AFFINE, name=f"p{n}") for n, h in enumerate(heads)]
    logic.buildCohort(nodes, path, encoder="builtin", inputSize=SIZE, findParts=True)
    assert "Copied parts of slices are looked for too." in logic.cohortFacts(path).sentence()
    assert "are not looked for" in logic.cohortFacts(cohort).sentence()
    fresh = make_patient(77, slices=SLICES, size=SIZE)
    half = SIZE // 2
    # The lowest rows and columns of a volume in RAS: posterior left, bottom right as it is shown.
    fresh[2, :half, :half] = heads[3][2, :half, :half]
    node = volume_node(array=fresh, affine=AFFINE, name="pasted")
    result = logic.score(node, path, **options())
    found = result.slices[2]
    assert found.verdict is Verdict.SUSPICIOUS and found.flagged_by == "part"
    assert (found.part_subject, found.part_slice) == ("p3", 2)
    assert found.part_window == pytest.approx((0.5, 1, 0.5, 1), abs=0.1)
    assert ("pasted", 2) in result.part_pictures
    table = logic.showResult(node, result)[0].table.GetTable()
    assert table.GetColumnByName("PartSlice").GetValue(2) == "2"
    assert logic.score(node, cohort, **options()).slices[2].part_p_value is None


def test_parts_of_another_version_are_told_in_the_facts(logic, cohort, place):
    import json
    import shutil

    path = shutil.copytree(cohort, place / "other.micohort", dirs_exist_ok=True)
    index = json.loads((path / "cohort.json").read_text("utf-8"))
    index["facts"]["parts"] = "another"
    (path / "cohort.json").write_text(json.dumps(index), "utf-8")
    assert "another version's and not looked for" in logic.cohortFacts(path).sentence()


def test_a_changed_volume_is_not_shown_an_old_result(logic, cohort, heads):
    from MemorizationIndexLib.scene.errors import SceneError

    node = volume_node(array=heads[0].copy(), affine=AFFINE)
    result = logic.score(node, cohort, **options())
    slicer.util.arrayFromVolume(node)[:] = 0
    slicer.util.arrayFromVolumeModified(node)
    node.GetImageData().Modified()
    with pytest.raises(SceneError, match="have changed"):
        logic.showResult(node, result)


def test_the_modules_own_test_passes(logic, monkeypatch):
    source = sys.modules["MemorizationIndex"]
    small = {"numbers": {"patients": 10, "slices": 6, "size": 96}, "input_size": 96}
    make = source.MemorizationIndexLogic.makePhantoms
    monkeypatch.setattr(
        source.MemorizationIndexLogic, "makePhantoms", lambda self: make(self, **small)
    )
    source.MemorizationIndexTest().runTest()


def test_the_phantoms_are_offered_as_sample_data(logic, monkeypatch):
    from types import ModuleType

    offered = []
    module = ModuleType("SampleData")
    module.SampleDataLogic = type(
        "SampleDataLogic",
        (),
        {"registerCustomSampleDataSource": staticmethod(lambda **kw: offered.append(kw))},
    )
    monkeypatch.setitem(sys.modules, "SampleData", module)
    slicer.app.startupCompleted.emit()
    source = offered[-1]
    assert source["category"] == "Memorization Index" and callable(source["customDownloader"])
    assert Path(source["thumbnailFileName"]).is_file() and "uris" not in source
