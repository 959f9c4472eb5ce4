"""The feature cache: what it finds, what it forgets, and that its failures never stop an audit."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from MemorizationIndexLib.encoders import cache as cache_room
from MemorizationIndexLib.encoders.cache import (
    DAMAGED_SUFFIX,
    FILE_NAME,
    CachedEncoder,
    CacheWarning,
    FeatureCache,
    cache_state,
    clear_cache,
    open_cache,
    slice_keys,
)
from MemorizationIndexLib.encoders.encoder import Encoder, EncoderError
from MemorizationIndexLib.encoders.folders import cache_folder

SIDE = 8
LIBRARY = Path(cache_room.__file__).resolve().parents[2]


@dataclass
class CountingEncoder:
    """Features are sums of the slice under fixed weights; remembers what it was given."""

    name: str = "counting"
    description: str = "Counts its calls."
    layers: tuple[str, ...] = ("fine", "coarse")
    widths: tuple[int, ...] = (6, 3)
    input_size: int = SIDE
    fingerprint: str = "counting:1"
    calls: list[int] = field(default_factory=list)

    def encode(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
        self.calls.append(len(pixels))
        generator = np.random.default_rng(5)
        flat = pixels.reshape(len(pixels), -1)
        return tuple(
            np.stack([(row[:, None] * weights).sum(0, dtype=np.float32) for row in flat])
            for weights in (
                generator.random((flat.shape[1], width), dtype=np.float32) for width in self.widths
            )
        )

    def explain(self) -> str:
        return "extra"


def slices(count: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).random((count, SIDE, SIDE), dtype=np.float32)


def same(first: tuple[NDArray[np.float32], ...], second: tuple[NDArray[np.float32], ...]) -> bool:
    return len(first) == len(second) and all(
        one.dtype == two.dtype == np.float32
        and one.shape == two.shape
        and one.tobytes() == two.tobytes()
        for one, two in zip(first, second, strict=True)
    )


def encode(folder: Path, pixels: NDArray[np.float32], **facts: object) -> CachedEncoder:
    """Encode once with a cache opened and closed for it; answers are checked for truth."""
    with CachedEncoder(CountingEncoder(**facts), open_cache(folder)) as encoder:  # type: ignore[arg-type]
        assert same(encoder.encode(pixels), CountingEncoder(**facts).encode(pixels))  # type: ignore[arg-type]
        return encoder


def test_a_second_run_encodes_nothing_and_gives_the_same_bits(tmp_path: Path):
    pixels = slices(10)
    first = encode(tmp_path, pixels)
    assert (first.hits, first.misses, first.calls) == (0, 10, [10])
    second = encode(tmp_path, pixels)
    assert (second.hits, second.misses, second.calls) == (10, 0, [])


def test_only_missing_rows_are_encoded_in_one_call_and_order_is_kept(tmp_path: Path):
    pixels = slices(12)
    encode(tmp_path, pixels[[1, 4, 7]])
    again = encode(tmp_path, pixels[::-1])
    assert (again.hits, again.misses, again.calls) == (3, 9, [9])


def test_duplicates_within_a_batch_are_encoded_once_and_come_back_in_order(tmp_path: Path):
    pixels = slices(4)[[2, 0, 2, 3, 0, 2, 1]]
    first = encode(tmp_path, pixels)
    assert (first.hits, first.misses, first.calls) == (3, 4, [4])
    assert encode(tmp_path, pixels).calls == []


@pytest.mark.parametrize(
    "change",
    [
        lambda pixels: pixels.astype(np.float64),
        lambda pixels: pixels.reshape(len(pixels), SIDE // 2, SIDE * 2),
        lambda pixels: np.nextafter(pixels, np.float32(2)),
    ],
    ids=["dtype", "shape", "one ulp"],
)
def test_keys_tell_dtype_shape_and_content(change: Callable[[np.ndarray], np.ndarray]):
    pixels = slices(3)
    assert not set(slice_keys("a", pixels)) & set(slice_keys("a", change(pixels)))
    assert slice_keys("a", pixels) == slice_keys("a", pixels[:, ::-1][:, ::-1].copy())
    assert len(set(slice_keys("a", pixels))) == 3


def test_another_fingerprint_misses(tmp_path: Path):
    pixels = slices(5)
    encode(tmp_path, pixels)
    assert encode(tmp_path, pixels, fingerprint="counting:2").misses == 5
    assert encode(tmp_path, pixels).hits == 5


def test_another_width_under_the_same_fingerprint_is_encoded_anew(tmp_path: Path):
    pixels = slices(5)
    encode(tmp_path, pixels)
    assert encode(tmp_path, pixels, widths=(6, 4)).misses == 5
    assert encode(tmp_path, pixels, widths=(6, 4)).hits == 5


def test_an_empty_batch_is_empty_features(tmp_path: Path):
    encoder = encode(tmp_path, slices(1))
    features = encoder.encode(slices(0))
    assert [feature.shape for feature in features] == [(0, 6), (0, 3)]
    assert all(feature.dtype == np.float32 for feature in features)


def test_it_is_an_encoder_with_the_attributes_and_methods_of_the_wrapped(tmp_path: Path):
    inner = CountingEncoder()
    with CachedEncoder(inner, open_cache(tmp_path)) as encoder:
        assert isinstance(encoder, Encoder)
        for attribute in Encoder.__annotations__:
            assert getattr(encoder, attribute) == getattr(inner, attribute)
        assert encoder.explain() == "extra"
        with pytest.raises(AttributeError):
            _ = encoder.nothing


def test_rows_are_stored_after_each_batch_of_the_encoder(tmp_path: Path):
    class Interrupted(CountingEncoder):
        batch = 4

        def encode(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
            if len(self.calls) == 2:
                raise KeyboardInterrupt
            return super().encode(pixels)

    with (
        CachedEncoder(Interrupted(), open_cache(tmp_path)) as encoder,
        pytest.raises(KeyboardInterrupt),
    ):
        encoder.encode(slices(15))
    assert encoder.calls == [4, 4]
    assert encode(tmp_path, slices(15)).hits == 8


def test_rows_that_are_not_finite_are_given_but_not_kept(tmp_path: Path):
    class Faulty(CountingEncoder):
        def encode(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
            fine, coarse = super().encode(pixels)
            coarse[1, 0] = np.nan
            return fine, coarse

    with CachedEncoder(Faulty(), open_cache(tmp_path)) as encoder:
        assert np.isnan(encoder.encode(slices(3))[1][1, 0])
    assert encode(tmp_path, slices(3)).hits == 2


def test_an_answer_of_the_wrong_shape_is_refused(tmp_path: Path):
    class Wrong(CountingEncoder):
        def encode(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
            return super().encode(pixels)[:1]

    with (
        CachedEncoder(Wrong(), open_cache(tmp_path)) as encoder,
        pytest.raises(EncoderError, match="returned"),
    ):
        encoder.encode(slices(2))


# Size


def row_key(number: int) -> bytes:
    return number.to_bytes(32, "little")


def fill(cache: FeatureCache, first: int, count: int, size: int = 12288) -> None:
    for start in range(first, first + count, 16):
        numbers = range(start, min(start + 16, first + count))
        cache.put(
            {row_key(number): number.to_bytes(4, "little") * (size // 4) for number in numbers}
        )


def test_the_least_recently_used_go_and_the_file_stays_within_the_limit(tmp_path: Path):
    limit = 2 << 20
    with open_cache(tmp_path, limit=limit) as cache:
        fill(cache, 0, 100)
        for start in range(100, 1000, 100):
            assert len(cache.get([row_key(number) for number in range(10)])) == 10
            fill(cache, start, 100)
        recent = [row_key(number) for number in range(900, 1000)]
        old = [row_key(number) for number in range(10, 800)]
        assert len(cache.get(recent)) == 100
        assert len(cache.get(old)) == 0
        rows = len(cache.get([row_key(number) for number in range(1000)]))
        assert rows * 12288 > 0.85 * limit
    assert limit * 0.85 < (tmp_path / FILE_NAME).stat().st_size <= limit


def test_a_lower_limit_shrinks_the_file(tmp_path: Path):
    with open_cache(tmp_path, limit=8 << 20) as cache:
        fill(cache, 0, 500)
    assert cache_state(tmp_path).bytes > 6 << 20
    with open_cache(tmp_path, limit=1 << 20) as cache:
        assert len(cache.get([row_key(number) for number in range(430, 500)])) == 70
    assert cache_state(tmp_path).bytes <= 1 << 20


def test_a_limit_below_one_row_keeps_nothing_and_goes_on(tmp_path: Path):
    pixels = slices(5)
    with CachedEncoder(CountingEncoder(), open_cache(tmp_path, limit=1)) as encoder:
        assert same(encoder.encode(pixels), encoder.encode(pixels))
        assert encoder.misses == 10
        assert encoder.cache.working


def test_limit_zero_is_off_and_touches_nothing(tmp_path: Path):
    with CachedEncoder(CountingEncoder(), open_cache(tmp_path / "none", limit=0)) as encoder:
        encoder.encode(slices(2))
    assert encoder.misses == 2
    assert not (tmp_path / "none").exists()
    with pytest.raises(EncoderError, match="limit"):
        open_cache(tmp_path, limit=-1)


def test_the_environment_names_folder_and_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MEMORIZATION_INDEX_CACHE", str(tmp_path / "here"))
    monkeypatch.setenv("MEMORIZATION_INDEX_CACHE_LIMIT", "3")
    with CachedEncoder(CountingEncoder()) as encoder:
        assert encoder.cache.limit == 3 << 20
        assert encoder.cache.path == tmp_path / "here" / FILE_NAME
        encoder.encode(slices(2))
    assert cache_state().rows == 2
    monkeypatch.setenv("MEMORIZATION_INDEX_CACHE_LIMIT", "much")
    with pytest.warns(CacheWarning, match="much"):
        assert open_cache().limit == cache_room.DEFAULT_LIMIT


def test_the_folder_follows_the_convention_without_platformdirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    platformdirs = pytest.importorskip("platformdirs")
    monkeypatch.delenv("MEMORIZATION_INDEX_CACHE", raising=False)
    expected = platformdirs.user_cache_path("memorization-index", appauthor=False)
    assert cache_folder() == expected
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert cache_folder() == expected
    if sys.platform.startswith("linux"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert cache_folder() == tmp_path / "memorization-index"


# State


def test_clearing_a_closed_cache_gives_the_disk_back(tmp_path: Path):
    with open_cache(tmp_path) as cache:
        fill(cache, 0, 300)
    assert clear_cache(tmp_path) > 290 * 12288
    assert cache_state(tmp_path).bytes < 20 * 4096


def test_state_and_clear(tmp_path: Path):
    assert cache_state(tmp_path).rows == 0
    assert clear_cache(tmp_path) == 0
    with open_cache(tmp_path) as cache:
        fill(cache, 0, 300)
        state = cache_state(tmp_path)
        assert state.rows == 300
        assert state.bytes > 300 * 12288
        freed = clear_cache(tmp_path)
        assert freed > 250 * 12288
        assert cache_state(tmp_path).rows == 0
        fill(cache, 0, 10)
        assert len(cache.get([row_key(number) for number in range(10)])) == 10
    (tmp_path / FILE_NAME).write_bytes(b"no database" * 1000)
    assert cache_state(tmp_path).rows is None
    clear_cache(tmp_path)
    assert cache_state(tmp_path).bytes == 0


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_only_the_user_may_read_it(tmp_path: Path):
    folder = tmp_path / "made"
    with open_cache(folder) as cache:
        fill(cache, 0, 3)
        modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_file_holds_no_pixels(tmp_path: Path):
    pixels = slices(5)
    encode(tmp_path, pixels)
    content = (tmp_path / FILE_NAME).read_bytes()
    assert not any(picture[0].tobytes() in content for picture in pixels)
    assert CountingEncoder().encode(pixels)[0][0].tobytes() in content


# Failures


def wide(folder: Path, pixels: NDArray[np.float32]) -> CachedEncoder:
    return encode(folder, pixels, widths=(1500, 700))


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes_never_give_other_features(tmp_path: Path, seed: int):
    pixels = slices(60)
    wide(tmp_path, pixels)
    file = tmp_path / FILE_NAME
    content = bytearray(file.read_bytes())
    generator = np.random.default_rng(seed)
    for position in generator.integers(0, len(content), 200):
        content[position] ^= int(generator.integers(1, 256))
    file.write_bytes(content)
    with pytest.warns(CacheWarning) as told:
        wide(tmp_path, pixels)  # checks the features
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert wide(tmp_path, pixels).misses == 0
    assert (tmp_path / (FILE_NAME + DAMAGED_SUFFIX)).exists()


def test_one_flipped_bit_in_a_feature_is_noticed(tmp_path: Path):
    pixels = slices(5)
    encode(tmp_path, pixels)
    file = tmp_path / FILE_NAME
    content = bytearray(file.read_bytes())
    place = content.index(CountingEncoder().encode(pixels)[0][3].tobytes())
    content[place] ^= 1
    file.write_bytes(content)
    with pytest.warns(CacheWarning, match="checksum"):
        encode(tmp_path, pixels)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.2, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_begun_anew(tmp_path: Path, share: float):
    pixels = slices(60)
    wide(tmp_path, pixels)
    file = tmp_path / FILE_NAME
    os.truncate(file, int(file.stat().st_size * share))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        wide(tmp_path, pixels)
    assert len(told) == (share > 0)  # an empty file is a new one
    assert wide(tmp_path, pixels).misses == 0


@pytest.mark.parametrize("content", [b"\x00" * 5000, b"words " * 3000, b"SQLite format 3\x00" * 99])
def test_a_file_that_is_no_database_is_renamed(tmp_path: Path, content: bytes):
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.warns(CacheWarning, match="renamed"):
        encode(tmp_path, slices(5))
    assert (tmp_path / (FILE_NAME + DAMAGED_SUFFIX)).read_bytes() == content
    assert encode(tmp_path, slices(5)).hits == 5


def test_another_programs_database_is_renamed(tmp_path: Path):
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("CREATE TABLE entry (name TEXT)")
    connection.close()
    with pytest.warns(CacheWarning, match="renamed"):
        encode(tmp_path, slices(5))
    assert encode(tmp_path, slices(5)).hits == 5


@pytest.mark.parametrize(
    ("place", "byte"),
    [(None, 0xF5), (47, 0x77)],
    ids=["schema not UTF-8", "unsupported file format"],
)
def test_a_damaged_schema_or_header_is_renamed(tmp_path: Path, place: int | None, byte: int):
    encode(tmp_path, slices(5))
    file = tmp_path / FILE_NAME
    content = bytearray(file.read_bytes())
    content[content.index(b"CREATE TABLE entry") if place is None else place] = byte
    file.write_bytes(content)
    with pytest.warns(CacheWarning, match="renamed"):
        encode(tmp_path, slices(5))
    assert encode(tmp_path, slices(5)).hits == 5


def test_damage_while_open_is_survived(tmp_path: Path):
    pixels = slices(60)
    with CachedEncoder(CountingEncoder(widths=(1500, 700)), open_cache(tmp_path)) as encoder:
        expected = encoder.encode(pixels)
        connection = sqlite3.connect(tmp_path / FILE_NAME)
        connection.execute("UPDATE feature SET row = zeroblob(8800)")
        connection.commit()
        connection.close()
        with pytest.warns(CacheWarning, match="damaged"):
            assert same(encoder.encode(pixels), expected)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert same(encoder.encode(pixels), expected)
        assert encoder.misses == 120


def test_a_folder_that_cannot_be_made_is_told_once(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.warns(CacheWarning, match="cannot be used") as told:
        cache = open_cache(tmp_path / "file" / "below")
        encoder = CachedEncoder(CountingEncoder(), cache)
        assert same(encoder.encode(slices(3)), encoder.encode(slices(3)))
    assert len(told) == 1
    assert encoder.misses == 6


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="permissions do not bind this user"
)
@pytest.mark.parametrize("filled", [False, True])
def test_an_unwritable_folder_is_told_once(tmp_path: Path, filled: bool):
    pixels = slices(4)
    if filled:
        encode(tmp_path, pixels)
        (tmp_path / FILE_NAME).chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        with pytest.warns(CacheWarning) as told:
            encode(tmp_path, pixels)
        assert len(told) == 1
    finally:
        tmp_path.chmod(0o700)


def test_a_read_only_database_is_told_once(tmp_path: Path):
    pixels = slices(4)
    with CachedEncoder(CountingEncoder(), open_cache(tmp_path)) as encoder:
        expected = encoder.encode(pixels)
        connection = encoder.cache._connection
        assert connection is not None
        connection.execute("PRAGMA query_only = ON")
        with pytest.warns(CacheWarning, match="cannot be used") as told:
            assert same(encoder.encode(pixels), expected)
            assert encoder.hits == 4  # what could be read was read
            assert same(encoder.encode(pixels), expected)
        assert len(told) == 1


def test_a_full_disk_is_told_once_and_keeps_what_was_stored(tmp_path: Path):
    pixels = slices(400)
    with CachedEncoder(CountingEncoder(widths=(1500, 700)), open_cache(tmp_path)) as encoder:
        connection = encoder.cache._connection
        assert connection is not None
        connection.execute("PRAGMA max_page_count = 300")  # SQLITE_FULL, as from a full disk
        with pytest.warns(CacheWarning, match="full") as told:
            features = [encoder.encode(pixels[start : start + 20]) for start in range(0, 400, 20)]
        assert len(told) == 1
    whole = tuple(np.concatenate(layer) for layer in zip(*features, strict=True))
    assert same(whole, CountingEncoder(widths=(1500, 700)).encode(pixels))
    assert 50 < wide(tmp_path, pixels).hits < 200


def test_without_sqlite_the_cache_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cache_room, "sqlite3", None)
    with pytest.warns(CacheWarning, match="sqlite3"):
        encoder = CachedEncoder(CountingEncoder(), open_cache(tmp_path))
    encoder.encode(slices(2))
    assert encoder.misses == 2


def test_a_writer_that_never_ends_drops_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cache_room, "BUSY_SECONDS", 0.2)
    with CachedEncoder(CountingEncoder(), open_cache(tmp_path)) as encoder:
        other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.warns(CacheWarning, match="locked"):
            encoder.encode(slices(2))
        other.close()
    with pytest.raises(EncoderError, match="cannot be cleared"):
        blocked = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
        try:
            blocked.execute("BEGIN IMMEDIATE")
            clear_cache(tmp_path)
        finally:
            blocked.close()


# Processes

WORKER = textwrap.dedent(
    """
    import sys, time
    import numpy as np
    from MemorizationIndexLib.encoders.cache import CachedEncoder, open_cache

    class Slow:
        name, description, fingerprint = "slow", "Slow.", "slow:1"
        layers, widths, input_size = ("only",), (3000,), 8
        def encode(self, pixels):
            time.sleep(pause * len(pixels))
            return (np.repeat(pixels.reshape(len(pixels), -1), 47, axis=1)[:, :3000],)

    folder, seed, count, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    generator = np.random.default_rng(0)
    pixels = generator.random((count, 8, 8), dtype=np.float32)
    order = np.random.default_rng(seed).permutation(count)
    encoder = CachedEncoder(Slow(), open_cache(folder))
    for start in range(0, count, 5):
        rows = order[start : start + 5]
        (features,) = encoder.encode(pixels[rows])
        expected = np.repeat(pixels[rows].reshape(len(rows), -1), 47, axis=1)[:, :3000]
        assert features.tobytes() == expected.tobytes()
        print("batch", flush=True)
    encoder.close()
    print(encoder.hits, encoder.misses, flush=True)
    """
)


def start(folder: Path, seed: int, count: int, pause: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            WORKER,
            str(folder),
            str(seed),
            str(count),
            str(pause),
        ],
        env={**os.environ, "PYTHONPATH": str(LIBRARY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def counts(process: subprocess.Popen[str]) -> tuple[int, int]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    hits, misses = out.splitlines()[-1].split()
    return int(hits), int(misses)


def test_processes_at_once_share_one_new_cache(tmp_path: Path):
    processes = [start(tmp_path, seed, 200, 0.0005) for seed in range(3)]
    for process in processes:
        hits, misses = counts(process)
        assert hits + misses == 200
    assert cache_state(tmp_path).rows == 200
    assert counts(start(tmp_path, 9, 200, 0)) == (200, 0)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_what_a_killed_run_encoded_is_reused(tmp_path: Path):
    process = start(tmp_path, 1, 155, 0.01)
    assert process.stdout is not None
    done = 0
    for line in process.stdout:
        done += line == "batch\n"
        if done == 12:
            break
    time.sleep(0.02)  # within a batch
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    hits, misses = counts(start(tmp_path, 1, 155, 0))
    assert 60 <= hits < 155
    assert hits + misses == 155
