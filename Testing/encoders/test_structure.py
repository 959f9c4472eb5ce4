from __future__ import annotations

import numpy as np
import pytest
import torch

from MemorizationIndexLib.encoders import structure
from MemorizationIndexLib.encoders.encoder import Encoder, EncoderError, FlippingEncoder
from MemorizationIndexLib.encoders.structure import StructureEncoder
from MemorizationIndexLib.phantoms import make_patient


@pytest.fixture(scope="module")
def encoder() -> StructureEncoder:
    return StructureEncoder(96)


@pytest.fixture(scope="module")
def slices() -> np.ndarray:
    heads = [make_patient(seed, slices=3, size=96) for seed in range(7)]
    stack = np.concatenate(heads).astype(np.float32)
    return stack / stack.max((1, 2), keepdims=True)


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def test_it_is_an_encoder_that_flips_and_says_what_it_is(encoder):
    assert isinstance(encoder, Encoder)
    assert isinstance(encoder, FlippingEncoder)
    assert encoder.description == (
        "built-in structure encoder: for trying out and for hosts without MRI-CORE weights"
    )
    assert len(encoder.layers) == len(encoder.widths) == 3


def test_shapes_types_and_range(encoder, slices):
    features = encoder.encode(slices)
    for layer, width in zip(features, encoder.widths, strict=True):
        assert layer.shape == (len(slices), width)
        assert layer.dtype == np.float32
        assert np.isfinite(layer).all()
        assert (layer >= 0).all()
        assert (layer <= 1.001).all()


@pytest.mark.parametrize(("horizontal", "vertical"), [(1, 0), (0, 1), (1, 1), (0, 0)])
@pytest.mark.parametrize("size", [64, 96, 101, 224])
def test_flipped_features_are_those_of_the_flipped_slice(horizontal, vertical, size):
    encoder = StructureEncoder(size)
    pixels = np.random.default_rng(0).random((3, size, size), np.float32)
    seen = pixels[:, :: -1 if vertical else 1, :: -1 if horizontal else 1]
    expected = encoder.encode(np.ascontiguousarray(seen))
    found = encoder.flip(
        encoder.encode(pixels), horizontal=bool(horizontal), vertical=bool(vertical)
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4)


def test_flipping_no_rows_gives_no_rows(encoder):
    empty = encoder.encode(np.zeros((0, 96, 96), np.float32))
    flipped = encoder.flip(empty, horizontal=True, vertical=False)
    assert [layer.shape for layer in flipped] == [(0, width) for width in encoder.widths]


def test_a_row_does_not_depend_on_its_batch(encoder, slices):
    together = encoder.encode(slices)
    for number in (0, 5, 20):
        alone = encoder.encode(slices[number : number + 1])
        for one, other in zip(alone, together, strict=True):
            np.testing.assert_allclose(one[0], other[number], atol=1e-5)


def test_brightness_and_contrast_hardly_matter_where_they_cannot_tell(encoder, slices):
    plain = encoder.encode(slices[:4])
    darker = encoder.encode(slices[:4] * np.float32(0.8))
    for one, other in zip(plain, darker, strict=True):
        assert min(cosine(a, b) for a, b in zip(one, other, strict=True)) > 0.99


def test_a_small_disguise_changes_less_than_another_patient(encoder, slices):
    rng = np.random.default_rng(0)
    middle = slices[1::3]
    noisy = np.clip(middle + rng.normal(0, 0.01, middle.shape).astype(np.float32), 0, 1)
    for one, other in zip(encoder.encode(middle), encoder.encode(noisy), strict=True):
        copied = min(cosine(a, b) for a, b in zip(one, other, strict=True))
        strangers = max(cosine(one[a], one[b]) for a in range(7) for b in range(a))
        assert copied > strangers


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_constant_slices_stay_finite(encoder, value):
    for layer in encoder.encode(np.full((2, 96, 96), value, np.float32)):
        assert np.isfinite(layer).all()


def test_any_memory_layout_and_float_is_taken(encoder, slices):
    expected = encoder.encode(slices[:3])
    for given in (
        np.asfortranarray(slices[:3]),
        slices[:3].astype(np.float64),
        slices[:6][::2][::1],
    ):
        assert all(np.isfinite(layer).all() for layer in encoder.encode(given))
    for one, other in zip(encoder.encode(np.asfortranarray(slices[:3])), expected, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("shape", [(2, 95, 96), (96, 96), (1, 1, 96, 96), (2, 224, 224)])
def test_another_shape_is_refused_naming_both(encoder, shape):
    with pytest.raises(EncoderError, match=r"96×96 pixels, not an array of shape"):
        encoder.encode(np.zeros(shape, np.float32))


@pytest.mark.parametrize("size", [0, 63, 1025, -5])
def test_an_input_size_out_of_range_is_refused(size):
    with pytest.raises(EncoderError, match=rf"64 to 1024 pixels, not {size}"):
        StructureEncoder(size)


def test_fingerprint_tells_sizes_and_arithmetic_apart(monkeypatch):
    first = StructureEncoder(96).fingerprint
    assert first == StructureEncoder(96).fingerprint
    assert first != StructureEncoder(128).fingerprint
    for name, value in (("ARITHMETIC_VERSION", 9), ("POOLING", 0.5), ("CONTRAST_SHARE", 0.2)):
        with monkeypatch.context() as change:
            change.setattr(structure, name, value)
            assert StructureEncoder(96).fingerprint != first, name


def test_it_leaves_the_number_of_threads_as_it_was(encoder, slices):
    before = torch.get_num_threads()
    encoder.encode(slices[:2])
    assert torch.get_num_threads() == before
    with pytest.raises(EncoderError):
        encoder.encode(slices[0])
    assert torch.get_num_threads() == before


def test_pooling_windows_and_smoothing_are_symmetric_and_sum_to_one():
    for scale in structure.SCALES:
        smooth, differentiate, pool = structure._operators(scale, 224)
        for matrix in (smooth, pool):
            np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-5)
            np.testing.assert_allclose(matrix, matrix[::-1, ::-1], atol=1e-6)
        np.testing.assert_allclose(differentiate, -differentiate[::-1, ::-1], atol=1e-6)
