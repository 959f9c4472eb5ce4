"""The vision transformer of MRI-CORE: SAM's image encoder without relative positions and neck.

Three facts of the original shape this file (models/sam/modeling/image_encoder.py, MRI-CORE):

* Most blocks attend within windows of 14 x 14 tokens. The original cuts the windows, padded with
  zeros, BEFORE ``norm1``; a padded token therefore enters attention, unmasked, as ``norm1.bias``.
  All padded tokens of a block are the same vector, so their key and value are computed once and
  repeated, and nothing is computed for them as queries: the same numbers without the waste.
* Nothing in a block but attention mixes tokens, and attention without relative positions does not
  see their order. Tokens are put window after window once, after the position embedding, and stay
  so: no block has to cut or reassemble the grid.
* Only averages over tokens leave the encoder. An average commutes with the last linear layer of
  the last block, which is applied to the averages alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor, nn


@dataclass(frozen=True)
class ViTConfig:
    """The shape of the network.

    Attributes:
        width: Numbers per token C.
        heads: Attention heads; each sees ``width // heads`` numbers.
        hidden: Width of the MLP's hidden layer.
        patch_size: Side of a patch, in pixels.
        window: Side of an attention window, in tokens.
        global_blocks: Blocks (0-based) that attend over all tokens instead of windows.
        output_blocks: Blocks (0-based, ascending) whose outputs are wanted; none runs after the
            last.
    """

    width: int = 768
    heads: int = 12
    hidden: int = 3072
    patch_size: int = 16
    window: int = 14
    global_blocks: tuple[int, ...] = (2, 5, 8, 11)
    output_blocks: tuple[int, ...] = (3, 7, 11)


@dataclass(frozen=True)
class WindowGroup:
    """Windows of one shape, which lie one after the other in the token order.

    Attributes:
        start: First token of the group.
        stop: One past its last token.
        tokens: Image tokens in each window.
        padding: Padded tokens that complete each window.
    """

    start: int
    stop: int
    tokens: int
    padding: int


def window_order(grid: int, window: int) -> tuple[Tensor, tuple[WindowGroup, ...]]:
    """Order the tokens of a square grid window by window.

    Where ``window`` does not divide ``grid``, the windows at the right and lower border hold fewer
    tokens; windows of equal shape are grouped.

    Args:
        grid: Tokens along a side.
        window: Window side, in tokens.

    Returns:
        Raster index of each token in window order, int64, shape (grid * grid,), and the groups.
    """
    # On the CPU also where a model without storage is being built (torch.device("meta")).
    raster = torch.arange(grid * grid, device="cpu").view(grid, grid)
    whole = grid // window * window
    spans = [(a, b) for a, b in ((0, whole), (whole, grid)) if b > a]
    order, groups, start = [], [], 0
    for top, bottom in spans:
        height = min(window, bottom - top)
        for left, right in spans:
            width = min(window, right - left)
            part = raster[top:bottom, left:right].reshape(
                (bottom - top) // height, height, (right - left) // width, width
            )
            order.append(part.transpose(1, 2).reshape(-1))
            tokens = height * width
            stop = start + part.numel()
            groups.append(WindowGroup(start, stop, tokens, window * window - tokens))
            start = stop
    return torch.cat(order), tuple(groups)


class Attention(nn.Module):
    """Multi-head self-attention with one projection for query, key and value."""

    def __init__(self, width: int, heads: int) -> None:
        """Take tokens of ``width`` numbers, ``width // heads`` to each head."""
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(
        self, x: Tensor, groups: tuple[WindowGroup, ...] | None, padded_token: Tensor
    ) -> Tensor:
        """Attend over all tokens, or within windows.

        Args:
            x: Normalized tokens, shape (B, T, C), in window order.
            groups: The windows, or None to attend over all T tokens.
            padded_token: What a padded token is at this point, shape (C,).

        Returns:
            Shape (B, T, C).
        """
        batch, _, width = x.shape
        qkv = self.qkv(x)
        if groups is None:
            return self.proj(self._attend(qkv, None, 0))
        padded = self.qkv(padded_token) if any(group.padding for group in groups) else None
        attended = []
        for group in groups:
            windows = qkv[:, group.start : group.stop].reshape(-1, group.tokens, 3 * width)
            out = self._attend(windows, padded, group.padding)
            attended.append(out.reshape(batch, -1, width))
        return self.proj(attended[0] if len(attended) == 1 else torch.cat(attended, dim=1))

    def _attend(self, qkv: Tensor, padded: Tensor | None, padding: int) -> Tensor:
        """softmax(q k^T / sqrt(d)) v of (N, L, 3C); ``padding`` equal tokens join k and v."""
        n, length, _ = qkv.shape
        q, k, v = qkv.view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if padding and padded is not None:
            _, k_padded, v_padded = padded.view(3, 1, self.heads, 1, -1)
            k = torch.cat([k, k_padded.expand(n, -1, padding, -1)], dim=2)
            v = torch.cat([v, v_padded.expand(n, -1, padding, -1)], dim=2)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, length, -1)


