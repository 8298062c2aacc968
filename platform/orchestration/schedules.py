"""The schedules of deployed workflows, at the Prefect server.

Those declared in code or settings carry the prefix ``declared-`` and follow the declaration at each
deployment; what an operator paused stays paused. Those that people add, here or in the Prefect UI, are
theirs: a deployment leaves them alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags
from prefect.exceptions import ObjectNotFound

from mutoscope.platform.durations import spell_duration
from mutoscope.platform.errors import InvalidParameter, ServerUnavailable, UnknownReference
from mutoscope.platform.orchestration import signature
from mutoscope.platform.orchestration.registry import Registry, Workflow, discover
from mutoscope.platform.orchestration.schedule import Schedule, next_date
from mutoscope.platform.orchestration.server import prefect_client
from mutoscope.platform.orchestration.workflow import TAG

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient
    from prefect.client.schemas.objects import DeploymentSchedule
    from prefect.client.schemas.responses import DeploymentResponse

_DECLARED = "declared-"


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule at the server.

        Attributes:
            name: what it is called; one made in the Prefect UI goes by the start of its id.
            origin: ``declared`` in code or settings, ``added`` by a person.
            when: for people: ``0 3 * * * UTC``.
    XX
    """

    workflow: str
    name: str
    origin: str
    when: str
    parameters: Mapping[str, Any]
    active: bool
    next_start: datetime | None


async def add(workflow: str, schedule: Schedule) -> Planned:
    """Give a deployed workflow a schedule.

    Raises:
        UnknownWorkflow, ServerUnavailable: no such workflow, or it is not deployed.
        InvalidParameter: parameters that the workflow would refuse each time, a date that never comes, or a
            name that is taken.
    """
    declared = discover().get(workflow)
    check(declared, schedule)
    upcoming = await schedule.next_start()
    async with _deployment(declared) as (client, deployment):
        taken = {one.slug for one in deployment.schedules}
        if schedule.name in taken or f"{_DECLARED}{schedule.name}" in taken:
            remedy = f"choose another, or first `mutoscope schedule rm {declared.name} {schedule.name}`"
            raise InvalidParameter("name", schedule.name, f"{declared.name} has one of that name: {remedy}")
        await client.create_deployment_schedules(deployment.id, [_request(schedule, schedule.name)])
    return Planned(
        declared.name,
        schedule.name,
        "added",
        schedule.when,
        schedule.parameters,
        schedule.active,
        upcoming if schedule.active else None,
    )


async def ls(workflow: str | None = None) -> list[Planned]:
    """The schedules of one workflow, or of all. Raises UnknownWorkflow or ServerUnavailable."""
    tags = [TAG] if workflow is None else [TAG, discover().get(workflow).id]
    async with prefect_client() as client:
        ours = DeploymentFilter(tags=DeploymentFilterTags(all_=tags))
        found = await client.read_deployments(deployment_filter=ours)
    rows = [await _planned(one.name, schedule) for one in found for schedule in one.schedules]
    return sorted(rows, key=lambda row: (row.workflow, row.name))


async def set_active(workflow: str, name: str, active: bool) -> Planned:
    """Pause or resume a schedule; what it has planned already goes with the pause."""
    declared = discover().get(workflow)
    async with _deployment(declared) as (client, deployment):
        found = _find(deployment, name)
        # Stated again: the server takes an update without parameters for one that empties them.
        await client.update_deployment_schedule(
            deployment.id, found.id, active=active, parameters=found.parameters
        )
        return await _planned(declared.name, found.model_copy(update={"active": active}))


async def rm(workflow: str, name: str) -> Planned:
    """Remove a schedule that a person added, with the starts it has planned.

    Raises:
        InvalidParameter: it is declared in code or settings, and would be back with the next deployment.
        UnknownReference: no schedule of that name.
    """
    declared = discover().get(workflow)
    async with _deployment(declared) as (client, deployment):
        found = _find(deployment, name)
        gone = await _planned(declared.name, found)
        if gone.origin == "declared":
            remedy = f"remove it there, or use `mutoscope schedule pause {declared.name} {gone.name}`"
            raise InvalidParameter("name", name, f"it is declared in code or settings: {remedy}")
        await client.delete_deployment_schedule(deployment.id, found.id)
        return gone


