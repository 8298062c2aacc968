"""Telemetry for the Prefect UI: progress, pictures and a summary of each engine run.

A Prefect artifact costs 10 to 30 ms at the API, which is more than a whole memo hit. So everything here
happens in background tasks, off the critical path; the workflow waits for them once, at its end. Losing
telemetry never fails a run: it is logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prefect.artifacts import (
    Artifact,
    ImageArtifact,
    MarkdownArtifact,
    ProgressArtifact,
    aupdate_progress_artifact,
)
from prefect.logging import get_logger

from mutoscope.platform.orchestration.context import current_workflow
from mutoscope.platform.orchestration.pictures import linked, picture_url
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.submit import Outcome
from mutoscope.platform.reward import told
from mutoscope.platform.wording import markdown_table

if TYPE_CHECKING:
    from uuid import UUID

    from prefect.client.orchestration import PrefectClient

    from mutoscope.platform.catalog import RunRecord

_log = get_logger("mutoscope.publish")

_PROGRESS_SECONDS = 0.5
_DRAIN_SECONDS = 10.0
_MAX_OUTCOMES = 50
"""Runs of one workflow execution whose results are published. The catalog and the gateway show them all."""


_WORTH_A_PAGE_SECONDS = 0.5
"""Runs that are over sooner get no summary of their own: writing it would take longer than they did. The
table of lineage tells of them."""

_MAX_STEPS = 200


@dataclass(frozen=True, slots=True)
class Step:
    """An engine run that ended well, and the workflow that asked for it."""

    workflow: str
    outcome: Outcome


class Publications:
    """Background tasks of one workflow execution. `drain` before the loop or the API client goes away.

    Args:
        workflow: its id.
        outer: those of the execution around it.
    """

    def __init__(self, workflow: str = "", outer: Publications | None = None) -> None:
        self.outer = outer
        self.steps: list[Step] = []
        """What this execution and those inside it have made, in the order in which they ended."""
        self.passed_over = 0
        """Steps too many to be told one by one."""
        self.turn = asyncio.Lock()
        """Held while a publication talks to the API: one at a time, so that they take little from runs."""
        self._workflow = workflow
        self._tasks: set[asyncio.Task[None]] = set()
        self._outcomes = 0

    def note(self, step: Step) -> None:
        """Remember a step for the table of lineage, here and in every execution around this one."""
        if len(self.steps) < _MAX_STEPS:
            self.steps.append(step)
        else:
            self.passed_over += 1
        if self.outer is not None:
            self.outer.note(step)

    def spawn_outcome(self, runtime: Runtime, outcome: Outcome, client: PrefectClient) -> None:
        """Publish a run's result, unless this execution has published enough of them."""
        self.note(Step(self._workflow, outcome))
        self._outcomes += 1
        if self._outcomes <= _MAX_OUTCOMES:
            self.spawn(publish_outcome(runtime, outcome, client, self.turn))

    def spawn(self, publication: Coroutine[Any, Any, None]) -> None:
        """Start a publication; it inherits the Prefect run context of the caller."""
        task = asyncio.create_task(publication)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def drain(self) -> None:
        """Wait until everything is published, within reason."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(set(self._tasks), timeout=_DRAIN_SECONDS)
        for task in late:
            task.cancel()
        if late:
            _log.warning(
                "%d publications did not reach the Prefect API within %g s", len(late), _DRAIN_SECONDS
            )

    def abandon(self) -> None:
        """Give up what is not yet published: the execution was cut short, and its end must not wait."""
        for task in self._tasks:
            task.cancel()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("a publication for the Prefect UI was lost: %s", error)


class ProgressFeed:
    """One run's progress artifact. `observe` costs nothing; the API hears at most twice a second."""

    def __init__(self, card: str, client: PrefectClient, turn: asyncio.Lock) -> None:
        self._key = f"{card}-progress"
        self._client = client
        self._turn = turn
        self._latest: RunRecord | None = None
        self._sent: RunRecord | None = None
        self._closed = asyncio.Event()

    def observe(self, run: RunRecord) -> None:
        self._latest = run

    def close(self) -> None:
        """The run has ended, well or not: its last state is still published, then no more."""
        self._closed.set()

    async def publish(self) -> None:
        """Create the artifact and keep it current until `close`. A run that is over at once gets none."""
        artifact_id: UUID | None = None
        while not await self._closes_within(_PROGRESS_SECONDS):
            artifact_id = await self._send_latest(artifact_id)
        if artifact_id is not None:
            await self._send_latest(artifact_id)

    async def _closes_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._closed.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _send_latest(self, artifact_id: UUID | None) -> UUID | None:
        run = self._latest
        if run is None or run == self._sent:
            return artifact_id
        async with self._turn:
            self._sent = run
            return await self._send(run, artifact_id)

    async def _send(self, run: RunRecord, artifact_id: UUID | None) -> UUID:
        percent, text = describe_progress(run)
        if artifact_id is not None:
            await aupdate_progress_artifact(artifact_id, percent, text, client=self._client)
            return artifact_id
        artifact = ProgressArtifact(key=self._key, description=text, progress=percent)
        return (await artifact.acreate(client=self._client)).id


def describe_progress(run: RunRecord) -> tuple[float, str]:
    """Percent done and a line that says where the run is."""
    where = f"{run.card}: {run.state}"
    if run.state == "running" and run.stage:
        where = f"{run.card}: {run.stage} {run.step}/{run.total}"
    if run.state == "succeeded":
        return 100.0, where
    return (100.0 * (run.step or 0) / run.total if run.total else 0.0), where


async def publish_outcome(
    runtime: Runtime, outcome: Outcome, client: PrefectClient, turn: asyncio.Lock
) -> None:
    """A picture of each image, video or sound that the run made, each score, and a summary if it was computed
    for this and took its time."""
    card = outcome.run.card
    artifacts: list[Artifact] = []
    for slot, ref in outcome.outputs.items():
        url = picture_url(runtime, ref)
        if url is not None:
            page = runtime.page_url(ref.digest)
            artifacts.append(
                ImageArtifact(key=f"{card}-{slot}", description=f"[{ref}]({page})", image_url=url)
            )
        if ref.kind == "reward":
            said = f"**{told(ref.meta)}** {linked(runtime, ref)}"
            artifacts.append(
                MarkdownArtifact(key=f"{card}-{slot}", description=told(ref.meta), markdown=said)
            )
    if outcome.disposition != "hit" and _seconds(outcome.run) >= _WORTH_A_PAGE_SECONDS:
        artifacts.append(
            MarkdownArtifact(
                key=f"{card}-run", description=f"Run of {card}", markdown=_summary(runtime, outcome)
            )
        )
    for artifact in artifacts:
        async with turn:
            await artifact.acreate(client=client)


def _seconds(run: RunRecord) -> float:
    """From the request to the outputs."""
    return (run.finished_at or run.created_at) - run.created_at


def _summary(runtime: Runtime, outcome: Outcome) -> str:
    run = outcome.run
    how = "computed" if outcome.disposition == "new" else "shared with an equal run"
    rows = [(slot, linked(runtime, ref), ref.size) for slot, ref in outcome.outputs.items()]
    lines = [f"### {run.card}: {how}", "", markdown_table(("output", "artifact", "bytes"), rows)]
    workflow = current_workflow.get()
    if workflow is not None:
        address = runtime.store.web_url(workflow.page)
        lines += ["", f"[The whole run on one page]({address}), once it has ended."]
    lines += ["", f"Run `{run.id}`, seed {run.seed}, memo key `{str(run.memo_key)[:12]}`."]
    return "\n".join(lines)