class MLP(nn.Module):
    """Two linear layers with the exact (erf) GELU between."""

    def __init__(self, width: int, hidden: int) -> None:
        """Take tokens of ``width`` numbers through ``hidden`` ones."""
        super().__init__()
        self.lin1 = nn.Linear(width, hidden)
        self.lin2 = nn.Linear(hidden, width)

    def activations(self, x: Tensor) -> Tensor:
        """Return the hidden layer, shape (..., hidden), of tokens (..., C)."""
        return F.gelu(self.lin1(x))

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens (..., C) to (..., C)."""
        return self.lin2(self.activations(x))


class Block(nn.Module):
    """Pre-norm transformer block; the residual stream and the norms stay in float32."""

    def __init__(self, config: ViTConfig, *, windowed: bool) -> None:
        """Attend within windows, or over all tokens."""
        super().__init__()
        self.windowed = windowed
        self.norm1 = nn.LayerNorm(config.width, eps=1e-6)
        self.attn = Attention(config.width, config.heads)
        self.norm2 = nn.LayerNorm(config.width, eps=1e-6)
        self.mlp = MLP(config.width, config.hidden)

    def mix_tokens(self, x: Tensor, groups: tuple[WindowGroup, ...]) -> Tensor:
        """Return x plus its attention, shape (B, T, C)."""
        dtype = self.attn.qkv.bias.dtype
        attended = self.attn(
            self.norm1(x).to(dtype),
            groups if self.windowed else None,
            self.norm1.bias.to(dtype),
        )
        return x + attended

    def forward(self, x: Tensor, groups: tuple[WindowGroup, ...]) -> Tensor:
        """Map tokens (B, T, C) in window order to (B, T, C)."""
        x = self.mix_tokens(x, groups)
        return x + self.mlp(self.norm2(x).to(self.mlp.lin1.bias.dtype))

    def averages(self, x: Tensor, groups: tuple[WindowGroup, ...], average: Averaging) -> Tensor:
        """Return ``average(self(x))``, with the MLP's second layer run on averages only."""
        x = self.mix_tokens(x, groups)
        hidden = self.mlp.activations(self.norm2(x).to(self.mlp.lin1.bias.dtype))
        return average(x) + self.mlp.lin2(average(hidden))


@dataclass(frozen=True)
class Averaging:
    """Means over tokens: of all of them, or of each row of the grid.

    Attributes:
        raster: Place of each raster token in window order, shape (T,), or None for the mean over
            all tokens.
    """

    raster: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        """Map tokens (B, T, C) to (B, 1, C), or to one mean a row of the grid, (B, grid, C)."""
        if self.raster is None:
            return x.mean(dim=1, keepdim=True)
        batch, tokens, width = x.shape
        grid = round(tokens**0.5)
        return x[:, self.raster].view(batch, grid, grid, width).mean(dim=2)


class VisionTransformer(nn.Module):
    """Windowed ViT that returns token averages of chosen blocks."""

    def __init__(self, config: ViTConfig, grid: int, *, rows: bool = False) -> None:
        """Lay out the network.

        Args:
            config: Its shape.
            grid: Tokens along a side of the input (input size / patch size).
            rows: Average over each row of the grid and the channels, as the paper's released
                code does, instead of over all tokens.
        """
        super().__init__()
        self.config = config
        self.grid = grid
        self.rows = rows
        # Grey repeated to three channels meets the sum of the filter over channels: one is enough.
        self.patch_embed = nn.Linear(config.patch_size**2, config.width)
        self.pos_embed = nn.Parameter(torch.zeros(1, grid * grid, config.width))
        self.blocks = nn.ModuleList(
            Block(config, windowed=i not in config.global_blocks)
            for i in range(max(config.output_blocks) + 1)
        )
        order, self.groups = window_order(grid, config.window)
        self.order: Tensor
        self.raster: Tensor
        self.register_buffer("order", order, persistent=False)
        self.register_buffer("raster", torch.argsort(order), persistent=False)

    def embed(self, pixels: Tensor) -> Tensor:
        """Cut patches, project them and add positions: (B, S, S) to (B, T, C) in window order."""
        grid, side = self.grid, self.config.patch_size
        patches = pixels.view(-1, grid, side, grid, side).transpose(2, 3)
        x = self.patch_embed(patches.reshape(-1, grid * grid, side * side))
        return (x + self.pos_embed)[:, self.order]

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """Encode a batch.

        Args:
            pixels: float32, shape (B, S, S), values in [0, 1], S = grid * patch_size.

        Returns:
            One tensor per output block: (B, C), or (B, grid) with ``rows``.
        """
        average = Averaging(self.raster if self.rows else None)
        features = []
        x = self.embed(pixels)
        last = len(self.blocks) - 1
        for index, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            if index == last:
                features.append(block.averages(x, self.groups, average))
            else:
                x = block(x, self.groups)
                if index in self.config.output_blocks:
                    features.append(average(x))
        if self.rows:
            return tuple(f.float().mean(dim=2) for f in features)
        return tuple(f[:, 0].float() for f in features)
