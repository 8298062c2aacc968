"""One engine run, without Prefect: plan it, enqueue it or attach to an equal one, wait for it.

`engine_run` wraps this as a Prefect task; the command line's replay and plain scripts use it directly. The
catalog is synchronous, so every call goes through a thread: a writer that waits for SQLite's lock must not
stop the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from mutoscope.platform.catalog import RunRecord, RunSpec
from mutoscope.platform.catalog.records import Disposition
from mutoscope.platform.catalog.runs import Present
from mutoscope.platform.engine.request import Profile
from mutoscope.platform.errors import (
    CatalogUnavailable,
    MutoscopeError,
    NonFinite,
    NoWorker,
    RunCancelled,
    RunFailed,
    ScoreTimeout,
    TimeLimitExceeded,
    TrainingDiverged,
)
from mutoscope.platform.orchestration.context import WorkflowContext, current_workflow, observer, told
from mutoscope.platform.orchestration.liveness import holder
from mutoscope.platform.orchestration.patience import Patience
from mutoscope.platform.orchestration.plan import Origin, Queueing, draw_seed, plan_run
from mutoscope.platform.orchestration.runtime import Runtime, get_runtime
from mutoscope.platform.orchestration.selection import Weights
from mutoscope.platform.orchestration.waiting import end_of
from mutoscope.platform.refs import ArtifactRef

_WORKER_POLL_SECONDS = 0.5
_LAST_WORD_SECONDS = 5.0
_log = logging.getLogger("mutoscope.submit")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A succeeded run and how it came about; `hit` means that nothing was computed for this call."""

    run: RunRecord
    disposition: Disposition
    outputs: dict[str, ArtifactRef]


async def submit_run(
    card_id: str,
    *,
    seed: int | None = None,
    profile: Profile = Profile.SERVE,
    origin: Origin | None = None,
    weights: Weights = (),
    priority: int | None = None,
    time_limit: float | None = None,
    **given: Any,
) -> Outcome:
    """Run a card at its live weights and wait for the outputs.

    Args:
        seed: drawn when None, and recorded either way.
        weights: versions to use instead of the live ones, such as {"transformer": "@12"} or "@candidate";
            see `selection`.
        priority: higher is claimed first; that of the workflow around it when None.
        time_limit: seconds that one attempt may take on a worker.
        given: the card's input slots and parameters.

    Raises:
        NoWorker: nobody serves the card, and nobody is expected back; the run stays queued.
        RunFailed, RunCancelled: how the run ended. TimeLimitExceeded: it took too long.
        CatalogUnavailable: the catalog did not answer for longer than it is waited for.
        InvalidInput: see `plan_run`.
    """
    runtime = get_runtime()
    context = current_workflow.get()
    origin = origin or Origin(workflow_run_id=context.run_id if context else None)
    if priority is None:
        priority = context.priority if context else 0
    plan = partial(
        plan_run,
        runtime,
        card_id,
        given,
        seed=seed,
        profile=profile,
        origin=origin,
        weights=weights,
        pins=context.pins if context else {},
        queueing=Queueing(priority, time_limit),
        draw=_drawing(context, card_id, given),
    )
    return await _run(runtime, plan, runtime.store.contains)


async def submit_spec(runtime: Runtime, spec: RunSpec, *, present: Present | None) -> Outcome:
    """Enqueue a planned run, or attach to an equal one, and wait for its end. Raises as `submit_run`.

    Args:
        present: whether the bytes of an output exist; a memo hit needs all of them. None: no hit is wanted.
    """
    return await _run(runtime, lambda: spec, present)


def _drawing(context: WorkflowContext | None, card_id: str, given: Mapping[str, Any]) -> Callable[[], int]:
    """Draws the seed of one request: once, however often it has to be planned."""
    if context is None:
        return cache(draw_seed)
    return cache(partial(context.draw_seed, card_id, given))


async def _run(runtime: Runtime, plan: Callable[[], RunSpec], present: Present | None) -> Outcome:
    patience = Patience(runtime.settings.catalog_patience_seconds)
    admitting = asyncio.ensure_future(patience.ask(_admit, runtime, plan, present))
    try:
        admitted = await asyncio.shield(admitting)
    except asyncio.CancelledError:
        # The thread cannot be stopped: let it finish, or nobody would know the run it leaves behind.
        patience.end()
        with contextlib.suppress(MutoscopeError):
            await _withdraw(runtime, (await admitting).call)
        raise
    if (watch := observer.get()) is not None:
        watch(admitted.run)
    if admitted.disposition == "hit":
        return Outcome(admitted.run, "hit", admitted.outputs)
    try:
        await _until_served(runtime, admitted, patience)
        run, outputs = await _wait(runtime, admitted.run)
    except asyncio.CancelledError:
        if not _goes_on_elsewhere():
            await asyncio.shield(_withdraw(runtime, admitted.call))
        raise
    return Outcome(run, admitted.disposition, outputs)


