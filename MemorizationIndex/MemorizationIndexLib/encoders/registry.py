"""From a name on the command line to an encoder."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from MemorizationIndexLib.encoders.device import DeviceChoice, check_device_name
from MemorizationIndexLib.encoders.encoder import Encoder, EncoderError

BUILTIN, MRI_CORE, AUTO = "builtin", "mri-core", "auto"

NAMES = (AUTO, BUILTIN, MRI_CORE)
"""Names a user can give; anything else is the user's own encoder, see ``external``."""


def resolve_encoder(name: str) -> str:
    """Return a name for a cohort to remember: without ``auto``, with the whole path of a file.

    ``auto`` is MRI-CORE where its weights are registered, else the built-in encoder.
    """
    if name not in NAMES:
        from MemorizationIndexLib.encoders.external import absolute_source

        return absolute_source(name)
    if name != AUTO:
        return name
    from MemorizationIndexLib.encoders.weights import weights_state

    return MRI_CORE if weights_state().present else BUILTIN


def choice_sentences(request: str, encoder: Encoder) -> str:
    """Say which encoder a run uses on which device, and why, for people to read.

    Args:
        request: What was asked for; where that was ``auto``, the reason is told.
        encoder: What was made of it.
    """
    from MemorizationIndexLib.encoders.weights import weights_state

    because = f", chosen automatically: {weights_state().sentence()}" if request == AUTO else "."
    sentences = f"Encoder: {encoder.name}{because}"
    if encoder.name == BUILTIN:
        return f"{sentences} Device: cpu, the only one it uses."
    choice = getattr(encoder, "device", None)
    # An encoder from a Python function keeps its device to itself.
    if not isinstance(choice, DeviceChoice):
        return sentences
    return f"{sentences} Device: {choice.device}; {choice.reason}."


def options_to_remake(encoder: Encoder, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that give the same features on another machine.

    ``precision=auto`` depends on the device; what came of it does not. How many slices are computed
    at once is the machine's affair.
    """
    kept = {name: value for name, value in options.items() if name != "batch"}
    if "precision" in kept:
        kept["precision"] = str(getattr(encoder, "precision", kept["precision"]))
    return kept


def get_encoder(
    name: str = AUTO, *, input_size: int | None = None, device: str = "auto", **options: Any
) -> Encoder:
    """Make an encoder.

    Args:
        name: ``auto``, ``builtin``, ``mri-core``, a TorchScript file, or a Python entry point
            ``package.module:function`` or ``file.py:function``.
        input_size: Height and width of the slices; the encoder's own if None.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``; the built-in encoder always
            uses the CPU and warns where another device is asked for.
        options: For MRI-CORE: ``position_embedding``, ``pooling``, ``precision``, ``batch``.

    Raises:
        EncoderError: The encoder, its weights or the device cannot be used.
    """
    name = resolve_encoder(name)
    if name == BUILTIN:
        from MemorizationIndexLib.encoders.structure import INPUT_SIZE, StructureEncoder

        if options:
            raise EncoderError(
                f"The built-in encoder has no option {', '.join(sorted(options))}; leave it out "
                "or choose --encoder mri-core."
            )
        check_device_name(device)
        if device not in ("auto", "cpu"):
            warnings.warn(
                f"The built-in encoder uses the CPU only: --device {device} changes nothing.",
                stacklevel=2,
            )
        return StructureEncoder(input_size or INPUT_SIZE)
    if name == MRI_CORE:
        from MemorizationIndexLib.encoders.mri_core import INPUT_SIZE, load_mri_core
        from MemorizationIndexLib.encoders.weights import weights_path

        return load_mri_core(
            weights_path(), input_size=input_size or INPUT_SIZE, device=device, **options
        )
    from MemorizationIndexLib.encoders.external import load_external

    if options:
        raise EncoderError(
            f"An encoder of your own has no option {', '.join(sorted(options))}; leave it out."
        )
    return load_external(name, input_size=input_size, device=device)
