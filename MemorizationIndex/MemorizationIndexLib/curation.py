"""A generated set without its copies: a new folder beside the old one, which is never touched."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.images import itk, stacks
from MemorizationIndexLib.images.finding import find_images
from MemorizationIndexLib.images.manifest import NAME as MANIFEST
from MemorizationIndexLib.images.volume import ImageError
from MemorizationIndexLib.outputs import SLICES
from MemorizationIndexLib.progress import (
    CancelFunction,
    Progress,
    ProgressFunction,
    check,
    never,
    quiet,
)
from MemorizationIndexLib.report.tables import guard, unguard
from MemorizationIndexLib.report.writing import write_whole
from MemorizationIndexLib.results import Verdict

DROPPED = "dropped.csv"
"""Name of the table of what was left out, and why."""

DROP = (Verdict.COPY, Verdict.SUSPICIOUS)
"""Verdicts that are dropped unless the user says otherwise."""

UNFINISHED = ".memorization-index-unfinished"
"""Folder inside the new one in which it is made, so that a killed run leaves no half set."""

RULE = (
    "A 2D image with a dropped verdict is left out; of a NumPy stack the slices with one are left "
    "out; a volume, a DICOM folder or a file of several pages with one is left out as a whole."
)
"""What is dropped with a dropped slice, in one sentence."""

_COLUMNS = (
    "volume", "subject", "slice", "verdict", "similarity", "p_value", "nearest_subject",
    "nearest_volume", "nearest_slice", "source",
)  # fmt: skip
_KEPT_COLUMNS = ("path", "subject_id", "slice_index", "volume", "slice", "verdict", "source")
_DROPPED_COLUMNS = (*_COLUMNS, "reason")
_DATA_FILE = re.compile(r"^\s*(?:ElementDataFile\s*=|data ?file:)\s*(\S.*?)\s*$", re.I | re.M)


class CurationError(ValueError):
    """A set cannot be cleaned; the message says what is wrong and what to do."""


@dataclass(frozen=True)
class Curation:
    """What was kept and what was not.

    Attributes:
        folder: The cleaned set.
        kept: Slices in it.
        dropped: Slices left out.
        dropped_innocent: Of these, slices that only share a volume with a dropped verdict.
        files: Files written or linked, without the two tables.
    """

    folder: Path
    kept: int
    dropped: int
    dropped_innocent: int
    files: int


@dataclass(frozen=True)
class _Row:
    """One line of slices.csv."""

    cells: dict[str, str]

    @property
    def verdict(self) -> Verdict:
        return Verdict(self.cells["verdict"])

    @property
    def slice(self) -> int:
        return int(self.cells["slice"])


def curate(
    result: str | Path,
    to: str | Path,
    *,
    drop: Collection[Verdict] = DROP,
    link: bool = False,
    progress: ProgressFunction = quiet,
    cancelled: CancelFunction = never,
) -> Curation:
    """Write the set that an audit looked at, without what it found; see ``RULE``.

    Beside the images lie ``manifest.csv`` (what was kept; an audit reads it) and ``dropped.csv``
    (what was not, with the reason). Images that the audit did not look at are not in the new set.

    Args:
        result: The folder that an audit wrote, or its slices.csv.
        to: A new or empty folder, outside the folders of the images.
        drop: Verdicts to drop.
        link: Whether unchanged files are linked (hard, or else symbolic) instead of copied; a
            change to one then changes the other.
        progress: Told of the progress.
        cancelled: Asked between files.

    Raises:
        CurationError: No result, an image that is gone, a folder that is not empty, inside the
            images or cannot be written.
        CancelledError: ``cancelled`` said so; the new folder is removed.
    """
    rows = _read(Path(result))
    dropped_verdicts = frozenset(drop)
    if not dropped_verdicts:
        raise CurationError("Nothing is to be dropped; name at least one verdict with --drop.")
    sources: dict[str, list[_Row]] = {}
    for row in rows:
        sources.setdefault(row.cells["source"], []).append(row)
    for source in sources:
        if not source or not Path(source).exists():
            raise CurationError(
                f"{source or 'An image'}, which {result} lists, is not there: run this in the "
                "folder in which the images were scored, or score them again."
            )
    target = Path(to)
    _check_target(target, [Path(source) for source in sources])
    root = _common_root([Path(source) for source in sources])
    made = not target.exists()
    kept: list[dict[str, str]] = []
    gone: list[dict[str, str]] = []
    files = 0
    try:
        work = target / UNFINISHED
        if work.is_dir():
            shutil.rmtree(work)
        work.mkdir(parents=True)
        for number, (source, members) in enumerate(sources.items()):
            check(cancelled)
            progress(Progress("Writing the cleaned set", number, len(sources), "files"))
            path = Path(source)
            place = work / Path(os.path.relpath(path.absolute(), root))
            files += _take(path, place, work, members, dropped_verdicts, link, kept, gone)
        for entry in list(work.iterdir()):
            entry.rename(target / entry.name)
        work.rmdir()
        write_whole(target / DROPPED, _table(_DROPPED_COLUMNS, gone))
        write_whole(target / MANIFEST, _table(_KEPT_COLUMNS, kept))
    except BaseException as error:
        _remove(target, made)
        if isinstance(error, OSError):
            raise CurationError(
                f"The cleaned set cannot be written in {target} ({error.strerror or error}); "
                "choose another place with --to."
            ) from error
        if isinstance(error, ImageError):
            raise CurationError(str(error)) from error
        raise
    progress(Progress("Writing the cleaned set", len(sources), len(sources), "files"))
    innocent = sum(Verdict(row["verdict"]) not in dropped_verdicts for row in gone)
    return Curation(target, len(rows) - len(gone), len(gone), innocent, files)


def _read(result: Path) -> list[_Row]:
    path = result / SLICES if result.is_dir() else result
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CurationError(
            f"{path} cannot be read ({getattr(error, 'strerror', None) or error}): name the folder "
            "that 'memorization-index score' wrote."
        ) from error
    try:
        table = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
        lacking = [name for name in _COLUMNS if not table or name not in table[0]]
        rows = [_Row({name: unguard(row[name] or "") for name in _COLUMNS}) for row in table]
        for row in rows:
            _ = row.verdict, row.slice
    except (csv.Error, KeyError, ValueError) as error:
        lacking, rows = [str(error)], []
    if lacking:
        raise CurationError(
            f"{path} is not a table of slices that an audit wrote ({lacking[0]}): score again."
        )
    return rows


def _check_target(target: Path, sources: Sequence[Path]) -> None:
    try:
        empty = not target.exists() or (
            target.is_dir() and all(entry.name == UNFINISHED for entry in target.iterdir())
        )
    except OSError as error:
        raise CurationError(
            f"{target} cannot be opened ({error.strerror}); choose another place with --to."
        ) from error
    if not empty:
        raise CurationError(
            f"{target} is not an empty folder; choose a new one with --to, so that nothing is lost."
        )
    real = target.resolve()
    for source in sources:
        folder = source.resolve() if source.is_dir() else source.resolve().parent
        if real == folder or folder in real.parents:
            raise CurationError(
                f"{target} lies inside {folder}, which holds the images; choose a place outside, "
                "so that they stay as they are."
            )


def _common_root(sources: Sequence[Path]) -> str:
    """Return the folder that all sources lie below."""
    try:
        return os.path.commonpath([source.absolute().parent for source in sources])
    except ValueError as error:  # several drives
        raise CurationError(
            "The images lie on several drives; score and clean those of each drive by themselves."
        ) from error


def _take(
    path: Path,
    place: Path,
    target: Path,
    members: Sequence[_Row],
    drop: frozenset[Verdict],
    link: bool,
    kept: list[dict[str, str]],
    gone: list[dict[str, str]],
) -> int:
    """Bring one source over, or not; return the number of files."""
    found = [row for row in members if row.verdict in drop]
    if path.suffix.lower() in stacks.SUFFIXES:
        gone += [_dropped(row, drop, len(found)) for row in found]
        left = [row for row in members if row.verdict not in drop]
        return _take_stack(path, place, target, left, link, kept) if left else 0
    if found:
        gone += [_dropped(row, drop, len(found)) for row in members]
        return 0
    files = _files_of(path)
    for file in files:
        _bring(file, place / file.relative_to(path) if path.is_dir() else place.parent / file.name,
               link)  # fmt: skip
    images = len({row.slice for row in members}) == len(members) == 1
    kept += [
        _kept(place, target, row, row.slice if images and not path.is_dir() else None)
        for row in (members if images else _one_a_volume(members))
    ]
    return len(files)


def _take_stack(
    path: Path,
    place: Path,
    target: Path,
    left: Sequence[_Row],
    link: bool,
    kept: list[dict[str, str]],
) -> int:
    counts = dict(stacks.find_stacks(path))
    chosen = {
        member: sorted({row.slice for row in left if _is_of(row, member, len(counts))})
        for member in counts
    }
    if all(len(chosen[member]) == count for member, count in counts.items()):
        _bring(path, place, link)
    elif path.suffix.lower() == ".npy":
        place.parent.mkdir(parents=True, exist_ok=True)
        np.save(place, _cut(np.load(path, mmap_mode="r", allow_pickle=False), chosen[""]))
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        with np.load(path, allow_pickle=False) as archive:
            cut = {name: _cut(archive[name], rows) for name, rows in chosen.items() if rows}
        np.savez_compressed(place, **cut)  # type: ignore[arg-type]
    new = {
        (member, old): index for member, rows in chosen.items() for index, old in enumerate(rows)
    }
    # A manifest cannot say which array of an npz a slice_index means.
    single = len(counts) == 1
    for row in left if single else _one_a_volume(left)[:1]:
        index = new[next(iter(counts)), row.slice] if single else None
        kept.append(_kept(place, target, row, index))
    return 1


def _is_of(row: _Row, member: str, members: int) -> bool:
    """Whether a slice is of this array of its file; names of volumes end with it."""
    if members == 1:
        return True
    return re.sub(r" \[.*\]$", "", row.cells["volume"]).endswith(f":{member}")


def _cut(array: NDArray[np.generic], rows: Sequence[int]) -> NDArray[np.generic]:
    return array if array.ndim == 2 else array[list(rows)]


def _files_of(path: Path) -> list[Path]:
    """Return the files that make up one source."""
    if path.is_dir():
        return [
            file
            for source in find_images([path], any_modality=True).sources
            if source.kind == "dicom"
            for file in source.paths
            if file.parent == path
        ]
    if itk.suffix_of(path) not in (".mhd", ".nhdr"):
        return [path]
    named = _DATA_FILE.search(path.read_bytes()[:65536].decode("latin-1"))
    name = named.group(1) if named else "LOCAL"
    if name.upper() == "LOCAL":
        return [path]
    beside = path.parent / name
    if PurePath(name).name != name or not beside.is_file():
        raise CurationError(
            f"{path} keeps its voxels in '{name}', which is not one file beside it; save it as "
            ".nrrd or .mha and score again."
        )
    return [path, beside]


def _bring(file: Path, place: Path, link: bool) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(place):  # two headers with one file of voxels
        return
    if not link:
        shutil.copy2(file, place)
        return
    real = file.resolve()
    try:
        place.hardlink_to(real)
    except OSError:  # another file system
        place.symlink_to(real)


def _one_a_volume(rows: Sequence[_Row]) -> list[_Row]:
    return list({(row.cells["volume"], row.cells["source"]): row for row in rows}.values())


def _kept(place: Path, target: Path, row: _Row, index: int | None) -> dict[str, str]:
    relative = place.relative_to(target).as_posix()
    cells = row.cells
    return {
        # Not guarded by an apostrophe, which would be taken for a part of the name.
        "path": relative if guard(relative) == relative else f"./{relative}",
        "subject_id": guard(cells["subject"]),
        "slice_index": "" if index is None else str(index),
        "volume": guard(cells["volume"]),
        "slice": cells["slice"] if index is not None else "",
        "verdict": cells["verdict"] if index is not None else "",
        "source": guard(cells["source"]),
    }


def _dropped(row: _Row, drop: frozenset[Verdict], found: int) -> dict[str, str]:
    cells = row.cells
    if row.verdict not in drop:
        reason = (
            f"its volume or file holds {found} slice{'s' * (found != 1)} with a dropped verdict"
        )
    elif row.verdict is Verdict.NOT_SCORED:
        reason = "not scored"
    else:
        reason = (
            f"{row.verdict.value}: most similar to slice {cells['nearest_slice']} of "
            f"{cells['nearest_volume']}"
        )
    return {**{name: guard(cells[name]) for name in _COLUMNS}, "reason": reason}


def _table(columns: Sequence[str], rows: Sequence[dict[str, str]]) -> str:
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, columns)
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _remove(target: Path, made: bool) -> None:
    """Leave the target as it was found: missing or empty."""
    if made:
        shutil.rmtree(target, ignore_errors=True)
        return
    for entry in target.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink()