@dataclass(frozen=True, slots=True)
class _Admitted:
    """What became of a request: a hit with its outputs, or a run to wait for unless `refusal` forbids."""

    run: RunRecord
    disposition: Disposition
    call: int
    outputs: dict[str, ArtifactRef]
    refusal: NoWorker | None


def _admit(runtime: Runtime, plan: Callable[[], RunSpec], present: Present | None) -> _Admitted:
    """Everything up to the wait, in one go: each hop to a thread costs as much as a query."""
    context = current_workflow.get()
    # Of workflows within each other the outermost tells who has them all: a process takes an inner one back
    # before it learns that the outermost is lost.
    held = None if context is None else (context.hold.outermost.run_id, holder())
    enqueued = runtime.catalog.runs.enqueue(plan(), present=present, held=held)
    run, call = enqueued.run, enqueued.call
    if enqueued.disposition == "hit":
        return _Admitted(run, "hit", call, runtime.catalog.runs.outputs(run.id), None)
    return _Admitted(run, enqueued.disposition, call, {}, _refusal(runtime, run))


def _goes_on_elsewhere() -> bool:
    """Whether the wait is cut short because the process is told to end, and the pool will start another: its
    runs go on meanwhile, and the next attempt attaches to them."""
    context = current_workflow.get()
    return context is not None and context.restartable and context.hold.is_ending


async def _withdraw(runtime: Runtime, call: int) -> None:
    """One caller no longer waits for its run; with the last of them gone it is cancelled."""
    # Whoever cancels waits for this. Should the catalog be away for longer, the call is withdrawn with the
    # workflow's others when that is closed.
    with contextlib.suppress(CatalogUnavailable):
        await Patience(_LAST_WORD_SECONDS).ask(runtime.catalog.runs.withdraw, call)


async def _until_served(runtime: Runtime, admitted: _Admitted, patience: Patience) -> None:
    """Wait for a worker that can take the run, if one may be expected.

    A person at a terminal is told at once that nobody serves the card, unless somebody did a moment ago; a
    flow run of the pool, at which nobody looks, waits in any case.

    Raises:
        NoWorker: none came in time.
    """
    refusal, run = admitted.refusal, admitted.run
    if refusal is None:
        return
    context = current_workflow.get()
    seconds = runtime.settings.worker_patience_seconds
    if not (context is not None and context.restartable):
        gone = await patience.ask(_refusal, runtime, run, within=seconds)
        seconds = 0.0 if gone else seconds
    deadline = time.monotonic() + seconds
    if seconds:
        line = f"waiting up to {seconds:g} s for a worker: {refusal}"
        (told.get() or _log.warning)(line)
    while refusal is not None:
        if time.monotonic() >= deadline:
            raise refusal
        await asyncio.sleep(_WORKER_POLL_SECONDS)
        refusal = await patience.ask(_still_refused, runtime, run.id)


def _still_refused(runtime: Runtime, run_id: str) -> NoWorker | None:
    return _refusal(runtime, runtime.catalog.runs.get(run_id))


def _refusal(runtime: Runtime, run: RunRecord, within: float | None = None) -> NoWorker | None:
    """Why nobody alive could take the run, if so. Not asked again once somebody could: a worker that dies
    later is replaced.

    Args:
        within: seconds for which a worker may have been silent and still count; the lease by default.
    """
    if run.state != "queued" or run.card is None:
        return None
    alive = runtime.catalog.workers.alive(run.card, within or runtime.settings.lease_seconds)
    serving = [worker.cards[run.card] for worker in alive]
    code = [facts for facts in serving if facts.get("card_digest") in (None, run.card_digest)]
    if any(_keeps(facts, run) for facts in code):
        return None
    lacking = "has its numeric contract" if code else "has the same code of it"
    reason = lacking if serving else "serves it"
    return NoWorker(
        f"card {run.card}: no live worker {reason}; start one with `mutoscope up`. "
        f"Run {run.id} stays queued and is taken as soon as one is there"
    )


def _keeps(facts: Mapping[str, Any], run: RunRecord) -> bool:
    """Whether a worker keeps the run's contract, or is still finding out which it can keep."""
    kept = facts.get("contract_digest")
    return kept is None or run.contract in (kept, *facts.get("also_kept", ()))


async def _wait(runtime: Runtime, run: RunRecord) -> tuple[RunRecord, dict[str, ArtifactRef]]:
    """Wait until the run ends. Raises RunFailed or RunCancelled with the recorded line."""
    run, outputs = await end_of(runtime.catalog, run)
    if run.state == "cancelled":
        raise RunCancelled(
            f"run {run.id} of {run.card} was cancelled: start the workflow again to run it anew"
        )
    if run.state == "failed":
        error = run.error or {}
        told = (ScoreTimeout, NonFinite, TimeLimitExceeded, TrainingDiverged)
        kinds = {kind.__name__: kind for kind in told}
        raise kinds.get(str(error.get("type")), RunFailed)(
            f"run {run.id} of {run.card} failed: {error.get('message') or 'no error was recorded'}"
        )
    return run, outputs
