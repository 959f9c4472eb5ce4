from __future__ import annotations

import numpy as np
import pytest

from MemorizationIndexLib.comparison.part_reference import SIDE, PartReference, part_encoder
from MemorizationIndexLib.comparison.part_windows import (
    WIDTH,
    WINDOWS,
    candidates,
    candidates_among,
    flipped_views,
    whiten_windows,
    window_features,
)
from MemorizationIndexLib.comparison.parts import (
    KnownParts,
    Places,
    calibrate_parts,
    encode_parts,
    find_parts,
    flipped_window,
    part_pictures,
    part_threshold,
    window_similarity,
    with_part,
)
from MemorizationIndexLib.index.null import subject_folds
from MemorizationIndexLib.index.poses import FLIPS
from MemorizationIndexLib.index.protocols import CalibrationError
from MemorizationIndexLib.phantoms import make_patient

SUBJECTS, SLICES = 10, 3


def phantom(seed, slices):
    volume = make_patient(seed, slices=slices + 2, size=112)[1:-1].astype(np.float32)
    low, high = volume.min((1, 2), keepdims=True), volume.max((1, 2), keepdims=True)
    return (volume - low) / (high - low)


def pasted(host, source, top, left, side):
    changed = host.copy()
    changed[top : top + side, left : left + side] = source[top : top + side, left : left + side]
    return changed


@pytest.fixture(scope="module")
def pixels():
    return np.concatenate([phantom(seed, SLICES) for seed in range(SUBJECTS + 4)])


@pytest.fixture(scope="module")
def encoder():
    return part_encoder()


@pytest.fixture(scope="module")
def reference(pixels, encoder):
    own = pixels[: SUBJECTS * SLICES]
    windows = whiten_windows(encode_parts(own, encoder))
    return PartReference(windows, part_pictures(own), np.zeros(2), np.zeros(0))


@pytest.fixture(scope="module")
def hosts(pixels):
    return pixels[SUBJECTS * SLICES :]


def found(reference, encoder, pixels):
    return find_parts(reference, encoder, encode_parts(pixels, encoder), part_pictures(pixels))


def test_a_window_holds_the_cells_of_its_place(encoder):
    marked = [np.zeros((1, width), np.float32) for width in encoder.widths]
    fine = marked[0].reshape(8, 16, 16)
    fine[:, 0, 15] = 1
    holding = [number for number in range(9) if window_features(marked, number).any()]
    assert WINDOWS[holding[0]] == (0, 2)
    assert len(holding) == 1
    assert window_features(marked, 0).shape == (1, WIDTH)
    fine[:] = 0
    fine[:, 8, 8] = 1
    assert [w for n, w in enumerate(WINDOWS) if window_features(marked, n).any()] == [
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
    ]


def test_candidates_are_the_nearest_rows_by_brute_force(reference, encoder, hosts):
    views = flipped_views(encode_parts(hosts, encoder), encoder)
    rows = candidates(reference.windows, views)
    assert rows.shape == (4, 9, len(hosts))
    for window, whitener in enumerate(reference.windows.whiteners):
        for view in range(4):
            queries = whitener.whiten(window_features(views[view], window))
            cosine = queries @ reference.windows.rows[window].T
            assert np.array_equal(rows[view, window], cosine.argmax(1))


def test_whitening_one_window_after_the_other_gives_the_same(encoder, pixels, hosts):
    own = encode_parts(pixels[: SUBJECTS * SLICES], encoder)
    views = flipped_views(encode_parts(hosts, encoder), encoder)
    kept = whiten_windows(own, np.zeros((9, len(own[0]), WIDTH), np.float32))
    chosen = np.arange(len(own[0]))
    assert np.array_equal(candidates_among(own, chosen, views), candidates(kept, views))
    some = np.arange(3, 20)
    kept = whiten_windows([layer[some] for layer in own])
    assert np.array_equal(candidates_among(own, some, views), some[candidates(kept, views)])


def test_many_references_are_searched_block_by_block(reference, encoder, hosts, monkeypatch):
    views = flipped_views(encode_parts(hosts, encoder), encoder)
    whole = candidates(reference.windows, views)
    monkeypatch.setattr("MemorizationIndexLib.comparison.part_windows.REFERENCES", 7)
    assert np.array_equal(candidates(reference.windows, views), whole)


@pytest.mark.parametrize("flip", range(4))
def test_a_pasted_quarter_is_found_where_it_lies(reference, encoder, pixels, hosts, flip):
    side = hosts.shape[1] // 2
    pose = FLIPS[flip]
    queries, truth, places = [], [], []
    for number, host in enumerate(hosts):
        row = (number * 7 + 3) % (SUBJECTS * SLICES)
        source = pixels[row, :: -1 if pose.vertical else 1, :: -1 if pose.horizontal else 1]
        top, left = side // 2, side // 2 + number % 3 * side // 6
        queries.append(pasted(host, source, top, left, side))
        truth.append(row)
        places.append((top / len(host), left / len(host)))
    match = found(reference, encoder, np.stack(queries))
    assert np.array_equal(match.rows, truth)
    # Every phantom is nearly its own mirror image, so that the flip is told only up to that.
    assert np.all(match.similarity > 0.8)
    for (top, left), window in zip(places, match.windows, strict=True):
        assert window[1] - window[0] == pytest.approx(0.5)
        assert window[3] - window[2] == pytest.approx(0.5)
        assert abs(window[0] - top) < 0.15
        assert abs(window[2] - left) < 0.15


