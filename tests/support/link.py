"""A network link that can be cut: TCP relays on loopback to servers, all silenced together.

A cut is what a pulled cable is to those who hold connections: nothing arrives any more, in either direction,
and nobody is told. What was sent into it waits, and is delivered when the link is mended, however late; that
is the worst a network does to a protocol of leases.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping

_BUFFER = 64 << 10


class Link:
    """Relays to servers on loopback.

    Args:
        servers: port of each server, by a name of the caller's; `ports` has the relays' under the same names.
    """

    def __init__(self, servers: Mapping[str, int]) -> None:
        self._relays = {name: _Relay(port) for name, port in servers.items()}

    @property
    def ports(self) -> Mapping[str, int]:
        return {name: relay.port for name, relay in self._relays.items()}

    @property
    def passed(self) -> Mapping[str, int]:
        """Bytes passed on so far, by server: whether anything went through lately."""
        return {name: relay.passed for name, relay in self._relays.items()}

    def cut(self, *servers: str) -> None:
        """Silence, from the next piece on: towards these servers, or towards all."""
        for name in servers or self._relays:
            self._relays[name].cut()

    def drop(self, *servers: str) -> None:
        """As if these servers had died: connections break, and new ones break at once."""
        for name in servers:
            self._relays[name].drop()

    def mend(self) -> None:
        """Deliver what waits, and everything after it."""
        for relay in self._relays.values():
            relay.dropping = False
            relay.whole.set()

    def close(self) -> None:
        self.mend()
        for relay in self._relays.values():
            relay.close()


class _Relay:
    """One listening port, passed on to another."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.whole = threading.Event()
        self.whole.set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.passed = 0
        self.dropping = False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._sending: list[threading.Lock] = []  # one per direction of a connection, held around a piece
        self._accepting = threading.Thread(target=self._accept, name=f"relay-{target}", daemon=True)
        self._accepting.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        with self._lock:
            for each in self._open:
                _hang_up(each)

    def cut(self) -> None:
        self.whole.clear()
        with self._lock:
            sending = list(self._sending)
        for lock in sending:  # a piece on its way has arrived before the cut is one
            with lock:
                pass

    def drop(self) -> None:
        self.dropping = True
        with self._lock:
            for each in self._open:
                _hang_up(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self.whole.wait()
        if self.dropping:
            client.close()
            return
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            # As the kernel of a host without that server would say it.
            client.close()
            return
        with self._lock:
            self._open |= {client, server}
        back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
        back.start()
        self._pump(client, server)
        back.join()
        with self._lock:
            self._open -= {client, server}
        client.close()
        server.close()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        sending = threading.Lock()
        with self._lock:
            self._sending.append(sending)
        with contextlib.suppress(OSError):
            while piece := source.recv(_BUFFER):
                self._send(piece, target, sending)
        with self._lock:
            self._sending.remove(sending)
        # The end of a stream is no less silent than its bytes.
        self.whole.wait()
        _hang_up(target, socket.SHUT_WR)

    def _send(self, piece: bytes, target: socket.socket, sending: threading.Lock) -> None:
        while True:
            self.whole.wait()
            with sending:
                if self.whole.is_set():
                    target.sendall(piece)
                    self.passed += len(piece)
                    return


def _hang_up(open_socket: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with contextlib.suppress(OSError):
        open_socket.shutdown(how)
