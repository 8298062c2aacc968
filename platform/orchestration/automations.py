"""What the Prefect server does by itself: visible there under Automations, and set right at each deployment.

a flow run whose process died            is marked Crashed when its heartbeats have stayed out
a run that a schedule started and that   is put on record as an incident by `maintenance.report_failure`,
failed or crashed                        which tells whoever is to be told
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState, RunDeployment
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification

from mutoscope.platform.orchestration.stack import HEARTBEAT_SECONDS
from mutoscope.platform.orchestration.workflow import TAG

if TYPE_CHECKING:
    from uuid import UUID

    from prefect.client.orchestration import PrefectClient

OURS = "mutoscope: "
"""How the names of our automations begin; others' are left alone."""
HEARTBEAT_AUTOMATION = f"{OURS}flow runs whose process died"
SCHEDULE_AUTOMATION = f"{OURS}scheduled runs that failed"
REPORTER = "maintenance.report_failure"

_SILENCE = timedelta(seconds=3 * HEARTBEAT_SECONDS)
# Whoever has ended has no process to hear from; nor has one that sleeps, or waits for its next attempt.
_SILENT = ("Completed", "Failed", "Cancelled", "Crashed", "Suspended", "AwaitingRetry", "Scheduled")
_ENDINGS = frozenset(f"prefect.flow-run.{state}" for state in _SILENT)
_FLOW_RUNS = ResourceSpecification.model_validate({"prefect.resource.id": ["prefect.flow-run.*"]})


async def ensure_automations(client: PrefectClient, deployed: Mapping[str, UUID]) -> None:
    """Create, change or remove automations so that there are those below, each once.

    Args:
        deployed: ids of deployments by workflow id.
    """
    wanted = {automation.name: automation for automation in _automations(deployed)}
    for found in await client.read_automations():
        if not found.name.startswith(OURS):
            continue
        automation = wanted.pop(found.name, None)
        if automation is None:
            await client.delete_automation(found.id)
        elif _plain(found) != _plain(automation):
            await client.update_automation(found.id, automation)
    for automation in wanted.values():
        await client.create_automation(automation)


def _plain(automation: AutomationCore) -> dict[str, object]:
    core = AutomationCore.model_validate(automation.model_dump(include=set(AutomationCore.model_fields)))
    # Whether it is switched on is for whoever works with the UI to say.
    return core.model_dump(mode="json", exclude={"enabled"})


def _automations(deployed: Mapping[str, UUID]) -> Iterator[AutomationCore]:
    yield AutomationCore(
        name=HEARTBEAT_AUTOMATION,
        description=f"Marks a flow run Crashed when its process has been silent for {_SILENCE.seconds} s.",
        enabled=True,
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.heartbeat", *_ENDINGS},
            match=_FLOW_RUNS,
            # Only ours: others may keep Prefect's own, slower rhythm.
            match_related=_tagged(TAG),
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=_SILENCE,
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED,
                message=f"Its process has sent no heartbeat for {_SILENCE.seconds} s; it has probably died.",
            )
        ],
    )
    if REPORTER in deployed:
        chosen = {"__prefect_kind": "jinja", "template": "{{ flow_run.id }}"}
        yield AutomationCore(
            name=SCHEDULE_AUTOMATION,
            description="Puts failed runs that a schedule started on record: `mutoscope incidents list`.",
            enabled=True,
            trigger=EventTrigger(
                expect={"prefect.flow-run.Failed", "prefect.flow-run.Crashed"},
                match=_FLOW_RUNS,
                match_related=[_tagged(TAG), _tagged("auto-scheduled")],
                posture=Posture.Reactive,
                threshold=1,
                within=timedelta(0),
            ),
            actions=[
                RunDeployment(
                    source="selected", deployment_id=deployed[REPORTER], parameters={"flow_run": chosen}
                )
            ],
        )


def _tagged(tag: str) -> ResourceSpecification:
    return ResourceSpecification.model_validate(
        {"prefect.resource.role": ["tag"], "prefect.resource.id": [f"prefect.tag.{tag}"]}
    )
