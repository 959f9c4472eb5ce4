"""Checkpoints of MRI-CORE: three layouts in, one set of names out, nothing dropped in silence.

MRI-CORE's own loader renames keys, stores the position embedding under a name the model does not
have and loads with ``strict=False``, so the embedding stays zero. Here every key of
the file is either used or on a named list of parts that the features do not need; anything else
is an error.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import pickle
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from MemorizationIndexLib.encoders.encoder import EncoderError

if TYPE_CHECKING:
    from torch import Tensor

DEPTH = 12
PATCH_SIZE = 16
CHANNELS = 3

NOT_NEEDED = {
    "cls_token": "class token; MRI-CORE's features come from patch tokens",
    "mask_token": "stands for hidden patches in pre-training",
    "norm": "final norm; the features are taken before it",
    "neck": "SAM's neck; the features are taken before it",
    "dino_head": "DINO's training head",
    "ibot_head": "iBOT's training head",
    "decoder": "MAE's decoder",
    "decoder_embed": "MAE's decoder",
    "decoder_pos_embed": "MAE's decoder",
    "decoder_blocks": "MAE's decoder",
    "decoder_norm": "MAE's decoder",
    "decoder_pred": "MAE's decoder",
    "prompt_encoder": "SAM's prompt encoder",
    "mask_decoder": "SAM's mask decoder",
    "pixel_mean": "SAM's input normalization, which MRI-CORE does not use",
    "pixel_std": "SAM's input normalization, which MRI-CORE does not use",
}
"""First word of the keys that may be in a file and are not loaded, and why."""

REFUSED = (
    (re.compile(r"adapter", re.IGNORECASE), "adapters (a fine-tuned model)"),
    (re.compile(r"lora|linear_[ab]_[qv]", re.IGNORECASE), "LoRA layers (a fine-tuned model)"),
    (re.compile(r"\.ls[12]\.|\bgamma(_[12])?$"), "layer scale"),
    (re.compile(r"rel_pos"), "relative positions (plain SAM, not MRI-CORE)"),
    (re.compile(r"register_tokens"), "register tokens"),
)
"""What MRI-CORE does not have; ignoring it would give other features than its authors meant."""

_HTML = re.compile(rb"^\s*(<!doctype html|<html|<head|<\?xml)", re.IGNORECASE)


@dataclass(frozen=True)
class Checkpoint:
    """The encoder's weights under one set of names.

    Attributes:
        tensors: float32 on the CPU by name: ``patch_embed.proj.weight|bias``, ``pos_embed``
            (1, g, g, C) and ``blocks.<i>.`` ``norm1|attn.qkv|attn.proj|norm2|mlp.lin1|mlp.lin2``
            ``.weight|bias`` for 12 blocks.
        layout: Where they were, in words.
        width: Numbers per token C.
        hidden: Width of the MLP's hidden layer.
        not_loaded: Keys of the file that the features do not need.
        sha256: Of names, shapes and float32 values: equal for equal weights in any layout.
    """

    tensors: dict[str, Tensor]
    layout: str
    width: int
    hidden: int
    not_loaded: tuple[str, ...]
    sha256: str


def looks_like_html(head: bytes) -> bool:
    """Say whether the first bytes of a file are those of a web page."""
    return _HTML.match(head.removeprefix(b"\xef\xbb\xbf")) is not None


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read and check a checkpoint in DINOv2, MAE or SAM layout.

    Tensors only are read (``weights_only=True``); a file with code in it is refused unread.

    Args:
        path: The file.

    Returns:
        The weights, cast to float32.

    Raises:
        EncoderError: The file is missing, damaged, holds code, or does not hold exactly what
            MRI-CORE's encoder needs.
    """
    path = Path(path)
    layout, state = _locate(_load(path), path)
    named, not_loaded = _rename(state, path)
    width, hidden = _check_shapes(named, path)
    tensors = {}
    for name in sorted(named):
        tensor = named[name].detach().float().contiguous()
        if not bool(tensor.isfinite().all()):
            raise EncoderError(
                f"The weights in {path} are not finite ({name}): the file is damaged or its "
                "training failed; get another copy."
            )
        tensors[name] = tensor
    tensors["pos_embed"] = _position_grid(tensors["pos_embed"], width, path)
    return Checkpoint(tensors, layout, width, hidden, tuple(not_loaded), _digest(tensors))


def _load(path: Path) -> Any:
    import torch

    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as error:
        raise EncoderError(f"Cannot read the weights {path}: {error.strerror}.") from error
    if not head:
        raise EncoderError(f"The weights {path} are an empty file; get another copy.")
    if looks_like_html(head):
        raise EncoderError(
            f"{path} is a web page, not weights: the download was answered with a page; "
            "download the file in a browser and register it."
        )
    _check_sums(path)
    # MAE's checkpoints carry their command line; a Namespace holds values, it runs nothing.
    safe = getattr(torch.serialization, "safe_globals", None)
    with contextlib.nullcontext() if safe is None else safe([argparse.Namespace]):
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            if re.search(r"[Uu]nsupported (global|class|GLOBAL)|not an allowed", str(error)):
                raise EncoderError(
                    f"{path} holds Python objects or code besides tensors and was not opened; "
                    "ask its publisher for a file with weights only."
                ) from error
            raise _damaged(path) from error
        except (RuntimeError, EOFError, ValueError, KeyError, IndexError, OSError) as error:
            raise _damaged(path) from error
        except (TypeError, AttributeError, AssertionError) as error:
            # What the restricted unpickler raises on bytes that are no pickle at all.
            raise _damaged(path) from error


