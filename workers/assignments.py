"""The runs that a worker holds, from claim to report."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from mutoscope.platform import faults
from mutoscope.platform.catalog import Catalog, RunRecord
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.execution import is_out_of_memory
from mutoscope.platform.engine.ticket import Ticket
from mutoscope.platform.errors import CatalogError, GroupLost, StoreUnavailable, TimeLimitExceeded
from mutoscope.workers.device import Device
from mutoscope.workers.executor import Executor, error_record
from mutoscope.workers.heartbeat import Heartbeat
from mutoscope.workers.lookout import Lookout
from mutoscope.workers.progress import ProgressReports
from mutoscope.workers.reports import AWAY, RETRY_S, Reports
from mutoscope.workers.service import Service

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Active:
    """A run in the engine.

    Attributes:
        since: when its time began to count: its weights were there, and it was given to the engine.
        lost: somebody else computes it by now.
        overdue: seconds it had taken when it was stopped for taking too long.
    """

    run: RunRecord
    weights: Mapping[str, str]
    ticket: Ticket
    since: float
    timings: dict[str, float] = field(default_factory=dict)
    lost: bool = False
    overdue: float | None = None


class Assignments:
    """Claimed runs at work in the engine. Used by the worker's main thread."""

    def __init__(
        self,
        catalog: Catalog,
        worker_id: str,
        device: Device,
        engine: Engine,
        service: Service,
        executor: Executor,
        heartbeat: Heartbeat,
        lookout: Lookout,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog = catalog
        self._worker_id = worker_id
        self._device = device
        self._engine = engine
        self._service = service
        self._executor = executor
        self._heartbeat = heartbeat
        self._lookout = lookout
        self._clock = clock
        self._progress = ProgressReports(catalog, worker_id)
        self._reports = Reports(catalog, worker_id)
        self._active: dict[str, _Active] = {}

    def __len__(self) -> int:
        """Runs that take a place: at work, or waiting to be reported."""
        return len(self._active) + len(self._reports)

    @property
    def workflow_runs(self) -> list[str]:
        """Workflow runs that the runs at work belong to."""
        return [a.run.workflow_run_id for a in self._active.values() if a.run.workflow_run_id]

    def take(self, runs: Sequence[RunRecord]) -> None:
        """Bring claimed runs into the engine, or report why that cannot be."""
        for run in runs:
            self._heartbeat.watch(run.id)
        for run in runs:
            faults.hit("worker.after_claim")
            self._begin(run)

    def cancel(self, run_ids: Iterable[str]) -> None:
        """Stop runs that nobody wants any more, at their next step boundary."""
        for run_id in run_ids:
            if run_id in self._active:
                self._active[run_id].ticket.cancel()

    def lose(self, run_ids: Iterable[str]) -> None:
        """Somebody else computes these now: stop at the step boundary and report nothing."""
        for run_id in run_ids:
            if run_id in self._active:
                self._active[run_id].lost = True
        self.cancel(run_ids)

    def stop_overdue(self) -> None:
        """Stop runs whose time is over, at their next step boundary. One whose last step is done is done."""
        now = self._clock()
        for active in self._active.values():
            limit = active.run.time_limit_seconds
            if limit is not None and now - active.since > limit and active.overdue is None:
                active.overdue = now - active.since
                active.ticket.cancel()

    def collect(self) -> None:
        """Report what is done, let go of it, and repeat reports that nobody heard."""
        for active in [active for active in self._active.values() if active.ticket.done]:
            del self._active[active.run.id]
            card = str(active.run.card)
            self._report(active.run, partial(self._conclude, active))
            self._service.residency.release(card, active.weights)
            self._service.running[card] -= 1
            self._service.finished[card] += 1
        self._reports.retry()

    def hand_back(self) -> None:
        """Give up all that is not done, for others to take."""
        for active in self._active.values():
            log.info("handed back run=%s", active.run.id)
            self._report(active.run, partial(self._release, active.run))
        self._active.clear()
        self._reports.retry(at_once=True)
        self._reports.give_up()

    def _begin(self, run: RunRecord) -> None:
        log.info("claimed run=%s card=%s attempt=%d", run.id, run.card, run.attempt)
        assert run.card is not None
        residency = self._service.residency
        held: Mapping[str, str] | None = None
        try:
            started = time.perf_counter()
            inputs, weights = self._catalog.runs.used(run.id)
            request = self._executor.request(run, inputs)
            decoded = time.perf_counter()
            instance = residency.acquire(run.card, weights)
            held = weights
            instance = self._service.calibrations.under(instance, run.contract)
            timings = {"worker.inputs": decoded - started, "worker.load": time.perf_counter() - decoded}
            report = self._progress.of(
                run.id, on_cancel=partial(self.cancel, [run.id]), on_lost=partial(self.lose, [run.id])
            )
            ticket = self._engine.submit(instance, request, report)
        except Exception as error:
            if isinstance(error, GroupLost):
                self._report(run, partial(self._release, run))
                raise
            self._report(run, partial(self._refuse, run, error))
            if held is not None:
                residency.release(run.card, held)
            if isinstance(error, AWAY):
                self._lookout.not_for(RETRY_S)
            return
        self._active[run.id] = _Active(run, held, ticket, self._clock(), timings)
        self._service.running[run.card] += 1

    def _report(self, run: RunRecord, make: Callable[[], None]) -> None:
        def settled() -> None:
            self._heartbeat.unwatch(run.id)
            self._lookout.at_once()

        self._reports.add(run, make, settled)

    def _refuse(self, run: RunRecord, error: Exception) -> None:
        """A run that could not begin. While its inputs or weights cannot be asked for, it is no attempt."""
        if isinstance(error, AWAY):
            log.warning("handed back run=%s: %s", run.id, error)
            self._release(run)
        else:
            self._fail(run, error)

    def _conclude(self, active: _Active) -> None:
        run, ticket = active.run, active.ticket
        if active.lost:
            log.warning("discarded run=%s: its lease belongs to another worker", run.id)
        elif ticket.cancelled and active.overdue is not None:
            self._time_out(active, active.overdue)
        elif ticket.cancelled:
            self._release(run)
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
            outputs = self._executor.deliver(run, result, active.timings, active.ticket.progress)
        except (CatalogError, StoreUnavailable):
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
        self._catalog.runs.fail(run.id, self._worker_id, record, retry=retry)

    def _time_out(self, active: _Active, seconds: float) -> None:
        """Record that the attempt took too long. The next one would too, so there is none."""
        run, at = active.run, active.ticket.progress
        error = TimeLimitExceeded(
            f"time limit of {run.time_limit_seconds:g} s is over after {seconds:.1f} s at {at.stage}, step "
            f"{at.step} of {at.total}: give {run.card} more time or less to do"
        )
        log.error("timed out run=%s card=%s: %s", run.id, run.card, error)
        self._catalog.runs.fail(run.id, self._worker_id, error_record(error), outcome="timed_out")

    def _release(self, run: RunRecord) -> None:
        self._catalog.runs.release(run.id, self._worker_id)
