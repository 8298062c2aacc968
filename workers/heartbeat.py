"""The heartbeat: a thread that keeps the worker's leases and its row alive while the main thread computes.

A step, a load or an upload can take longer than a lease. The main thread therefore never renews; this thread
does, on its own database connection, and collects what it learns on the way: runs somebody wants cancelled,
runs whose lease is gone, and what an operator asks of the worker. The main thread picks them up between two
steps.

A catalog that does not answer is logged and tried again at the next beat. If it stays away for longer than
the lease, other workers may take the runs; the late result is then refused when it is reported, so nothing is
counted twice.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping
from typing import Any

from mutoscope.platform.catalog import Catalog, Wanted

log = logging.getLogger(__name__)


class Heartbeat(threading.Thread):
    """Renews the leases of the watched runs every `interval` seconds.

    Args:
        interval: seconds between beats; `Settings` keeps a lease at least twice as long.
        lease_seconds: how long a renewed lease lasts.

    Attributes:
        peers: live workers that serve one of the same cards, this one included, as of the last beat.
        steady_since: when the catalog began to answer, by the monotonic clock; infinity while it does not.
    """

    def __init__(self, catalog: Catalog, worker_id: str, *, interval: float, lease_seconds: float) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._catalog = catalog
        self._worker_id = worker_id
        self._interval = interval
        self._lease_seconds = lease_seconds
        self._stopping = threading.Event()
        self._early = threading.Event()
        self._lock = threading.Lock()
        self._watched: set[str] = set()
        self._cancelled: set[str] = set()
        self._lost: set[str] = set()
        self._cards: Mapping[str, Any] = {}
        self._state = "starting"
        self._wanted: Wanted | None = None
        self._seen = self._done = 0
        self.peers = 1
        self.steady_since = time.monotonic()

    def watch(self, run_id: str) -> None:
        """Keep this run's lease from now on."""
        with self._lock:
            self._watched.add(run_id)

    def unwatch(self, run_id: str) -> None:
        """The run is reported or given up: let its lease go, and forget what was learnt about it."""
        with self._lock:
            self._watched.discard(run_id)
            self._cancelled.discard(run_id)
            self._lost.discard(run_id)

    def describe(self, cards: Mapping[str, Any], state: str) -> None:
        """What the worker's row says from the next beat on."""
        with self._lock:
            self._cards, self._state = cards, state

    def take_cancelled(self) -> set[str]:
        """Watched runs that somebody asked to cancel, each told once per beat."""
        with self._lock:
            taken, self._cancelled = self._cancelled, set()
            return taken

    def take_lost(self) -> set[str]:
        """Watched runs whose lease belongs to somebody else; they are not renewed any more."""
        with self._lock:
            taken, self._lost = self._lost, set()
            return taken

    def take_wanted(self) -> Wanted | None:
        """What an operator asks for, told once."""
        with self._lock:
            taken, self._wanted = self._wanted, None
            return taken

    def done(self, serial: int) -> None:
        """All that was asked up to that number is done; said at the next beat."""
        with self._lock:
            self._done = serial

    def falter(self) -> None:
        """The catalog was seen not to answer."""
        self.steady_since = math.inf

    def hurry(self) -> None:
        """Let the next beat come now."""
        self._early.set()

    def stop(self) -> None:
        """End the thread and wait for a beat in progress."""
        self._stopping.set()
        self._early.set()
        self.join()

    def run(self) -> None:
        while not self._stopping.is_set():
            self._early.wait(self._interval)
            self._early.clear()
            if self._stopping.is_set():
                return
            try:
                self.beat()
            except Exception:
                self.falter()
                log.warning("heartbeat failed, trying again in %.1f s", self._interval, exc_info=True)

    def beat(self) -> None:
        """Renew once."""
        with self._lock:
            watched, cards, state, done = set(self._watched), self._cards, self._state, self._done
        if watched:
            result = self._catalog.runs.renew(self._worker_id, watched, self._lease_seconds)
            with self._lock:
                # A run that was reported while the renewal was under way is no longer watched: it is not
                # "lost".
                self._cancelled |= result.cancelled & self._watched
                self._lost |= result.lost & self._watched
                self._watched -= self._lost
        wanted = self._catalog.workers.heartbeat(self._worker_id, cards, state, done_serial=done)
        with self._lock:
            if wanted is not None and wanted.serial > self._seen:
                self._wanted, self._seen = wanted, wanted.serial
        alive = self._catalog.workers.alive()
        self.steady_since = min(self.steady_since, time.monotonic())
        self.peers = max(1, sum(not cards.keys().isdisjoint(other.cards) for other in alive))
