"""Encoders from the user: TorchScript files and Python functions."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from MemorizationIndexLib.encoders.encoder import Encoder, EncoderError
from MemorizationIndexLib.encoders.external import absolute_source, load_external

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

PIXELS = np.random.default_rng(0).random((5, 224, 224), dtype=np.float32)


class TwoLayers(nn.Module):
    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.low = nn.Conv2d(channels, 6, 16, 16)
        self.high = nn.Conv2d(6, 4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        low = torch.relu(self.low(x))
        return low.mean(dim=(2, 3)), self.high(low).mean(dim=(2, 3))


class OneTensor(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=3).flatten(1)


class Whole(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


class Infinite(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3)) / 0.0


class Named(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"features": x.mean(dim=(2, 3))}


def script(module: nn.Module, path: Path) -> str:
    torch.jit.script(module.eval()).save(str(path))
    return str(path)


def test_torchscript_layers_are_found_and_encoded(tmp_path: Path):
    module = TwoLayers().eval()
    encoder = load_external(script(module, tmp_path / "mine.pt"), device="cpu", batch=2)
    assert isinstance(encoder, Encoder)
    assert (encoder.name, encoder.layers) == ("mine", ("layer1", "layer2"))
    assert (encoder.widths, encoder.input_size) == ((6, 4), 224)
    with torch.no_grad():
        expected = module(torch.from_numpy(PIXELS)[:, None])
    for seen, wanted in zip(encoder.encode(PIXELS), expected, strict=True):
        assert seen.dtype == np.float32
        np.testing.assert_allclose(seen, wanted.numpy(), rtol=1e-4, atol=1e-6)


def test_three_channels_get_the_grey_slice_three_times(tmp_path: Path):
    module = TwoLayers(3).eval()
    encoder = load_external(script(module, tmp_path / "rgb.pt"), device="cpu")
    with torch.no_grad():
        expected = module(torch.from_numpy(PIXELS)[:, None].repeat(1, 3, 1, 1))
    np.testing.assert_allclose(encoder.encode(PIXELS)[0], expected[0], rtol=1e-4, atol=1e-6)


def test_the_sidecar_says_what_cannot_be_seen(tmp_path: Path):
    path = script(OneTensor(), tmp_path / "net.pt")
    told = {
        "input_size": 64,
        "channels": 3,
        "name": "profile",
        "layers": ["rows"],
        "description": "Row means.",
    }
    (tmp_path / "net.json").write_text(json.dumps(told))
    encoder = load_external(path, device="cpu")
    assert (encoder.name, encoder.layers, encoder.widths) == ("profile", ("rows",), (192,))
    assert (encoder.input_size, encoder.description) == (64, "Row means.")
    assert load_external(path, device="cpu", input_size=32).widths == (96,)


def test_fingerprint_follows_content_and_size(tmp_path: Path):
    first = script(TwoLayers(), tmp_path / "a.pt")
    changed = TwoLayers()
    with torch.no_grad():
        changed.low.bias += 1
    prints = {
        load_external(first, device="cpu").fingerprint,
        load_external(first, device="cpu", input_size=240).fingerprint,
        load_external(script(changed, tmp_path / "b.pt"), device="cpu").fingerprint,
    }
    assert len(prints) == 3
    assert load_external(first, device="cpu").fingerprint in prints


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Whole(), r"returned \(2, 1, 224, 224\) for two slices"),
        (Infinite(), "not finite"),
        (Named(), "returned dict"),
        (TwoLayers(5), "fails on slices of 224 x 224"),
    ],
)
def test_a_network_without_features_is_refused(module: nn.Module, message: str, tmp_path: Path):
    with pytest.raises(EncoderError, match=message):
        load_external(script(module, tmp_path / "net.pt"), device="cpu")


def test_a_file_that_is_no_torchscript_is_refused(tmp_path: Path):
    torch.save({"weights": torch.ones(2)}, tmp_path / "weights.pt")
    with pytest.raises(EncoderError, match="is not a TorchScript file"):
        load_external(str(tmp_path / "weights.pt"), device="cpu")
    with pytest.raises(EncoderError, match="There is no encoder"):
        load_external(str(tmp_path / "none.pt"), device="cpu")


@pytest.mark.parametrize(
    "told", ["{", '{"size": 3}', '{"input_size": "64"}', '{"layers": "a"}', "[1]"]
)
def test_a_wrong_sidecar_is_refused(told: str, tmp_path: Path):
    path = script(OneTensor(), tmp_path / "net.pt")
    (tmp_path / "net.json").write_text(told)
    with pytest.raises(EncoderError, match=r"net\.json"):
        load_external(path, device="cpu")


def test_a_sidecar_with_too_many_layers_is_refused(tmp_path: Path):
    path = script(OneTensor(), tmp_path / "net.pt")
    (tmp_path / "net.json").write_text('{"layers": ["a", "b"]}')
    with pytest.raises(EncoderError, match="names 2 layers, but the network returns 1"):
        load_external(path, device="cpu")


OWN = """
import numpy as np
from dataclasses import dataclass

