"""The memory of a run, estimated from what is chosen in the scene."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("slicer", reason="needs slicer-core from PyPI")
pytest.importorskip("PySide6.QtWidgets", reason="needs PySide6-Essentials from PyPI")

from gui.stage import Facts, sequence
from slicer_host.examples import volume_node


def check(nodes, *, all_frames=False, **changes):
    from MemorizationIndexLib.gui.estimating import memory_of_check

    options = {"batch": 0, "device": "cpu", **changes}
    return memory_of_check(Facts(), nodes, all_frames=all_frames, **options)


def build(nodes, **changes):
    from MemorizationIndexLib.gui.estimating import memory_of_build

    options = {"input_size": 0, "plane": "auto", "pictures": True, "batch": 0, "device": "cpu"}
    return memory_of_build("builtin", nodes, **{**options, **changes})


def test_the_chosen_volumes_count_with_all_their_frames(slicer_app):
    one = volume_node(array=np.zeros((16, 256, 256), np.int16))
    assert check([one]) - check([]) == 16 * 256 * 256 * 2
    proxy = sequence(3)
    this, every = (check([proxy], all_frames=whole) - check([]) for whole in (False, True))
    assert every == 3 * this > 0


def test_a_cohort_of_more_slices_and_larger_ones_needs_more(slicer_app):
    few = [volume_node(array=np.zeros((4, 64, 64), np.int16))]
    many = [*few, volume_node(array=np.zeros((400, 64, 64), np.int16))]
    assert build(few) < build(many)
    assert build(few) < build(few, input_size=448)
    assert build(many, pictures=False) < build(many)
    assert build(None) > build(few), "a folder is taken to be large"


def test_what_is_no_volume_is_not_counted(slicer_app):
    import slicer

    empty = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLScalarVolumeNode")
    assert check([empty]) == check([]) and build([empty]) == build([])


def test_a_shortage_is_told_only_where_it_is_known():
    from MemorizationIndexLib.gui.estimating import shortage

    assert shortage(10, None) == "" and shortage(10, 10) == ""
    text = shortage(2_000_000_000, 1_000_000_000)
    assert "about 2.0 GB" in text and "1.0 GB are free" in text
