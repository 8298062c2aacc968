"""A TCP proxy on loopback that sees every HTTP request on its way to a server: it counts them, and lets a
test act at an exact moment.

Bytes pass unchanged in both directions, so signatures hold; requests are parsed only to be noted.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO, Self
from urllib.parse import urlsplit

_BUFFER = 256 << 10


@dataclass(frozen=True, slots=True)
class Sighting:
    """The first line of a request."""

    method: str
    target: str


Watcher = Callable[[Sighting], None]


class Proxy:
    """Passes on to `endpoint` (``http://host:port``); clients use `url`.

    Args:
        watcher: called with each request before its first byte goes on, in the thread that serves the
            connection; while it runs, the request waits.
    """

    def __init__(self, endpoint: str, watcher: Watcher = lambda sighting: None) -> None:
        parts = urlsplit(endpoint)
        assert parts.hostname is not None
        assert parts.port is not None
        self._server = (parts.hostname, parts.port)
        self._watcher = watcher
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = "http://127.0.0.1:{1}".format(*self._listener.getsockname())
        self._lock = threading.Lock()
        self._seen: list[Sighting] = []
        self._sockets: set[socket.socket] = set()
        self._accepting = threading.Thread(target=self._accept)
        self._serving: list[threading.Thread] = []
        self._accepting.start()

    @property
    def requests(self) -> list[Sighting]:
        """All requests so far, in the order of their first bytes."""
        with self._lock:
            return list(self._seen)

    def forget(self) -> None:
        """Begin counting anew."""
        with self._lock:
            self._seen.clear()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        with self._lock:
            for open_socket in self._sockets:
                _hang_up(open_socket)
        for thread in self._serving:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            thread = threading.Thread(target=self._serve, args=(client,))
            self._serving.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, self._tracked(client):
            try:
                server = socket.create_connection(self._server)
            except OSError:  # the client sees a connection that ends, as from a server that just died
                return
            with server, self._tracked(server):
                back = threading.Thread(target=_pump, args=(server, client))
                back.start()
                try:
                    self._forward(client, server)
                finally:
                    _hang_up(server)
                    back.join()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), client.makefile("rb") as stream:
            while head := _head(stream):
                sighting, length = _parse(head)
                with self._lock:
                    self._seen.append(sighting)
                self._watcher(sighting)
                server.sendall(head)
                while length and (piece := stream.read1(min(length, _BUFFER))):
                    server.sendall(piece)
                    length -= len(piece)

    @contextlib.contextmanager
    def _tracked(self, open_socket: socket.socket) -> Iterator[None]:
        with self._lock:
            self._sockets.add(open_socket)
        try:
            yield
        finally:
            with self._lock:
                self._sockets.discard(open_socket)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(_BUFFER):
            target.sendall(piece)
    _hang_up(target)


def _hang_up(open_socket: socket.socket) -> None:
    with contextlib.suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)


def _head(stream: BinaryIO) -> bytes:
    """A request's lines up to the empty one; nothing at the end of the connection."""
    lines = []
    while line := stream.readline():
        lines.append(line)
        if line == b"\r\n":
            return b"".join(lines)
    return b""


def _parse(head: bytes) -> tuple[Sighting, int]:
    """What is asked, and how many bytes of body follow."""
    first, *fields = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    assert headers.get("transfer-encoding", "identity") == "identity", "bodies of unknown length do not pass"
    return Sighting(method, target), int(headers.get("content-length", "0"))
