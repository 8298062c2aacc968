"""Schedules: how one is written, and what becomes of it at the server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from pydantic import Field

from mutoscope.platform.errors import InvalidParameter, MutoscopeError, UnknownReference
from mutoscope.platform.orchestration import schedules
from mutoscope.platform.orchestration.deployments import deploy_all
from mutoscope.platform.orchestration.registry import Registry
from mutoscope.platform.orchestration.schedule import Schedule, from_settings
from mutoscope.platform.orchestration.workflow import workflow


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"cron": "0 3 * *"}, "cron='0 3 * *' is not valid: use five fields"),
        ({"cron": "0 3 * * * *"}, "this has 6"),
        ({"cron": "61 3 * * *"}, "cron='61 3 * * *' is not valid: its minute '61' cannot be read"),
        ({"cron": "0 3 32 * *"}, "its day of month '32' cannot be read"),
        ({"cron": "0 3 * * FOO"}, "its day of week 'FOO' cannot be read"),
        ({"cron": "H 3 * * *"}, "its minute 'H' cannot be read"),
        ({"cron": "*/0 * * * *"}, "its minute '*/0' cannot be read"),
        ({"every": "often"}, "every='often' is not valid: use a number and a unit"),
        ({"every": "1s"}, "every='1s' is not valid: use 10s or more"),
        (
            {"every": "6h", "timezone": "Mars/Olympus"},
            "timezone='Mars/Olympus' is not valid: use an IANA name",
        ),
        ({"every": "6h", "timezone": "../etc/passwd"}, "timezone='../etc/passwd' is not valid"),
        ({"every": "6h", "name": "Every Day"}, "name='Every Day' is not valid: use lower case"),
        ({"every": "6h", "cron": "0 3 * * *"}, "is not valid: give either cron (0 3 * * *) or every (6h)"),
        ({}, "schedule=None is not valid: give either cron"),
    ],
)
def test_what_cannot_parse_is_refused_in_one_line(given: dict[str, str], line: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        Schedule(**given)  # type: ignore[arg-type]
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_and_words() -> None:
    assert Schedule(every="6h").name == "every-6h"
    assert Schedule(cron="*/5 3 * * MON-FRI").name == "cron-any-5-3-any-any-mon-fri"
    assert Schedule(cron="0 3 * * *", timezone="Europe/Zurich").when == "0 3 * * * Europe/Zurich"
    assert Schedule(every="6h").when == "every 6h"


async def test_when_it_starts_next() -> None:
    upcoming = await Schedule(cron="0 3 * * *", timezone="Europe/Zurich").next_start()
    assert (upcoming.hour, upcoming.minute) == (3, 0)
    assert upcoming > datetime.now(UTC)
    assert (await Schedule(every="6h").next_start()).timestamp() % (6 * 3600) == 0
    with pytest.raises(InvalidParameter, match=r"cron='0 0 30 2 \*' is not valid: that date never comes"):
        await Schedule(cron="0 0 30 2 *").next_start()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("daily", "MUTOSCOPE_SCHEDULES='daily' is not valid: use a JSON list"),
        ('[{"cron": "0 3 * * *"}]', "use a JSON list such as"),
        ('[{"workflow": "a", "crom": "0 3 * * *"}]', "MUTOSCOPE_SCHEDULES.crom='0 3 * * *' is not valid"),
        ('[{"workflow": "a", "cron": "99 3 * * *"}]', "its minute '99' cannot be read"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used(text: str, line: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        from_settings(text)
    assert line in str(caught.value)


def test_settings_name_workflows() -> None:
    nightly = '{"workflow": "a", "cron": "0 3 * * *", "parameters": {"deep": false}}'
    text = f'[{{"workflow": "a", "every": "1d"}}, {nightly}]'
    found = from_settings(text)
    assert [one.when for one in found["a"]] == ["every 1d", "0 3 * * * UTC"]
    assert found["a"][1].parameters == {"deep": False}
    assert from_settings("") == {}


def registry_with(*declared: Schedule) -> Registry:
    """One workflow, with these schedules declared in code."""
    registry = Registry(card_ids=lambda: ())

    @workflow("test.kept", schedules=declared, most_running=2, registry=registry)
    async def kept(prompt: Annotated[str, Field(min_length=1)], steps: int = 1) -> None: ...

    return registry


NIGHTLY = Schedule(name="nightly", cron="0 3 * * *", parameters={"prompt": "night"})


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry = registry_with(NIGHTLY)
    monkeypatch.setattr(schedules, "discover", lambda: registry)
    return registry


async def stored() -> dict[str, Any]:
    async with get_client() as client:
        found = await client.read_deployment_by_name("kept/kept")
    return {str(one.slug): one for one in found.schedules}


@pytest.mark.usefixtures("prefect_server")
async def test_a_deployment_follows_what_is_declared_and_leaves_what_people_added(known: Registry) -> None:
    await deploy_all(known)
    (first,) = (await stored()).values()
    assert first.schedule == CronSchedule(cron="0 3 * * *", timezone="UTC")
    assert first.parameters == {"prompt": "night"}
    added = await schedules.add("kept", Schedule(every="6h", parameters={"prompt": "b"}))
    assert (added.name, added.origin, added.when) == ("every-6h", "added", "every 6h")
    async with get_client() as client:  # as the UI does: without a name
        deployment = await client.read_deployment_by_name("kept/kept")
        assert deployment.global_concurrency_limit is not None
        assert deployment.global_concurrency_limit.limit == 2
        unnamed = IntervalSchedule(interval=3600)  # type: ignore[arg-type]
        await client.create_deployment_schedules(deployment.id, [(unnamed, True)])
    await schedules.set_active("kept", "nightly", False)
    before = await stored()
    await deploy_all(known)
    assert await stored() == before, "deploying again changes nothing, not even what is paused"

    moved = registry_with(Schedule(name="nightly", cron="0 4 * * *", parameters={"prompt": "night"}))
    await deploy_all(moved)
    after = await stored()
    assert after["declared-nightly"].id == first.id
    assert after["declared-nightly"].schedule == CronSchedule(cron="0 4 * * *", timezone="UTC")
    assert not after["declared-nightly"].active, "it was paused by a person"
    assert set(after) == set(before)

    await deploy_all(registry_with())
    assert set(await stored()) == set(before) - {"declared-nightly"}


@pytest.mark.usefixtures("prefect_server")
async def test_people_list_pause_and_remove(known: Registry) -> None:
    await deploy_all(known)
    await schedules.add("test.kept", Schedule(name="mine", every="2h", parameters={"prompt": "b"}))
    rows = {row.name: row for row in await schedules.ls("kept")}
    assert rows["nightly"].origin == "declared"
    assert rows["nightly"].next_start is not None
    assert rows["mine"].when == "every 2 h"
    assert (await schedules.set_active("kept", "mine", False)).next_start is None
    assert not next(row for row in await schedules.ls() if row.name == "mine").active
    assert (await schedules.set_active("kept", "mine", True)).active
    fine = {"prompt": "b"}
    for refused, line in [
        (schedules.add("kept", Schedule(every="2h")), "prompt=None is not valid"),
        (schedules.add("kept", Schedule(every="2h", parameters={"promt": "b"})), "kept takes prompt, steps"),
        (schedules.add("kept", Schedule(name="mine", every="2h", parameters=fine)), "has one of that name"),
        (schedules.add("kept", Schedule(name="nightly", every="2h", parameters=fine)), "has one of that n"),
        (schedules.add("kept", Schedule(cron="0 0 30 2 *", parameters=fine)), "that date never comes"),
        (schedules.rm("kept", "nightly"), "it is declared in code or settings: remove it there"),
    ]:  # fmt: skip
        with pytest.raises(MutoscopeError) as caught:
            await refused
        assert line in str(caught.value)
    assert (await schedules.rm("kept", "mine")).name == "mine"
    with pytest.raises(UnknownReference, match=r"kept has no schedule 'mine': it has .*nightly"):
        await schedules.rm("kept", "mine")
    await deploy_all(registry_with())
