"""Fetching the weights from a local server that misbehaves in every way."""

from __future__ import annotations

import collections
import errno
import http.server
import json
import multiprocessing
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import torch

from encoders.made_vit import dinov2, small_state
from MemorizationIndexLib.encoders import weights
from MemorizationIndexLib.encoders.encoder import EncoderError
from MemorizationIndexLib.encoders.weights import (
    FetchDeclinedError,
    fetch_weights,
    register_weights,
    remove_weights,
    weights_path,
    weights_state,
)

FAST = (2.0, 2.0)
CONFIRMATION = b"""<!DOCTYPE html><html>
<head><title>Google Drive - Virus scan warning</title></head><body>
<form id="download-form" action="/confirmed" method="get">
<input type="submit" value="Download anyway"/><input type="hidden" name="id" value="abc">
<input type="hidden" name="confirm" value="t"><input type="hidden" name="uuid" value="1-2">
</form></body></html>"""


@dataclass
class Site:
    """What the local server serves and what it saw."""

    content: bytes
    address: str = ""
    cut_after: int | None = None
    etag: str = '"first"'
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    pages: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    delay: float = 0.0


class Handler(http.server.BaseHTTPRequestHandler):
    site: Site
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        site, path = self.site, urlsplit(self.path)
        wanted = self.headers.get("Range")
        site.requests.append((self.path, wanted))
        if path.path in site.pages:
            self._send(200, site.pages[path.path], {"Content-Type": "text/html; charset=utf-8"})
        elif path.path == "/moved":
            self._send(302, b"", {"Location": "/weights"})
        elif path.path == "/gone":
            self._send(404, b"gone", {"Content-Type": "text/plain"})
        elif path.path == "/confirmed" and parse_qs(path.query).get("confirm") != ["t"]:
            self._send(200, CONFIRMATION, {"Content-Type": "text/html"})
        else:
            self._file(wanted)

    def _file(self, wanted: str | None) -> None:
        site = self.site
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and site.ranges else 0
        if self.headers.get("If-Range", site.etag) != site.etag:
            start = 0
        if start >= len(site.content):
            self._send(416, b"", {"Content-Range": f"bytes */{len(site.content)}"})
            return
        headers = {"Content-Type": "application/octet-stream", "ETag": site.etag}
        if start:
            last = len(site.content) - 1
            headers["Content-Range"] = f"bytes {start}-{last}/{len(site.content)}"
        self._send(206 if start else 200, site.content[start:], headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = self.site.cut_after
        if cut is not None and len(body) > cut:
            self.site.cut_after = None
            self.wfile.write(body[:cut])
            self.close_connection = True
        else:
            threading.Event().wait(self.site.delay)
            self.wfile.write(body)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("made") / "w.pth"
    torch.save({"teacher": dinov2(small_state())}, path)
    return path.read_bytes()


@pytest.fixture
def site(content: bytes) -> Iterator[Site]:
    served = Site(content)
    handler = type("Handler", (Handler,), {"site": served})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    served.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield served
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    monkeypatch.setattr(weights, "data_folder", lambda: folder)
    monkeypatch.delenv(weights.WEIGHTS_VARIABLE, raising=False)
    monkeypatch.setattr(weights, "CHUNK", 4096)
    for variable in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.upper(), raising=False)
    return folder


def yes(question: str) -> bool:
    return True


def fetch(site: Site, path: str = "/weights", **options: object):
    return fetch_weights(confirm=yes, url=site.address + path, timeout=FAST, **options)


def part(folder: Path) -> Path:
    return folder / f"{weights.FILE_NAME}.part"


def test_fetching_brings_the_file_records_it_and_says_where(site: Site, folder: Path):
    seen: list[tuple[int, int | None]] = []
    state = fetch(site, progress=lambda done, total: seen.append((done, total)))
    assert state.present
    assert state.path == folder / weights.FILE_NAME == weights_path()
    assert state.path.read_bytes() == site.content
    assert state.size == len(site.content)
    assert state.sha256 == weights._sha256(state.path)
    assert state.accepted is not None
    assert seen[0] == (0, len(site.content))
    assert seen[-1] == (len(site.content), len(site.content))
    assert not list(folder.glob("*.part*"))


