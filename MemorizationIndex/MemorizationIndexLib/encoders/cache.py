"""Features that were encoded before: the same slice under the same encoder is not encoded again.

A row is found by a hash of the encoder's fingerprint and the slice's pixels, so a change of
either encodes anew. What is stored is features and hashes: no names, no pixels. Features still
come from patients' images, so only the user may read the file.

The cache is a convenience. Where it fails (damage, full disk, read-only home), a ``CacheWarning``
says so and encoding goes on without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.encoders.encoder import Encoder, EncoderError
from MemorizationIndexLib.encoders.folders import cache_folder

try:
    import sqlite3
except ImportError:  # a Python built without SQLite; the cache is off, the audit goes on
    sqlite3 = None  # type: ignore[assignment]

# UnicodeDecodeError: SQLite quotes a damaged file's bytes in what it says.
_FAILURES: tuple[type[Exception], ...] = (OSError, UnicodeDecodeError)
if sqlite3 is not None:
    _FAILURES += (sqlite3.Error,)

LIMIT_VARIABLE = "MEMORIZATION_INDEX_CACHE_LIMIT"
"""Environment variable with the size limit in MiB; 0 turns the cache off."""

DEFAULT_LIMIT = 4 << 30
"""Bytes: some 350 000 slices at 3 x 1024 features."""

FILE_NAME = "features-1.sqlite"
"""The number is the version of the tables."""

DAMAGED_SUFFIX = ".damaged"
BUSY_SECONDS = 20.0
"""How long to wait for another process that writes."""

EVICTED_SHARE = 32
"""At the limit, 1 / EVICTED_SHARE of it is freed at once, so that eviction is rare."""

ROWS_AT_ONCE = 4096
PAGES_AT_ONCE = 8192
"""Bounds on one transaction of eviction, and so on the write-ahead log."""

VARIABLES_AT_ONCE = 500
_LOG_BYTES = 8 << 20
_APPLICATION_ID = 0x4D494643  # "MIFC"
_ROW_TYPE = np.dtype("<f4")
_DIGEST_BYTES = 16

_T = TypeVar("_T")


class CacheWarning(UserWarning):
    """The feature cache was begun anew, or features are encoded without it."""


@dataclass(frozen=True)
class CacheState:
    """What the cache holds.

    Attributes:
        path: The database file; it may not exist.
        bytes: On disk, with its log and a damaged predecessor.
        rows: Slices whose features are stored; None where the file cannot be read.
    """

    path: Path
    bytes: int
    rows: int | None


class FeatureCache:
    """Feature rows by key, in one SQLite file that several processes may use at once.

    Nothing here raises for a cache that fails: it warns once, and ``working`` turns False.

    Attributes:
        path: The database file.
        limit: Bytes that the file may have; 0 leaves the cache off.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        """Open, or begin, the cache in ``folder``."""
        self.path = folder / FILE_NAME
        self.limit = limit
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._renewed = False
        if limit > 0:
            self._guarded(self._open)
            self._attempt(self._shrink)

    @property
    def working(self) -> bool:
        """Whether rows are looked up and stored."""
        return self._connection is not None

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the stored rows among ``keys`` and count them as used now."""
        wanted = list(dict.fromkeys(keys))
        found: dict[bytes, bytes] = {}
        used: list[int] = []
        renewed = self._renewed
        self._attempt(lambda connection: _read(connection, wanted, found, used))
        if used and self._renewed == renewed:
            now = time.time_ns()
            self._attempt(lambda connection: _touch(connection, used, now))
        if self._renewed != renewed:
            self.put(found)  # what was read before the damage was met
        return found

    def put(self, rows: Mapping[bytes, bytes]) -> None:
        """Store rows in one transaction, then evict the least recently used beyond the limit."""
        if not rows:
            return
        now = time.time_ns()
        self._attempt(lambda connection: _write(connection, rows, now))
        self._attempt(self._shrink)

    def close(self) -> None:
        """Close the file; afterwards nothing is found or stored."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                # What could fail here is moving the log into the file: the next opening does it.
                with contextlib.suppress(*_FAILURES):
                    connection.close()

    def __enter__(self) -> FeatureCache:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _attempt(self, action: Callable[[sqlite3.Connection], _T]) -> _T | None:
        with self._lock:
            connection = self._connection
            if connection is None:
                return None
            return self._guarded(lambda: action(connection))

    def _guarded(self, action: Callable[[], _T]) -> _T | None:
        try:
            return action()
        except _FAILURES as error:
            self.close()
            if _is_damage(error) and not self._renewed:
                self._begin_anew(error)
            else:
                self._drop(error)
            return None

    def _open(self) -> None:
        if sqlite3 is None:
            raise OSError("this Python has no sqlite3")
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._connection = _connect(self.path)
        self._identity = _identity(self.path)
        _prepare(self._connection)

    def _begin_anew(self, error: Exception) -> None:
        self._renewed = True
        damaged = self.path.with_name(self.path.name + DAMAGED_SUFFIX)
        try:
            # Another process may have begun anew already: its good file must stay.
            if _identity(self.path) == self._identity:
                # The log first: a new file of this name would take it for its own.
                for suffix in ("-wal", "-shm"):
                    self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
                self.path.replace(damaged)
        except OSError as failure:
            self._drop(failure)
            return
        warnings.warn(
            f"The feature cache {self.path} is damaged ({error}); it was renamed to "
            f"{damaged.name} and a new one begun.",
            CacheWarning,
            stacklevel=2,
        )
        self._guarded(self._open)

    def _drop(self, error: Exception) -> None:
        self.close()
        _warn_off(str(self.path), error)

    def _shrink(self, connection: sqlite3.Connection) -> None:
        """Evict, then give pages back to the disk, until the file is within the limit."""
        page = _pragma(connection, "page_size")
        goal = self.limit - self.limit // EVICTED_SHARE
        bound = self.limit
        while _bytes_in_use(connection) > bound and _evict(connection, goal):
            bound = goal
        while (excess := _pragma(connection, "page_count") - self.limit // page) > 0:
            if _pragma(connection, "freelist_count") == 0:
                break
            pages = min(excess, PAGES_AT_ONCE)
            _vacuum(connection, pages)


class CachedEncoder:
    """An encoder that looks rows up before it encodes them; see ``Encoder``.

    Attributes and further methods are those of the wrapped encoder. Where that has a ``batch``,
    rows are stored after each such batch, else after each call: a run that is killed loses what
    it was encoding, no more.

    Attributes:
        hits: Rows that were not encoded, repetitions within a call among them.
        misses: Rows that were encoded.
        cache: The cache in use.
    """

    name: str
    description: str
    layers: tuple[str, ...]
    widths: tuple[int, ...]
    input_size: int
    fingerprint: str

    def __init__(self, encoder: Encoder, cache: FeatureCache | None = None) -> None:
        """Wrap ``encoder``; without ``cache`` the user's is opened."""
        self._encoder = encoder
        self.cache = open_cache() if cache is None else cache
        self.hits = 0
        self.misses = 0
        # Copies, not only __getattr__: runtime checks of the protocol look no further.
        for attribute in Encoder.__annotations__:
            setattr(self, attribute, getattr(encoder, attribute))

    def __getattr__(self, name: str) -> Any:
        """Return the wrapped encoder's attribute."""
        if name == "_encoder":  # not set yet, while being copied
            raise AttributeError(name)
        return getattr(self._encoder, name)

    def encode(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
        """Return the features of slices (B, S, S), as the encoder gave them when it saw them.

        Returns:
            One float32 array (B, width) per layer.

        Raises:
            EncoderError: The encoder's answer is not one (B, width) array per layer.
        """
        if len(pixels) == 0:
            return tuple(np.zeros((0, width), np.float32) for width in self.widths)
        if not self.cache.working:
            self.misses += len(pixels)
            return self._encoder.encode(pixels)
        keys = slice_keys(self._encoder.fingerprint, pixels)
        total = sum(self.widths)
        table = np.empty((len(pixels), total), _ROW_TYPE)
        place: dict[bytes, int] = {}
        for index, key in enumerate(keys):
            place.setdefault(key, index)
        found = self.cache.get(place)
        missing: list[int] = []
        for key, index in place.items():
            row = found.get(key)
            # Another width under the same key is an encoder whose fingerprint does not tell.
            if row is None or len(row) != total * _ROW_TYPE.itemsize:
                missing.append(index)
            else:
                table[index] = np.frombuffer(row, _ROW_TYPE)
        for chosen in _pieces(missing, self._encoder):
            encoded = self._joined(pixels[chosen]).astype(_ROW_TYPE, copy=False)
            table[chosen] = encoded
            self.cache.put(
                {
                    keys[index]: row.tobytes()
                    for index, row in zip(chosen, encoded, strict=True)
                    # A fault of the moment (a device's, say) must not be remembered.
                    if np.isfinite(row).all()
                }
            )
        self.hits += len(keys) - len(missing)
        self.misses += len(missing)
        table = table[[place[key] for key in keys]]
        ends = np.cumsum(self.widths)[:-1]
        return tuple(
            np.ascontiguousarray(layer, dtype=np.float32) for layer in np.split(table, ends, axis=1)
        )

    def _joined(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        features = self._encoder.encode(pixels)
        shapes = [np.shape(feature) for feature in features]
        expected = [(len(pixels), width) for width in self.widths]
        if shapes != expected or any(feature.dtype != np.float32 for feature in features):
            raise EncoderError(
                f"The encoder '{self.name}' returned {shapes} for {len(pixels)} slices; it has to "
                f"return float32 arrays of {expected}."
            )
        return np.concatenate(features, axis=1)

    def close(self) -> None:
        """Close the cache; the encoder goes on without."""
        self.cache.close()

    def __enter__(self) -> CachedEncoder:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


def open_cache(path: str | Path | None = None, limit: int | None = None) -> FeatureCache:
    """Open the feature cache; where that cannot be done, warn and return one that is off.

    Args:
        path: Folder; by default ``MEMORIZATION_INDEX_CACHE`` or the user's cache folder.
        limit: Bytes; by default ``MEMORIZATION_INDEX_CACHE_LIMIT`` (MiB) or 4 GiB. 0 is off.

    Raises:
        EncoderError: ``limit`` is negative.
    """
    if limit is None:
        limit = default_limit()
    elif limit < 0:
        raise EncoderError(f"The cache's limit is {limit} bytes; give 0 (off) or more.")
    try:
        folder = _folder(path)
    except RuntimeError as error:
        _warn_off("folder", error)
        return FeatureCache(Path(), 0)
    return FeatureCache(folder, limit)


def cache_state(path: str | Path | None = None) -> CacheState:
    """Say what the cache in a folder (default: the user's) holds, without changing it."""
    file = _folder(path) / FILE_NAME
    size = sum(_size(part) for part in _files(file))
    rows: int | None = 0
    if file.is_file():
        rows = None
        if sqlite3 is not None:
            with (
                contextlib.suppress(*_FAILURES),
                contextlib.closing(
                    sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS)
                ) as connection,
            ):
                rows = connection.execute("SELECT count(*) FROM feature").fetchone()[0]
    return CacheState(file, size, rows)


def clear_cache(path: str | Path | None = None) -> int:
    """Delete every stored row; other processes may go on using the cache.

    Args:
        path: Folder; by default the user's.

    Returns:
        Bytes that were freed.

    Raises:
        EncoderError: The files cannot be changed, or another process keeps them busy.
    """
    file = _folder(path) / FILE_NAME
    before = cache_state(path).bytes
    try:
        if file.is_file():
            _clear(file)
        file.with_name(file.name + DAMAGED_SUFFIX).unlink(missing_ok=True)
    except _FAILURES as error:
        raise EncoderError(
            f"The feature cache {file} cannot be cleared ({error}); end the programs that use it "
            "and delete the file."
        ) from error
    return max(0, before - cache_state(path).bytes)


def slice_keys(fingerprint: str, pixels: NDArray[Any]) -> list[bytes]:
    """Return one key per slice: SHA-256 of fingerprint, shape, dtype and the slice's bytes.

    SHA-256 since processors have instructions for it: less than half the time of BLAKE2b.
    """
    head = hashlib.sha256()
    for fact in (fingerprint, repr(pixels.shape[1:]), pixels.dtype.str):
        head.update(f"{len(fact)}:{fact};".encode())
    keys = []
    for picture in pixels:
        whole = head.copy()
        whole.update(np.ascontiguousarray(picture).data)
        keys.append(whole.digest())
    return keys


def _pieces(missing: list[int], encoder: Encoder) -> Iterator[list[int]]:
    """Cut rows into the batches that the encoder would make itself, so that none is lost."""
    start = 0
    while start < len(missing):
        batch = getattr(encoder, "batch", None)
        step = batch if isinstance(batch, int) and batch > 0 else len(missing)
        yield missing[start : start + step]
        start += step


def _folder(path: str | Path | None) -> Path:
    return cache_folder() if path is None else Path(path).expanduser().absolute()


def default_limit() -> int:
    """Return the limit in bytes that the environment or this file sets, with a warning if bad."""
    told = os.environ.get(LIMIT_VARIABLE)
    if not told:
        return DEFAULT_LIMIT
    if told.strip().isdecimal():
        return int(told) << 20
    warnings.warn(
        f"{LIMIT_VARIABLE} is '{told}', not a whole number of MiB; the feature cache's limit is "
        f"{DEFAULT_LIMIT >> 20} MiB.",
        CacheWarning,
        stacklevel=3,
    )
    return DEFAULT_LIMIT


def _warn_off(what: str, error: Exception) -> None:
    warnings.warn(
        f"The feature cache {what} cannot be used ({error}); slices are encoded without it.",
        CacheWarning,
        stacklevel=2,
    )


def _is_damage(error: Exception) -> bool:
    # SQLITE_CORRUPT and SQLITE_NOTADB have no class of their own; all else has a subclass.
    damage = () if sqlite3 is None else (sqlite3.DatabaseError,)
    # The texts: a damaged header or schema, which only asks for what is not there.
    return type(error) in (UnicodeDecodeError, *damage) or str(error).startswith(
        ("no such column", "no such table", "unsupported file format")
    )


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _files(file: Path) -> list[Path]:
    return [file.with_name(file.name + suffix) for suffix in ("", "-wal", "-shm", DAMAGED_SUFFIX)]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _connect(path: Path) -> sqlite3.Connection:
    new = not path.exists()
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    # A damaged file may hold text that is not UTF-8 where a blob should be.
    connection.text_factory = bytes
    if new:
        # Some file systems have no permissions to set; what they protect is not ours to say.
        with contextlib.suppress(OSError):
            path.chmod(0o600)
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    for setting in (
        "trusted_schema = OFF",
        "cell_size_check = ON",
        "auto_vacuum = INCREMENTAL",
        "synchronous = NORMAL",
        f"journal_size_limit = {_LOG_BYTES}",
    ):
        connection.execute(f"PRAGMA {setting}").fetchall()
    _until_free(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchall())
    with _transaction(connection):
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            # Two tables: marking a row as used does not rewrite its features.
            connection.execute(
                "CREATE TABLE entry (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, "
                "used INTEGER NOT NULL)"
            )
            connection.execute(
                "CREATE TABLE feature (id INTEGER PRIMARY KEY, digest BLOB NOT NULL, "
                "row BLOB NOT NULL)"
            )
        elif _pragma(connection, "application_id") != _APPLICATION_ID:
            raise sqlite3.DatabaseError("file is not a feature cache")


def _until_free(action: Callable[[], object]) -> None:
    """Retry: the change to a write-ahead log does not honor the time-out of SQLite."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            action()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.02)


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException:
        # The first error is the one to tell; SQLite may have rolled back by itself.
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _bytes_in_use(connection: sqlite3.Connection) -> int:
    pages = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
    return pages * _pragma(connection, "page_size")


def _digest(key: bytes, row: bytes) -> bytes:
    """Bind a row to its key, so that no damage can hand out another's features."""
    return hashlib.sha256(key + row).digest()[:_DIGEST_BYTES]


def _read(
    connection: sqlite3.Connection,
    keys: Sequence[bytes],
    found: dict[bytes, bytes],
    used: list[int],
) -> None:
    for start in range(0, len(keys), VARIABLES_AT_ONCE):
        some = keys[start : start + VARIABLES_AT_ONCE]
        marks = ",".join("?" * len(some))
        for identifier, key, digest, row in connection.execute(
            "SELECT entry.id, key, digest, row FROM entry JOIN feature ON feature.id = entry.id "
            f"WHERE key IN ({marks})",
            some,
        ).fetchall():
            if not isinstance(row, bytes) or _digest(key, row) != digest:
                raise sqlite3.DatabaseError("a row does not have its checksum")
            found[key] = row
            used.append(identifier)


def _touch(connection: sqlite3.Connection, used: Sequence[int], now: int) -> None:
    with _transaction(connection):
        connection.executemany(
            "UPDATE entry SET used = ? WHERE id = ?", [(now, identifier) for identifier in used]
        )


def _write(connection: sqlite3.Connection, rows: Mapping[bytes, bytes], now: int) -> None:
    with _transaction(connection):
        connection.executemany(
            "INSERT OR IGNORE INTO entry (key, used) VALUES (?, ?)", [(key, now) for key in rows]
        )
        connection.executemany(
            "INSERT OR REPLACE INTO feature (id, digest, row) "
            "SELECT id, ?, ? FROM entry WHERE key = ?",
            [(_digest(key, row), row, key) for key, row in rows.items()],
        )


def _evict(connection: sqlite3.Connection, goal: int) -> bool:
    """Delete least recently used rows towards ``goal`` bytes; False where none is left."""
    with _transaction(connection):
        rows = connection.execute("SELECT count(*) FROM entry").fetchone()[0]
        in_use = _bytes_in_use(connection)
        if rows == 0 or in_use <= goal:
            return False
        count = min(ROWS_AT_ONCE, max(1, rows * (in_use - goal) // in_use))
        oldest = connection.execute(
            "SELECT id FROM entry ORDER BY used, id LIMIT ?", (count,)
        ).fetchall()
        connection.executemany("DELETE FROM feature WHERE id = ?", oldest)
        connection.executemany("DELETE FROM entry WHERE id = ?", oldest)
    return True


def _vacuum(connection: sqlite3.Connection, pages: int) -> None:
    # A script, because execute() takes one step of this statement, which frees one page.
    connection.executescript(f"PRAGMA incremental_vacuum({pages})")


def _clear(file: Path) -> None:
    # Not by deleting the file: SQLite in a process that has it open would spoil a new one.
    try:
        with contextlib.closing(_connect(file)) as connection:
            with _transaction(connection):
                connection.execute("DELETE FROM feature")
                connection.execute("DELETE FROM entry")
            _vacuum(connection, 0)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if not _is_damage(error):
            raise
        for part in _files(file):
            part.unlink(missing_ok=True)