@dataclass
class Own:
    name: str = "own"
    description: str = "Means of rows."
    layers: tuple = ("rows",)
    widths: tuple = (32,)
    input_size: int = 32
    fingerprint: str = "own-1"

    def encode(self, pixels):
        return (pixels.mean(axis=2),)

def load():
    return Own()

def sized(input_size=32, device="auto"):
    assert device == "cpu"
    return Own(widths=(input_size,), input_size=input_size)

def lies():
    return Own(widths=(31,))

def no_encoder():
    return 3

def half():
    own = Own()
    own.layers = ("a", "b")
    return own

def breaks():
    raise OSError("no such net")

value = 5
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own_encoder.py"
    path.write_text(OWN)
    yield path
    sys.modules.pop("own_encoder", None)


def test_a_function_in_a_file(own: Path):
    encoder = load_external(f"{own}:load")
    assert isinstance(encoder, Encoder)
    assert (encoder.name, encoder.layers, encoder.widths) == ("own", ("rows",), (32,))
    pixels = PIXELS[:, :32, :32]
    np.testing.assert_array_equal(encoder.encode(pixels)[0], pixels.mean(axis=2))


def test_a_function_in_a_package_and_its_options(own: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(own.parent))
    encoder = load_external("own_encoder:sized", input_size=48, device="cpu")
    assert (encoder.input_size, encoder.widths) == (48, (48,))


def test_fingerprint_follows_the_source_and_the_encoder(own: Path, tmp_path: Path):
    first = load_external(f"{own}:load").fingerprint
    own.write_text(OWN.replace("axis=2", "axis=1"))
    changed = load_external(f"{own}:load")
    assert first != changed.fingerprint
    pixels = PIXELS[:, :32, :32]
    np.testing.assert_array_equal(changed.encode(pixels)[0], pixels.mean(axis=1))
    (tmp_path / "moved").mkdir()
    moved = tmp_path / "moved" / "own_encoder.py"
    moved.write_text(OWN)
    assert load_external(f"{moved}:load").fingerprint == first
    own.write_text(OWN)
    assert load_external(f"{own}:load").fingerprint == first


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("lies", r"returned \[\(1, 32\)\], expected \[\(1, 31\)\]"),
        ("no_encoder", "returned int, which is no encoder: it lacks name"),
        ("half", "2 layers and 1 widths"),
        ("breaks", "failed: OSError: no such net"),
        ("value", "no function 'value'"),
        ("missing", "no function 'missing'"),
    ],
)
def test_a_function_that_gives_no_encoder_is_refused(own: Path, function: str, message: str):
    with pytest.raises(EncoderError, match=message):
        load_external(f"{own}:{function}")


def test_a_size_that_the_function_does_not_take_is_refused(own: Path):
    with pytest.raises(EncoderError, match="for 32 pixels, not for 64"):
        load_external(f"{own}:load", input_size=64)
    # A cohort remembers the size of its encoder and asks for it.
    assert load_external(f"{own}:load", input_size=32).input_size == 32


def test_a_source_is_found_from_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    assert absolute_source("net.pt") == str(tmp_path / "net.pt")
    assert absolute_source("own.py:load") == f"{tmp_path / 'own.py'}:load"
    assert absolute_source("package.module:load") == "package.module:load"


def test_places_that_are_not_there_are_refused(tmp_path: Path):
    with pytest.raises(EncoderError, match="Cannot import 'no_such_package'"):
        load_external("no_such_package:load")
    with pytest.raises(EncoderError, match="There is no file"):
        load_external(f"{tmp_path / 'none.py'}:load")
    (tmp_path / "broken.py").write_text("1 +")
    with pytest.raises(EncoderError, match="cannot be run: SyntaxError"):
        load_external(f"{tmp_path / 'broken.py'}:load")
