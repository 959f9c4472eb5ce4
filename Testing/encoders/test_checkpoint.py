"""Checkpoint layouts, and every way a file can be wrong."""

from __future__ import annotations

import argparse
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from encoders.made_vit import WIDTH, State, dinov2, sam, small_state
from MemorizationIndexLib.encoders.checkpoint import looks_like_html, read_checkpoint
from MemorizationIndexLib.encoders.encoder import EncoderError


def saved(content: object, path: Path) -> Path:
    torch.save(content, path)
    return path


@pytest.mark.parametrize(
    ("content", "layout"),
    [
        (lambda s: {"teacher": dinov2(s) | {"dino_head.mlp.0.weight": torch.ones(2)}}, "teacher"),
        (lambda s: {"student": dinov2(s), "optimizer": {"lr": 0.1}}, "student"),
        (lambda s: {"teacher": dinov2(s), "student": dinov2(small_state(seed=9))}, "teacher"),
        (lambda s: {"model": s | {"decoder_pred.bias": torch.ones(2)}, "epoch": 800}, "model"),
        (lambda s: {"model": s, "args": argparse.Namespace(lr=0.1)}, "model"),
        (lambda s: {"model": {f"module.{k}": v for k, v in s.items()}}, "model"),
        (sam, "top level"),
        (
            lambda s: (
                sam(s)
                | {
                    "image_encoder.neck.0.weight": torch.ones(2),
                    "mask_decoder.iou_token.weight": torch.ones(2),
                    "prompt_encoder.no_mask_embed.weight": torch.ones(2),
                }
            ),
            "top level",
        ),
        (dict, "top level"),
    ],
)
def test_layouts_give_the_same_weights(
    content: Callable[[State], object], layout: str, tmp_path: Path
):
    state = small_state()
    read = read_checkpoint(saved(content(state), tmp_path / "w.pth"))
    assert read.layout == layout
    assert (read.width, read.hidden) == (WIDTH, 4 * WIDTH)
    assert read.tensors["pos_embed"].shape == (1, 3, 3, WIDTH)
    torch.testing.assert_close(read.tensors["pos_embed"].reshape(9, -1), state["pos_embed"][0, 1:])
    for key in ("blocks.11.mlp.fc2.weight", "blocks.7.attn.qkv.bias", "patch_embed.proj.weight"):
        torch.testing.assert_close(read.tensors[key.replace("fc", "lin")], state[key])
    assert read.sha256 == read_checkpoint(saved({"model": state}, tmp_path / "v.pth")).sha256


def test_half_precision_is_cast_to_float32(tmp_path: Path):
    state = {key: value.half() for key, value in small_state().items()}
    read = read_checkpoint(saved({"teacher": dinov2(state)}, tmp_path / "half.pth"))
    assert {tensor.dtype for tensor in read.tensors.values()} == {torch.float32}
    torch.testing.assert_close(
        read.tensors["blocks.3.mlp.lin1.weight"], state["blocks.3.mlp.fc1.weight"].float()
    )


def test_parts_that_are_not_needed_are_named(tmp_path: Path):
    read = read_checkpoint(saved({"model": small_state()}, tmp_path / "w.pth"))
    assert sorted(read.not_loaded) == ["cls_token", "norm.bias", "norm.weight"]


def without(state: State, key: str) -> State:
    return {k: v for k, v in state.items() if k != key}


def replaced(state: State, key: str, value: torch.Tensor) -> State:
    assert key in state
    return state | {key: value}


