"""A cohort on disk: a folder of .npy arrays and one JSON file, checked and replaced as a whole."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from MemorizationIndexLib.cohort.cohort import Cohort, CohortError, CohortFacts
from MemorizationIndexLib.comparison.apart import VERSION, PatientsApart
from MemorizationIndexLib.comparison.part_reference import (
    PartReference,
    PartWindows,
    part_fingerprint,
)
from MemorizationIndexLib.index.control import Control
from MemorizationIndexLib.index.null import Null
from MemorizationIndexLib.index.reference import Reference
from MemorizationIndexLib.index.whitening import Whitener
from MemorizationIndexLib.locking import lock

FORMAT_VERSION = 1
"""Raise when an older library could not read a new cohort, or would misread it."""

SUFFIX = ".micohort"
INDEX = "cohort.json"
SOURCES = "sources.txt"

NEW, FORMER, LOCK = "new", "former", "lock"
"""What a build keeps in its hidden folder beside the cohort: the cohort in the making, the one that
it replaces while they change places, and a file that is locked as long as the build lives."""

_WORK_NAME = r"\.{name}-[a-z0-9_]{{8}}"
"""Pattern of the name of such a folder, as ``tempfile.mkdtemp`` makes it."""

_DAY = 24 * 3600.0
"""Age in seconds from which a build without a lock is taken for dead."""


def cohort_path(path: str | Path) -> Path:
    """Return the path with the ending of a cohort.

    Raises:
        CohortError: The path names no file.
    """
    path = Path(path)
    if path.name in ("", ".."):
        raise CohortError(f"'{path}' is no name for a cohort: give one such as C{SUFFIX}.")
    return path if path.suffix == SUFFIX else path.with_name(path.name + SUFFIX)


class CohortWriter:
    """A cohort in the making, in a folder beside its place; see ``writing``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._place = folder.parent.parent

    def array(self, name: str, content: NDArray[Any]) -> None:
        """Write one array.

        Raises:
            CohortError: The disk is full or cannot be written.
        """
        with _disk(self._place):
            # Not written straight from the array: numpy then loses the system's reason of failure.
            buffer = io.BytesIO()
            np.save(buffer, content, allow_pickle=False)
            (self.folder / f"{name}.npy").write_bytes(buffer.getbuffer())

    def mapped(self, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Make an array on disk to be filled.

        Raises:
            CohortError: The disk cannot hold it.
        """
        path = self.folder / f"{name}.npy"
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        with _disk(self._place):
            mapped = open_memmap(path, mode="w+", dtype=dtype, shape=shape)
            # Writing into a mapped file on a full disk kills the process: claim the space first.
            if hasattr(os, "posix_fallocate"):
                with path.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
            elif shutil.disk_usage(self.folder).free < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return mapped

    @contextlib.contextmanager
    def spool(self, path: Path) -> Iterator[Callable[[NDArray[Any]], None]]:
        """Give a function that appends arrays to a file.

        Raises:
            CohortError: The disk is full or cannot be written.
        """
        with _disk(self._place):
            path.parent.mkdir(exist_ok=True)
            file = path.open("wb")

        def append(content: NDArray[Any]) -> None:
            with _disk(self._place):
                file.write(np.ascontiguousarray(content).tobytes())
                file.flush()

        try:
            yield append
        finally:
            # What could not be flushed has been complained of already.
            with contextlib.suppress(OSError):
                file.close()

    def whitener(self, name: str, whitener: Whitener) -> None:
        """Write a whitener under the name of its layer."""
        self.array(f"whitener.{name}.mean", whitener.mean)
        self.array(f"whitener.{name}.vectors", whitener.vectors)
        self.array(f"whitener.{name}.gains", np.append(whitener.gains, whitener.floor))

    def sources(self, sources: list[str]) -> None:
        """Write the file of each slice, a JSON string per line."""
        with _disk(self._place):
            lines = "".join(json.dumps(source) + "\n" for source in sources)
            (self.folder / SOURCES).write_text(lines, encoding="ascii")

    def finish(self, facts: CohortFacts) -> None:
        """Write the index with the checksums of all files."""
        sums = {
            path.name: _sha256(path) for path in sorted(self.folder.iterdir()) if path.is_file()
        }
        content = {"facts": asdict(facts), "files": sums}
        with _disk(self._place):
            (self.folder / INDEX).write_text(
                json.dumps({**content, "sha256": _checksum(content)}, indent=1),
                encoding="ascii",
            )


@contextlib.contextmanager
def writing(path: Path) -> Iterator[CohortWriter]:
    """Write a cohort beside its place and put it there when it is whole.

    A cohort that lies there already is replaced only then. Whatever ends the writing early leaves
    no half cohort under the name.

    Raises:
        CohortError: The place is taken by something else or cannot be written.
    """
    with _disk(path.parent):
        if path.exists() and not (path / INDEX).is_file():
            raise CohortError(
                f"{path} exists and is not a cohort: choose another name with --cohort, or remove "
                "it."
            )
        if not path.parent.is_dir():
            raise CohortError(f"The folder {path.parent} does not exist: make it first.")
        _recover(path)
        _sweep(path)
        work = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        with _disk(path.parent):
            file = (work / LOCK).open("wb")
        with file:
            # A file system without locks: the folder then counts as that of a living build.
            with contextlib.suppress(OSError):
                lock(file)
            with _disk(path.parent):
                (work / NEW).mkdir()
            (work / NEW).chmod(0o777 & ~_umask())
            yield CohortWriter(work / NEW)
            with _disk(path.parent):
                _put(work, path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def load_cohort(path: str | Path) -> Cohort:
    """Read a cohort, checking every byte; the large arrays stay on disk, memory-mapped.

    A cohort that a killed build had moved aside is put back first.

    Args:
        path: The folder NAME.micohort; the ending may be left out, as when it was built.

    Raises:
        CohortError: There is no cohort, it is damaged, or of another format version.
    """
    path = Path(path)
    try:
        if not (path / INDEX).is_file():
            # NAME itself may be the folder of images that NAME.micohort was built from.
            whole = cohort_path(path)
            _recover(whole)
            if not path.exists() and not whole.exists():
                raise CohortError(f"There is no cohort at {path}: build one, or check the path.")
            path = whole if whole.exists() else path
    except OSError as error:
        raise CohortError(f"The cohort {path} cannot be read: {error.strerror}.") from error
    index = path / INDEX
    if not index.is_file():
        raise CohortError(
            f"{path} is not a cohort: it has no {INDEX}; give the folder NAME{SUFFIX} that a build "
            "made."
        )
    while True:
        before = _text(index)
        try:
            cohort = _checked(path, before)
        except (CohortError, OSError):
            if _text(index) == before:
                raise
        else:
            if _text(index) == before:
                return cohort
        # A build has replaced the cohort meanwhile: what was read may be of both.


def _text(index: Path) -> str:
    """Read the index of a cohort.

    Raises:
        CohortError: It cannot be read.
    """
    try:
        return index.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _damaged(index.parent, f"{INDEX} cannot be read") from error
    except OSError as error:
        raise CohortError(f"The cohort {index.parent} cannot be read: {error.strerror}.") from error


def _checked(path: Path, index: str) -> Cohort:
    """Read a cohort whose index is at hand, checking every byte."""
    try:
        content = json.loads(index)
        checksum = content.pop("sha256")
        version = content["facts"]["format_version"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, f"{INDEX} cannot be read") from error
    if version != FORMAT_VERSION:
        raise CohortError(
            f"The cohort {path} has format version {version} and this library reads version "
            f"{FORMAT_VERSION}: build the cohort again, or use the library that built it."
        )
    if checksum != _checksum(content):
        raise _damaged(path, f"{INDEX} does not match its checksum")
    for name, expected in content["files"].items():
        file = path / name
        if not file.is_file():
            raise _damaged(path, f"{name} is missing")
        if _sha256(file) != expected:
            raise _damaged(path, f"{name} does not match its checksum")
    try:
        facts = _facts(content["facts"])
        return _assemble(path, facts)
    except (ValueError, KeyError, TypeError, OSError, IndexError) as error:
        raise _damaged(path, "its files do not fit together") from error


def _assemble(path: Path, facts: CohortFacts) -> Cohort:
    def array(name: str, mapped: bool = False) -> NDArray[Any]:
        return np.load(path / f"{name}.npy", mmap_mode="r" if mapped else None, allow_pickle=False)

    def whitener(name: str, shrinkage: float) -> Whitener:
        gains = array(f"whitener.{name}.gains")
        return Whitener(
            array(f"whitener.{name}.mean"),
            array(f"whitener.{name}.vectors"),
            gains[:-1],
            float(gains[-1]),
            shrinkage,
        )

    reference = Reference(
        tuple(array(f"rows.{layer}", mapped=True) for layer in facts.layers),
        array("subjects"),
        len(facts.subjects),
        tuple(map(whitener, facts.layers, facts.shrinkage)),
    )
    lines = (path / SOURCES).read_text(encoding="ascii").splitlines()
    return Cohort(
        path=path,
        facts=facts,
        reference=reference,
        features=tuple(array(f"features.{layer}", mapped=True) for layer in facts.layers),
        volume_codes=array("volumes"),
        indices=array("indices"),
        digests=array("digests"),
        sources=tuple(json.loads(line) for line in lines),
        null=Null(array("null.similarity"), array("null.subjects")),
        control=Control(
            {name: array(f"control.{name}") for name in facts.rightly_named},
            array("control.subjects"),
            facts.rightly_named,
        ),
        thumbnails=(
            array("thumbnails", mapped=True) if (path / "thumbnails.npy").exists() else None
        ),
        # Another arithmetic's is left alone: it is then made again when a slice is flagged.
        patients_apart=(
            PatientsApart(array("apart.ssim"), array("apart.ncc"))
            if facts.patients_apart == VERSION
            else None
        ),
        parts=_parts(facts, array, whitener),
    )


def _parts(
    facts: CohortFacts,
    array: Callable[..., NDArray[Any]],
    whitener: Callable[[str, float], Whitener],
) -> PartReference | None:
    """Read the parts; None where there are none, or another version's."""
    if facts.parts != part_fingerprint():
        return None
    shrinkage = array("parts.shrinkage")
    return PartReference(
        PartWindows(
            array("parts.rows", mapped=True),
            tuple(whitener(f"parts.{n}", float(value)) for n, value in enumerate(shrinkage)),
        ),
        array("parts.pictures", mapped=True),
        array("parts.null"),
        array("parts.known"),
    )


def _facts(content: Mapping[str, Any]) -> CohortFacts:
    values = {
        field.name: content[field.name]
        for field in fields(CohortFacts)
        # An older library knew no facts that have a default.
        if field.default is MISSING or field.name in content
    }
    for name in ("layers", "widths", "poses", "subjects", "volumes", "warnings", "shrinkage"):
        values[name] = tuple(values[name])
    values["refused"] = tuple((str(path), str(why)) for path, why in values["refused"])
    return CohortFacts(**values)


def _put(work: Path, path: Path) -> None:
    if path.exists():
        path.rename(work / FORMER)
        try:
            (work / NEW).rename(path)
        except OSError:
            (work / FORMER).rename(path)
            raise
    else:
        (work / NEW).rename(path)


def _recover(path: Path) -> None:
    """Put back a cohort that a build was about to replace when it was killed."""
    if path.exists():
        return
    for work in _works(path):
        former = work / FORMER
        if (former / INDEX).is_file() and _is_dead(work):
            former.rename(path)
            return


def _sweep(path: Path) -> None:
    """Remove what killed builds of a cohort left."""
    for work in _works(path):
        if _is_dead(work):
            shutil.rmtree(work, ignore_errors=True)


def _works(path: Path) -> list[Path]:
    """Return the hidden folders of builds of a cohort."""
    if not path.parent.is_dir():
        return []
    pattern = re.compile(_WORK_NAME.format(name=re.escape(path.name)))
    return [entry for entry in path.parent.iterdir() if pattern.fullmatch(entry.name)]


def _is_dead(work: Path) -> bool:
    """Tell whether the build that made a folder has surely ended: then nobody holds its lock."""
    try:
        with (work / LOCK).open("r+b") as file:
            lock(file)
            return True
    except FileNotFoundError:
        # Killed before it could lock, or begun by an older version of this library.
        with contextlib.suppress(OSError):  # it ends just now
            times = [entry.stat().st_mtime for entry in (work, *work.rglob("*"))]
            return time.time() - max(times) > _DAY
        return False
    except OSError:
        return False


@contextlib.contextmanager
def _disk(folder: Path) -> Iterator[None]:
    """Say what is wrong with the disk; ``folder`` is the one that holds the cohort."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CohortError(
                f"The disk is full while writing the cohort in {folder}: make room and run "
                "again; what was encoded is kept."
            ) from error
        raise CohortError(
            f"The cohort cannot be written in {folder}: {error.strerror or error}; choose "
            "another place with --cohort."
        ) from error


def _damaged(path: Path, why: str) -> CohortError:
    return CohortError(f"The cohort {path} is damaged: {why}; copy it anew or build it again.")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return _sha256_by_chunks(file)


def _sha256_by_chunks(file: Any) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def _checksum(content: Mapping[str, Any]) -> str:
    plain = json.dumps(content, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(plain.encode("ascii")).hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
