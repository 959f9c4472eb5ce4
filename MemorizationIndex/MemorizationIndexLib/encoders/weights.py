"""Where MRI-CORE's weights are, and how they get there.

Looked for, in this order: the file named by ``MEMORIZATION_INDEX_WEIGHTS``; the file registered
with ``register_weights``; the file fetched by ``fetch_weights`` in the user's data folder. Nothing
touches the network but ``fetch_weights``, and not even that where the file is there.

The publisher gives no checksum. The SHA-256 of the first file accepted on this machine is recorded
and stays recorded when the file is removed; a later file must have the same one.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import hashlib
import html.parser
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from MemorizationIndexLib.encoders.checkpoint import looks_like_html, read_checkpoint
from MemorizationIndexLib.encoders.encoder import EncoderError
from MemorizationIndexLib.encoders.folders import data_folder
from MemorizationIndexLib.locking import lock

if TYPE_CHECKING:
    from requests import Response, Session
    from requests.adapters import HTTPAdapter

WEIGHTS_VARIABLE = "MEMORIZATION_INDEX_WEIGHTS"
FILE_NAME = "MRI_CORE_vitb.pth"
SOURCE = "https://github.com/mazurowski-lab/mri_foundation"
"""MRI-CORE's repository, whose README links the file."""

FILE_ID = "1nPkTI3H0vsujlzwY8jxjKwAbOCTJv4yW"
FILE_PAGE = f"https://drive.google.com/file/d/{FILE_ID}/view"
"""The same file for a browser, for sites that fetch by hand."""

DOWNLOAD_URL = f"https://drive.usercontent.google.com/download?id={FILE_ID}&export=download"
LICENSE = "Apache-2.0 (by the README of MRI-CORE)"
APPROXIMATE_SIZE = 416_000_000

TIMEOUT = (15.0, 60.0)
"""Seconds to wait for a connection, and for the next bytes."""

ATTEMPTS = 5
"""Connections in a row that may break without bringing a byte."""

BY_HAND = "register it with `memorization-index weights --file PATH`"
"""What messages say of a file that was fetched otherwise; the panel names its button instead."""

CHUNK = 1 << 17
MOST_HTML = 1 << 20
MOST_PAGES = 3
DISK_MARGIN = 64 << 20
NO_SPACE = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))

PATIENCE = 10.0
"""Seconds to wait for another process before a registration or removal is given up."""

Progress = Callable[[int, "int | None"], None]
"""Called with the bytes at hand and, where known, the bytes in all."""


class FetchDeclinedError(EncoderError):
    """The user said no to the download, or cancelled it."""


@dataclass(frozen=True)
class WeightsState:
    """Where the weights are.

    Attributes:
        path: The file that is or would be used.
        present: Whether it is there.
        origin: What names it: ``environment``, ``registered`` or ``data folder``.
        size: Bytes, None where it is not there.
        sha256: Of the first accepted file, None before there was one.
        accepted: When that was (ISO 8601), None before.
        source: Where the weights are published.
        license: Under which terms.
        file_page: The file for a browser.
        partial: Bytes of a download that was interrupted.
    """

    path: Path
    present: bool
    origin: str
    size: int | None
    sha256: str | None
    accepted: str | None
    source: str = SOURCE
    license: str = LICENSE
    file_page: str = FILE_PAGE
    partial: int = 0

    def sentence(self) -> str:
        """Say the state in a sentence, with the remedy where the file is missing."""
        if self.present:
            return f"MRI-CORE's weights are {self.path} ({self.origin}, {self.size} bytes)."
        if self.origin == "environment":
            return f"{WEIGHTS_VARIABLE} names {self.path}, which is not there; correct or unset it."
        if self.origin == "registered":
            return (
                f"The registered weights {self.path} are not there any more; register them anew "
                "with `memorization-index weights --file PATH`, or end the registration with "
                "`--remove`."
            )
        begun = f" ({self.partial} bytes of it are fetched)" if self.partial else ""
        return (
            f"MRI-CORE's weights are not on this machine{begun}; get them with "
            f"`memorization-index weights --fetch`, or with a browser from {self.file_page} and "
            "`memorization-index weights --file PATH`."
        )


