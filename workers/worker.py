"""The worker's main loop: prepare, claim, step, deliver.

One thread drives the engine and everything that touches a device. Between two steps it looks up: for runs to
claim, for runs to stop, for tickets that are done, for what an operator asks, for a request to end. Nothing
here blocks for longer than a step, a load or an upload, and the heartbeat keeps the leases meanwhile.

A starting worker serves each card from the moment that one is prepared; it calls itself ready when all are.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutoscope.platform import faults
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog, WorkerInfo
from mutoscope.platform.engine.batching import Mode
from mutoscope.platform.engine.card import Card
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.features import FeatureCache
from mutoscope.platform.engine.trace import Trace
from mutoscope.platform.errors import MutoscopeError
from mutoscope.platform.ids import new_id
from mutoscope.platform.settings import Settings
from mutoscope.workers.assignments import Assignments
from mutoscope.workers.calibrations import Calibrations
from mutoscope.workers.device import Device
from mutoscope.workers.executor import Executor
from mutoscope.workers.group import Group
from mutoscope.workers.heartbeat import Heartbeat
from mutoscope.workers.lead import Lead, LeadResidency
from mutoscope.workers.lookout import Lookout
from mutoscope.workers.measurements import Conditions, Measurements
from mutoscope.workers.rehearsal import Rehearsals
from mutoscope.workers.reports import RETRY_S
from mutoscope.workers.residency import Residency
from mutoscope.workers.service import Service
from mutoscope.workers.shutdown import Shutdown
from mutoscope.workers.weight_cache import WeightCache

SERVE_BEFORE_PREPARING_S = 5.0
"""Seconds that runs at work may keep a starting worker from preparing its next card, which takes as long."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """When a worker ends.

    Attributes:
        drain_seconds: how long a draining worker lets its runs go on before it hands them back.
        idle_exit_seconds: end after being without work for this long; None: never.
    """

    drain_seconds: float = 30.0
    idle_exit_seconds: float | None = None


class Worker:
    """A worker process's one worker.

    Args:
        cards: the cards it serves; it leaves runs of others alone.
        group: whose rank 0 it is, if it computes on several devices.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        store: ArtifactStore,
        device: Device,
        cards: Sequence[Card],
        *,
        limits: Limits = Limits(),
        shutdown: Shutdown | None = None,
        group: Group | None = None,
    ) -> None:
        self.id = new_id()
        self._settings = settings
        self._catalog = catalog
        self._device = device
        self._limits = limits
        self._shutdown = shutdown or Shutdown()
        faults.arm()
        self._lead = None if group is None else Lead(group)
        kept = Measurements(settings.home / "cache" / "measurements")
        mode = Mode(settings.batching)
        calibrations = Calibrations(device.contract, mode, settings.batch_rows, kept, self._lead)
        by_id = {card.id: card for card in cards}
        cache = WeightCache(store, settings.home / "cache" / "weights")
        given = (by_id, store, cache, device, calibrations.prepare)
        self._residency = Residency(*given) if self._lead is None else LeadResidency(self._lead, *given)
        features = FeatureCache()
        self._trace = None if settings.trace is None else self._open_trace(settings.trace)
        self._engine = Engine(
            node_cache=features,
            budget=device.engine_budget,
            make_room=self._make_room,
            trace=self._trace,
            ranks=self._lead,
        )
        conditions = Conditions(device.contract, mode.value, settings.batch_rows)
        rehearsals = Rehearsals(self._engine, conditions, kept)
        self._service = Service(catalog, by_id, self._residency, calibrations, rehearsals, features)
        self._heartbeat = Heartbeat(
            catalog, self.id, interval=settings.heartbeat_seconds, lease_seconds=settings.lease_seconds
        )
        self._watch = catalog.watch()
        self._lookout = Lookout(self._watch, settings.poll_seconds)
        self._runs = Assignments(
            catalog,
            self.id,
            device,
            self._engine,
            self._service,
            Executor(catalog, store, self.id),
            self._heartbeat,
            self._lookout,
        )
        self._state = "starting"
        self._asked: int | None = None
        self._drain_until: float | None = None
        self._idle_since = self._prepared_at = self._described_at = time.monotonic()

    def run(self) -> None:
        """Serve until asked to end.

        Whatever happens, runs still held are handed back and the worker is marked stopped.
        """
        self._catalog.workers.register(self._info())
        self._heartbeat.start()
        try:
            while not self._is_over():
                self._tick()
        finally:
            self._stop()

    def _tick(self) -> None:
        """One turn of the loop: at most one step of one run, and one card prepared."""
        self._heed_heartbeat()
        if self._lead is not None:
            self._lead.ping()
        if not self._shutdown.draining:
            self._prepare()
            self._service.follow()
            self._claim()
        self._runs.stop_overdue()
        worked = self._engine.step()
        if worked:
            faults.hit("worker.step")
        self._runs.collect()
        self._describe()
        if self._runs:
            self._idle_since = time.monotonic()
        elif not worked and not self._service.may_prepare:
            self._lookout.wait()

    def _is_over(self) -> bool:
        now = time.monotonic()
        if self._shutdown.draining and self._drain_until is None:
            self._drain_until = now + self._limits.drain_seconds
            self._set_state("draining")
            log.info("draining runs=%d seconds=%.0f", len(self._runs), self._limits.drain_seconds)
        if self._drain_until is not None:
            return not self._runs or self._shutdown.immediate or now > self._drain_until
        patience = self._limits.idle_exit_seconds
        return patience is not None and not self._runs and now - self._idle_since > patience

    def _prepare(self) -> None:
        """Prepare one more card, if any waits and runs at work can wait as well."""
        if self._service.may_prepare:
            now = time.monotonic()
            if self._runs and now - self._prepared_at < SERVE_BEFORE_PREPARING_S:
                return
            self._service.prepare_next()
            self._prepared_at = self._idle_since = time.monotonic()
            self._lookout.at_once()
            self._tell()
        if self._service.preparing:
            return
        if self._state == "starting":
            self._set_state("ready")
            served = ",".join(self._service.served())
            log.info("ready worker=%s device=%s cards=%s", self.id, self._device, served)
        if self._asked is not None:
            self._heartbeat.done(self._asked)
            self._asked = None
            self._tell()

    def _claim(self) -> None:
        limit = self._places()
        if limit < 1 or not self._lookout.due():
            return
        contracts = self._service.contracts()
        try:
            runs = self._catalog.runs.claim(
                self.id,
                contracts,
                self._settings.lease_seconds,
                limit,
                card_digests=self._service.card_digests,
                also=self._service.calibrations.alone(contracts),
                busy=self._runs.workflow_runs,
                resident=self._service.resident(),
                memory_bytes=self._device.memory_budget,
                patience_seconds=self._settings.route_patience_seconds,
                expired=self._believes_leases(),
            )
        except MutoscopeError as error:
            self._heartbeat.falter()
            log.warning("cannot claim, trying again in %.0f s: %s", RETRY_S, error)
            self._lookout.not_for(RETRY_S)
            return
        self._runs.take(runs)

    def _believes_leases(self) -> bool:
        """Whether a lease that ran out says that its worker is dead. After an outage of the catalog it says
        that nobody could renew: the living need a beat or two."""
        steady = time.monotonic() - self._heartbeat.steady_since
        return steady > 2 * self._settings.heartbeat_seconds

    def _places(self) -> int:
        """How many runs to claim at once: this worker's share of those it has places for, so that workers
        which look at the same moment divide a queue, and a longer one still fills them all."""
        if self._engine.waiting:
            return 0  # one that was claimed waits for memory already
        free = (self._settings.concurrency or self._settings.batch_rows) - len(self._runs)
        return -(-free // self._heartbeat.peers)

    def _heed_heartbeat(self) -> None:
        self._runs.cancel(self._heartbeat.take_cancelled())
        self._runs.lose(self._heartbeat.take_lost())
        wanted = self._heartbeat.take_wanted()
        if wanted is None:
            return
        log.info(
            "asked serial=%d load=%s unload=%s drain=%s",
            wanted.serial,
            ",".join(wanted.load) or "-",
            ",".join(wanted.unload) or "-",
            wanted.drain,
        )
        for text in wanted.unload:
            self._service.unload(text)
        self._service.load(wanted.load)
        self._asked = wanted.serial
        if wanted.drain:
            self._heartbeat.done(wanted.serial)
            self._shutdown.drain()

    def _stop(self) -> None:
        self._runs.hand_back()
        if self._lead is not None:
            self._lead.stop()
        self._heartbeat.stop()
        self._watch.close()
        if self._trace is not None:
            self._trace.close()
        try:
            self._catalog.workers.mark_stopped(self.id)
        except MutoscopeError as error:
            log.warning("not marked as stopped: %s", error)
        log.info("stopped worker=%s", self.id)

    def _make_room(self, requests: int) -> None:
        """Let idle weights go if they stand in the way of what requests may take, in bytes."""
        budget = self._device.engine_budget
        excess = 0 if budget is None else self._residency.size + requests - budget
        if excess > 0:
            self._residency.free(excess)

    def _open_trace(self, folder: Path) -> Trace:
        path = folder / f"worker-{self.id}.json"
        log.info("trace=%s", path)
        return Trace(path, str(self._device))

    def _describe(self) -> None:
        """Let the next beat say what is true now; not at every turn, as beats are seconds apart."""
        now = time.monotonic()
        if now - self._described_at >= self._settings.heartbeat_seconds / 2:
            self._described_at = now
            self._heartbeat.describe(self._facts(), self._state)

    def _tell(self) -> None:
        """Something changed that others wait for: say it at once."""
        self._heartbeat.describe(self._facts(), self._state)
        self._heartbeat.hurry()

    def _set_state(self, state: str) -> None:
        """Change what the worker's row says. A catalog that is away learns it from the next heartbeat."""
        self._state = state
        self._heartbeat.describe(self._facts(), state)
        try:
            self._catalog.workers.heartbeat(self.id, self._facts(), state)
        except MutoscopeError as error:
            log.warning("state=%s not written: %s", state, error)

    def _facts(self) -> dict[str, dict[str, Any]]:
        return self._service.facts(complete=self._state != "starting")

    def _info(self) -> WorkerInfo:
        return WorkerInfo(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            device=str(self._device) if self._lead is None else f"{self._lead.size} x {self._device}",
            cards=self._facts(),
            state=self._state,
            memory_bytes=self._device.engine_budget,
        )
