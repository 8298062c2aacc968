"""One engine run, without Prefect: plan it, enqueue it or attach to an equal one, wait for it.

`engine_run` wraps this as a Prefect task; the command line's replay and plain scripts use it directly. The
catalog is synchronous, so every call goes through a thread: a writer that waits for SQLite's lock must not
stop the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mutoscope.platform.catalog import RunRecord, RunSpec
from mutoscope.platform.catalog.records import Disposition
from mutoscope.platform.engine.request import Profile
from mutoscope.platform.errors import NoWorker, RunCancelled, RunFailed
from mutoscope.platform.orchestration.context import current_workflow, observer
from mutoscope.platform.orchestration.plan import Origin, plan_run
from mutoscope.platform.orchestration.runtime import Runtime, get_runtime
from mutoscope.platform.refs import ArtifactRef

_PATIENCE = 0.02
"""A waiter looks again after this share of its wait so far: at most 2 % of a run is lost to polling."""
_SLOWEST_POLL = 0.5


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
    **given: Any,
) -> Outcome:
    """Run a card at its live weights and wait for the outputs.

    Args:
        seed: drawn when None, and recorded either way.
        given: the card's input slots and parameters.

    Raises:
        NoWorker: nobody serves the card now; the run stays queued.
        RunFailed, RunCancelled: how the run ended.
        InvalidInput: see `plan_run`.
    """
    runtime = get_runtime()
    context = current_workflow.get()
    origin = origin or Origin(workflow_run_id=context.run_id if context else None)
    spec = await asyncio.to_thread(
        plan_run, runtime, card_id, given, seed=seed, profile=profile, origin=origin
    )
    return await submit_spec(runtime, spec, present=runtime.store.contains)


async def submit_spec(runtime: Runtime, spec: RunSpec, *, present: Callable[[str], bool]) -> Outcome:
    """Enqueue a planned run, or attach to an equal one, and wait for its end.

    Args:
        present: whether the bytes of an output exist; a memo hit needs all of them.
    """
    enqueuing = asyncio.ensure_future(asyncio.to_thread(runtime.catalog.runs.enqueue, spec, present=present))
    try:
        enqueued = await asyncio.shield(enqueuing)
    except asyncio.CancelledError:
        # The thread cannot be stopped: let it finish, or nobody would know the run it leaves behind.
        await withdraw(runtime, (await enqueuing).run.id)
        raise
    run = enqueued.run
    if enqueued.disposition == "hit":
        if (watch := observer.get()) is not None:
            watch(run)
    else:
        run = await _wait_or_withdraw(runtime, run)
    outputs = await asyncio.to_thread(runtime.catalog.runs.outputs, run.id)
    return Outcome(run, enqueued.disposition, outputs)


async def withdraw(runtime: Runtime, run_id: str) -> None:
    """One caller no longer waits for the run; with the last of them gone it is cancelled. Once per caller."""
    await asyncio.to_thread(runtime.catalog.runs.request_cancel, run_id)


async def _wait_or_withdraw(runtime: Runtime, run: RunRecord) -> RunRecord:
    context = current_workflow.get()
    waiting = context.waiting if context else []
    waiting.append(run.id)
    try:
        await asyncio.to_thread(_require_worker, runtime, run)
        return await _wait(runtime, run)
    except asyncio.CancelledError:
        # Whoever takes the id off the list withdraws: this task, or the workflow that is cut short around it.
        if run.id in waiting:
            waiting.remove(run.id)
            await asyncio.shield(withdraw(runtime, run.id))
        raise
    finally:
        if run.id in waiting:
            waiting.remove(run.id)


def _require_worker(runtime: Runtime, run: RunRecord) -> None:
    """Raise NoWorker when nobody alive could take the run. Asked once: a worker that dies is replaced."""
    if run.state != "queued" or run.card is None:
        return
    alive = runtime.catalog.workers.alive(run.card, runtime.settings.lease_seconds)
    serving = [worker.cards[run.card] for worker in alive]
    code = [facts for facts in serving if facts.get("card_digest") in (None, run.card_digest)]
    if any(facts.get("contract_digest") == run.contract for facts in code):
        return
    lacking = "has its numeric contract" if code else "has the same code of it"
    reason = lacking if serving else "serves it"
    raise NoWorker(
        f"card {run.card}: no live worker {reason}; start one with `mutoscope up`. "
        f"Run {run.id} stays queued and is taken as soon as one is there"
    )


async def _wait(runtime: Runtime, run: RunRecord) -> RunRecord:
    """Poll until the run ends. Raises RunFailed or RunCancelled with the recorded line."""
    started, watch = time.monotonic(), observer.get()
    shown: RunRecord | None = None
    while True:
        run = await asyncio.to_thread(runtime.catalog.runs.get, run.id)
        if watch is not None and run != shown:
            watch(run)
            shown = run
        if run.finished:
            break
        waited = time.monotonic() - started
        await asyncio.sleep(min(max(runtime.settings.poll_seconds, _PATIENCE * waited), _SLOWEST_POLL))
    if run.state == "cancelled":
        raise RunCancelled(
            f"run {run.id} of {run.card} was cancelled: start the workflow again to run it anew"
        )
    if run.state == "failed":
        error = run.error or {}
        raise RunFailed(
            f"run {run.id} of {run.card} failed: {error.get('message') or 'no error was recorded'}"
        )
    return run