def check(workflow: Workflow, schedule: Schedule) -> None:
    """Raise InvalidParameter when the workflow would refuse the schedule's parameters each time."""
    signature.check_names(workflow.name, workflow.parameters, schedule.parameters)
    workflow.validate(schedule.parameters)


async def declared_schedules(
    registry: Registry, settings: Mapping[str, Sequence[Schedule]]
) -> dict[str, tuple[Schedule, ...]]:
    """Every declared schedule by workflow id: those in code, and those in settings.

    Raises:
        UnknownWorkflow: settings name a workflow that is not there.
        InvalidParameter: see `add`.
    """
    found = {workflow.id: tuple(workflow.schedules) for workflow in registry.all().values()}
    for name, extra in settings.items():
        workflow = registry.get(name)
        found[workflow.id] = (*found[workflow.id], *extra)
    for workflow_id, schedules in found.items():
        names = [schedule.name for schedule in schedules]
        for schedule in schedules:
            check(registry.get(workflow_id), schedule)
            await schedule.next_start()
            if names.count(schedule.name) > 1:
                raise InvalidParameter(
                    "name", schedule.name, f"two schedules of {workflow_id} have it: give each its own"
                )
    return found


async def reconcile(
    client: PrefectClient, deployment: DeploymentResponse, declared: Sequence[Schedule]
) -> None:
    """Bring a deployment's declared schedules to what is declared now; leave everybody else's alone."""
    existing = {one.slug: one for one in deployment.schedules if (one.slug or "").startswith(_DECLARED)}
    for schedule in declared:
        slug = f"{_DECLARED}{schedule.name}"
        found = existing.pop(slug, None)
        if found is None:
            await client.create_deployment_schedules(deployment.id, [_request(schedule, slug)])
        elif found.schedule != schedule.to_prefect() or found.parameters != dict(schedule.parameters):
            await client.update_deployment_schedule(
                deployment.id,
                found.id,
                schedule=schedule.to_prefect(),
                parameters=dict(schedule.parameters),
            )
    for gone in existing.values():
        await client.delete_deployment_schedule(deployment.id, gone.id)


def _request(schedule: Schedule, slug: str) -> DeploymentScheduleCreate:
    return DeploymentScheduleCreate(
        schedule=schedule.to_prefect(),
        active=schedule.active,
        parameters=dict(schedule.parameters),
        slug=slug,
    )


@asynccontextmanager
async def _deployment(workflow: Workflow) -> AsyncIterator[tuple[PrefectClient, DeploymentResponse]]:
    async with prefect_client() as client:
        try:
            found = await client.read_deployment_by_name(f"{workflow.flow.name}/{workflow.name}")
        except ObjectNotFound:
            raise ServerUnavailable(
                f"workflow {workflow.name} is not deployed at this Prefect server: `mutoscope up` deploys it"
            ) from None
        yield client, found


def _find(deployment: DeploymentResponse, name: str) -> DeploymentSchedule:
    """By its name, or by the start of its id for one made in the Prefect UI, which has no name."""
    named = [one for one in deployment.schedules if _name(one) == name]
    if len(named) == 1:
        return named[0]
    known = ", ".join(sorted(map(_name, deployment.schedules))) or "none"
    raise UnknownReference(f"{deployment.name} has no schedule {name!r}: it has {known}")


def _name(schedule: DeploymentSchedule) -> str:
    return (schedule.slug or str(schedule.id)[:8]).removeprefix(_DECLARED)


async def _planned(workflow: str, schedule: DeploymentSchedule) -> Planned:
    return Planned(
        workflow,
        _name(schedule),
        "declared" if (schedule.slug or "").startswith(_DECLARED) else "added",
        _when(schedule.schedule),
        schedule.parameters,
        schedule.active,
        await next_date(schedule.schedule) if schedule.active else None,
    )


def _when(schedule: Any) -> str:
    if hasattr(schedule, "cron"):
        return f"{schedule.cron} {schedule.timezone or 'UTC'}"
    if hasattr(schedule, "interval"):
        return f"every {spell_duration(schedule.interval.total_seconds())}"
    return str(schedule.rrule)
