"""MRI-CORE as an encoder: configuration, options and fingerprint around the transformer.

MRI-CORE: Dong et al., "MRI-CORE: A Foundation Model for Magnetic Resonance Imaging";
github mazurowski-lab/mri_foundation (code and weights Apache-2.0). The weights are not part of
this package: see ``weights``.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.encoders.batching import batch_size, encode_in_batches
from MemorizationIndexLib.encoders.checkpoint import PATCH_SIZE, Checkpoint, read_checkpoint
from MemorizationIndexLib.encoders.device import DeviceChoice, choose_device
from MemorizationIndexLib.encoders.encoder import EncoderError

if TYPE_CHECKING:
    import torch

    from MemorizationIndexLib.encoders.vit import VisionTransformer

INPUT_SIZE = 224
"""Size of pre-training, and exactly one attention window."""

BLOCKS = (3, 7, 11)
WINDOW = 14
MOSTLY_PADDING = 0.5

PositionEmbedding = Literal["checkpoint", "none"]
Pooling = Literal["channels", "rows"]
Precision = Literal["float32", "bfloat16", "auto"]

ARITHMETIC_VERSION = 1
"""Raise when a change here or in ``vit`` changes features beyond rounding."""


@dataclass
class MriCoreEncoder:
    """MRI-CORE's ViT with averages of blocks 3, 7 and 11 as layers; see ``Encoder``.

    Attributes:
        device: The device and why it was chosen.
        precision: ``float32`` or ``bfloat16``, resolved.
        weights_sha256: Of the weights' values.
        batch: Slices encoded at once; falls where memory runs out.
    """

    name: str
    description: str
    layers: tuple[str, ...]
    widths: tuple[int, ...]
    input_size: int
    fingerprint: str
    device: DeviceChoice
    precision: str
    weights_sha256: str
    batch: int
    _model: VisionTransformer = field(repr=False)

    def encode(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
        """Encode float32 pixels (B, S, S) in [0, 1] to one (B, width) array per layer.

        Raises:
            EncoderError: The shape is wrong, pixels are not finite, or memory runs out for a
                single slice.
        """
        pixels = np.ascontiguousarray(pixels, dtype=np.float32)
        side = self.input_size
        if pixels.ndim != 3 or pixels.shape[1:] != (side, side):
            raise EncoderError(
                f"The encoder {self.name} takes slices of shape (B, {side}, {side}), got "
                f"{pixels.shape}; bring them to its input size first."
            )
        if not np.isfinite(pixels).all():
            raise EncoderError(
                f"A slice for the encoder {self.name} has pixels that are not finite."
            )
        if len(pixels) == 0:
            return tuple(np.zeros((0, width), np.float32) for width in self.widths)
        return encode_in_batches(self._encode_batch, pixels, self.batch, halved=self._remember)

    def _encode_batch(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
        import torch

        with torch.inference_mode():
            # A copy: PyTorch warns about, and could write to, memory that is read-only.
            features = self._model(torch.tensor(pixels).to(self.device.device))
            return tuple(feature.cpu().numpy() for feature in features)

    def _remember(self, size: int) -> None:
        self.batch = size


def load_mri_core(
    path: str | Path,
    *,
    input_size: int = INPUT_SIZE,
    device: str = "auto",
    position_embedding: PositionEmbedding = "checkpoint",
    pooling: Pooling = "channels",
    precision: Precision = "float32",
    heads: int | None = None,
    batch: int | None = None,
) -> MriCoreEncoder:
    """Load MRI-CORE's encoder from its checkpoint.

    Args:
        path: Checkpoint in DINOv2, MAE or SAM layout.
        input_size: Side of the slices in pixels, a multiple of 16. Sizes at which windows are
            mostly padding warn.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        position_embedding: ``checkpoint``, or ``none`` for zero as MRI-CORE's own loader leaves
            it.
        pooling: ``channels`` averages over tokens (width features); ``rows`` averages over a
            row's tokens and the channels (input_size / 16 features), as the paper's released code
            does.
        precision: ``float32``; ``bfloat16`` for matrix products on CPU or CUDA; ``auto`` takes
            bfloat16 on CUDA devices that have it, else float32.
        heads: Attention heads; by default heads are as wide as the largest power of two up to 64
            that divides the width (12 heads at width 768).
        batch: Slices at once; by default chosen by device and size.

    Returns:
        The encoder, its layers ``block3``, ``block7`` and ``block11``.

    Raises:
        EncoderError: The file, the device or an option cannot be used.
    """
    for option, value, known in (
        ("position_embedding", position_embedding, ("checkpoint", "none")),
        ("pooling", pooling, ("channels", "rows")),
        ("precision", precision, ("float32", "bfloat16", "auto")),
    ):
        if value not in known:
            raise EncoderError(f"Unknown {option} '{value}'; give one of {', '.join(known)}.")
    grid = _grid(input_size)
    checkpoint = read_checkpoint(path)
    if heads is None:
        heads = default_heads(checkpoint.width)
    if heads < 1 or checkpoint.width % heads:
        raise EncoderError(f"{heads} heads do not divide the width {checkpoint.width} of {path}.")
    choice = choose_device(device)
    resolved = _resolve_precision(precision, choice.device)
    model = _build(checkpoint, grid, heads, position_embedding, pooling == "rows")
    if batch is None:
        batch = batch_size(choice.device, grid * grid)
    _place(model, choice.device, resolved, rows=batch * grid * grid)
    positions = "" if position_embedding == "checkpoint" else ", position embedding left out"
    averaged = "all tokens" if pooling == "channels" else "each row of tokens and the channels"
    return MriCoreEncoder(
        name="mri-core",
        description=(
            f"MRI-CORE's vision transformer (width {checkpoint.width}, {heads} heads) with the "
            f"weights {Path(path).name} (SHA-256 of the values {checkpoint.sha256[:12]}), outputs "
            f"of blocks 3, 7 and 11 averaged over {averaged}{positions}, {input_size} px, "
            f"{resolved}"
        ),
        layers=tuple(f"block{block}" for block in BLOCKS),
        widths=(checkpoint.width if pooling == "channels" else grid,) * len(BLOCKS),
        input_size=input_size,
        fingerprint=_fingerprint(
            weights=checkpoint.sha256,
            heads=heads,
            input_size=input_size,
            position_embedding=position_embedding,
            pooling=pooling,
            precision=resolved,
        ),
        device=choice,
        precision=resolved,
        weights_sha256=checkpoint.sha256,
        batch=batch,
        _model=model,
    )


def default_heads(width: int) -> int:
    """Return the heads of a ViT of this width: 64 numbers each, fewer where 64 does not divide."""
    return width // min(64, width & -width)


def _grid(input_size: int) -> int:
    if input_size < PATCH_SIZE or input_size % PATCH_SIZE:
        raise EncoderError(
            f"The input size {input_size} is not a multiple of {PATCH_SIZE}; give {INPUT_SIZE} "
            "(the size of pre-training) or another multiple."
        )
    grid = input_size // PATCH_SIZE
    side = -(-grid // WINDOW) * WINDOW
    padding = 1 - (grid / side) ** 2
    if padding > MOSTLY_PADDING:
        warnings.warn(
            f"At {input_size} px the {grid} x {grid} tokens lie in windows of {side} x {side}, "
            f"{padding:.0%} of it padding that takes part in attention; {INPUT_SIZE} px fills "
            "one window and is the size of pre-training.",
            UserWarning,
            stacklevel=3,
        )
    return grid


def _resolve_precision(precision: str, device: str) -> str:
    import torch

    if precision == "auto":
        native = device.startswith("cuda") and torch.cuda.get_device_capability(device)[0] >= 8
        return "bfloat16" if native else "float32"
    if precision == "bfloat16" and device == "mps":
        raise EncoderError("bfloat16 is not offered on mps; give --precision float32.")
    return precision


def _build(
    checkpoint: Checkpoint, grid: int, heads: int, position_embedding: str, rows: bool
) -> VisionTransformer:
    import torch

    from MemorizationIndexLib.encoders.vit import VisionTransformer, ViTConfig

    config = ViTConfig(
        width=checkpoint.width,
        heads=heads,
        hidden=checkpoint.hidden,
        patch_size=PATCH_SIZE,
        window=WINDOW,
        output_blocks=BLOCKS,
    )
    state = dict(checkpoint.tensors)
    filters = state.pop("patch_embed.proj.weight")
    state["patch_embed.weight"] = filters.sum(dim=1).flatten(1)
    state["patch_embed.bias"] = state.pop("patch_embed.proj.bias")
    positions = resize_positions(state.pop("pos_embed"), grid)
    if position_embedding == "none":
        positions = torch.zeros_like(positions)
    state["pos_embed"] = positions.reshape(1, grid * grid, -1)
    with torch.device("meta"):
        model = VisionTransformer(config, grid, rows=rows)
    model.load_state_dict(state, strict=True, assign=True)
    return model.eval().requires_grad_(False)


def resize_positions(positions: torch.Tensor, grid: int) -> torch.Tensor:
    """Resize a position grid (1, g, g, C) bilinearly (``align_corners=False``) to ``grid``."""
    import torch.nn.functional as F  # noqa: N812

    if positions.shape[1] == grid:
        return positions
    resized = F.interpolate(
        positions.permute(0, 3, 1, 2), (grid, grid), mode="bilinear", align_corners=False
    )
    return resized.permute(0, 2, 3, 1).contiguous()


def _place(model: VisionTransformer, device: str, precision: str, rows: int) -> None:
    """Move to the device; bfloat16 takes the blocks' products only, float32 stays elsewhere."""
    import torch

    from MemorizationIndexLib.encoders.packed_linear import pack_linears

    model.to(device)
    if precision == "bfloat16":
        for block in model.blocks:
            for part in (block.attn, block.mlp):
                part.to(torch.bfloat16)
    elif device == "cpu":
        pack_linears(model, rows)


def _fingerprint(**facts: object) -> str:
    described = json.dumps(
        {"encoder": "mri-core", "arithmetic": ARITHMETIC_VERSION, **facts}, sort_keys=True
    )
    return f"mri-core:{hashlib.sha256(described.encode()).hexdigest()}"
