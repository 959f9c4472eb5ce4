"""Linear layers whose weights lie in the order that the CPU's matrix kernel reads them.

PyTorch's ``nn.Linear`` hands float32 products to a general routine that rearranges the weights
at every call. oneDNN, which ships with PyTorch, can keep them rearranged. PyTorch offers this
through the operators that its own compiler emits for CPUs (``torch.ops.mkldnn``), which are not
part of its documented interface: where they are missing, or do not give the numbers of
``nn.Linear``, the layers stay as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PackedLinear(nn.Module):
    """``nn.Linear`` for inference on the CPU in float32, with rearranged weights."""

    def __init__(self, linear: nn.Linear, rows: int) -> None:
        """Rearrange the weights of a layer.

        Args:
            linear: The layer, float32 on the CPU.
            rows: Rows of a usual input, which the arrangement is chosen for.
        """
        super().__init__()
        weight = linear.weight.detach()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        self.bias = linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in) to (..., out)."""
        flat = x.reshape(-1, x.shape[-1])
        out = torch.ops.mkldnn._linear_pointwise(flat, self.weight, self.bias, "none", [], "")
        return out.view(*x.shape[:-1], -1)


def pack_linears(module: nn.Module, rows: int) -> bool:
    """Replace the linear layers below a module, where this PyTorch can; otherwise change nothing.

    Args:
        module: Float32 on the CPU, used for inference only.
        rows: Rows of a usual input.

    Returns:
        Whether the layers were replaced.
    """
    if not _works():
        return False
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, PackedLinear(child, rows))
        else:
            pack_linears(child, rows)
    return True


def _works() -> bool:
    """Say whether the operators exist here and agree with ``nn.Linear``."""
    if not torch.backends.mkldnn.is_available():
        return False
    generator = torch.Generator().manual_seed(0)
    linear = nn.Linear(48, 32, device="cpu").requires_grad_(False)
    linear.weight.copy_(torch.randn(32, 48, generator=generator))
    x = torch.randn(2, 3, 48, generator=generator)
    try:
        with torch.inference_mode():
            seen = PackedLinear(linear, 6)(x)
    except (RuntimeError, AttributeError, TypeError):
        return False
    return torch.allclose(seen, linear(x), rtol=1e-4, atol=1e-4)
