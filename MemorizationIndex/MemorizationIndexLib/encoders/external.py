"""An encoder from the user: a TorchScript file, or a Python function that returns one.

A TorchScript file, for features of any modality::

    import torch

    class Features(torch.nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net
        def forward(self, x):           # (B, 1, 224, 224), values in [0, 1]
            return self.net(x)          # (B, D), or a tuple of these, fine to coarse

    torch.jit.script(Features(my_net).eval()).save("features.pt")

and ``--encoder features.pt``. A file ``features.json`` beside it may say what cannot be seen from
outside: ``{"input_size": 256, "channels": 3, "name": "my-net", "layers": ["low", "high"],
"description": "One sentence for reports."}``.

A Python function: ``--encoder my_package.my_module:load`` or ``--encoder path/to/file.py:load``,
where ``load()`` returns an object with the attributes and the method of ``encoder.Encoder``::

    class MeanOfPatches:
        name, description = "patches", "Mean intensity of 16 x 16 patches, at two scales."
        layers, widths, input_size, fingerprint = ("fine", "coarse"), (196, 49), 224, "version 1"

        def encode(self, pixels):  # float32 (B, 224, 224) in [0, 1]; returns (B, width) per layer
            fine = pixels.reshape(-1, 14, 16, 14, 16).mean((2, 4))
            coarse = fine.reshape(-1, 7, 2, 7, 2).mean((2, 4))
            return fine.reshape(-1, 196), coarse.reshape(-1, 49)


    def load():
        return MeanOfPatches()

Trust. A Python function is a program and is run. A TorchScript file is a program too: it is not
unpickled, its operators are those of PyTorch, but it runs as this process, and PyTorch does not
promise to contain a hostile one. Give only files from people whose programs you would run.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.encoders.batching import batch_size, encode_in_batches
from MemorizationIndexLib.encoders.device import DeviceChoice, choose_device
from MemorizationIndexLib.encoders.encoder import Encoder, EncoderError

INPUT_SIZE = 224
CHANNELS = (1, 3)
PYTHON_BATCH = 16
"""Slices handed at once to a Python encoder without an attribute ``batch``; what an interrupted run
has encoded is kept in such portions."""

PATCH_SIZE = 16
"""What a token is taken to be for the size of a batch; the user's network is not known."""


