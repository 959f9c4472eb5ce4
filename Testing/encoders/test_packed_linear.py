"""Packed linear layers give the numbers of ``nn.Linear`` or stay away."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from MemorizationIndexLib.encoders import packed_linear
from MemorizationIndexLib.encoders.packed_linear import PackedLinear, pack_linears


def layers() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(20, 36), nn.GELU(), nn.Sequential(nn.Linear(36, 12))).eval()


@pytest.mark.parametrize("shape", [(20,), (1, 20), (5, 20), (2, 7, 20), (3, 2, 9, 20)])
def test_numbers_are_those_of_the_layer(shape: tuple[int, ...]):
    module = layers()
    x = torch.randn(*shape)
    with torch.inference_mode():
        expected = module(x)
        if not pack_linears(module, 14):
            pytest.skip("this PyTorch has no oneDNN operators")
        assert isinstance(module[0], PackedLinear)
        assert isinstance(module[2][0], PackedLinear)
        seen = module(x)
    assert seen.shape == expected.shape
    torch.testing.assert_close(seen, expected, rtol=1e-5, atol=1e-5)


def test_layers_stay_where_the_operators_are_missing(monkeypatch):
    def missing(weight, rows):
        raise AttributeError("no such operator")

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", missing, raising=False)
    module = layers()
    assert not pack_linears(module, 14)
    assert isinstance(module[0], nn.Linear)


def test_layers_stay_where_the_numbers_differ(monkeypatch):
    monkeypatch.setattr(
        packed_linear.PackedLinear, "forward", lambda self, x: torch.zeros(*x.shape[:-1], 32)
    )
    module = layers()
    assert not pack_linears(module, 14)
    assert isinstance(module[0], nn.Linear)