def _check_sums(path: Path) -> None:
    """Check the sums stored in a zip archive, which PyTorch does not."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError) as error:
        raise _damaged(path) from error
    if broken is not None:
        raise _damaged(path)


def _damaged(path: Path) -> EncoderError:
    size = path.stat().st_size
    return EncoderError(
        f"{path} ({size} bytes) is not a complete PyTorch checkpoint: it is cut off, damaged or of "
        "another kind; get another copy."
    )


def _locate(content: Any, path: Path) -> tuple[str, dict[str, Tensor]]:
    """Find the encoder's tensors in what the file holds, in the order the original looks."""
    import torch

    place = []
    for key in ("model", "teacher", "student"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
            place.append(key)
    if not isinstance(content, dict) or not any(
        isinstance(value, torch.Tensor) for value in content.values()
    ):
        found = ", ".join(sorted(map(str, content)))[:200] if isinstance(content, dict) else "none"
        raise EncoderError(
            f"{path} holds no weights under 'teacher', 'student', 'model' or at the top "
            f"(keys: {found}); give MRI-CORE's checkpoint."
        )
    odd = [key for key, value in content.items() if not isinstance(value, torch.Tensor)]
    if odd:
        raise EncoderError(f"{path} holds something other than a tensor at {_some(odd)}.")
    return "/".join(place) or "top level", content


def _rename(state: dict[str, Tensor], path: Path) -> tuple[dict[str, Tensor], list[str]]:
    """Sort keys into the encoder's names and those not needed; refuse the rest."""
    named: dict[str, Tensor] = {}
    not_loaded: list[str] = []
    unexpected: list[str] = []
    for key, tensor in state.items():
        name = re.sub(r"^(module\.)?(backbone\.|image_encoder\.)?", "", key)
        if name.split(".")[0] in NOT_NEEDED:
            not_loaded.append(key)
            continue
        for pattern, what in REFUSED:
            if pattern.search(name):
                raise EncoderError(
                    f"{path} has {what} at '{key}', which MRI-CORE's encoder does not have; give "
                    "the published checkpoint."
                )
        # DINOv2 nests blocks in chunks but numbers them through.
        name = re.sub(r"^blocks\.\d+\.(\d+)\.", r"blocks.\1.", name)
        name = name.replace(".mlp.fc", ".mlp.lin")
        if name in named:
            raise EncoderError(f"{path} holds '{name}' twice (again as '{key}').")
        if name in _NAMES:
            named[name] = tensor
        else:
            unexpected.append(key)
    missing = sorted(_NAMES - named.keys())
    if missing or unexpected:
        parts = [f"lacks {_some(missing)}"] if missing else []
        parts += [f"has unexpected {_some(unexpected)}"] if unexpected else []
        raise EncoderError(
            f"{path} {' and '.join(parts)}: it is not a checkpoint of MRI-CORE's ViT with "
            f"{DEPTH} blocks."
        )
    return named, not_loaded


def _check_shapes(named: dict[str, Tensor], path: Path) -> tuple[int, int]:
    width = named["patch_embed.proj.bias"].shape[0] if named["patch_embed.proj.bias"].ndim else 0
    bias = named["blocks.0.mlp.lin1.bias"]
    hidden = bias.shape[0] if bias.ndim else 0
    for name, tensor in named.items():
        wanted = _shape(name, width, hidden)
        if wanted is not None and tuple(tensor.shape) != wanted:
            raise EncoderError(
                f"'{name}' in {path} has shape {tuple(tensor.shape)}, expected {wanted} for width "
                f"{width}; the file is not MRI-CORE's or was converted wrongly."
            )
        if not tensor.is_floating_point():
            raise EncoderError(f"'{name}' in {path} is {tensor.dtype}, not floating point.")
    return width, hidden


def _shape(name: str, width: int, hidden: int) -> tuple[int, ...] | None:
    """Return the shape a tensor must have, None for the position embedding."""
    if name == "pos_embed":
        return None
    if name == "patch_embed.proj.weight":
        return (width, CHANNELS, PATCH_SIZE, PATCH_SIZE)
    rows, columns = {
        "proj": (width, width),
        "qkv": (3 * width, width),
        "lin1": (hidden, width),
        "lin2": (width, hidden),
    }.get(name.split(".")[-2], (width, width))
    if name.endswith("bias") or "norm" in name:
        return (rows,)
    return (rows, columns)


def _position_grid(positions: Tensor, width: int, path: Path) -> Tensor:
    """Return positions as (1, g, g, C), without the class token of the DINOv2 and MAE layouts."""
    shape = tuple(positions.shape)
    if len(shape) == 3 and shape[0] == 1 and shape[2] == width:
        grid = round((shape[1] - 1) ** 0.5)
        if grid > 0 and grid * grid == shape[1] - 1:
            return positions[:, 1:].reshape(1, grid, grid, shape[2]).contiguous()
    elif len(shape) == 4 and shape[0] == 1 and shape[1] == shape[2] > 0 and shape[3] == width:
        return positions
    raise EncoderError(
        f"'pos_embed' in {path} has shape {shape}, expected (1, 1 + g*g, {width}) or "
        f"(1, g, g, {width})."
    )


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().data)
    return digest.hexdigest()


def _some(names: list[str], most: int = 4) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


_NAMES = frozenset(
    ["pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"]
    + [
        f"blocks.{block}.{part}.{kind}"
        for block in range(DEPTH)
        for part in ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.lin1", "mlp.lin2")
        for kind in ("weight", "bias")
    ]
)
