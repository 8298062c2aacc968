"""The proxy as it runs: the real program with the real file, before servers that record what reaches them."""

from __future__ import annotations

import base64
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.infra.conftest import INFRA, PROGRAMS
from tests.support.deadline import until
from tests.support.servers import free_ports

SITE = "mutoscope.test"
PEOPLE = {"authorization": "Basic " + base64.b64encode(b"team:secret").decode()}


@dataclass
class Upstream:
    """A server that answers everything and keeps what it was asked."""

    server: ThreadingHTTPServer
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]


@dataclass(frozen=True)
class Proxy:
    port: int
    root: Path
    gateway: Upstream
    prefect: Upstream
    store: Upstream

    def ask(self, host: str, path: str, method: str = "GET", **headers: str) -> Answer:
        """One request over TLS, the certificate verified against the proxy's own authority."""
        trust = ssl.create_default_context(cafile=self.root)
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=30) as plain,
            trust.wrap_socket(plain, server_hostname=host) as secure,
        ):
            lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", "Content-Length: 0"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            secure.sendall("\r\n".join([*lines, "", ""]).encode())
            response = HTTPResponse(secure, method=method)
            response.begin()
            response.read()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()})


@contextmanager
def upstream(**headers: str) -> Iterator[Upstream]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            made.seen.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
            self.send_response(200)
            for name, value in {"Content-Length": "0", **headers}.items():
                self.send_header(name, value)
            self.end_headers()

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    made = Upstream(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder, caddy = tmp_path_factory.mktemp("proxy"), str(PROGRAMS / "caddy")
    cheap = ["hash-password", "--plaintext", "secret", "--algorithm", "bcrypt", "--bcrypt-cost", "4"]
    hashed = subprocess.run([caddy, *cheap], capture_output=True, text=True, check=True).stdout.strip()
    root = folder / "caddy" / "pki" / "authorities" / "local" / "root.crt"
    plain, port = free_ports(2)
    with ExitStack() as stack:
        gateway = stack.enter_context(upstream(**{"Content-Security-Policy": "default-src 'none'"}))
        prefect, store = (stack.enter_context(upstream(Server="telling")) for _ in range(2))
        made = Proxy(port, root, gateway, prefect, store)
        environment = {
            **{name: os.environ[name] for name in ("PATH",)},
            "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder),
            "HTTP_PORT": str(plain), "HTTPS_PORT": str(port),
            "SITE": SITE, "TLS": "internal", "PEOPLE": "team", "PEOPLE_HASH": hashed,
            "GATEWAY": gateway.address, "PREFECT": prefect.address, "STORE": store.address,
            "STORE_PATH": "bucket/prefix",
        }  # fmt: skip
        command = [caddy, "run", "--config", str(INFRA / "proxy" / "Caddyfile"), "--adapter", "caddyfile"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
        try:
            until(lambda: _answers(made, process, folder / "log"), "the proxy serves all three sites")
            yield made
        finally:
            process.terminate()
            process.wait(60)


def _answers(proxy: Proxy, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        for name in ("", "flows.", "pages."):
            proxy.ask(f"{name}{SITE}", "/")
    except (OSError, ssl.SSLError):
        return False
    return True


def test_every_site_is_confined(proxy: Proxy) -> None:
    answers = {
        "": proxy.ask(SITE, "/", **PEOPLE),
        "flows.": proxy.ask(f"flows.{SITE}", "/dashboard"),
        "pages.": proxy.ask(f"pages.{SITE}", "/runs/index.html", **PEOPLE),
    }
    for site, answer in answers.items():
        assert answer.status == 200, site
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy, site
        assert "max-age" in answer.headers["strict-transport-security"], site
        assert answer.headers["x-content-type-options"] == "nosniff", site
        assert "server" not in answer.headers, site
    policies = {site: answer.headers["content-security-policy"] for site, answer in answers.items()}
    assert policies[""] == "default-src 'none'", "the gateway's own stays as it is"
    assert "script-src 'self' 'unsafe-eval';" in policies["flows."]
    assert f"img-src 'self' data: https://{SITE};" in policies["flows."], "thumbnails of the gateway"
    assert "script-src" not in policies["pages."]
    for site in ("flows.", "pages."):
        assert "frame-ancestors 'none'" in policies[site]


@pytest.mark.parametrize(("host", "path"), [(SITE, "/"), (f"pages.{SITE}", "/runs/index.html")])
def test_who_is_not_of_the_team_sees_nothing(proxy: Proxy, host: str, path: str) -> None:
    before = len(proxy.gateway.seen), len(proxy.store.seen)
    wrong = {"authorization": "Basic " + base64.b64encode(b"team:guess").decode()}
    assert [proxy.ask(host, path).status, proxy.ask(host, path, **wrong).status] == [401, 401]
    assert (len(proxy.gateway.seen), len(proxy.store.seen)) == before


def test_prefect_is_asked_with_its_own_credentials(proxy: Proxy) -> None:
    proxy.ask(f"flows.{SITE}", "/api/health", authorization="Basic abc")
    assert proxy.prefect.seen[-1][2]["authorization"] == "Basic abc"


def test_pages_are_read_below_the_store_and_nothing_else(proxy: Proxy) -> None:
    pages = f"pages.{SITE}"
    assert proxy.ask(pages, "/objects/ab/abcd?x=1", **PEOPLE).status == 200
    method, path, headers = proxy.store.seen[-1]
    assert (method, path) == ("GET", "/bucket/prefix/objects/ab/abcd?x=1")
    assert "authorization" not in headers, "the store would take it for a signature, and refuse"
    assert proxy.ask(pages, "/", **PEOPLE).headers["location"] == "/runs/index.html"
    before = len(proxy.store.seen)
    for method, path in (
        ("PUT", "/runs/index.html"),
        ("DELETE", "/objects/ab/abcd"),
        ("GET", "/users/a.json"),
        ("GET", "/store.json"),
        ("GET", "/runs/../users/a.json"),
        ("GET", "/runs/%2e%2e/users/a.json"),
        ("GET", "/?list-type=2"),
    ):
        answer = proxy.ask(pages, path, method, **PEOPLE)
        assert answer.status in (302, 400, 404), (method, path)
    assert len(proxy.store.seen) == before, proxy.store.seen[before:]


def test_numbers_are_for_machines_inside(proxy: Proxy) -> None:
    before = len(proxy.gateway.seen)
    assert proxy.ask(SITE, "/metrics", **PEOPLE).status == 404
    assert len(proxy.gateway.seen) == before


def test_the_file_is_laid_out_as_its_program_does() -> None:
    ran = subprocess.run(
        [str(PROGRAMS / "caddy"), "fmt", str(INFRA / "proxy" / "Caddyfile")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == (INFRA / "proxy" / "Caddyfile").read_text()