def test_the_question_names_source_license_size_and_place(site: Site, folder: Path):
    asked: list[str] = []

    def no(question: str) -> bool:
        asked.append(question)
        return False

    with pytest.raises(FetchDeclinedError, match="declined"):
        fetch_weights(confirm=no, url=site.address)
    assert site.requests == []
    assert not folder.exists()
    for word in ("416 MB", "Apache-2.0", "127.0.0.1", weights.SOURCE, str(folder)):
        assert word in asked[0]


def test_no_network_where_the_file_is_there(site: Site):
    fetch(site)
    count = len(site.requests)
    state = fetch_weights(confirm=lambda question: pytest.fail("asked"), url=site.address)
    assert state.present
    assert len(site.requests) == count


def test_a_cut_connection_is_resumed(site: Site):
    site.cut_after = len(site.content) // 3
    state = fetch(site)
    assert state.path.read_bytes() == site.content
    (_, first), (_, second) = site.requests
    assert first is None
    assert second is not None
    assert 0 < int(second.removeprefix("bytes=").rstrip("-")) <= len(site.content) // 3


def test_a_cancelled_download_goes_on_in_the_next_run(site: Site, folder: Path):
    calls = iter(range(100))
    with pytest.raises(FetchDeclinedError, match="it can go on"):
        fetch(site, cancelled=lambda: next(calls) >= 3)
    kept = part(folder).stat().st_size
    assert 0 < kept < len(site.content)
    assert weights_state().partial == kept
    assert f"{kept} bytes" in weights_state().sentence()
    assert fetch(site).path.read_bytes() == site.content
    assert site.requests[-1][1] == f"bytes={kept}-"


def interrupted(site: Site, folder: Path, kept: bytes, **facts: object) -> None:
    folder.mkdir()
    part(folder).write_bytes(kept)
    known = {"url": f"{site.address}/weights", "total": len(site.content), "validator": site.etag}
    part(folder).with_suffix(".part.json").write_text(json.dumps(known | facts))


@pytest.mark.parametrize(
    "facts",
    [{"validator": '"older"'}, {"url": "http://127.0.0.1:1/other"}, {"total": 7}],
    ids=["changed on the server", "of another address", "of another length"],
)
def test_a_part_of_another_file_is_not_continued(site: Site, folder: Path, facts: dict):
    interrupted(site, folder, b"x" * 5000, **facts)
    assert fetch(site).path.read_bytes() == site.content


def test_a_server_without_ranges_starts_over(site: Site, folder: Path):
    site.ranges = False
    interrupted(site, folder, site.content[:5000])
    assert fetch(site).path.read_bytes() == site.content


def test_a_part_longer_than_the_file_starts_over(site: Site, folder: Path):
    interrupted(site, folder, site.content + b"more")
    assert fetch(site).path.read_bytes() == site.content


def test_a_complete_part_needs_no_network(site: Site, folder: Path):
    interrupted(site, folder, site.content)
    assert fetch(site).path.read_bytes() == site.content
    assert site.requests == []


def test_redirects_are_followed(site: Site):
    assert fetch(site, "/moved").path.read_bytes() == site.content


def test_the_confirmation_page_is_confirmed(site: Site):
    assert fetch(site, "/confirmed?id=abc").path.read_bytes() == site.content
    query = parse_qs(urlsplit(site.requests[-1][0]).query)
    assert query == {"id": ["abc"], "confirm": ["t"], "uuid": ["1-2"]}


def test_a_confirmation_page_that_leads_elsewhere_is_not_followed(site: Site):
    page = CONFIRMATION.replace(b'"/confirmed"', b'"https://elsewhere.example/download"')
    site.pages["/warning"] = page
    with pytest.raises(EncoderError, match=r"leads to another site \(elsewhere\.example\)"):
        fetch(site, "/warning")


