"""Volumes and results as files, so that another process can compute: npy and JSON, no pickle.

A folder is written beside its place and moved there when it is whole: whoever sees it can read it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .images.volume import Volume
from .results import (
    AuditResult,
    AuditSummary,
    MatchPictures,
    PartPictures,
    SliceResult,
    TransformationPower,
    Verdict,
    VolumeResult,
)

FORMAT_VERSION = 1
VOLUMES_FILE = "volumes.json"
RESULT_FILE = "result.json"
NULL, STATISTICS = "null.npy", "statistics.npy"


class ExchangeError(ValueError):
    """A folder cannot be read or written; the message says which and what to do."""


def write_volumes(volumes: Iterable[Volume], folder: Path) -> None:
    """Write volumes into a new folder.

    Args:
        volumes: What to write; each array as it is, in C order.
        folder: Must not exist yet.

    Raises:
        ExchangeError: An array holds Python objects.
        OSError: The folder exists or cannot be written.
    """
    with _new_folder(folder) as partial:
        entries = []
        for number, volume in enumerate(volumes):
            _save(partial / f"{number}.npy", volume.array, f"the volume '{volume.name}'")
            entry = {
                field.name: getattr(volume, field.name)
                for field in dataclasses.fields(Volume)
                if field.name not in ("array", "affine")
            }
            entries.append({**entry, "affine": np.asarray(volume.affine, float).tolist()})
        _write_json(partial / VOLUMES_FILE, {"format": FORMAT_VERSION, "volumes": entries})


def read_volumes(folder: Path) -> list[Volume]:
    """Read what :func:`write_volumes` wrote; the voxels are mapped, not loaded.

    Raises:
        ExchangeError: The folder is no such folder or is damaged.
    """
    entries = _read_json(Path(folder) / VOLUMES_FILE).get("volumes", [])
    return [_volume(Path(folder), number, entry) for number, entry in enumerate(entries)]


def _volume(folder: Path, number: int, entry: dict[str, Any]) -> Volume:
    path = folder / f"{number}.npy"
    try:
        fields = {
            **entry,
            "affine": np.array(entry["affine"], float),
            "slice_indices": _tuple_or_none(entry["slice_indices"]),
            "selected": _tuple_or_none(entry["selected"]),
        }
        return Volume(array=np.load(path, mmap_mode="r", allow_pickle=False), **fields)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ExchangeError(f"{path} cannot be read: {error}; run again.") from error


def write_result(result: AuditResult, folder: Path) -> None:
    """Write a result into a new folder; floats come back as the same numbers.

    Raises:
        ExchangeError: A number is NaN or infinite.
        OSError: The folder exists or cannot be written.
    """
    with _new_folder(folder) as partial:
        document = {
            "format": FORMAT_VERSION,
            "slices": [dataclasses.asdict(one) for one in result.slices],
            "volumes": [dataclasses.asdict(one) for one in result.volumes],
            "summary": dataclasses.asdict(result.summary),
            "control": list(result.control),
            "pictures": [list(key) for key in result.pictures],
            "reference_pictures": [int(row) for row in result.reference_pictures],
            "match_pictures": [list(key) for key in result.match_pictures],
            "part_pictures": [list(key) for key in result.part_pictures],
        }
        _save(partial / NULL, result.null, "the null")
        _save(partial / STATISTICS, result.statistics, "the statistics")
        for number, values in enumerate(result.control.values()):
            _save(partial / f"control{number}.npy", values, "the control")
        for number, picture in enumerate(result.pictures.values()):
            _save(partial / f"picture{number}.npy", picture, "a picture")
        for row, picture in result.reference_pictures.items():
            _save(partial / f"reference{int(row)}.npy", picture, "a picture")
        for number, match in enumerate(result.match_pictures.values()):
            np.savez(partial / f"match{number}.npz", **vars(match))
        for number, part in enumerate(result.part_pictures.values()):
            np.savez(partial / f"part{number}.npz", **vars(part))
        _write_json(partial / RESULT_FILE, document)


def read_result(folder: Path) -> AuditResult:
    """Read what :func:`write_result` wrote.

    Raises:
        ExchangeError: The folder is no such folder or is damaged.
    """
    folder = Path(folder)
    document = _read_json(folder / RESULT_FILE)
    try:
        return AuditResult(
            slices=tuple(_slice(entry) for entry in document["slices"]),
            volumes=tuple(
                VolumeResult(**{**entry, "verdict": Verdict(entry["verdict"])})
                for entry in document["volumes"]
            ),
            summary=_summary(document["summary"]),
            null=_load(folder / NULL),
            control={
                name: _load(folder / f"control{number}.npy")
                for number, name in enumerate(document["control"])
            },
            statistics=_load(folder / STATISTICS),
            pictures={
                (volume, index): _load(folder / f"picture{number}.npy")
                for number, (volume, index) in enumerate(document["pictures"])
            },
            reference_pictures={
                row: _load(folder / f"reference{row}.npy") for row in document["reference_pictures"]
            },
            match_pictures={
                (volume, index): _match(folder / f"match{number}.npz")
                for number, (volume, index) in enumerate(document["match_pictures"])
            },
            part_pictures={
                (volume, index): _part(folder / f"part{number}.npz")
                for number, (volume, index) in enumerate(document["part_pictures"])
            },
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ExchangeError(f"The result in {folder} is damaged: {error}; run again.") from error


def summary_as_text(summary: AuditSummary) -> str:
    """Return a summary as JSON in ASCII; floats come back as the same numbers.

    Raises:
        ExchangeError: A number is NaN or infinite.
    """
    return _as_json(dataclasses.asdict(summary))


def summary_from_text(text: str) -> AuditSummary:
    """Return what :func:`summary_as_text` wrote.

    Raises:
        ExchangeError: It is damaged, or of another version of this library.
    """
    try:
        return _summary(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        raise ExchangeError(f"The summary is damaged: {error}; run again.") from error


def _summary(entry: dict[str, Any]) -> AuditSummary:
    tuples = ("layers", "widths", "shrinkage", "warnings")
    return AuditSummary(
        **{
            **entry,
            **{name: tuple(entry[name]) for name in tuples},
            "power": tuple(TransformationPower(**row) for row in entry["power"]),
            "refused": tuple((path, why) for path, why in entry["refused"]),
        }
    )


def _match(path: Path) -> MatchPictures:
    with np.load(path, allow_pickle=False) as arrays:
        return MatchPictures(**dict(arrays))


def _part(path: Path) -> PartPictures:
    with np.load(path, allow_pickle=False) as arrays:
        return PartPictures(**dict(arrays))


def _slice(entry: dict[str, Any]) -> SliceResult:
    return SliceResult(
        **{
            **entry,
            "verdict": Verdict(entry["verdict"]),
            "layer_similarity": tuple(entry["layer_similarity"]),
            "part_window": _tuple_or_none(entry["part_window"]),
        }
    )


def _tuple_or_none(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


@contextlib.contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Give a folder to fill that appears under its name only when all of it is written."""
    folder = Path(folder)
    if folder.exists():
        raise FileExistsError(f"{folder} exists already; give a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".partial", dir=folder.parent))
    try:
        yield partial
        partial.replace(folder)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError) and error.filename is None:
            # A full disk: NumPy tells neither where nor, but for counts of numbers, what.
            number = error.errno or errno.ENOSPC
            raise OSError(number, os.strerror(number), str(folder.parent)) from error
        raise


def _save(path: Path, array: NDArray[Any], what: str) -> None:
    array = np.asarray(array)
    if array.dtype.hasobject:
        raise ExchangeError(f"An array of {what} holds Python objects instead of numbers.")
    np.save(path, array, allow_pickle=False)


def _load(path: Path) -> NDArray[Any]:
    return np.load(path, allow_pickle=False)


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(_as_json(document), encoding="ascii")


def _as_json(document: dict[str, Any]) -> str:
    try:
        return json.dumps(document, allow_nan=False, default=_plain)
    except ValueError as error:
        raise ExchangeError(f"A result holds a number that is NaN or infinite: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ExchangeError(f"{path} cannot be read: {error}; run again.") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT_VERSION:
        raise ExchangeError(f"{path} is of another version of this library; run again.")
    return document


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written")
