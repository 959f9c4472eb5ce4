"""MRI-CORE's encoder against features computed by the original code."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from MemorizationIndexLib.encoders.encoder import Encoder, EncoderError
from MemorizationIndexLib.encoders.mri_core import default_heads, load_mri_core
from shared_data import reference

PADDING_WARNING = "ignore:At .* px the .* tokens lie in windows:UserWarning"


def made_weights(dim: int, seed: int) -> dict[str, torch.Tensor]:
    """ViT weights by the recipe that the reference cases were made with."""
    path = reference("encoder", "make_weights.py")
    spec = importlib.util.spec_from_file_location("make_weights", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {k: torch.from_numpy(v) for k, v in module.vit_weights(dim, seed).items()}


def save_dinov2(weights: dict[str, torch.Tensor], path: Path, key: str = "teacher") -> Path:
    torch.save({key: {f"backbone.{k}": v for k, v in weights.items()}}, path)
    return path


@pytest.fixture(scope="session")
def vit_b(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vit_b") / "vit_b.pth"
    return save_dinov2(made_weights(768, 31), path)


def cases(name: str) -> dict[str, np.ndarray]:
    with np.load(reference("encoder", f"{name}_features.npz")) as file:
        return {key: file[key] for key in file.files}


def check_against(weights: Path, expected: dict[str, np.ndarray]) -> int:
    """Compare every expected array in the file; return how many there were."""
    checked = 0
    groups = set()
    for key in expected:
        match = re.fullmatch(r"block(\d+)_(\d+)_(checkpoint|none)_(channels|rows)", key)
        if match:
            groups.add((int(match[2]), match[3], match[4]))
    for size, positions, pooling in sorted(groups):
        encoder = load_mri_core(
            weights,
            input_size=size,
            device="cpu",
            position_embedding=positions,
            pooling=pooling,
        )
        pixels = expected[f"images_{size}"].astype(np.float32) / 255
        for layer, features in zip(encoder.layers, encoder.encode(pixels), strict=True):
            wanted = expected[f"{layer}_{size}_{positions}_{pooling}"]
            assert features.dtype == np.float32
            np.testing.assert_allclose(
                features,
                wanted,
                rtol=1e-3,
                atol=1e-4,
                err_msg=f"{layer} {size} {positions} {pooling}",
            )
            checked += 1
    return checked


@pytest.mark.filterwarnings(PADDING_WARNING)
def test_every_small_reference_case_in_every_layout():
    folder = reference("encoder")
    checked = 0
    for weights in sorted(folder.glob("*.pth")):
        name = re.sub(r"_(dinov2|sam|mae)$", "", weights.stem)
        checked += check_against(weights, cases(name))
    assert checked > 0


@pytest.mark.filterwarnings(PADDING_WARNING)
def test_every_vit_b_reference_case(vit_b: Path):
    assert check_against(vit_b, cases("vit_b")) > 0


def test_is_an_encoder_with_named_layers():
    encoder = load_mri_core(reference("encoder", "tiny_vit_sam.pth"), device="cpu")
    assert isinstance(encoder, Encoder)
    assert encoder.layers == ("block3", "block7", "block11")
    assert encoder.widths == (48, 48, 48)
    assert encoder.input_size == 224
    assert encoder.name == "mri-core"


def test_a_row_does_not_depend_on_its_batch():
    encoder = load_mri_core(reference("encoder", "tiny_vit_sam.pth"), device="cpu", batch=3)
    pixels = np.random.default_rng(5).random((7, 224, 224), dtype=np.float32)
    together = encoder.encode(pixels)
    for layer, rows in enumerate(together):
        assert rows.shape == (7, 48)
        alone = np.concatenate([encoder.encode(pixels[i : i + 1])[layer] for i in range(7)])
        np.testing.assert_allclose(rows, alone, rtol=1e-4, atol=1e-5)


def test_is_deterministic():
    encoder = load_mri_core(reference("encoder", "tiny_vit_sam.pth"), device="cpu")
    pixels = np.random.default_rng(6).random((5, 224, 224), dtype=np.float32)
    for first, second in zip(encoder.encode(pixels), encoder.encode(pixels), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.filterwarnings(PADDING_WARNING)
def test_fingerprint_changes_with_everything_that_changes_features(tmp_path: Path):
    sam = reference("encoder", "tiny_vit_sam.pth")
    plain = load_mri_core(sam, device="cpu").fingerprint
    other = tmp_path / "other.pth"
    state = torch.load(sam, weights_only=True)
    state["image_encoder.blocks.4.attn.proj.bias"][7] += 1e-3
    torch.save(state, other)
    variants = [
        load_mri_core(sam, device="cpu", input_size=448),
        load_mri_core(sam, device="cpu", position_embedding="none"),
        load_mri_core(sam, device="cpu", pooling="rows"),
        load_mri_core(sam, device="cpu", precision="bfloat16"),
        load_mri_core(sam, device="cpu", heads=6),
        load_mri_core(other, device="cpu"),
    ]
    assert len({plain, *(encoder.fingerprint for encoder in variants)}) == 7


def test_fingerprint_is_the_same_for_the_same_weights_in_another_layout():
    prints = {
        load_mri_core(reference("encoder", f"tiny_vit_{layout}.pth"), device="cpu").fingerprint
        for layout in ("dinov2", "sam")
    }
    assert len(prints) == 1


def test_automatic_precision_is_float32_on_the_cpu():
    sam = reference("encoder", "tiny_vit_sam.pth")
    auto = load_mri_core(sam, device="cpu", precision="auto")
    assert auto.precision == "float32"
    assert auto.fingerprint == load_mri_core(sam, device="cpu").fingerprint


def test_bfloat16_stays_close():
    sam = reference("encoder", "tiny_vit_sam.pth")
    pixels = cases("tiny_vit")["images_224"].astype(np.float32) / 255
    full = load_mri_core(sam, device="cpu").encode(pixels)
    mixed = load_mri_core(sam, device="cpu", precision="bfloat16").encode(pixels)
    for a, b in zip(full, mixed, strict=True):
        assert not np.array_equal(a, b)
        cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        assert cosine.min() > 0.999


def test_mostly_padded_windows_warn():
    sam = reference("encoder", "tiny_vit_sam.pth")
    with pytest.warns(UserWarning, match=r"15 x 15 tokens lie in windows of 28 x 28, 71%"):
        load_mri_core(sam, device="cpu", input_size=240)


@pytest.mark.parametrize("size", [224, 416, 448])
def test_well_filled_windows_do_not_warn(size: int, recwarn: pytest.WarningsRecorder):
    load_mri_core(reference("encoder", "tiny_vit_sam.pth"), device="cpu", input_size=size)
    assert not [w for w in recwarn if "tokens lie in windows" in str(w.message)]


@pytest.mark.parametrize("size", [0, -16, 8, 225])
def test_input_size_must_be_a_multiple_of_the_patch(size: int):
    with pytest.raises(EncoderError, match="not a multiple of 16"):
        load_mri_core(reference("encoder", "tiny_vit_sam.pth"), device="cpu", input_size=size)


@pytest.mark.parametrize(
    "option",
    [{"pooling": "max"}, {"position_embedding": "both"}, {"precision": "half"}, {"heads": 5}],
)
def test_unknown_options_are_refused(option: dict):
    with pytest.raises(EncoderError, match=f"{next(iter(option))}"):
        load_mri_core(reference("encoder", "tiny_vit_sam.pth"), device="cpu", **option)


def test_slices_of_another_size_or_not_finite_are_refused():
    encoder = load_mri_core(reference("encoder", "tiny_vit_sam.pth"), device="cpu")
    with pytest.raises(EncoderError, match=r"\(B, 224, 224\), got \(1, 240, 240\)"):
        encoder.encode(np.zeros((1, 240, 240), np.float32))
    pixels = np.zeros((1, 224, 224), np.float32)
    pixels[0, 3, 3] = np.nan
    with pytest.raises(EncoderError, match="not finite"):
        encoder.encode(pixels)


def test_no_slices_give_no_rows():
    encoder = load_mri_core(reference("encoder", "tiny_vit_sam.pth"), device="cpu")
    assert [f.shape for f in encoder.encode(np.zeros((0, 224, 224), np.float32))] == [(0, 48)] * 3


def test_memory_running_out_halves_the_batch(monkeypatch: pytest.MonkeyPatch):
    encoder = load_mri_core(reference("encoder", "tiny_vit_sam.pth"), device="cpu", batch=8)
    pixels = np.random.default_rng(8).random((9, 224, 224), dtype=np.float32)
    expected = encoder.encode(pixels)
    forward = type(encoder._model).forward

    def short_of_memory(model, batch):
        if len(batch) > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")
        return forward(model, batch)

    monkeypatch.setattr(type(encoder._model), "forward", short_of_memory)
    for a, b in zip(expected, encoder.encode(pixels), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert encoder.batch == 2


@pytest.mark.parametrize(
    ("width", "heads"), [(768, 12), (1024, 16), (384, 6), (192, 3), (48, 3), (96, 3), (64, 1)]
)
def test_default_heads(width: int, heads: int):
    assert default_heads(width) == heads
