"""Telemetry for the Prefect UI: progress, pictures and a summary of each engine run.

A Prefect artifact costs 10 to 30 ms at the API, which is more than a whole memo hit. So everything here
happens in background tasks, off the critical path; the workflow waits for them once, at its end. Losing
telemetry never fails a run: it is logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from prefect.artifacts import (
    Artifact,
    ImageArtifact,
    MarkdownArtifact,
    ProgressArtifact,
    aupdate_progress_artifact,
)
from prefect.logging import get_logger

from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.submit import Outcome
from mutoscope.platform.refs import ArtifactRef

if TYPE_CHECKING:
    from uuid import UUID

    from prefect.client.orchestration import PrefectClient

    from mutoscope.platform.catalog import RunRecord

_log = get_logger("mutoscope.publish")

_PROGRESS_SECONDS = 0.5
_DRAIN_SECONDS = 10.0


class Publications:
    """Background tasks of one workflow execution. `drain` before the loop or the API client goes away."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

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

    def __init__(self, card: str, client: PrefectClient) -> None:
        self._key = f"{card}-progress"
        self._client = client
        self._latest: RunRecord | None = None
        self._changed = asyncio.Event()
        self._closed = asyncio.Event()

    def observe(self, run: RunRecord) -> None:
        self._latest = run
        self._changed.set()

    def close(self) -> None:
        """The run has ended, well or not: publish its last state and stop."""
        self._closed.set()
        self._changed.set()

    async def publish(self) -> None:
        """Create the artifact at the first news and keep it current until `close`."""
        artifact_id: UUID | None = None
        while True:
            await self._changed.wait()
            self._changed.clear()
            closed = self._closed.is_set()
            if self._latest is not None:
                artifact_id = await self._send(self._latest, artifact_id)
            if closed:
                return
            try:
                await asyncio.wait_for(self._closed.wait(), _PROGRESS_SECONDS)
            except TimeoutError:
                continue

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


async def publish_outcome(runtime: Runtime, outcome: Outcome, client: PrefectClient) -> None:
    """A summary of the run, and a picture of each image or video that it made."""
    card = outcome.run.card
    artifacts: list[Artifact] = [
        MarkdownArtifact(key=f"{card}-run", description=f"Run of {card}", markdown=_summary(runtime, outcome))
    ]
    for slot, ref in outcome.outputs.items():
        url = _picture_url(runtime, ref)
        if url is not None:
            page = runtime.page_url(ref.digest)
            artifacts.append(
                ImageArtifact(key=f"{card}-{slot}", description=f"[{ref}]({page})", image_url=url)
            )
    for artifact in artifacts:
        await artifact.acreate(client=client)


def _picture_url(runtime: Runtime, ref: ArtifactRef) -> str | None:
    url = runtime.bytes_url(ref.digest)
    if url is None or ref.kind not in ("image", "video"):
        return None
    return url if ref.kind == "image" else f"{url}/poster"


def _summary(runtime: Runtime, outcome: Outcome) -> str:
    run = outcome.run
    how = {
        "new": "computed",
        "attached": "shared with an equal run",
        "hit": "from memo, nothing was computed",
    }
    lines = [
        f"### {run.card}: {how[outcome.disposition]}",
        "",
        "| output | artifact | bytes |",
        "| --- | --- | --- |",
    ]
    for slot, ref in outcome.outputs.items():
        page = runtime.page_url(ref.digest)
        shown = f"[{ref}]({page})" if page else f"`{ref}`"
        lines.append(f"| {slot} | {shown} | {ref.size:,} |")
    lines += ["", f"Run `{run.id}`, seed {run.seed}, memo key `{str(run.memo_key)[:12]}`."]
    return "\n".join(lines)