def test_whole_slices_of_others_are_not_parts(reference, encoder, pixels, hosts):
    clean = found(reference, encoder, hosts).similarity
    copies = found(reference, encoder, pixels[:6])
    assert np.array_equal(copies.rows, np.arange(6))
    assert copies.similarity.min() > 0.99
    assert clean.max() < copies.similarity.min()


def test_brightness_and_contrast_of_a_part_do_not_matter():
    picture = part_pictures(phantom(3, 1))
    darker = (picture * 0.6 + 20).astype(np.uint8)
    same = window_similarity(Places(picture), Places(darker))
    assert same.max() > 0.95
    assert np.all((same >= 0) & (same <= 1))


def test_air_is_no_part():
    empty = np.zeros((1, SIDE, SIDE), np.uint8)
    assert not window_similarity(Places(empty), Places(empty)).any()


def test_blank_queries_have_a_window_and_no_similarity(reference, encoder, hosts):
    match = found(reference, encoder, np.zeros_like(hosts[:1]))
    assert match.similarity[0] == 0
    assert np.all((match.windows >= 0) & (match.windows <= 1))


def test_slices_of_another_size_are_compared_too(reference, encoder, pixels):
    coarse = [one.reshape(56, -1, 56, one.shape[1] // 56).mean((1, 3)) for one in pixels[:3]]
    match = found(reference, encoder, np.stack(coarse).astype(np.float32))
    assert np.array_equal(match.rows, np.arange(3))


@pytest.mark.parametrize("flip", range(4))
def test_flipping_a_window_twice_gives_it_back(flip):
    window = (0.125, 0.625, 0.25, 0.75)
    assert flipped_window(flipped_window(window, flip), flip) == window
    assert flipped_window((0.0, 0.5, 0.25, 0.75), 2) == (0.5, 1.0, 0.25, 0.75)


def test_the_null_meets_no_own_subject_and_known_parts_stand_out(encoder, pixels):
    own = pixels[: SUBJECTS * SLICES]
    subjects = np.repeat(np.arange(SUBJECTS), SLICES)
    folds = subject_folds(SUBJECTS, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    pairs = [(row, (row + 2 * SLICES) % len(own)) for row in range(0, len(own), 2)]
    pairs = [(a, b) for a, b in pairs if folds[subjects[a]] != folds[subjects[b]]]
    changed = [with_part(own[a], own[b], rng) for a, b in pairs]
    known = KnownParts(
        encode_parts(changed, encoder), part_pictures(changed), subjects[[a for a, _ in pairs]]
    )
    told = []
    null, copies = calibrate_parts(
        encode_parts(own, encoder),
        part_pictures(own),
        subjects,
        folds,
        known,
        encoder,
        rng,
        lambda done, total: told.append((done, total)),
    )
    assert null.shape == (len(own),)
    assert copies.shape == (len(pairs),)
    assert told[-1] == (10, 10)
    # Each slice is its own perfect match: whoever met its subject would show 1.
    assert null.max() < 0.95
    assert np.mean(copies > part_threshold(null, 0.05).similarity) > 0.8


def test_the_threshold_is_the_larger_of_quantile_and_clearance():
    rng = np.random.default_rng(0)
    narrow = np.tanh(rng.normal(0.5, 0.05, 1000))
    bound = part_threshold(narrow, 0.01)
    assert bound.level == 0.01
    assert bound.similarity == pytest.approx(np.tanh(0.5 + 3 * 0.05), abs=0.01)
    wild = np.concatenate([narrow, np.full(20, 0.99)])
    assert part_threshold(wild, 0.01).similarity >= 0.99
    assert part_threshold(narrow[:10], 0.01).level == pytest.approx(1 / 11)
    z = np.arctanh(narrow[:10])
    few = (np.arctanh(part_threshold(narrow[:10], 0.01).similarity) - z.mean()) / z.std(ddof=1)
    assert few > 4
    with pytest.raises(CalibrationError, match="alpha"):
        part_threshold(narrow, 0)


def test_the_threshold_is_finite_where_null_slices_are_copies():
    assert 0 <= part_threshold(np.array([1.0, 1.0, 0.2, 0.3, 0.1]), 0.01).similarity <= 1
    assert part_threshold(np.zeros(5), 0.01).similarity == 0


def test_a_part_is_a_quarter_of_another_slice_in_place(pixels):
    changed = with_part(pixels[0] * 0, pixels[20], np.random.default_rng(0))
    shown = np.argwhere(changed > 0)
    assert np.all(np.ptp(shown, axis=0) < len(pixels[0]) // 2)
    assert changed.min() == 0
    assert changed.max() == 1
    blank = np.zeros((8, 8), np.float32)
    assert not with_part(blank, blank, np.random.default_rng(0)).any()