SMALL = small_state()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            {k: v for k, v in SMALL.items() if not k.startswith("blocks.6.")},
            r"lacks 'blocks\.6\..*8 more",
        ),
        (without(SMALL, "pos_embed"), "lacks 'pos_embed'"),
        (
            SMALL | {"blocks.12.norm1.weight": torch.ones(WIDTH)},
            r"unexpected 'blocks\.12\.norm1\.weight'",
        ),
        (SMALL | {"head.weight": torch.ones(2)}, "unexpected 'head.weight'"),
        (
            replaced(SMALL, "blocks.5.mlp.fc1.weight", SMALL["blocks.5.mlp.fc1.weight"].T),
            r"'blocks\.5\.mlp\.lin1\.weight' .* has shape \(16, 64\), expected \(64, 16\)",
        ),
        (
            replaced(SMALL, "blocks.0.attn.qkv.weight", SMALL["blocks.0.attn.qkv.weight"].T),
            r"has shape \(16, 48\), expected \(48, 16\)",
        ),
        (
            replaced(SMALL, "patch_embed.proj.weight", torch.ones(WIDTH, 3, 14, 14)),
            r"expected \(16, 3, 16, 16\)",
        ),
        (replaced(SMALL, "pos_embed", torch.ones(1, 9, WIDTH)), r"'pos_embed' .* \(1, 9, 16\)"),
        (replaced(SMALL, "pos_embed", torch.ones(1, 10, 8)), r"'pos_embed' .* \(1, 10, 8\)"),
        (
            replaced(SMALL, "blocks.1.norm1.bias", torch.full((WIDTH,), float("nan"))),
            r"not finite \(blocks\.1\.norm1\.bias\)",
        ),
        (
            replaced(SMALL, "blocks.1.norm1.bias", torch.ones(WIDTH, dtype=torch.int32)),
            "torch.int32, not floating point",
        ),
        (SMALL | {"blocks.2.ls1.gamma": torch.ones(WIDTH)}, "layer scale at 'blocks.2.ls1.gamma'"),
        (SMALL | {"blocks.2.gamma_1": torch.ones(WIDTH)}, "layer scale"),
        (SMALL | {"blocks.0.MLP_Adapter.D_fc1.weight": torch.ones(2)}, "adapters"),
        (SMALL | {"blocks.0.attn.qkv.linear_a_q.weight": torch.ones(2)}, "LoRA"),
        (SMALL | {"blocks.0.attn.lora_A.weight": torch.ones(2)}, "LoRA"),
        (SMALL | {"blocks.0.attn.rel_pos_h": torch.ones(2)}, "relative positions"),
        (SMALL | {"register_tokens": torch.ones(2)}, "register tokens"),
        (SMALL | {"blocks.0.0.norm1.weight": torch.ones(WIDTH)}, "twice"),
        (SMALL | {"blocks": "none"}, "other than a tensor at 'blocks'"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(state: dict, message: str, tmp_path: Path):
    with pytest.raises(EncoderError, match=message):
        read_checkpoint(saved({"model": state}, tmp_path / "w.pth"))


@pytest.mark.parametrize("content", [{"epoch": 3}, [1, 2], {"model": {}}, {"teacher": 3}])
def test_a_file_without_weights_is_refused(content: object, tmp_path: Path):
    with pytest.raises(EncoderError, match="holds no weights"):
        read_checkpoint(saved(content, tmp_path / "w.pth"))


@pytest.mark.parametrize("share", [0.002, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_truncated_file_is_refused(share: float, zipped: bool, tmp_path: Path):
    path = tmp_path / "w.pth"
    torch.save({"model": small_state()}, path, _use_new_zipfile_serialization=zipped)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(EncoderError, match="not a complete PyTorch checkpoint"):
        read_checkpoint(path)


def test_a_file_with_a_flipped_byte_is_refused(tmp_path: Path):
    path = saved({"model": small_state()}, tmp_path / "w.pth")
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
    content[largest.header_offset + 500] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(EncoderError, match="not a complete PyTorch checkpoint"):
        read_checkpoint(path)


class Runs:
    """Creates a file when unpickled in the ordinary way."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return (Path.touch, (self.marker,))


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_the_file_does_not_run(zipped: bool, tmp_path: Path):
    marker = tmp_path / "ran"
    path = tmp_path / "w.pth"
    content = {"model": small_state(), "extra": Runs(marker)}
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(EncoderError, match="code besides tensors"):
        read_checkpoint(path)
    assert not marker.exists()


def test_a_plain_pickle_with_code_does_not_run(tmp_path: Path):
    marker = tmp_path / "ran"
    path = tmp_path / "w.pth"
    path.write_bytes(pickle.dumps(Runs(marker)))
    with pytest.raises(EncoderError):
        read_checkpoint(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty file"),
        (b"<!DOCTYPE html><html><body>Quota exceeded</body></html>", "is a web page"),
        (b"  \n<html lang=en>", "is a web page"),
        (b"just some text, long enough to be read", "not a complete PyTorch checkpoint"),
        (bytes(range(256)) * 40, "not a complete PyTorch checkpoint"),
    ],
)
def test_a_file_of_another_kind_is_refused(content: bytes, message: str, tmp_path: Path):
    path = tmp_path / "w.pth"
    path.write_bytes(content)
    with pytest.raises(EncoderError, match=message):
        read_checkpoint(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path):
    with pytest.raises(EncoderError, match="No such file"):
        read_checkpoint(tmp_path / "none.pth")
    with pytest.raises(EncoderError, match="Cannot read the weights"):
        read_checkpoint(tmp_path)


def test_weights_do_not_look_like_a_page(tmp_path: Path):
    path = saved({"model": small_state()}, tmp_path / "w.pth")
    assert not looks_like_html(path.read_bytes()[:512])
    assert looks_like_html(b"\xef\xbb\xbf<!doctype HTML>")
