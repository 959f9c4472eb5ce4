"""Which device computes: a device counts only after a real kernel has run on it.

A driver too old, a GPU newer than the PyTorch build, a card held by another process: all of them
pass ``is_available()`` and fail at the first kernel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from MemorizationIndexLib.encoders.encoder import EncoderError

if TYPE_CHECKING:
    from torch import Tensor

AUTO_ORDER = ("cuda", "mps", "cpu")


@dataclass(frozen=True)
class DeviceChoice:
    """The device to compute on.

    Attributes:
        device: As PyTorch spells it: ``cpu``, ``cuda:0``, ``mps``.
        reason: Why this one, for people to read.
    """

    device: str
    reason: str


def choose_device(request: str = "auto") -> DeviceChoice:
    """Choose a device that has just computed something.

    Args:
        request: ``auto`` (CUDA, then MPS, then CPU), ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.

    Returns:
        The device and the reason; with ``auto``, the reason names what was passed over and why.

    Raises:
        EncoderError: The request is unknown, or names a device that does not work.
    """
    check_device_name(request)
    if request == "auto":
        passed: list[str] = []
        for device in AUTO_ORDER:
            failure = probe(device)
            if failure is None:
                reason = f"{describe(device)} ran a test computation"
                return DeviceChoice(_indexed(device), "; ".join([reason, *passed]))
            passed.append(f"{device} not used: {failure}")
        raise EncoderError(f"No device can compute, not even the CPU: {'; '.join(passed)}.")
    failure = probe(request)
    if failure is not None:
        raise EncoderError(
            f"The device '{request}' cannot be used: {failure}. Give --device auto or cpu."
        )
    return DeviceChoice(
        _indexed(request), f"{describe(request)} was asked for and ran a test computation"
    )


def check_device_name(request: str) -> None:
    """Refuse what cannot be a device on any machine.

    Raises:
        EncoderError: It is none of those that ``choose_device`` takes.
    """
    if re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", request) is None:
        raise EncoderError(
            f"Unknown device '{request}'; give auto, cpu, cuda, cuda:N (a number) or mps."
        )


def probe(device: str) -> str | None:
    """Run a product and a convolution on the device and compare with the CPU.

    Args:
        device: ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.

    Returns:
        None where the device works, else what went wrong, in words.
    """
    import torch

    if device.startswith("cuda"):
        if not torch.cuda.is_available():
            built = torch.version.cuda or getattr(torch.version, "hip", None)
            return "no GPU or driver found" if built else "this PyTorch is built without CUDA"
        count = torch.cuda.device_count()
        index = int(device.partition(":")[2] or 0)
        if index >= count:
            return f"there is no GPU {index}, only {count} (numbered from 0)"
    if device == "mps" and not torch.backends.mps.is_available():
        return "this machine or PyTorch has no Metal (MPS)"
    try:
        with torch.inference_mode():
            image = torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16)
            kernel = torch.linspace(-1, 1, 8 * 3 * 4 * 4).reshape(8, 3, 4, 4)
            expected = _computation(image, kernel)
            # The copy back waits for the device: an asynchronous failure shows here.
            seen = _computation(image.to(device), kernel.to(device)).cpu()
    except (RuntimeError, AssertionError) as error:
        lines = str(error).strip().splitlines()
        return lines[0].rstrip(".") if lines else type(error).__name__
    if not torch.allclose(seen, expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max())):
        return "its test computation gave wrong numbers"
    return None


def _computation(image: Tensor, kernel: Tensor) -> Tensor:
    import torch

    features = torch.nn.functional.conv2d(image, kernel, stride=4).flatten(1)
    return torch.softmax(features @ features.T / features.shape[1], dim=1) @ features


def describe(device: str) -> str:
    """Name a device for people, with the model of a GPU."""
    import torch

    if device.startswith("cuda"):
        return f"{_indexed(device)} ({torch.cuda.get_device_name(torch.device(device))})"
    if device == "mps":
        return "mps (Apple GPU)"
    return f"cpu ({torch.get_num_threads()} threads)"


def _indexed(device: str) -> str:
    return "cuda:0" if device == "cuda" else device
