"""The transformer against the definition of its parts."""

from __future__ import annotations

import itertools

import pytest
import torch

from MemorizationIndexLib.encoders.vit import (
    Averaging,
    Block,
    VisionTransformer,
    ViTConfig,
    window_order,
)

CONFIG = ViTConfig(width=24, heads=3, hidden=40, patch_size=4, window=4, global_blocks=(1, 3))


def random_block(*, windowed: bool, config: ViTConfig = CONFIG) -> Block:
    torch.manual_seed(3)
    block = Block(config, windowed=windowed)
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return block.eval()


@pytest.mark.parametrize("grid", [1, 3, 4, 5, 8, 9, 15])
def test_window_order_is_a_permutation_in_groups_of_whole_windows(grid: int):
    order, groups = window_order(grid, 4)
    assert sorted(order.tolist()) == list(range(grid * grid))
    assert groups[0].start == 0
    assert groups[-1].stop == grid * grid
    for group, following in itertools.pairwise(groups):
        assert group.stop == following.start
    for group in groups:
        assert group.tokens + group.padding == 16
        for window in order[group.start : group.stop].view(-1, group.tokens):
            cells = {(int(t) // grid // 4, int(t) % grid // 4) for t in window}
            assert len(cells) == 1


def windowed_attention_by_definition(block: Block, x: torch.Tensor, window: int) -> torch.Tensor:
    """Pad with zeros, cut, normalize, attend with every token, put back: (B, g, g, C)."""
    batch, grid, _, width = x.shape
    side = -(-grid // window) * window
    padded = torch.zeros(batch, side, side, width)
    padded[:, :grid, :grid] = x
    out = torch.zeros_like(padded)
    heads, dim = CONFIG.heads, width // CONFIG.heads
    for top in range(0, side, window):
        for left in range(0, side, window):
            tokens = padded[:, top : top + window, left : left + window].reshape(batch, -1, width)
            qkv = block.attn.qkv(block.norm1(tokens)).view(batch, -1, 3, heads, dim)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            matrix = torch.softmax(q @ k.transpose(-1, -2) / dim**0.5, dim=-1)
            seen = (matrix @ v).transpose(1, 2).reshape(batch, window, window, width)
            out[:, top : top + window, left : left + window] = block.attn.proj(seen)
    return out[:, :grid, :grid]


@pytest.mark.parametrize("grid", [2, 4, 5, 7, 8, 11])
@pytest.mark.parametrize("windowed", [True, False])
def test_block_follows_the_definition(grid: int, windowed: bool):
    block = random_block(windowed=windowed)
    x = torch.randn(2, grid, grid, CONFIG.width, generator=torch.Generator().manual_seed(grid))
    order, groups = window_order(grid, CONFIG.window)
    with torch.no_grad():
        if windowed:
            attended = windowed_attention_by_definition(block, x, CONFIG.window)
        else:
            flat = x.reshape(2, 1, grid * grid, CONFIG.width)
            qkv = block.attn.qkv(block.norm1(flat[:, 0]))
            q, k, v = qkv.view(2, grid * grid, 3, CONFIG.heads, -1).permute(2, 0, 3, 1, 4)
            matrix = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, dim=-1)
            attended = block.attn.proj((matrix @ v).transpose(1, 2).reshape(2, -1, CONFIG.width))
            attended = attended.view_as(x)
        expected = x + attended
        expected = expected + block.mlp(block.norm2(expected))
        ordered = x.reshape(2, -1, CONFIG.width)[:, order]
        seen = block(ordered, groups)
        torch.testing.assert_close(
            seen, expected.reshape(2, -1, CONFIG.width)[:, order], rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("rows", [True, False])
def test_averages_of_the_last_block_are_averages_of_its_output(rows: bool):
    block = random_block(windowed=True)
    order, groups = window_order(6, CONFIG.window)
    average = Averaging(torch.argsort(order) if rows else None)
    x = torch.randn(2, 36, CONFIG.width, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(
            block.averages(x, groups, average), average(block(x, groups)), rtol=1e-4, atol=1e-4
        )


def test_row_averages_are_of_raster_rows():
    order, _ = window_order(6, 4)
    raster = torch.arange(36.0).view(1, 36, 1)
    means = Averaging(torch.argsort(order))(raster[:, order])
    assert means[0, :, 0].tolist() == [2.5, 8.5, 14.5, 20.5, 26.5, 32.5]


def test_embedding_projects_patches_and_adds_positions_in_window_order():
    model = VisionTransformer(CONFIG, grid=6)
    torch.nn.init.normal_(model.pos_embed)
    pixels = torch.rand(2, 24, 24, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        kernel = model.patch_embed.weight.view(-1, 1, 4, 4)
        wanted = torch.nn.functional.conv2d(
            pixels[:, None], kernel, model.patch_embed.bias, stride=4
        )
        wanted = (wanted.flatten(2).transpose(1, 2) + model.pos_embed)[:, model.order]
        torch.testing.assert_close(model.embed(pixels), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [True, False])
def test_no_block_runs_after_the_last_wanted_one(rows: bool):
    config = ViTConfig(width=24, heads=3, hidden=40, patch_size=4, window=4, output_blocks=(0, 2))
    model = VisionTransformer(config, grid=5, rows=rows)
    assert len(model.blocks) == 3
    with torch.no_grad():
        features = model(torch.rand(3, 20, 20))
    assert [tuple(f.shape) for f in features] == [(3, 5 if rows else 24)] * 2