@dataclass(frozen=True)
class _Record:
    """What is remembered between runs."""

    registered: str | None = None
    sha256: str | None = None
    size: int | None = None
    accepted: str | None = None


def weights_state() -> WeightsState:
    """Say where the weights are, without reading them and without the network."""
    record = _read_record()
    named = os.environ.get(WEIGHTS_VARIABLE)
    if named:
        origin, path = "environment", Path(named).expanduser()
    elif record.registered:
        origin, path = "registered", Path(record.registered)
    else:
        origin, path = "data folder", data_folder() / FILE_NAME
    present = path.is_file()
    part = _part_path()
    return WeightsState(
        path=path,
        present=present,
        origin=origin,
        size=path.stat().st_size if present else None,
        sha256=record.sha256,
        accepted=record.accepted,
        partial=part.stat().st_size if part.is_file() else 0,
    )


def weights_path() -> Path:
    """Return the file to load.

    Raises:
        EncoderError: It is not there; the sentence says how to get it.
    """
    state = weights_state()
    if not state.present:
        raise EncoderError(state.sentence())
    return state.path


def register_weights(path: str | Path) -> WeightsState:
    """Use a local copy of the weights (offline sites); the file stays where it is.

    Raises:
        EncoderError: It is not a checkpoint of MRI-CORE, or not the one accepted first.
    """
    path = Path(path).expanduser().resolve()
    read_checkpoint(path)
    with _locked(patience=PATIENCE):
        _accept(path, registered=str(path))
    return weights_state()


def remove_weights(*, forget: bool = False) -> WeightsState:
    """Delete the fetched file and any part of it, and end a registration.

    A file that the user registered is never deleted.

    Args:
        forget: Also forget the SHA-256 of the first accepted file, so that another may come.
    """
    with _locked(patience=PATIENCE):
        for path in (data_folder() / FILE_NAME, _part_path(), _part_facts_path()):
            path.unlink(missing_ok=True)
        record = _read_record()
        kept = _Record() if forget else _Record(None, record.sha256, record.size, record.accepted)
        _write_record(kept)
    return weights_state()


def fetch_weights(
    *,
    confirm: Callable[[str], bool],
    url: str = DOWNLOAD_URL,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    timeout: tuple[float, float] = TIMEOUT,
) -> WeightsState:
    """Download the weights into the data folder, unless they are there.

    An interrupted download goes on where it stopped. Proxies are taken from the environment. Of
    two processes at once, one downloads and the other waits for it.

    Args:
        confirm: Asked one question with source, license, size and place; False ends it.
        url: Where from.
        progress: Called with the bytes at hand and in all.
        cancelled: Asked between chunks; True stops and keeps what is there.
        timeout: Seconds to wait for a connection, and for the next bytes.

    Returns:
        The state, with the file present.

    Raises:
        FetchDeclinedError: The user declined or cancelled.
        EncoderError: The download failed, or what came is not MRI-CORE's checkpoint.
    """
    state = weights_state()
    if state.present:
        return state
    if state.origin != "data folder":
        raise EncoderError(state.sentence())
    size = f"about {APPROXIMATE_SIZE / 1e6:.0f} MB"
    question = (
        f"Download MRI-CORE's weights ({size}, {LICENSE}) from {urlsplit(url).netloc}, published "
        f"at {SOURCE}, to {state.path}?"
    )
    if not confirm(question):
        raise FetchDeclinedError(
            "The weights were not downloaded, as you declined; the built-in encoder needs none."
        )
    stop = cancelled or (lambda: False)
    with _locked(stop):
        # Another process may have fetched it while this one waited.
        if not state.path.is_file():
            _download(url, progress or (lambda done, total: None), stop, timeout)
            _take_over(state.path)
    return weights_state()


def _take_over(path: Path) -> None:
    """Check the finished part file and give it its name."""
    part = _part_path()
    try:
        read_checkpoint(part)
        _accept(part, registered=None)
    except EncoderError:
        # Going on with wrong content could never end well.
        part.unlink(missing_ok=True)
        _part_facts_path().unlink(missing_ok=True)
        raise
    part.replace(path)
    _part_facts_path().unlink(missing_ok=True)