@dataclass
class TorchScriptEncoder:
    """A TorchScript network behind the encoder protocol; see ``Encoder``."""

    name: str
    description: str
    layers: tuple[str, ...]
    widths: tuple[int, ...]
    input_size: int
    fingerprint: str
    channels: int
    device: DeviceChoice
    batch: int
    _module: Any = field(repr=False)

    def encode(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
        """Encode float32 pixels (B, S, S) in [0, 1] to one (B, width) array per layer."""
        if len(pixels) == 0:
            return tuple(np.zeros((0, width), np.float32) for width in self.widths)
        features = encode_in_batches(self._encode_batch, pixels, self.batch, halved=self._remember)
        return _checked(features, self, len(pixels))

    def _encode_batch(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
        return _run(self._module, pixels, self.channels, self.device.device, self.name)

    def _remember(self, size: int) -> None:
        self.batch = size


@dataclass
class CheckedEncoder:
    """A user's own encoder whose answers are checked; see ``Encoder``."""

    name: str
    description: str
    layers: tuple[str, ...]
    widths: tuple[int, ...]
    input_size: int
    fingerprint: str
    batch: int
    _inner: Encoder = field(repr=False)

    def encode(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
        """Encode float32 pixels (B, S, S) in [0, 1] to one (B, width) array per layer."""
        features = self._inner.encode(pixels)
        if not isinstance(features, (tuple, list)):
            raise EncoderError(
                f"The encoder '{self.name}' returned {type(features).__name__}; return a tuple of "
                "one array per layer."
            )
        arrays = tuple(np.asarray(feature, dtype=np.float32) for feature in features)
        return _checked(arrays, self, len(pixels))


def load_external(
    source: str, *, input_size: int | None = None, device: str = "auto", batch: int | None = None
) -> Encoder:
    """Load the user's encoder.

    Args:
        source: A TorchScript file, ``package.module:function`` or ``path/to/file.py:function``.
        input_size: Side of the slices in pixels; for a function, handed on as ``input_size``.
        device: As for ``choose_device``; for a function, handed on as ``device``.
        batch: Slices at once, for TorchScript.

    Raises:
        EncoderError: It cannot be loaded or does not keep the protocol.
    """
    place, function = _entry_point(source)
    if function:
        return load_python_encoder(place, function, input_size=input_size, device=device)
    return load_torchscript(source, input_size=input_size, device=device, batch=batch)


def absolute_source(source: str) -> str:
    """Return the source with its file's whole path, so that it is found from any folder."""
    place, function = _entry_point(source)
    if not function:
        return str(Path(source).absolute())
    return f"{Path(place).absolute()}:{function}" if place.endswith(".py") else source


def _entry_point(source: str) -> tuple[str, str]:
    """Split ``place:function``; the function of a TorchScript file is empty."""
    place, colon, function = source.rpartition(":")
    # A drive letter (C:\\net.pt) is not an entry point.
    if colon and function.isidentifier() and len(place) > 1:
        return place, function
    return source, ""


def load_torchscript(
    path: str | Path,
    *,
    input_size: int | None = None,
    device: str = "auto",
    batch: int | None = None,
) -> TorchScriptEncoder:
    """Load a TorchScript network (B, channels, S, S) -> (B, D) or a tuple of these.

    What neither the arguments nor the JSON file beside it say is tried: 224 px, one channel, then
    three. The fingerprint covers the file's bytes, the input size and the channels.

    Raises:
        EncoderError: The file is no TorchScript, or its outputs are not features.
    """
    import torch

    path = Path(path)
    if not path.is_file():
        raise EncoderError(
            f"There is no encoder {path.name} and no file {path}: choose --encoder auto, builtin "
            "or mri-core, or name your own, which may have moved: a TorchScript file, "
            "package.module:function or path/to/file.py:function."
        )
    choice = choose_device(device)
    try:
        module = torch.jit.load(str(path), map_location=choice.device).eval()
    except (RuntimeError, ValueError, OSError) as error:
        raise EncoderError(
            f"{path} is not a TorchScript file ({_first_line(error)}); save it with "
            "torch.jit.script(network).save(...)."
        ) from error
    told = _sidecar(path.with_suffix(".json"))
    side = input_size or told.get("input_size", INPUT_SIZE)
    name = told.get("name", path.stem)
    channels, widths = _probe(module, side, told.get("channels"), choice.device, name)
    layers = tuple(told.get("layers", [f"layer{i + 1}" for i in range(len(widths))]))
    if len(layers) != len(widths):
        raise EncoderError(
            f"{path.with_suffix('.json')} names {len(layers)} layers, but the network returns "
            f"{len(widths)}."
        )
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    return TorchScriptEncoder(
        name=name,
        description=told.get(
            "description", f"TorchScript network {path.name} (SHA-256 {content[:12]}), {side} px"
        ),
        layers=layers,
        widths=widths,
        input_size=side,
        fingerprint=_fingerprint("torchscript", content, side, channels),
        channels=channels,
        device=choice,
        batch=batch or batch_size(choice.device, max(1, (side // PATCH_SIZE) ** 2)),
        _module=module,
    )


def load_python_encoder(
    place: str, function: str, *, input_size: int | None = None, device: str = "auto"
) -> CheckedEncoder:
    """Call the user's function and wrap the encoder that it returns.

    The function gets ``input_size`` (where one was asked for) and ``device`` if it has parameters
    of these names. The fingerprint covers the function's source file and the encoder's own
    fingerprint; what else the features depend on belongs into the latter.

    Raises:
        EncoderError: The function is not there, fails, or returns no encoder.
    """
    spoken = f"{place}:{function}"
    module = _import(place)
    make = getattr(module, function, None)
    if not callable(make):
        raise EncoderError(f"There is no function '{function}' in {place}.")
    options: dict[str, Any] = {"device": device}
    if input_size is not None:
        options["input_size"] = input_size
    parameters = inspect.signature(make).parameters
    made = _call(make, {k: v for k, v in options.items() if k in parameters}, spoken)
    if not isinstance(made, Encoder):
        lacking = [
            name
            for name in (*CheckedEncoder.__dataclass_fields__, "encode")
            if name not in ("_inner", "batch") and not hasattr(made, name)
        ]
        raise EncoderError(
            f"{spoken} returned {type(made).__name__}, which is no encoder: it lacks "
            f"{', '.join(lacking)}."
        )
    layers, widths = tuple(made.layers), tuple(int(width) for width in made.widths)
    if not layers or len(layers) != len(widths) or min(widths) < 1:
        raise EncoderError(
            f"{spoken} names {len(layers)} layers and {len(widths)} widths; give one positive "
            "width per layer, and at least one layer."
        )
    if not isinstance(made.input_size, int) or made.input_size < 1:
        raise EncoderError(f"{spoken} has the input size {made.input_size!r}; give pixels, > 0.")
    if input_size is not None and made.input_size != input_size:
        raise EncoderError(
            f"{spoken} made an encoder for {made.input_size} pixels, not for {input_size}; give it "
            "a parameter input_size, or leave --input-size out."
        )
    source = _source_digest(module)
    batch = getattr(made, "batch", None)
    checked = CheckedEncoder(
        name=str(made.name),
        description=str(made.description),
        layers=layers,
        widths=widths,
        input_size=made.input_size,
        fingerprint=_fingerprint("python", function, source, str(made.fingerprint)),
        batch=batch if isinstance(batch, int) and batch > 0 else PYTHON_BATCH,
        _inner=made,
    )
    side = made.input_size
    checked.encode(np.full((1, side, side), 0.5, np.float32))
    return checked


def _call(make: Callable[..., Any], options: dict[str, Any], spoken: str) -> Any:
    try:
        return make(**options)
    except Exception as error:
        raise EncoderError(
            f"{spoken} failed: {type(error).__name__}: {_first_line(error)}."
        ) from error


def _import(place: str) -> types.ModuleType:
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ImportError as error:
            raise EncoderError(
                f"Cannot import '{place}' ({_first_line(error)}); install it, or name a file with "
                "--encoder path/to/file.py:function."
            ) from error
    path = Path(place)
    if not path.is_file():
        raise EncoderError(
            f"There is no file {path}: if your encoder has moved, name it with --encoder "
            "path/to/file.py:function."
        )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles look their module up by name; an imported one keeps its place.
    sys.modules.setdefault(path.stem, module)
    try:
        # Not through the loader: its cache of compiled files can be older than the source that
        # the fingerprint is made from.
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except Exception as error:
        if sys.modules.get(path.stem) is module:
            del sys.modules[path.stem]
        raise EncoderError(
            f"{path} cannot be run: {type(error).__name__}: {_first_line(error)}."
        ) from error
    return module


def _source_digest(module: types.ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else "built in"


def _sidecar(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    kinds = {"input_size": int, "channels": int, "name": str, "layers": list, "description": str}
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise EncoderError(f"{path} is not JSON: {error}.") from error
    for key, value in told.items() if isinstance(told, dict) else [("content", told)]:
        kind = kinds.get(key)
        if kind is None or not isinstance(value, kind) or isinstance(value, bool):
            raise EncoderError(
                f"{path} says {key} = {value!r}; it may hold input_size and channels (numbers), "
                "name and description (text) and layers (a list of names)."
            )
    return told


def _probe(
    module: Any, side: int, channels: int | None, device: str, name: str
) -> tuple[int, tuple[int, ...]]:
    """Find channels and widths by encoding two different slices."""
    if side < 1:
        raise EncoderError(f"The input size {side} is not positive.")
    pixels = np.random.default_rng(0).random((2, side, side), dtype=np.float32)
    failures = []
    for tried in CHANNELS if channels is None else (channels,):
        try:
            features = _run(module, pixels, tried, device, name)
        except RuntimeError as error:
            failures.append(f"{tried} channel(s): {_last_line(error)}")
            continue
        if any(feature.ndim != 2 or len(feature) != 2 for feature in features):
            shapes = ", ".join(str(feature.shape) for feature in features)
            raise EncoderError(
                f"The encoder '{name}' returned {shapes} for two slices; return (B, D) features, "
                "for example the mean over the image."
            )
        if not all(np.isfinite(feature).all() for feature in features):
            raise EncoderError(f"The encoder '{name}' returned features that are not finite.")
        return tried, tuple(feature.shape[1] for feature in features)
    raise EncoderError(
        f"The encoder '{name}' fails on slices of {side} x {side} pixels ({'; '.join(failures)}); "
        "say its input_size and channels in the JSON file beside it."
    )


def _run(
    module: Any, pixels: NDArray[np.float32], channels: int, device: str, name: str
) -> tuple[NDArray[np.float32], ...]:
    import torch

    with torch.inference_mode():
        images = torch.tensor(pixels, dtype=torch.float32)[:, None].to(device)
        out = module(images.expand(-1, channels, -1, -1).contiguous())
        outputs = out if isinstance(out, (tuple, list)) else (out,)
        if not outputs or not all(isinstance(output, torch.Tensor) for output in outputs):
            raise EncoderError(
                f"The encoder '{name}' returned {type(out).__name__}; return a tensor (B, D) or a "
                "tuple of these."
            )
        return tuple(output.float().cpu().numpy() for output in outputs)


def _checked(
    features: tuple[NDArray[np.float32], ...], encoder: Encoder, count: int
) -> tuple[NDArray[np.float32], ...]:
    wanted = [(count, width) for width in encoder.widths]
    shapes = [feature.shape for feature in features]
    if shapes != wanted:
        raise EncoderError(f"The encoder '{encoder.name}' returned {shapes}, expected {wanted}.")
    if not all(np.isfinite(feature).all() for feature in features):
        raise EncoderError(f"The encoder '{encoder.name}' returned features that are not finite.")
    return features


def _fingerprint(*facts: object) -> str:
    return f"external:{hashlib.sha256(json.dumps(facts).encode()).hexdigest()}"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1].rstrip(".") if lines else type(error).__name__
