from __future__ import annotations

import tracemalloc
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from MemorizationIndexLib.index import similarity
from MemorizationIndexLib.index.similarity import (
    NEAREST_SUBJECTS,
    blocks_of,
    geometric_mean,
    search,
)

FLOOR = 1e-6


def unit_rows(rng: np.random.Generator, count: int, width: int) -> np.ndarray:
    rows = rng.standard_normal((count, width))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def naive(poses, layers, subjects, subject_count):
    """All pairs at once, float64: per query a dictionary of what a search must find."""
    found = []
    for number in range(len(poses[0][0])):
        best = None
        for pose_number, pose in enumerate(poses):
            cosines = np.array(
                [r.astype(float) @ q[number] for q, r in zip(pose, layers, strict=True)]
            )
            joint = np.prod(np.clip(cosines, 0, None), axis=0) ** (1 / len(layers))
            value = np.exp(np.mean(np.log(np.clip(cosines.max(1), 0, None) + FLOOR)))
            if best is None or value > best["similarity"]:
                by_subject = np.zeros(subject_count)
                np.maximum.at(by_subject, subjects, joint)
                best = {
                    "similarity": value,
                    "pose": pose_number,
                    "cosines": cosines,
                    "joint": joint,
                    "by_subject": by_subject,
                }
        found.append(best)
    return found


@settings(max_examples=60, deadline=None)
@given(
    queries=st.integers(1, 12),
    references=st.integers(1, 30),
    subject_count=st.integers(1, 9),
    layer_count=st.integers(1, 3),
    pose_count=st.integers(1, 3),
    blocks=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    seed=st.integers(0, 9999),
)
def test_blocked_search_equals_naive_search(
    queries, references, subject_count, layer_count, pose_count, blocks, seed
):
    rng = np.random.default_rng(seed)
    widths = rng.integers(3, 9, layer_count)
    layers = [unit_rows(rng, references, w) for w in widths]
    subjects = np.sort(rng.integers(0, subject_count, references))
    poses = [[unit_rows(rng, queries, w) for w in widths] for _ in range(pose_count)]
    expected = naive(poses, layers, subjects, subject_count)
    with (
        mock.patch.object(similarity, "QUERIES", blocks[0]),
        mock.patch.object(similarity, "REFERENCES", blocks[1]),
    ):
        found = search(poses, lambda: blocks_of(layers, subjects), subject_count, floor=FLOOR)
    for number, want in enumerate(expected):
        assert found.similarity[number] == pytest.approx(want["similarity"], abs=1e-5)
        pose = poses[found.poses[number]]
        assert (
            np.allclose(found.layer_similarity[number], want["cosines"].max(1), atol=1e-5)
            or found.poses[number] != want["pose"]
        )
        for layer in range(layer_count):
            row = found.layer_rows[number, layer]
            cosine = float(layers[layer][row] @ pose[layer][number])
            assert found.layer_similarity[number, layer] == pytest.approx(cosine, abs=1e-5)
            assert found.layer_subjects[number, layer] == subjects[row]
        if found.poses[number] != want["pose"]:
            continue
        assert want["joint"][found.rows[number]] == pytest.approx(want["joint"].max(), abs=1e-4)
        kept = min(NEAREST_SUBJECTS, subject_count)
        ranked = np.sort(want["by_subject"])[::-1]
        assert np.allclose(found.subject_similarity[number, :kept], ranked[:kept], atol=1e-3)
        assert (found.subject_similarity[number, kept:] == 0).all()
        assert (found.subjects[number, kept:] == -1).all()
        for code, value in zip(
            found.subjects[number, :kept], found.subject_similarity[number], strict=False
        ):
            assert want["by_subject"][code] == pytest.approx(value, abs=1e-3)
        runner_up = ranked[1] if subject_count > 1 else 0.0
        assert found.margin[number] == pytest.approx(ranked[0] - runner_up, abs=1e-3)
        assert found.margin[number] >= 0
        nearest = found.subjects[number, 0]
        assert found.consensus[number] == np.sum(found.layer_subjects[number] == nearest)
        if want["joint"].max() > 1e-3:
            assert subjects[found.rows[number]] == nearest


def test_a_row_finds_itself_with_every_layer_agreeing():
    rng = np.random.default_rng(0)
    layers = [unit_rows(rng, 50, w) for w in (16, 32, 8)]
    subjects = np.repeat(np.arange(10), 5)
    found = search([layers], lambda: blocks_of(layers, subjects), 10, floor=FLOOR)
    assert np.array_equal(found.rows, np.arange(50))
    assert np.allclose(found.similarity, 1, atol=1e-5)
    assert (found.consensus == 3).all()
    assert np.array_equal(found.subjects[:, 0], subjects)


def test_no_queries_give_no_matches():
    rng = np.random.default_rng(0)
    layers = [unit_rows(rng, 5, 4)]
    found = search([[np.zeros((0, 4), "f4")]], lambda: blocks_of(layers, np.arange(5)), 5, floor=0)
    assert found.similarity.shape == (0,)
    assert found.subjects.shape == (0, NEAREST_SUBJECTS)


def test_unclamped_negative_cosines_are_undefined_and_clamped_ones_nearly_zero():
    query, rows = np.array([[1, 0]], "f4"), np.array([[-1, 0]], "f4")
    for clamp in (True, False):
        found = search(
            [[query]], lambda: blocks_of([rows], np.zeros(1, int)), 1, floor=FLOOR, clamp=clamp
        )
        assert np.isfinite(found.similarity[0]) == clamp
    assert geometric_mean(np.array([-1.0, 1.0]), FLOOR, clamp=True) == pytest.approx(1e-3, rel=1e-3)


def test_rows_of_one_picture_in_two_subjects_are_named_alike():
    rng = np.random.default_rng(1)
    one = unit_rows(rng, 1, 8)
    layers = [np.concatenate([one, unit_rows(rng, 3, 8), one])]
    subjects = np.array([0, 1, 1, 2, 3])
    found = search([[one]], lambda: blocks_of(layers, subjects), 4, floor=FLOOR)
    assert subjects[found.rows[0]] == found.subjects[0, 0]
    assert found.margin[0] == pytest.approx(0, abs=1e-6)


def peak(queries: int, references: int) -> int:
    rng = np.random.default_rng(0)
    layers = [unit_rows(rng, references, 16) for _ in range(3)]
    subjects = np.sort(rng.integers(0, 20, references))
    asked = [[unit_rows(rng, queries, 16) for _ in range(3)]]
    tracemalloc.start()
    search(asked, lambda: blocks_of(layers, subjects), 20, floor=FLOOR)
    _, highest = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return highest


def test_memory_does_not_grow_with_queries_times_references():
    small, large = peak(1024, 8192), peak(2048, 16384)
    assert large < 2048 * 16384 * 4 / 4  # a quarter of one float32 matrix of all pairs
    assert large < 1.3 * small