def _accept(path: Path, *, registered: str | None) -> None:
    """Compare with the first accepted file, or record this as the first."""
    record = _read_record()
    found = _sha256(path)
    if record.sha256 is not None and found != record.sha256:
        raise EncoderError(
            f"{path} has the SHA-256 {found[:16]}…, but the first file accepted on this machine "
            f"({record.accepted}) had {record.sha256[:16]}…; if the publisher has replaced the "
            "weights, forget the first with `memorization-index weights --remove --forget`."
        )
    accepted = record.accepted or datetime.datetime.now(datetime.timezone.utc).isoformat(
        timespec="seconds"
    )
    _write_record(_Record(registered, found, path.stat().st_size, accepted))


# --- the download ------------------------------------------------------------------------------


def _download(
    url: str, progress: Progress, stop: Callable[[], bool], timeout: tuple[float, float]
) -> None:
    """Bring the part file to its full length, going on after every break that brought bytes."""
    import requests

    part = _part_path()
    fruitless = 0
    with requests.Session() as session:
        session.headers["Accept-Encoding"] = "identity"
        session.mount("https://", _system_trust())
        while True:
            before = part.stat().st_size if part.is_file() else 0
            try:
                if _fetch_once(session, url, progress, stop, timeout):
                    return
                reason = "the connection ended early"
            except (requests.ConnectionError, requests.Timeout) as error:
                reason = _in_words(error)
            except requests.exceptions.ChunkedEncodingError:
                reason = "the connection broke"
            except requests.RequestException as error:
                raise EncoderError(
                    f"The download from {urlsplit(url).netloc} failed: {_in_words(error)}."
                ) from error
            after = part.stat().st_size if part.is_file() else 0
            fruitless = 0 if after > before else fruitless + 1
            if fruitless >= ATTEMPTS or (after == 0 and fruitless >= 2):
                raise EncoderError(
                    f"The download from {urlsplit(url).netloc} failed: {reason}. {after} bytes "
                    "are kept; run it again to go on, or fetch the file in a browser and register "
                    "it with `memorization-index weights --file PATH`."
                )
            _wait(min(0.2 * 2**fruitless, 5.0), stop)


