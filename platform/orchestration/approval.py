"""A person's word between two stages.

    pictured = await engine_run("flux-t2i", prompt=prompt)
    await approval("image", pictured["image"], question="Make the video from this picture?")

What was asked and what was decided by whom is in the catalog; a workflow that starts again finds it there.
On the pool the flow run is suspended: its process ends, nothing is held while a person sleeps, and the pool
starts it again once somebody has decided, in the Prefect UI or with `mutoscope approve`; what was made before
is answered from memo. Where nothing could start it again (a terminal, a workflow inside another, one of
several branches) the process waits, and hears only of `mutoscope approve`.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from prefect.artifacts import MarkdownArtifact
from prefect.context import FlowRunContext
from prefect.exceptions import Pause
from prefect.flow_runs import asuspend_flow_run
from prefect.input import RunInput
from prefect.logging import get_run_logger
from pydantic import Field, ValidationError

from mutoscope.platform.durations import spell_duration
from mutoscope.platform.errors import Declined, InvalidWorkflow, RunFailed, ServerUnavailable
from mutoscope.platform.orchestration.context import WorkflowContext, current_workflow
from mutoscope.platform.orchestration.patience import Patience
from mutoscope.platform.orchestration.pictures import thumbnail
from mutoscope.platform.orchestration.runtime import Runtime, get_runtime
from mutoscope.platform.orchestration.server import prefect_client
from mutoscope.platform.refs import ArtifactRef

if TYPE_CHECKING:
    from mutoscope.platform.catalog.approvals import Approval

DAYS = 7
"""How long a question waits where the workflow says nothing; then its run has failed."""

_LOOK_SECONDS = 0.5


class Decision(RunInput):
    """The form that the Prefect UI shows for a suspended run."""

    approved: bool = Field(True, title="Go on", description="Off: the run ends here, and keeps what it made.")
    decided_by: str = Field(
        ..., min_length=1, max_length=100, title="Your name", description="Kept with the decision."
    )
    note: str = Field("", max_length=255, title="Note", description="Why, for those who come after you.")


async def approval(
    name: str, *subjects: ArtifactRef, question: str, within: timedelta = timedelta(days=DAYS)
) -> Approval:
    """Wait until a person has said that the workflow may go on.

    Args:
        name: of the question, lower case; a workflow asks each of its questions under a name of its own.
        subjects: what is to be looked at.
        within: how long the question waits.

    Raises:
        InvalidWorkflow: called outside a workflow.
        Declined: somebody said no.
    """
    context = current_workflow.get()
    if context is None:
        raise InvalidWorkflow(f"approval {name!r} is asked outside a workflow: ask from inside one")
    runtime = get_runtime()
    patience = Patience(runtime.settings.catalog_patience_seconds)
    digests = [ref.digest for ref in subjects]
    asked = await patience.ask(runtime.catalog.approvals.ask, context.run_id, name, question, digests)
    if asked.approved is None:
        get_run_logger().info("%s `mutoscope approve %s --yes` or --no answers", question, context.run_id)
        # Whoever is to decide sees the pictures.
        await context.publications.drain()
        if _can_be_suspended(context):
            asked = await _suspended(runtime, context, asked, subjects, within)
        else:
            asked = await _decided(runtime, asked, within)
        context.publications.spawn(_publish(asked))
    if not asked.approved:
        raise Declined(_told(asked))
    return asked


async def resume(flow_run_id: str, decided: Approval) -> bool:
    """Have the pool go on with a suspended flow run. False where it was not suspended (any more).

    Raises:
        ServerUnavailable: the decision stands, and repeating the command passes it on.
    """
    given = {"approved": decided.approved, "decided_by": decided.decided_by, "note": decided.note or ""}
    async with prefect_client() as client:
        state = (await client.read_flow_run(UUID(flow_run_id))).state
        if state is None or not state.is_paused():
            return False
        result = await client.resume_flow_run(UUID(flow_run_id), run_input=given)
    return str(result.status.value) == "ACCEPT"


def _can_be_suspended(context: WorkflowContext) -> bool:
    return context.restartable and len(context.chain) == 1 and context.hold.is_in_line


async def _suspended(
    runtime: Runtime,
    context: WorkflowContext,
    asked: Approval,
    subjects: tuple[ArtifactRef, ...],
    within: timedelta,
) -> Approval:
    """Suspend the flow run; the process that it is resumed in gets past this and returns the decision."""
    form = Decision.with_initial_data(description=_described(runtime, asked, subjects))
    flow_run = FlowRunContext.get()
    executions = flow_run.flow_run.run_count if flow_run and flow_run.flow_run else 1
    patience = Patience(runtime.settings.catalog_patience_seconds)
    for number in range(1, executions + 1):
        try:
            given = await asuspend_flow_run(
                wait_for_input=form,
                timeout=int(within.total_seconds()),
                key=f"approval-{asked.name}-{number}",
            )
        except Pause:
            await _resume_if_decided(runtime, context, asked)
            raise
        except ValidationError:
            # It slept on this key and was started again without an answer, by whoever retried it.
            continue
        said = (given.approved, given.decided_by.strip(), given.note.strip() or None)
        return await patience.ask(runtime.catalog.approvals.decide, context.run_id, asked.name, *said)
    raise RunFailed(f"{asked.name!r} was not answered before the run went on: start the workflow again")


async def _resume_if_decided(runtime: Runtime, context: WorkflowContext, asked: Approval) -> None:
    """Somebody who decided between the question and the suspension found nothing to resume."""
    now = await asyncio.to_thread(runtime.catalog.approvals.get, context.run_id, asked.name)
    flow_run = FlowRunContext.get()
    if (
        now is not None
        and now.approved is not None
        and flow_run is not None
        and flow_run.flow_run is not None
    ):
        try:
            await resume(str(flow_run.flow_run.id), now)
        except ServerUnavailable as error:
            get_run_logger().warning("decided, but not resumed: %s", error)


async def _decided(runtime: Runtime, asked: Approval, within: timedelta) -> Approval:
    """Look until somebody has decided. Raises RunFailed when nobody has in time."""
    patience = Patience(runtime.settings.catalog_patience_seconds)
    try:
        async with asyncio.timeout(within.total_seconds()):
            while True:
                get = runtime.catalog.approvals.get
                found = await patience.ask(get, asked.workflow_run_id, asked.name)
                if found is not None and found.approved is not None:
                    return found
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        waited = spell_duration(within.total_seconds())
        raise RunFailed(
            f"nobody decided on {asked.name!r} within {waited}: start the workflow again to ask once more"
        ) from None


def _described(runtime: Runtime, asked: Approval, subjects: tuple[ArtifactRef, ...]) -> str:
    pictures = [thumbnail(runtime, ref) for ref in subjects]
    command = f"`mutoscope approve {asked.workflow_run_id} --yes`"
    return "\n\n".join([f"**{asked.question}**", *pictures, f"Here, or with {command} or `--no`."])


def _told(decided: Approval) -> str:
    verdict = "approved" if decided.approved else "declined"
    note = f": {decided.note}" if decided.note else ""
    return f"{decided.name} was {verdict} by {decided.decided_by}{note}"


async def _publish(decided: Approval) -> None:
    told = _told(decided)
    await MarkdownArtifact(
        key=f"approval-{decided.name}", description=told, markdown=f"{decided.question}\n\n**{told}**"
    ).acreate()
