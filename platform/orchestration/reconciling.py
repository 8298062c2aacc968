"""One look at what the catalog and Prefect each believe about workflow runs, and what follows from it.

    the catalog says      Prefect says                    then
    running, expired      whatever                        crashed; put back on the pool if it came from there
                                                          and has attempts left, else Prefect is told
    running               cancelling, cancelled           it is to stop, and all it started
    running, suspended    an end of some kind             the same end
    ended                 pending, running, cancelling    Prefect is told, or has it again (crashed)
    nothing               pending, running, for long      its process died early: put back on the pool
    crashed, attempts     crashed                         put back on the pool: whoever found it dead has
    left                                                  not come to it

The catalog decides, Prefect launches and shows. Every step may be repeated, and any number of reconcilers may
take it: of those that find a run expired, the catalog lets one declare it, and a process that is started once
too often finds the run taken.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import Cancelled, Crashed

from mutoscope.platform.catalog.workflow_records import WorkflowRecord, WorkflowState
from mutoscope.platform.errors import UnknownReference, WorkflowCancelled
from mutoscope.platform.orchestration import flow_processes, flow_states
from mutoscope.platform.orchestration.fan_out import for_each
from mutoscope.platform.orchestration.pages import RUN_PAGES
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.workflow import TAG

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient

MISSED_SECONDS = 20.0
"""A flow run that Prefect takes for being at work, whose record nobody has opened after this time and for
which there is no process on the host that took it, has none."""

STALE_SECONDS = 300.0
"""The same where the host cannot be asked. Generous: a process that is slow to start is not started twice for
nothing."""

GRACE_SECONDS = 10.0
"""How long a process that has closed its record may take to tell Prefect itself."""

_MOST = 1000
_AT_ONCE = 8
"""Records that are settled side by side: each is a few requests, and a dead host leaves many."""

_log = logging.getLogger("mutoscope.reconciler")


@dataclass(slots=True)
class Look:
    """One look. What it changed is logged, a line each.

    Attributes:
        client: None while no Prefect server answers: then only what needs no server is done.
        clock: seconds since the epoch.
    """

    runtime: Runtime
    client: PrefectClient | None
    clock: Callable[[], float] = time.time
    changed: list[str] = field(default_factory=list)
    _flow_runs: dict[str, FlowRun] = field(default_factory=dict)
    _here: frozenset[str] | None = None

    async def at_running(self) -> None:
        """What somebody told Prefect to cancel, and what is suspended.

        Raises:
            CatalogUnavailable.
        """
        running = await asyncio.to_thread(self.runtime.catalog.workflows.list, state="running", limit=_MOST)
        if self.client is not None and running:
            known = [record.prefect_flow_run_id for record in running if record.prefect_flow_run_id]
            self._flow_runs = await flow_states.read(self.client, known)
        for record in running:
            await self._heed(record)

    async def at_expired(self) -> None:
        """What has no process any more. Whoever asks knows that the living could renew their leases.

        Raises:
            CatalogUnavailable.
        """
        expired = await asyncio.to_thread(self.runtime.catalog.workflows.expired, _MOST)
        # Outermost first: whether it starts again decides about those inside.
        await for_each([each for each in expired if each.parent_id is None], self._bury, at_most=_AT_ONCE)
        await for_each([each for each in expired if each.parent_id is not None], self._bury, at_most=_AT_ONCE)

    async def at_flow_runs(self) -> None:
        """What Prefect takes for being at work, and is not; and what still has to be put back on the pool.

        Raises:
            CatalogUnavailable.
        """
        if self.client is None:
            return
        open_runs = [flow_run async for flow_run in flow_states.unfinished(self.client, TAG)]
        known = [str(flow_run.id) for flow_run in open_runs]
        records = await asyncio.to_thread(self.runtime.catalog.workflows.of_flow_runs, known)
        for flow_run in open_runs:
            await self._compare(flow_run, records.get(str(flow_run.id)))
        left = await asyncio.to_thread(self.runtime.catalog.workflows.restartable)
        late = [each for each in left if each.prefect_flow_run_id and self._ended_for(each) > GRACE_SECONDS]
        flow_runs = await flow_states.read(self.client, [str(each.prefect_flow_run_id) for each in late])
        for record in late:
            its_own = flow_runs.get(str(record.prefect_flow_run_id))
            if its_own is not None and its_own.state_type == StateType.CRASHED:
                await self._launch(record)

    async def _heed(self, record: WorkflowRecord) -> None:
        """A running row in the light of its flow run."""
        flow_run = self._flow_runs.get(str(record.prefect_flow_run_id))
        if flow_states.is_stopping(flow_run) and not record.cancel_requested:
            await asyncio.to_thread(self.runtime.catalog.workflows.request_cancel, record.id)
            self._say(record, "is to stop: Prefect was told so")
        if record.lease_expires_at is not None:
            return
        # Nobody holds a lease on it: it is suspended, or was opened by something that takes none.
        ended = flow_run is not None and flow_run.state is not None and flow_run.state.is_final()
        suspended = record.holder is not None
        if suspended and record.cancel_requested:
            await self._end(record, "cancelled", _cancelled(record))
        elif ended and flow_run is not None and flow_run.state is not None:
            message = flow_run.state.message or f"its flow run ended as {flow_run.state.name}"
            end: WorkflowState = "crashed"
            if flow_run.state.is_cancelled():
                end = "cancelled"
            elif suspended and flow_run.state.is_failed():
                end = "failed"
            await self._end(record, end, {"type": "ProcessDied", "message": message})

    async def _bury(self, record: WorkflowRecord) -> None:
        """Declare the end of a run whose process is silent, and have it start again if it can."""
        root = await asyncio.to_thread(self._root, record)
        needs_prefect = root.prefect_flow_run_id is not None and root.prefect_deployment is not None
        if needs_prefect and self.client is None:
            return  # nothing is lost by waiting: it could not be started again without a server
        unwanted = (
            record.cancel_requested
            or root.cancel_requested
            or root.state == "cancelled"
            or await self._is_stopping(root)
        )
        error = _cancelled(record) if unwanted else _died(record, root)
        taken = await asyncio.to_thread(
            self.runtime.catalog.workflows.take_expired, record.id, error, cancel=unwanted
        )
        if taken is None:
            return
        self._say(taken, str((taken.error or {}).get("message")))
        RUN_PAGES.add(self.runtime, taken.id)
        if self.client is None or taken.prefect_flow_run_id is None:
            return
        if taken.may_start_again:
            await self._launch(taken)
        else:
            await flow_states.close(self.client, taken.prefect_flow_run_id, flow_states.state_of(taken))

    async def _is_stopping(self, root: WorkflowRecord) -> bool:
        if root.prefect_flow_run_id is None or self.client is None:
            return False
        if root.prefect_flow_run_id not in self._flow_runs:
            self._flow_runs |= await flow_states.read(self.client, [root.prefect_flow_run_id])
        return flow_states.is_stopping(self._flow_runs.get(root.prefect_flow_run_id))

    async def _compare(self, flow_run: FlowRun, record: WorkflowRecord | None) -> None:
        """An open flow run in the light of its row."""
        assert self.client is not None
        key = str(flow_run.id)
        if record is not None and record.state == "running":
            return
        if record is None or record.may_start_again:
            if not await self._is_missed(flow_run):
                return  # its process, the first or the next, is on its way
            if flow_states.is_stopping(flow_run):
                await flow_states.close(self.client, key, Cancelled(message="It had not begun."))
            elif flow_run.deployment_id is not None and self._attempts_left(flow_run):
                line = "Its process ended before it had begun; once more."
                if await flow_states.start_again(self.client, key, line):
                    self._say(record, f"flow run {key} had no process: put back on its pool")
            else:
                await flow_states.close(self.client, key, Crashed(message="Its process has ended."))
            return
        if self._ended_for(record) > GRACE_SECONDS:
            await flow_states.close(self.client, key, flow_states.state_of(record))
            self._say(record, f"Prefect took it for {flow_run.state_name}, it has {record.state}")

    async def _launch(self, record: WorkflowRecord) -> None:
        assert self.client is not None
        if record.prefect_flow_run_id is None:
            return
        line = f"Attempt {record.attempt} of {record.max_attempts} died; once more, from what it made."
        if await flow_states.start_again(self.client, record.prefect_flow_run_id, line):
            self._say(record, f"put back on its pool for attempt {record.attempt + 1}")

    async def _end(self, record: WorkflowRecord, state: WorkflowState, error: Mapping[str, Any]) -> None:
        workflows = self.runtime.catalog.workflows
        await asyncio.to_thread(workflows.abandon, record.id, cancel=state == "cancelled")
        ended = await asyncio.to_thread(workflows.finish, record.id, state, error=error)
        RUN_PAGES.add(self.runtime, record.id)
        self._say(ended, str(error["message"]))
        if self.client is not None and record.prefect_flow_run_id is not None:
            await flow_states.close(self.client, record.prefect_flow_run_id, flow_states.state_of(ended))

    def _root(self, record: WorkflowRecord) -> WorkflowRecord:
        while record.parent_id is not None:
            try:
                record = self.runtime.catalog.workflows.get(record.parent_id)
            except UnknownReference:
                break
        return record

    async def _is_missed(self, flow_run: FlowRun) -> bool:
        silence = self._silent_for(flow_run)
        if silence < MISSED_SECONDS or not flow_processes.taken_here(flow_run):
            return silence >= STALE_SECONDS
        if self._here is None:
            self._here = await asyncio.to_thread(flow_processes.executed_here)
        return str(flow_run.id) not in self._here

    def _attempts_left(self, flow_run: FlowRun) -> bool:
        return flow_run.run_count < self.runtime.settings.workflow_attempts

    def _ended_for(self, record: WorkflowRecord) -> float:
        return self.clock() - (record.finished_at or self.clock())

    def _silent_for(self, flow_run: FlowRun) -> float:
        """Seconds since Prefect heard of it."""
        assert flow_run.state is not None
        return self.clock() - flow_run.state.timestamp.timestamp()

    def _say(self, record: WorkflowRecord | None, what: str) -> None:
        line = f"workflow run {record.id} ({record.workflow}): {what}" if record else what
        self.changed.append(line)
        _log.info(line)


def _died(record: WorkflowRecord, root: WorkflowRecord) -> dict[str, str]:
    line = f"its process {record.holder} went silent in attempt {record.attempt}"
    if record is not root and root.prefect_deployment is not None:
        line += f": what it made is taken up by workflow run {root.id} around it"
    elif root.prefect_deployment is None:
        line += f": start it again with `mutoscope retry {root.id}`, from what it made"
    elif record.attempt >= record.max_attempts:
        line += f", the last of {record.max_attempts}: see why, then `mutoscope retry {record.id}`"
    return {"type": "ProcessDied", "message": line}


def _cancelled(record: WorkflowRecord) -> dict[str, str]:
    line = f"workflow {record.workflow} was cancelled, and its process {record.holder} is gone"
    return {"type": WorkflowCancelled.__name__, "message": line}
