"""The worker's main loop: claim, step, deliver.

One thread drives the engine and everything that touches a device. Between two steps it looks up: for runs to
claim, for runs to stop, for tickets that are done, for a request to end. Nothing here blocks for longer than
a step, a load or an upload, and the heartbeat keeps the leases meanwhile.

Every run ends in exactly one report: succeeded, failed, cancelled or handed back. A report that does not get
through is not repeated here: the lease runs out, and whoever claims the run next computes it again.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mutoscope.platform import faults
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog, RunRecord, WorkerInfo
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.batching import Mode
from mutoscope.platform.engine.card import Card
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.execution import is_out_of_memory
from mutoscope.platform.engine.features import FeatureCache
from mutoscope.platform.engine.ticket import Ticket
from mutoscope.platform.engine.trace import Trace
from mutoscope.platform.errors import CatalogError, LeaseLost, MutoscopeError
from mutoscope.platform.ids import new_id
from mutoscope.platform.settings import Settings
from mutoscope.workers.calibrations import Calibrations
from mutoscope.workers.device import Device
from mutoscope.workers.executor import Executor, error_record
from mutoscope.workers.heartbeat import Heartbeat
from mutoscope.workers.lookout import Lookout
from mutoscope.workers.progress import ProgressReports
from mutoscope.workers.rehearsal import rehearse
from mutoscope.workers.residency import Residency
from mutoscope.workers.shutdown import Shutdown
from mutoscope.workers.weight_cache import WeightCache

CATALOG_RETRY_S = 1.0
"""Seconds between attempts to claim while the catalog does not answer."""

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


@dataclass(slots=True)
class _Active:
    """A run in the engine."""

    run: RunRecord
    weights: Mapping[str, str]
    ticket: Ticket
    timings: dict[str, float] = field(default_factory=dict)
    lost: bool = False


class Worker:
    """A worker process's one worker.

    Args:
        cards: the cards it serves; it leaves runs of others alone.
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
    ) -> None:
        self.id = new_id()
        self._settings = settings
        self._catalog = catalog
        self._device = device
        self._limits = limits
        self._shutdown = shutdown or Shutdown()
        faults.arm()
        self._served = [card.id for card in cards]
        self._calibrations = Calibrations(device.contract, Mode(settings.batching), settings.batch_rows)
        self._weighted = [card.id for card in cards if card.components]
        self._card_digests = {card.id: numerics.card_digest(card) for card in cards}
        cache = WeightCache(store, settings.home / "cache" / "weights")
        self._residency = Residency(
            {card.id: card for card in cards}, store, cache, device, self._calibrations.prepare
        )
        self._features = FeatureCache()
        self._trace = None if settings.trace is None else self._open_trace(settings.trace)
        self._engine = Engine(
            node_cache=self._features,
            budget=device.engine_budget,
            make_room=self._make_room,
            trace=self._trace,
        )
        self._executor = Executor(catalog, store, self.id)
        self._progress = ProgressReports(catalog, self.id)
        self._heartbeat = Heartbeat(
            catalog, self.id, interval=settings.heartbeat_seconds, lease_seconds=settings.lease_seconds
        )
        self._active: dict[str, _Active] = {}
        self._state = "starting"
        self._watch = catalog.watch()
        self._lookout = Lookout(self._watch, settings.poll_seconds)
        self._drain_until: float | None = None
        self._idle_since = time.monotonic()

    def run(self) -> None:
        """Serve until asked to end.

        Whatever happens, runs still held are handed back and the worker is marked stopped.
        """
        self._catalog.workers.register(self._info())
        self._heartbeat.start()
        try:
            self._preload()
            self._set_state("ready")
            log.info("ready worker=%s device=%s cards=%s", self.id, self._device, ",".join(self._served))
            while not self._is_over():
                self._tick()
        finally:
            self._stop()

    def _tick(self) -> None:
        """One turn of the loop: at most one step of one run."""
        self._heed_heartbeat()
        if not self._shutdown.draining:
            self._claim()
        worked = self._engine.step()
        if worked:
            faults.hit("worker.step")
        self._collect()
        if self._active:
            self._idle_since = time.monotonic()
        elif not worked:
            time.sleep(self._lookout.interval)

    def _is_over(self) -> bool:
        now = time.monotonic()
        if self._shutdown.draining and self._drain_until is None:
            self._drain_until = now + self._limits.drain_seconds
            self._set_state("draining")
            log.info("draining runs=%d seconds=%.0f", len(self._active), self._limits.drain_seconds)
        if self._drain_until is not None:
            return not self._active or self._shutdown.immediate or now > self._drain_until
        patience = self._limits.idle_exit_seconds
        return patience is not None and not self._active and now - self._idle_since > patience

    def _preload(self) -> None:
        """Load the live weights of every card, so that the first run does not wait for them."""
        for card_id in self._weighted:
            if self._shutdown.draining:
                return
            live = self._catalog.weights.live(card_id)
            if not live:
                log.warning("card=%s has no weights yet", card_id)
                continue
            weights = {component: version.digest for component, version in live.items()}
            try:
                instance = self._residency.acquire(card_id, weights)
            except MutoscopeError as error:
                # A damaged card must not keep the others from being served; its runs fail with the same line.
                log.error("card=%s not loaded: %s", card_id, error)
            else:
                rehearse(self._engine, instance)
                self._residency.release(card_id, weights)

    def _claim(self) -> None:
        free = self._settings.concurrency - len(self._active)
        if not free or not self._lookout.due():
            return
        try:
            runs = self._catalog.runs.claim(
                self.id,
                {card_id: self._calibrations.digest(card_id) for card_id in self._served},
                self._settings.lease_seconds,
                free,
                card_digests=self._card_digests,
                also=self._calibrations.alone(self._served),
                busy=[a.run.workflow_run_id for a in self._active.values() if a.run.workflow_run_id],
            )
        except MutoscopeError as error:
            log.warning("cannot claim, trying again in %.0f s: %s", CATALOG_RETRY_S, error)
            self._lookout.not_for(CATALOG_RETRY_S)
            return
        for run in runs:
            self._heartbeat.watch(run.id)
        for run in runs:
            faults.hit("worker.after_claim")
            self._admit(run)

    def _admit(self, run: RunRecord) -> None:
        """Bring a claimed run into the engine, or report why that cannot be."""
        log.info("claimed run=%s card=%s attempt=%d", run.id, run.card, run.attempt)
        assert run.card is not None
        held: Mapping[str, str] | None = None
        try:
            started = time.perf_counter()
            request = self._executor.request(run)
            weights = self._catalog.runs.weights(run.id)
            decoded = time.perf_counter()
            instance = self._residency.acquire(run.card, weights)
            held = weights
            instance = self._calibrations.under(instance, run.contract)
            timings = {"worker.inputs": decoded - started, "worker.load": time.perf_counter() - decoded}
            report = self._progress.of(
                run.id, on_cancel=partial(self._cancel, run.id), on_lost=partial(self._lose, run.id)
            )
            ticket = self._engine.submit(instance, request, report)
        except Exception as error:
            self._report(run, partial(self._fail, run, error))
            if held is not None:
                self._residency.release(run.card, held)
            return
        self._active[run.id] = _Active(run, held, ticket, timings)
        self._heartbeat.describe(self._cards(), self._state)

    def _heed_heartbeat(self) -> None:
        for run_id in self._heartbeat.take_cancelled():
            self._cancel(run_id)
        for run_id in self._heartbeat.take_lost():
            self._lose(run_id)

    def _cancel(self, run_id: str) -> None:
        active = self._active.get(run_id)
        if active is not None:
            active.ticket.cancel()

    def _lose(self, run_id: str) -> None:
        """Somebody else computes the run now: stop at the step boundary and report nothing."""
        active = self._active.get(run_id)
        if active is not None:
            active.lost = True
            active.ticket.cancel()

    def _collect(self) -> None:
        """Report what is done, and let go of it."""
        for active in [active for active in self._active.values() if active.ticket.done]:
            del self._active[active.run.id]
            self._report(active.run, partial(self._conclude, active))
            self._residency.release(str(active.run.card), active.weights)

    def _report(self, run: RunRecord, report: Callable[[], None]) -> None:
        """Make a run's one report; without it the lease runs out and the run is taken again."""
        try:
            report()
        except LeaseLost as error:
            log.warning("discarded run=%s: %s", run.id, error)
        except Exception:
            log.exception("not reported, left to its lease: run=%s", run.id)
        finally:
            self._heartbeat.unwatch(run.id)
            self._lookout.at_once()

    def _conclude(self, active: _Active) -> None:
        run, ticket = active.run, active.ticket
        if active.lost:
            log.warning("discarded run=%s: its lease belongs to another worker", run.id)
        elif ticket.cancelled:
            self._catalog.runs.release(run.id, self.id)
            log.info("cancelled run=%s step=%d total=%d", run.id, ticket.progress.step, ticket.progress.total)
        elif ticket.error is not None:
            self._fail(run, ticket.error)
        else:
            self._succeed(active)

    def _succeed(self, active: _Active) -> None:
        run = active.run
        try:
            result = active.ticket.result()
            if dict(result.weights) != dict(active.weights):
                raise RuntimeError(f"run {run.id} was served other weights than it pins: nothing is recorded")
            outputs = self._executor.deliver(run, result, active.timings)
        except CatalogError:
            raise
        except Exception as error:
            self._fail(run, error)
            return
        made = " ".join(f"{slot}={ref}" for slot, ref in outputs.items())
        log.info("succeeded run=%s card=%s %s", run.id, run.card, made)

    def _fail(self, run: RunRecord, error: Exception) -> None:
        """Record a failure. The same input would fail again: only trouble on the way to it is retried."""
        record = error_record(error)
        retry = isinstance(error, ConnectionError | TimeoutError | CatalogError)
        log.error("failed run=%s card=%s retry=%s: %s", run.id, run.card, retry, record["message"])
        if is_out_of_memory(error):
            self._device.free_unused()
        self._catalog.runs.fail(run.id, self.id, record, retry=retry)

    def _stop(self) -> None:
        for active in self._active.values():
            log.info("handed back run=%s", active.run.id)
            self._report(active.run, partial(self._release, active))
        self._active.clear()
        self._heartbeat.stop()
        self._watch.close()
        if self._trace is not None:
            self._trace.close()
        try:
            self._catalog.workers.mark_stopped(self.id)
        except MutoscopeError as error:
            log.warning("not marked as stopped: %s", error)
        log.info("stopped worker=%s", self.id)

    def _release(self, active: _Active) -> None:
        self._catalog.runs.release(active.run.id, self.id)

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

    def _set_state(self, state: str) -> None:
        """Change what the worker's row says. A catalog that is away learns it from the next heartbeat."""
        self._state = state
        self._heartbeat.describe(self._cards(), state)
        try:
            self._catalog.workers.heartbeat(self.id, self._cards(), state)
        except MutoscopeError as error:
            log.warning("state=%s not written: %s", state, error)

    def _cards(self) -> dict[str, dict[str, Any]]:
        resident, features = self._residency.weights(), self._features.stats.to_dict()
        return {
            card_id: {
                "card_digest": self._card_digests[card_id],
                **self._contract(card_id),
                "weights": resident.get(card_id, {}),
                "features": features,
            }
            for card_id in self._served
        }

    def _contract(self, card_id: str) -> dict[str, Any]:
        """What runs of a card are planned for; nothing while it is not known, so that none is planned for
        less than will be had in a moment."""
        if self._state == "starting" and not self._calibrations.knows(card_id):
            return {}
        return {
            "contract": self._calibrations.contract(card_id),
            "contract_digest": self._calibrations.digest(card_id),
            "also_kept": [digest for _, digest in self._calibrations.alone([card_id])],
        }

    def _info(self) -> WorkerInfo:
        return WorkerInfo(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            device=str(self._device),
            cards=self._cards(),
            state=self._state,
        )
