"""What follows when the catalog and Prefect believe different things about a workflow run."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import State
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling, Completed, Crashed, Failed, Pending, Running

from mutoscope.platform.catalog import RunRecord, WorkflowRecord
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.plan import Origin, plan_run
from mutoscope.platform.orchestration.reconciler import Reconciler
from mutoscope.platform.orchestration.reconciling import (
    GRACE_SECONDS,
    MISSED_SECONDS,
    STALE_SECONDS,
    Look,
)
from mutoscope.platform.orchestration.registry import Registry
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.workflow import TAG, workflow
from mutoscope.platform.refs import ArtifactRef

pytestmark = pytest.mark.usefixtures("prefect_server")

EXPIRED, LONG = -1.0, 3600.0
HOLDER = "gpu-1:4211"
REGISTRY = Registry()


@workflow("test.mended", requires=["tiny-test"], registry=REGISTRY)
async def mended(seed: int = 7) -> dict[str, ArtifactRef]:
    return await engine_run("tiny-test", seed=seed)


class Installation:
    """Rows and flow runs as processes that are gone have left them."""

    def __init__(self, runtime: Runtime, client: PrefectClient, deployment: UUID) -> None:
        self.runtime, self.client, self.deployment = runtime, client, deployment

    async def flow_run(self, state: State, *, pooled: bool = True) -> str:
        if not pooled:
            made = await self.client.create_flow_run(mended, state=state, tags=[TAG])
            return str(made.id)
        flow_run = await self.client.create_flow_run_from_deployment(self.deployment)
        await self.client.set_flow_run_state(flow_run.id, state, force=True)
        return str(flow_run.id)

    def row(
        self, flow_run: str | None, *, lease: float = EXPIRED, pooled: bool = True, most: int = 3,
        parent: str | None = None,
    ) -> str:  # fmt: skip
        return self.runtime.catalog.workflows.start(
            "test.mended", {"seed": 7}, parent, flow_run, holder=HOLDER, lease_seconds=lease,
            max_attempts=most, prefect_deployment=str(self.deployment) if pooled else None,
        )  # fmt: skip

    def asked(self, row: str) -> RunRecord:
        """A run that the row's workflow waits for."""
        spec = plan_run(self.runtime, "tiny-test", {}, seed=5, origin=Origin(row))
        return self.runtime.catalog.runs.enqueue(spec, present=None).run

    async def look(self, *, later: float = 0.0, server: bool = True) -> list[str]:
        look = Look(self.runtime, self.client if server else None, clock=lambda: time.time() + later)
        await look.at_running()
        await look.at_expired()
        await look.at_flow_runs()
        return look.changed

    def now(self, row: str) -> WorkflowRecord:
        return self.runtime.catalog.workflows.get(row)

    async def shown(self, flow_run: str) -> str:
        state = (await self.client.read_flow_run(UUID(flow_run))).state
        assert state is not None
        return str(state.name)


@contextmanager
def process_of(flow_run: str) -> Iterator[None]:
    """A process that was started for a flow run and has not come to anything yet."""
    environment = {**os.environ, "PREFECT__FLOW_RUN_ID": flow_run}
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as waiting:
        yield
        waiting.communicate(b"\n")


@pytest.fixture
async def installation(runtime: Runtime) -> AsyncIterator[Installation]:
    async with get_client() as client:
        flow_id = await client.create_flow_from_name(mended.name)
        deployment = await client.create_deployment(flow_id=flow_id, name="mended", tags=[TAG])
        yield Installation(runtime, client, deployment)
        await client.delete_deployment(deployment)


async def test_a_dead_flow_of_the_pool_is_put_back_and_its_runs_go_on(installation: Installation) -> None:
    flow_run = await installation.flow_run(Running())
    row = installation.row(flow_run)
    run = installation.asked(row)
    await installation.look()
    ended = installation.now(row)
    assert (ended.state, ended.may_start_again) == ("crashed", True)
    assert ended.error == {
        "type": "ProcessDied", "message": f"its process {HOLDER} went silent in attempt 1"
    }  # fmt: skip
    assert await installation.shown(flow_run) == "AwaitingRetry"
    left = installation.runtime.catalog.runs.get(run.id)
    assert (left.state, left.waiters, left.cancel_requested) == ("queued", 0, False)
    assert await installation.look(later=STALE_SECONDS) == [], "once is enough"


async def test_a_flow_that_keeps_dying_is_given_up_with_its_last_line(installation: Installation) -> None:
    flow_run = await installation.flow_run(Running())
    row = installation.row(flow_run, most=1)
    await installation.look()
    ended = installation.now(row)
    assert (ended.state, ended.may_start_again) == ("crashed", False)
    assert ended.error is not None
    assert "in attempt 1, the last of 1: see why, then `mutoscope retry" in ended.error["message"]
    assert await installation.shown(flow_run) == "Crashed"


async def test_a_dead_flow_of_a_terminal_is_told_how_to_go_on(installation: Installation) -> None:
    flow_run = await installation.flow_run(Running(), pooled=False)
    row = installation.row(flow_run, pooled=False)
    await installation.look()
    ended = installation.now(row)
    assert ended.state == "crashed"
    assert f"`mutoscope retry {row}`" in (ended.error or {})["message"]
    assert await installation.shown(flow_run) == "Crashed"


