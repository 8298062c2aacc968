"""One execution of a workflow, from its row in the catalog to that row's end.

The row is opened with a lease (see `liveness`), under the workflow that called it, and closed with outputs or
error. A flow run of the pool may be executed more than once: its process died, or was told to end. Then the
same row is opened again as the next attempt, with the seed that was drawn first; what succeeded before is
answered from memo.

How it can end:

    by itself        succeeded or failed
    stopped          cancelled by somebody; overdue: failed; lost to another process: nothing is recorded
    cut short        whoever waits for it was cancelled. On the pool that is a process told to end: the run is
                     handed back, and the reconciler starts it again or, if Prefect was told to cancel it,
                     closes it. Elsewhere there is nobody to start it again: cancelled
    suspended        the row stays open without a lease, for the process that resumes it
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.exceptions import Abort, Pause, TerminationSignal
from prefect.logging import get_run_logger

from mutoscope.platform.catalog.workflows import WorkflowState
from mutoscope.platform.custody.pages_path import INDEX, run_folder
from mutoscope.platform.errors import (
    CatalogUnavailable,
    Declined,
    LeaseLost,
    NoWorker,
    TimeLimitExceeded,
    WorkflowCancelled,
)
from mutoscope.platform.orchestration.context import WorkflowContext, current_workflow, opened
from mutoscope.platform.orchestration.kinds import plain, resolved
from mutoscope.platform.orchestration.labels import flow_run_label
from mutoscope.platform.orchestration.launch_tags import priority_of, retried
from mutoscope.platform.orchestration.liveness import LIVENESS, Hold, Stopped, holder
from mutoscope.platform.orchestration.pages import RUN_PAGES
from mutoscope.platform.orchestration.patience import Patience
from mutoscope.platform.orchestration.plan import draw_seed
from mutoscope.platform.orchestration.publish import Publications
from mutoscope.platform.orchestration.registry import Registry, Workflow
from mutoscope.platform.orchestration.results import publish_end, rename
from mutoscope.platform.orchestration.runtime import Runtime, get_runtime
from mutoscope.platform.orchestration.selection import Pins, from_tags, pins_of
from mutoscope.platform.orchestration.values import keep_values
from mutoscope.platform.refs import ArtifactRef

R = TypeVar("R")

_LAST_WORD_SECONDS = 10.0
"""How long an execution that was cut short waits for the catalog: whoever cut it short waits too. What it
cannot say is found out when its lease has run out."""


async def execute(
    declared: Workflow,
    registry: Registry,
    fn: Callable[..., Coroutine[Any, Any, R]],
    given: Mapping[str, Any],
) -> R:
    """Execute a workflow in the flow run under way.

    Raises:
        InvalidInput: requirements or parameters do not hold; nothing was recorded.
        InvalidWorkflow: the result is not what the workflow declares.
        WorkflowCancelled, TimeLimitExceeded: it was stopped.
        CatalogUnavailable: the catalog did not answer for longer than it is waited for.
        Abort: the flow run is executed by another process.
    """
    parent = current_workflow.get()
    registry.check_requirements(declared)
    if parent is not None:
        parent.enter(declared.id)
    values = declared.validate(given)
    runtime = get_runtime()
    execution = await _open(runtime, declared, registry, values, parent)
    context = execution.context
    announce = opened.get()
    if announce is not None and parent is None:
        announce(context.run_id)
    token = current_workflow.set(context)
    try:
        with LIVENESS.keeping(runtime, context.hold):
            result = await context.hold.run(fn(**values), seconds=declared.time_limit)
            await execution.succeeded(result)
    except Pause:
        await asyncio.shield(asyncio.to_thread(runtime.catalog.workflows.park, context.run_id))
        raise
    except BaseException as error:
        raise await asyncio.shield(execution.ended_by(error)) from error
    finally:
        current_workflow.reset(token)
    await context.publications.drain()
    return result


async def _open(
    runtime: Runtime,
    declared: Workflow,
    registry: Registry,
    values: dict[str, Any],
    parent: WorkflowContext | None,
) -> _Execution:
    """Open the row, or that of an earlier attempt, and complete `values` with the seed.

    Raises:
        Abort: another process executes this flow run.
    """
    patience = Patience(runtime.settings.catalog_patience_seconds)
    values |= await patience.ask(_references, runtime, declared, values)
    drawn = "seed" in values and values["seed"] is None
    if drawn:
        values["seed"] = parent.draw_seed(declared.id, values) if parent else draw_seed()
    flow_run = _flow_run()
    flow_tags = flow_run.tags if flow_run else ()
    pins = parent.pins if parent else await patience.ask(_pins, runtime, registry, declared, flow_tags)
    deployment = str(flow_run.deployment_id) if flow_run and flow_run.deployment_id else None
    recorded = {name: plain(value) for name, value in values.items()}
    try:
        run_id = await patience.ask(
            runtime.catalog.workflows.start,
            declared.id,
            recorded,
            parent.run_id if parent else None,
            str(flow_run.id) if flow_run else None,
            holder=holder(),
            lease_seconds=runtime.settings.lease_seconds,
            max_attempts=runtime.settings.workflow_attempts if deployment else 1,
            time_limit_seconds=declared.time_limit,
            prefect_deployment=deployment,
        )
    except LeaseLost as error:
        raise Abort(str(error)) from error
    if drawn and parent is None and flow_run is not None:
        # Drawn by the first execution, and recorded: an approved picture would be another with a new one.
        # Prefect's count of executions leaves out those that go on after a pause.
        values["seed"] = (await patience.ask(runtime.catalog.workflows.get, run_id)).parameters["seed"]
    if drawn:
        get_run_logger().info("seed %d drawn", values["seed"])
    context = WorkflowContext(
        run_id=run_id,
        chain=(*(parent.chain if parent else ()), declared.id),
        allowed=frozenset(declared.requires),
        page=f"{run_folder(run_id, declared.id, recorded)}/{INDEX}",
        publications=Publications(declared.id, parent.publications if parent else None),
        registry=registry,
        hold=Hold(run_id, parent.hold if parent else None),
        origin=parent.draw(declared.id, values) if parent else retried(flow_tags) or run_id,
        pins=pins,
        priority=parent.priority if parent else priority_of(flow_tags),
        restartable=parent.restartable if parent else deployment is not None,
    )
    if drawn and flow_run is not None:
        label = flow_run_label(declared.name, {**recorded, "seed": values["seed"]})
        context.publications.spawn(rename(flow_run.id, label))
    return _Execution(runtime, declared, context)


@dataclass(frozen=True, slots=True)
class _Execution:
    """An execution whose row is open, and the ways to close it."""

    runtime: Runtime
    declared: Workflow
    context: WorkflowContext

    async def succeeded(self, result: Any) -> None:
        """Record what the workflow returned.

        Raises:
            InvalidWorkflow: it is not what the workflow declares.
            CatalogUnavailable; LeaseLost: the run was taken over.
        """
        patience = Patience(self.runtime.settings.catalog_patience_seconds)
        outputs = await patience.ask(self._kept, result)
        await self._close("succeeded", outputs=outputs)

    def _kept(self, result: Any) -> dict[str, ArtifactRef]:
        produced = self.declared.outputs.of(self.declared.id, result)
        return {**produced.artifacts, **keep_values(self.runtime, self.context, produced.values)}

    async def ended_by(self, error: BaseException) -> BaseException:
        """Close the row after an execution that did not succeed. Returns what its caller is to see."""
        seen = await self._seen(error)
        if isinstance(error, Exception):
            await self.context.publications.drain()
        else:
            self.context.publications.abandon()
        return seen

    async def _seen(self, error: BaseException) -> BaseException:
        match error:
            case Stopped(reason="lost") | LeaseLost():
                return self._lost()
            case Stopped(reason="cancelled"):
                return await self._cancelled()
            case Declined():
                return await self._failed(error, state="cancelled")
            case Stopped(reason="unreachable"):
                seconds = self.runtime.settings.catalog_patience_seconds
                return CatalogUnavailable(
                    f"the catalog {self.runtime.catalog.url} has not answered for {seconds:g} s: check the "
                    f"database; then `mutoscope retry {self.context.run_id}` goes on with what was made"
                )
            case Stopped():
                limit = f"{self.declared.time_limit:g} s"
                overdue = TimeLimitExceeded(
                    f"workflow {self.declared.name} took longer than its time limit of {limit}: give it more "
                    "time, or less to do; what its runs made is kept"
                )
                return await self._failed(overdue, withdraw=True)
            case Exception():
                if await self._asked(self._is_unwanted):
                    # Its runs were cancelled under it before the process heard why.
                    return await self._cancelled()
                return await self._failed(error)
        ending = isinstance(error, TerminationSignal) or self.context.hold.is_ending
        if self.context.restartable and ending:
            await self._asked(self.runtime.catalog.workflows.hand_back, self.context.run_id, holder())
        else:
            await self._cancelled()
        return error

    async def _failed(
        self, error: Exception, *, withdraw: bool = False, state: WorkflowState = "failed"
    ) -> BaseException:
        if withdraw:
            await self._withdraw()
        elif not isinstance(error, NoWorker):  # which says that the run stays queued
            # Nobody will await the rest of what it began side by side.
            await self._asked(
                partial(self.runtime.catalog.workflows.abandon, cancel=True), self.context.run_id
            )
        record = {"type": type(error).__name__, "message": str(error) or type(error).__name__}
        try:
            await self._close(state, error=record)
        except LeaseLost:
            return self._lost()
        except CatalogUnavailable:
            pass  # what happened is worth more to the caller; the row is closed when its lease has run out
        return error

    async def _cancelled(self) -> BaseException:
        cancelled = WorkflowCancelled(
            f"workflow {self.declared.name} was cancelled: what its runs made is kept; start it again with "
            f"`mutoscope retry {self.context.run_id}`"
        )
        await self._withdraw()
        record = {"type": type(cancelled).__name__, "message": str(cancelled)}
        with contextlib.suppress(LeaseLost, CatalogUnavailable):
            await self._close("cancelled", error=record, patience=Patience(_LAST_WORD_SECONDS))
        return cancelled

    def _lost(self) -> BaseException:
        line = f"workflow run {self.context.run_id} is executed by another process now: this one stops"
        # For Prefect, this execution of the flow run never was. A call in a program has nothing to leave it
        # to.
        return Abort(line) if self.context.restartable else LeaseLost(line)

    async def _close(
        self,
        state: WorkflowState,
        *,
        outputs: Mapping[str, ArtifactRef] | None = None,
        error: Mapping[str, Any] | None = None,
        patience: Patience | None = None,
    ) -> None:
        patience = patience or Patience(self.runtime.settings.catalog_patience_seconds)
        finish, run_id = self.runtime.catalog.workflows.finish, self.context.run_id
        await patience.ask(finish, run_id, state, outputs=outputs, error=error, holder=holder())
        RUN_PAGES.add(self.runtime, run_id)
        self.context.publications.spawn(publish_end(self.runtime, self.context, outputs))

    async def _withdraw(self) -> None:
        """What it waits for is wanted no more, unless somebody else waits too."""
        await self._asked(self.runtime.catalog.workflows.request_cancel, self.context.run_id)

    def _is_unwanted(self) -> bool:
        return self.runtime.catalog.workflows.get(self.context.run_id).cancel_requested

    async def _asked(self, question: Callable[..., Any], *args: Any) -> Any:
        """Ask the catalog; None if it does not answer soon."""
        with contextlib.suppress(CatalogUnavailable):
            return await Patience(_LAST_WORD_SECONDS).ask(question, *args)


def _flow_run() -> FlowRun | None:
    context = FlowRunContext.get()
    return context.flow_run if context and isinstance(context.flow_run, FlowRun) else None


def _pins(runtime: Runtime, registry: Registry, declared: Workflow, flow_tags: Any) -> Pins:
    """The weights that the flow run was started with, which its tags say."""
    return pins_of(runtime.catalog, from_tags(flow_tags), registry.cards_of(declared))


def _references(runtime: Runtime, declared: Workflow, values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that the function takes as references, texts looked up."""
    kinds = declared.artifact_parameters
    return {
        name: resolved(runtime.catalog, name, value, kinds[name])
        for name, value in values.items()
        if name in kinds
    }
