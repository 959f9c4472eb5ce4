"""Random weights of a narrow ViT in the layouts that checkpoints come in."""

from __future__ import annotations

import torch

State = dict[str, torch.Tensor]
WIDTH = 16


def small_state(width: int = WIDTH, grid: int = 3, seed: int = 0) -> State:
    """Random weights of a narrow ViT with MAE's names."""
    random = torch.Generator().manual_seed(seed)
    state = {
        "cls_token": torch.randn(1, 1, width, generator=random),
        "pos_embed": torch.randn(1, 1 + grid * grid, width, generator=random),
        "patch_embed.proj.weight": torch.randn(width, 3, 16, 16, generator=random),
        "patch_embed.proj.bias": torch.randn(width, generator=random),
        "norm.weight": torch.randn(width, generator=random),
        "norm.bias": torch.randn(width, generator=random),
    }
    for block in range(12):
        for part, rows, columns in (
            ("attn.qkv", 3 * width, width),
            ("attn.proj", width, width),
            ("mlp.fc1", 4 * width, width),
            ("mlp.fc2", width, 4 * width),
        ):
            weight = torch.randn(rows, columns, generator=random)
            state[f"blocks.{block}.{part}.weight"] = weight
            state[f"blocks.{block}.{part}.bias"] = torch.randn(rows, generator=random)
        for part in ("norm1", "norm2"):
            state[f"blocks.{block}.{part}.weight"] = torch.randn(width, generator=random)
            state[f"blocks.{block}.{part}.bias"] = torch.randn(width, generator=random)
    return state


def dinov2(state: State) -> State:
    """The same weights with DINOv2's names: a prefix, and blocks in chunks of four."""
    renamed = {}
    for key, value in state.items():
        words = key.split(".")
        if words[0] == "blocks":
            words.insert(1, str(int(words[1]) // 4))
        renamed["backbone." + ".".join(words)] = value
    return renamed


def sam(state: State) -> State:
    """The same weights with SAM's names and position grid."""
    renamed = {}
    for key, value in state.items():
        if key == "cls_token" or key.startswith("norm."):
            continue
        if key == "pos_embed":
            value = value[:, 1:].reshape(1, 3, 3, -1)
        renamed["image_encoder." + key.replace("fc", "lin")] = value
    return renamed