def test_a_page_that_keeps_asking_is_given_up(site: Site):
    site.pages["/loop"] = CONFIRMATION.replace(b"/confirmed", b"/loop?download")
    with pytest.raises(EncoderError, match="keeps asking"):
        fetch(site, "/loop")


def test_a_page_instead_of_weights_is_refused_with_its_title(site: Site, folder: Path):
    site.pages["/quota"] = b"<html><head><title>Quota\n exceeded</title></head></html>"
    with pytest.raises(EncoderError, match="web page titled 'Quota exceeded'"):
        fetch(site, "/quota")
    assert not part(folder).exists()


def test_a_page_that_calls_itself_a_file_is_refused(site: Site, folder: Path):
    site.content = b"<!DOCTYPE html><title>Sign in</title>"
    with pytest.raises(EncoderError, match="web page titled 'Sign in'"):
        fetch(site)
    assert not part(folder).exists()


def test_wrong_content_is_refused_and_not_kept(site: Site, folder: Path):
    site.content = b"PK not weights" * 1000
    with pytest.raises(EncoderError, match="not a complete PyTorch checkpoint"):
        fetch(site)
    assert not weights_state().present
    assert weights_state().sha256 is None
    assert not list(folder.glob("*.part*"))


def test_a_later_file_must_be_the_first_one(site: Site, tmp_path: Path):
    first = fetch(site).sha256
    assert not remove_weights().present
    assert weights_state().sha256 == first
    torch.save({"teacher": dinov2(small_state(seed=1))}, tmp_path / "second.pth")
    site.content = (tmp_path / "second.pth").read_bytes()
    with pytest.raises(EncoderError, match="the first file accepted on this machine"):
        fetch(site)
    with pytest.raises(EncoderError, match="the first file accepted on this machine"):
        register_weights(tmp_path / "second.pth")
    assert not weights_state().present
    assert remove_weights(forget=True).sha256 is None
    assert fetch(site).sha256 != first


def test_an_error_of_the_server_is_told(site: Site):
    with pytest.raises(EncoderError, match="HTTP 404"):
        fetch(site, "/gone")


def test_no_server_is_told_and_no_bytes_pretended():
    with pytest.raises(EncoderError, match=r"no connection, or it broke\. 0 bytes"):
        fetch_weights(confirm=yes, url="http://127.0.0.1:9/weights", timeout=FAST)


def test_a_silent_server_is_given_up(site: Site):
    site.delay = 1.5
    with pytest.raises(EncoderError, match=r"failed: no"):
        fetch_weights(confirm=yes, url=f"{site.address}/weights", timeout=(0.2, 0.2))


def test_an_address_that_is_none_is_told():
    with pytest.raises(EncoderError, match="failed"):
        fetch_weights(confirm=yes, url="nowhere", timeout=FAST)


def test_the_proxy_of_the_environment_is_used(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("http_proxy", site.address)
    monkeypatch.setenv("no_proxy", "")
    fetch_weights(confirm=yes, url="http://weights.example/weights", timeout=FAST)
    assert site.requests[0][0] == "http://weights.example/weights"


def test_too_little_room_is_told_before(site: Site, monkeypatch: pytest.MonkeyPatch):
    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 10, 10))
    with pytest.raises(EncoderError, match="has no room for"):
        fetch(site)