def _system_trust() -> HTTPAdapter:
    """Return what lets requests trust the certificates of the system besides its own.

    A proxy that inspects TLS signs with a certificate that the site has put into the system's
    store (Windows) or names in ``SSL_CERT_FILE``; requests by itself looks at neither, only at
    ``REQUESTS_CA_BUNDLE`` and ``CURL_CA_BUNDLE``.
    """
    import ssl

    from requests.adapters import HTTPAdapter

    context = ssl.create_default_context()

    class SystemTrust(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            super().init_poolmanager(*args, ssl_context=context, **kwargs)

        def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
            return super().proxy_manager_for(proxy, ssl_context=context, **kwargs)

    return SystemTrust()


def _fetch_once(
    session: Session,
    url: str,
    progress: Progress,
    stop: Callable[[], bool],
    timeout: tuple[float, float],
) -> bool:
    """Request what is missing and append it; return whether the file is complete."""
    part = _part_path()
    facts = _read_json(_part_facts_path())
    have = part.stat().st_size if part.is_file() else 0
    if have and facts.get("url") != url:
        part.unlink()
        have = 0
    if have and have == facts.get("total"):
        return True
    headers = {}
    if have:
        headers["Range"] = f"bytes={have}-"
        if facts.get("validator"):
            headers["If-Range"] = str(facts["validator"])
    with contextlib.closing(_request(session, url, headers, timeout)) as response:
        if response.status_code == 416:
            # The file became shorter, or there never was more of it.
            part.unlink(missing_ok=True)
            return False
        if response.status_code >= 400:
            raise EncoderError(
                f"The download from {urlsplit(url).netloc} was refused: HTTP "
                f"{response.status_code} {response.reason}; try later, or fetch the file in a "
                "browser and register it with `memorization-index weights --file PATH`."
            )
        total = _total(response, have)
        if response.status_code != 206:
            have = 0
        elif _range_start(response) != have or facts.get("total") not in (None, total):
            part.unlink()
            return False
        _write_json(
            _part_facts_path(), {"url": url, "total": total, "validator": _validator(response)}
        )
        _check_disk(None if total is None else total - have)
        return _append(response, part, have, total, progress, stop)


def _append(
    response: Response,
    part: Path,
    have: int,
    total: int | None,
    progress: Progress,
    stop: Callable[[], bool],
) -> bool:
    try:
        with part.open("ab" if have else "wb") as file:
            progress(have, total)
            for chunk in response.iter_content(CHUNK):
                if have == 0 and looks_like_html(chunk[:512]):
                    file.close()
                    part.unlink()
                    raise _html_instead(chunk.decode("utf-8", "replace"), response.url)
                file.write(chunk)
                have += len(chunk)
                progress(have, total)
                if stop():
                    raise FetchDeclinedError(
                        f"The download was cancelled; {have} bytes are kept and it can go on."
                    )
    except OSError as error:
        if error.errno in NO_SPACE:
            raise _disk_full() from error
        import requests

        if isinstance(error, requests.RequestException):
            raise
        raise EncoderError(f"Cannot write {part}: {error.strerror or error}.") from error
    if total is not None and have > total:
        part.unlink()
        return False
    # Without a length, the end of a body that broke no rule is all there is to go by.
    return have == total if total is not None else have > 0


def _request(
    session: Session, url: str, headers: dict[str, str], timeout: tuple[float, float]
) -> Response:
    """Request the file; where a page asks to confirm (Google Drive), confirm."""
    response = session.get(url, headers=headers, stream=True, timeout=timeout)
    for _ in range(MOST_PAGES):
        if response.status_code >= 400 or not _is_page(response):
            return response
        page = response.raw.read(MOST_HTML, decode_content=True).decode("utf-8", "replace")
        address = response.url
        response.close()
        form = _confirmation(page)
        if form is None:
            raise _html_instead(page, address)
        target = urljoin(address, form.action)
        if not _trusted(target, address):
            raise EncoderError(
                f"The download page of {urlsplit(address).netloc} leads to another site "
                f"({urlsplit(target).netloc}), which is not followed; fetch the file in a browser "
                "and register it with `memorization-index weights --file PATH`."
            )
        response = session.get(
            target, params=form.fields, headers=headers, stream=True, timeout=timeout
        )
    response.close()
    raise EncoderError(
        f"The download page of {urlsplit(url).netloc} keeps asking for confirmation; fetch the "
        "file in a browser and register it with `memorization-index weights --file PATH`."
    )


def _is_page(response: Response) -> bool:
    return "text/html" in response.headers.get("Content-Type", "").lower()


class _Form(html.parser.HTMLParser):
    """Reads the title and the download form of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self.title = ""
        self._inside = False
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the form, its fields, and the older kind of link."""
        named = {key: value or "" for key, value in attrs}
        if tag == "form" and "download" in named.get("id", "") + named.get("action", ""):
            self._inside, self.action = True, named.get("action", "")
        elif tag == "input" and self._inside and named.get("name"):
            self.fields[named["name"]] = named.get("value", "")
        elif tag == "a" and "download" in named.get("id", "") and not self.action:
            self.action = named.get("href", "")
        elif tag == "title":
            self._in_title = True

    def handle_endtag(self, tag: str) -> None:
        """Leave the form or the title."""
        if tag == "form":
            self._inside = False
        elif tag == "title":
            self._in_title = False

    def handle_data(self, data: str) -> None:
        """Collect the title."""
        if self._in_title:
            self.title += data


def _confirmation(page: str) -> _Form | None:
    form = _Form()
    form.feed(page)
    return form if form.action else None


def _trusted(target: str, page: str) -> bool:
    to, at = urlsplit(target), urlsplit(page)
    if (to.scheme, to.netloc) == (at.scheme, at.netloc):
        return True
    google = (".google.com", ".googleusercontent.com")
    return to.scheme == "https" and f".{to.hostname}".endswith(google)


def _html_instead(page: str, address: str) -> EncoderError:
    form = _Form()
    form.feed(page)
    title = " ".join(form.title.split())[:120]
    called = f" titled '{title}'" if title else ""
    return EncoderError(
        f"{urlsplit(address).netloc} answered with a web page{called} instead of the weights (the "
        "link may be busy or changed); try later, or fetch the file in a browser and register it "
        "with `memorization-index weights --file PATH`."
    )


def _total(response: Response, have: int) -> int | None:
    if response.status_code == 206:
        total = response.headers.get("Content-Range", "").rpartition("/")[2]
        return int(total) if total.isdigit() else None
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdigit() else None


def _range_start(response: Response) -> int | None:
    start = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(start) if start.isdigit() else None


def _validator(response: Response) -> str | None:
    """Return what tells a changed file: a strong ETag, else the date of change."""
    etag = response.headers.get("ETag")
    if etag and not etag.startswith("W/"):
        return etag
    return response.headers.get("Last-Modified")


def _check_disk(missing: int | None) -> None:
    needed = APPROXIMATE_SIZE if missing is None else missing
    if missing is not None and shutil.disk_usage(data_folder()).free < needed + DISK_MARGIN:
        raise _disk_full(needed)


def _disk_full(needed: int | None = None) -> EncoderError:
    amount = "" if needed is None else f" for {needed / 1e6:.0f} MB more"
    return EncoderError(
        f"The disk of {data_folder()} has no room{amount}; free some and run it again (what is "
        f"fetched is kept), or keep the file elsewhere and set {WEIGHTS_VARIABLE}."
    )


def _in_words(error: Exception) -> str:
    import requests

    for kind, words in (
        (requests.exceptions.ProxyError, "the proxy cannot be reached, or refuses"),
        (requests.exceptions.SSLError, "the certificate cannot be checked"),
        (requests.ConnectTimeout, "no connection in time"),
        (requests.ReadTimeout, "no data in time"),
        (requests.ConnectionError, "no connection, or it broke"),
    ):
        if isinstance(error, kind):
            return words
    return str(error) or type(error).__name__


def _wait(seconds: float, stop: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if stop():
            raise FetchDeclinedError("The download was cancelled.")
        time.sleep(0.05)


# --- files -------------------------------------------------------------------------------------


def _part_path() -> Path:
    return data_folder() / f"{FILE_NAME}.part"


def _part_facts_path() -> Path:
    return data_folder() / f"{FILE_NAME}.part.json"


def _record_path() -> Path:
    return data_folder() / "weights.json"


def _read_record() -> _Record:
    content = _read_json(_record_path())
    return _Record(**{key: content.get(key) for key in _Record.__dataclass_fields__})


def _write_record(record: _Record) -> None:
    _write_json(_record_path(), asdict(record))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise EncoderError(f"Cannot read {path}: {error}; delete it and try again.") from error
    if not isinstance(content, dict):
        raise EncoderError(f"{path} is damaged; delete it and try again.")
    return content


def _write_json(path: Path, content: dict[str, Any]) -> None:
    """Write whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_text(json.dumps(content, indent=1), encoding="utf-8")
        new.replace(path)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise _disk_full() from error
        raise EncoderError(f"Cannot write {path}: {error.strerror}.") from error


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@contextlib.contextmanager
def _locked(
    stop: Callable[[], bool] = lambda: False, patience: float = float("inf")
) -> Iterator[None]:
    """Hold the data folder; the system lets go of it when the process dies, however it dies."""
    folder = data_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / f"{FILE_NAME}.lock").open("a+b")
    except OSError as error:
        raise EncoderError(f"Cannot write to {folder}: {error.strerror}.") from error
    with file:
        until = time.monotonic() + patience
        while not _try_lock(file):
            if time.monotonic() > until:
                raise EncoderError(
                    f"Another process is fetching weights to {folder}; wait for it or end it."
                )
            _wait(0.2, stop)
        yield


def _try_lock(file: IO[bytes]) -> bool:
    try:
        lock(file)
    except OSError:
        return False
    return True
