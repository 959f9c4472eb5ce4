"""SLICER.md 4.10: the download goes through the proxy of the system and trusts its certificates.

The panel and the worker are real; a proxy on this machine plays the site's: it inspects TLS, so
that everything is signed by a certificate of its own. Nothing leaves the machine.
"""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import sys
import threading

import pytest

pytest.importorskip("slicer", reason="needs slicer-core from PyPI")
pytest.importorskip("PySide6.QtWidgets", reason="needs PySide6-Essentials from PyPI")
torch = pytest.importorskip("torch", reason="the weights are checked with torch")
pytest.importorskip("requests")

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")

HOST = "drive.usercontent.google.com"
TRUSTING = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """The site's own authority, and the host's certificate signed by it."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "rsa:2048", "-nodes", "-days", "2")
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Site",
            "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
    openssl("req", *new, "-keyout", "host.key", "-out", "host.csr", "-subj", f"/CN={HOST}")
    (folder / "names").write_text(f"subjectAltName=DNS:{HOST}\n", encoding="ascii")
    openssl("x509", "-req", "-in", "host.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2",
            "-CAcreateserial", "-extfile", "names", "-out", "host.pem")  # fmt: skip
    return folder


class InspectingProxy:
    """Answers CONNECT itself, with a certificate of its own, and serves one file."""

    def __init__(self, certificates, content, *, refuse=False):
        self.asked = []
        self.content, self.refuse = content, refuse
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificates / "host.pem", certificates / "host.key")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        try:
            with connection:
                connection.settimeout(20)
                self.asked.append(_head(connection).split("\r\n")[0])
                if self.refuse:
                    connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                    return
                connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                with self.context.wrap_socket(connection, server_side=True) as inside:
                    self.asked.append(_head(inside).split("\r\n")[0])
                    head = (
                        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
                        f"Content-Length: {len(self.content)}\r\nConnection: close\r\n\r\n"
                    )
                    inside.sendall(head.encode("ascii") + self.content)
        except (OSError, ssl.SSLError):
            # The client does not trust the certificate and hangs up.
            return

    def close(self):
        self.listener.close()


def _head(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(4096)
        if not part:
            break
        data += part
    return data.decode("latin-1")


@pytest.fixture
def proxy_of_site(certificates, tmp_path, monkeypatch, stage):
    """Make a proxy the system's, and let the panel run the real worker."""
    from encoders.made_vit import dinov2, small_state
    from MemorizationIndexLib.gui import process
    from MemorizationIndexLib.gui.parameters import EncoderChoice

    torch.save({"teacher": dinov2(small_state())}, tmp_path / "w.pth")
    command = [sys.executable, "-u", "-m", "MemorizationIndexLib.worker"]
    monkeypatch.setattr(process, "worker_command", lambda folder: [*command, str(folder)])
    for name in TRUSTING:
        monkeypatch.delenv(name, raising=False)
    for name in ("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy", "MEMORIZATION_INDEX_WEIGHTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    proxies = []

    def start(**options):
        proxy = InspectingProxy(certificates, (tmp_path / "w.pth").read_bytes(), **options)
        proxies.append(proxy)
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, proxy.address)
        return proxy

    stage.panel.parameters.encoder = EncoderChoice.MRI_CORE
    stage.answers.answers = {"confirm": True}
    yield start
    for proxy in proxies:
        proxy.close()


def download(stage):
    stage.ui.weightsSetupButton.click()
    assert stage.ends(60)


@pytest.mark.skipif(sys.platform != "linux", reason="the data folder is moved by XDG_DATA_HOME")
@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_the_weights_come_through_the_proxy_of_the_system(
    stage, proxy_of_site, certificates, monkeypatch, variable
):
    monkeypatch.setenv(variable, str(certificates / "ca.pem"))
    proxy = proxy_of_site()
    download(stage)
    assert proxy.asked[0].startswith(f"CONNECT {HOST}:443 ")
    assert proxy.asked[1].startswith("GET /download?id=")
    assert "MRI-CORE's weights are" in stage.message
    assert stage.ui.weightsSetupButton.isHidden(), "nothing is missing any more"


@pytest.mark.skipif(sys.platform != "linux", reason="the data folder is moved by XDG_DATA_HOME")
def test_a_certificate_that_nobody_vouches_for_is_refused_in_words(stage, proxy_of_site):
    proxy = proxy_of_site()
    download(stage)
    assert f"The download from {HOST} failed: the certificate cannot be checked" in stage.message
    assert "“Use a weights file…”" in stage.message and "memorization-index" not in stage.message
    assert not any(line.startswith("GET") for line in proxy.asked), "nothing was asked of it"
    assert not stage.ui.weightsSetupButton.isHidden()


@pytest.mark.skipif(sys.platform != "linux", reason="the data folder is moved by XDG_DATA_HOME")
def test_a_proxy_that_refuses_is_told_with_the_way_around_it(stage, proxy_of_site):
    proxy_of_site(refuse=True)
    download(stage)
    assert HOST in stage.message and "the proxy cannot be reached, or refuses" in stage.message
    assert "“Use a weights file…”" in stage.message