def test_a_disk_that_fills_up_keeps_what_is_there(
    site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    real_open = Path.open

    class Filling:
        def __init__(self, file, room: int) -> None:
            self.file, self.room = file, room

        def __enter__(self):
            return self

        def __exit__(self, *args: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> int:
            if self.room < len(data):
                raise OSError(errno.ENOSPC, "No space left on device")
            self.room -= len(data)
            return self.file.write(data)

        def close(self) -> None:
            self.file.close()

    def opened(path: Path, mode: str = "r", *args, **kwargs):
        file = real_open(path, mode, *args, **kwargs)
        return Filling(file, 9000) if path.suffix == ".part" and mode in ("ab", "wb") else file

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(EncoderError, match=r"has no room; free some and run it again"):
        fetch(site)
    monkeypatch.setattr(Path, "open", real_open)
    assert part(folder).stat().st_size == 8192
    assert fetch(site).path.read_bytes() == site.content


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_really_full_device_is_told(site: Site, folder: Path):
    folder.mkdir()
    part(folder).symlink_to("/dev/full")
    with pytest.raises(EncoderError, match="has no room"):
        fetch(site)


def fetch_in_process(folder: Path, url: str, results: multiprocessing.Queue) -> None:
    weights.data_folder = lambda: folder
    state = fetch_weights(confirm=yes, url=url, timeout=FAST)
    results.put(state.present)


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_two_processes_at_once_download_once(site: Site, folder: Path):
    site.delay = 0.5
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [
        context.Process(target=fetch_in_process, args=(folder, f"{site.address}/weights", results))
        for _ in range(2)
    ]
    for process in processes:
        process.start()
    assert [results.get(timeout=60) for _ in processes] == [True, True]
    for process in processes:
        process.join(60)
    assert (folder / weights.FILE_NAME).read_bytes() == site.content
    assert len(site.requests) == 1


def test_registering_waits_only_so_long(content: bytes, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(weights, "PATIENCE", 0.1)
    (tmp_path / "w.pth").write_bytes(content)
    with weights._locked(), pytest.raises(EncoderError, match="Another process"):
        register_weights(tmp_path / "w.pth")


def test_a_registered_copy_is_used_where_it_lies(content: bytes, tmp_path: Path, folder: Path):
    copy = tmp_path / "elsewhere" / "copy.pth"
    copy.parent.mkdir()
    copy.write_bytes(content)
    state = register_weights(copy)
    assert (state.path, state.origin, state.present) == (copy, "registered", True)
    assert not (folder / weights.FILE_NAME).exists()
    assert remove_weights().origin == "data folder"
    assert copy.exists()


def test_a_registered_copy_that_is_gone_is_told(content: bytes, tmp_path: Path):
    copy = tmp_path / "copy.pth"
    copy.write_bytes(content)
    register_weights(copy)
    copy.unlink()
    assert not weights_state().present
    with pytest.raises(EncoderError, match="not there any more"):
        weights_path()


@pytest.mark.parametrize("bad", [b"", b"<html></html>", b"something else entirely"])
def test_a_file_that_is_no_checkpoint_is_not_registered(bad: bytes, tmp_path: Path):
    (tmp_path / "bad.pth").write_bytes(bad)
    with pytest.raises(EncoderError):
        register_weights(tmp_path / "bad.pth")
    assert weights_state().origin == "data folder"


def test_the_environment_goes_first(content: bytes, tmp_path: Path, monkeypatch):
    named = tmp_path / "named.pth"
    monkeypatch.setenv(weights.WEIGHTS_VARIABLE, str(named))
    state = weights_state()
    assert (state.path, state.origin, state.present) == (named, "environment", False)
    with pytest.raises(EncoderError, match="MEMORIZATION_INDEX_WEIGHTS names"):
        weights_path()
    with pytest.raises(EncoderError, match="MEMORIZATION_INDEX_WEIGHTS names"):
        fetch_weights(confirm=yes, url="http://127.0.0.1:9/")
    named.write_bytes(content)
    assert weights_path() == named


def test_without_weights_the_sentence_says_how_to_get_them():
    with pytest.raises(EncoderError, match=r"weights --fetch.*--file PATH"):
        weights_path()


def test_a_damaged_record_is_told(folder: Path):
    folder.mkdir()
    (folder / "weights.json").write_text("{")
    with pytest.raises(EncoderError, match="delete it"):
        weights_state()


def test_data_folder_follows_the_convention_without_platformdirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_data_folder: Callable[[], Path]
):
    platformdirs = pytest.importorskip("platformdirs")
    expected = platformdirs.user_data_path("MemorizationIndex", appauthor=False)
    assert real_data_folder() == expected
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert real_data_folder() == expected
    if sys.platform.startswith("linux"):
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        assert real_data_folder() == tmp_path / "MemorizationIndex"


@pytest.fixture(scope="module")
def real_data_folder() -> Callable[[], Path]:
    return weights.data_folder