async def test_cancelling_in_the_ui_reaches_everything_below(installation: Installation) -> None:
    flow_run = await installation.flow_run(Cancelling())
    row = installation.row(flow_run, lease=LONG)
    inner = installation.row(None, lease=LONG, pooled=False, parent=row)
    run = installation.asked(inner)
    await installation.look()
    assert installation.now(row).cancel_requested
    assert installation.now(inner).cancel_requested
    assert installation.runtime.catalog.runs.get(run.id).state == "cancelled"
    assert installation.now(row).state == "running", "its process has the last word while it lives"


async def test_what_was_cancelled_and_has_no_process_any_more_ends_so(installation: Installation) -> None:
    flow_run = await installation.flow_run(Cancelling())
    row = installation.row(flow_run)
    inner = installation.row(None, pooled=False, parent=row)
    run = installation.asked(inner)
    await installation.look()
    assert [installation.now(each).state for each in (row, inner)] == ["cancelled", "cancelled"]
    assert installation.runtime.catalog.runs.get(run.id).state == "cancelled"
    assert await installation.shown(flow_run) == "Cancelled"


@pytest.mark.parametrize(
    ("state", "shown"), [("succeeded", "Completed"), ("failed", "Failed"), ("cancelled", "Cancelled")]
)
async def test_prefect_follows_what_has_ended(installation: Installation, state: str, shown: str) -> None:
    flow_run = await installation.flow_run(Running())
    row = installation.row(flow_run, lease=LONG)
    installation.runtime.catalog.workflows.finish(row, state, error={"message": "why"})
    await installation.look()
    assert await installation.shown(flow_run) == "Running", "its process may be about to say so itself"
    await installation.look(later=2 * GRACE_SECONDS)
    assert await installation.shown(flow_run) == shown


async def test_a_process_that_never_began_is_started_once_more(installation: Installation) -> None:
    flow_run = await installation.flow_run(Pending())
    await installation.look(later=2 * MISSED_SECONDS)
    assert await installation.shown(flow_run) == "Pending", "its host may be slow, and cannot be asked"
    await installation.look(later=2 * STALE_SECONDS)
    assert await installation.shown(flow_run) == "AwaitingRetry"


async def test_on_its_own_host_a_slow_process_is_told_from_one_that_is_gone(
    installation: Installation,
) -> None:
    slow, gone = [await installation.flow_run(Pending()) for _ in range(2)]
    for flow_run in (slow, gone):
        labels = {"prefect.worker.name": f"{socket.gethostname()}-17"}
        await installation.client.update_flow_run_labels(UUID(flow_run), labels)
    with process_of(slow):
        await installation.look(later=2 * MISSED_SECONDS)
    assert [await installation.shown(each) for each in (slow, gone)] == ["Pending", "AwaitingRetry"]


async def test_what_a_reconciler_that_died_left_half_done_is_finished(installation: Installation) -> None:
    flow_run = await installation.flow_run(Crashed())
    row = installation.row(flow_run)
    taken = installation.runtime.catalog.workflows.take_expired(row, {"message": "silent"})
    assert taken is not None
    await installation.look()
    assert await installation.shown(flow_run) == "Crashed", "whoever took it may be about to do it"
    await installation.look(later=2 * GRACE_SECONDS)
    assert await installation.shown(flow_run) == "AwaitingRetry"


@pytest.mark.parametrize(
    ("end", "state"), [(Failed(message="nobody decided"), "failed"), (Completed(), "crashed")]
)
async def test_a_suspended_run_ends_as_its_flow_run(
    installation: Installation, end: State, state: str
) -> None:
    flow_run = await installation.flow_run(Running())
    row = installation.row(flow_run)
    installation.runtime.catalog.workflows.park(row)
    await installation.look(later=10 * STALE_SECONDS)
    assert installation.now(row).state == "running"
    await installation.client.set_flow_run_state(UUID(flow_run), end, force=True)
    await installation.look()
    assert installation.now(row).state == state


async def test_without_a_server_only_what_needs_none_is_done(installation: Installation) -> None:
    pooled = installation.row(await installation.flow_run(Running()))
    here = installation.row(None, pooled=False)
    await installation.look(server=False)
    assert [installation.now(row).state for row in (pooled, here)] == ["running", "crashed"]


async def test_the_service_outlives_a_server_that_is_away_and_trusts_no_lease_at_first(
    installation: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mutoscope.reconciler")
    row = installation.row(None, pooled=False)
    service = Reconciler(installation.runtime)
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:1/api"}):
        assert await service.look() == []
        assert await service.look() == []
    assert installation.now(row).state == "running", "its holder may still be about to renew"
    said = [record.getMessage() for record in caplog.records if record.name == "mutoscope.reconciler"]
    assert len([line for line in said if "the Prefect server does not answer" in line]) == 1
    await service.look()
    assert "the Prefect server answers again" in caplog.messages
