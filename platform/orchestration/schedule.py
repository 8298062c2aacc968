"""When a workflow starts by itself: a cron line or an interval, in a time zone, with parameters.

    @workflow("maintenance.collect", schedules=[Schedule(name="nightly", cron="0 3 * * *")])

    MUTOSCOPE_SCHEDULES='[{"workflow": "verify_store", "every": "1d", "parameters": {"deep": false}}]'

    mutoscope schedule add text_to_image prompt="a red circle" --cron "0 9 * * MON" --timezone Europe/Zurich

A schedule is judged where it is written: one that cannot parse, or whose time never comes, does not exist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from mutoscope.platform.durations import parse_duration
from mutoscope.platform.errors import InvalidParameter

if TYPE_CHECKING:
    from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule

VARIABLE = "MUTOSCOPE_SCHEDULES"
SHORTEST_SECONDS = 10.0
"""A flow process takes seconds to start; what should come more often is one workflow with a loop."""

_FIELDS = ("minute", "hour", "day of month", "month", "day of week")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is declared.

    Attributes:
        name: what it is called among its workflow's; by default after when it starts, such as ``every-6h``.
        cron: five fields, as in crontab(5): minute, hour, day of month, month, day of week.
        every: an interval such as ``6h``; counted from midnight of 2020-01-01 in the time zone.
        timezone: an IANA name. Cron follows its clock through changes of summer time.
        parameters: what the workflow is started with.
        active: whether it starts anything before somebody resumes it.

    Raises:
        InvalidParameter: from the constructor, naming the field, its value and what would be accepted.
    """

    name: str = ""
    cron: str | None = None
    every: str | None = None
    timezone: str = "UTC"
    parameters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    active: bool = True

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.every is None):
            given = f"{self.cron}, every {self.every}" if self.cron else None
            raise InvalidParameter("schedule", given, "give either cron (0 3 * * *) or every (6h)")
        _check_timezone(self.timezone)
        if self.cron is not None:
            _check_cron(self.cron)
        else:
            _seconds(str(self.every))
        object.__setattr__(self, "name", self.name or _slug(self.cron, self.every))
        if not _NAME.fullmatch(self.name):
            raise InvalidParameter("name", self.name, "use lower case, digits and dashes, such as nightly")

    @property
    def when(self) -> str:
        """For people: ``0 3 * * * UTC``, ``every 6h``."""
        return f"{self.cron} {self.timezone}" if self.cron is not None else f"every {self.every}"

    def to_prefect(self) -> CronSchedule | IntervalSchedule:
        """The same as Prefect takes it."""
        from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule

        if self.cron is not None:
            return CronSchedule(cron=self.cron, timezone=self.timezone)
        # The anchor is stated: Prefect's own moves with the clock of whoever declares the schedule.
        anchor = datetime(2020, 1, 1, tzinfo=ZoneInfo(self.timezone))
        interval = timedelta(seconds=_seconds(str(self.every)))
        return IntervalSchedule(interval=interval, timezone=self.timezone, anchor_date=anchor)

    async def next_start(self) -> datetime:
        """When it starts next. Raises InvalidParameter for a cron line whose time never comes."""
        upcoming = await next_date(self.to_prefect())
        if upcoming is None:
            raise InvalidParameter("cron", self.cron, "that date never comes: use one that does")
        return upcoming


async def next_date(schedule: BaseModel) -> datetime | None:
    """When one of Prefect's schedules, of any kind, starts next; None if never."""
    from prefect.server.schemas import schedules

    planner = getattr(schedules, type(schedule).__name__).model_validate(schedule.model_dump())
    try:
        dates: list[datetime] = await planner.get_dates(1)
    except ValueError:
        return None
    return dates[0] if dates else None


def from_settings(text: str) -> dict[str, tuple[Schedule, ...]]:
    """Schedules of ``MUTOSCOPE_SCHEDULES`` by the name of their workflow. Raises InvalidParameter."""
    remedy = 'use a JSON list such as [{"workflow": "verify_store", "cron": "0 3 * * *"}]'
    try:
        given = json.loads(text or "[]")
    except ValueError:
        raise InvalidParameter(VARIABLE, text, remedy) from None
    if not isinstance(given, list) or not all(isinstance(one, dict) and "workflow" in one for one in given):
        raise InvalidParameter(VARIABLE, text, remedy)
    known = [one.name for one in fields(Schedule)]
    found: dict[str, tuple[Schedule, ...]] = {}
    for one in given:
        workflow = str(one.pop("workflow"))
        for key in one:
            if key not in known:
                raise InvalidParameter(f"{VARIABLE}.{key}", one[key], f"a schedule has {', '.join(known)}")
        found[workflow] = (*found.get(workflow, ()), Schedule(**one))
    return found


def _seconds(every: str) -> float:
    seconds = parse_duration("every", every)
    if seconds < SHORTEST_SECONDS:
        raise InvalidParameter("every", every, f"use {SHORTEST_SECONDS:.0f}s or more")
    return seconds


def _check_timezone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidParameter("timezone", name, "use an IANA name such as UTC or Europe/Zurich") from None


def _check_cron(cron: str) -> None:
    """Name the field that is wrong: a person who reads "invalid cron" counts stars."""
    parts = cron.split()
    if len(parts) != len(_FIELDS):
        raise InvalidParameter(
            "cron", cron, f"use five fields ({', '.join(_FIELDS)}) such as 0 3 * * *; this has {len(parts)}"
        )
    for position, (part, called) in enumerate(zip(parts, _FIELDS, strict=True)):
        alone = ["*"] * len(_FIELDS)
        alone[position] = part
        if not _parses(" ".join(alone)):
            remedy = f"its {called} {part!r} cannot be read: use fields such as 0 3 * * *"
            raise InvalidParameter("cron", cron, remedy)


def _parses(cron: str) -> bool:
    from prefect.client.schemas.schedules import CronSchedule

    try:
        CronSchedule(cron=cron)
    except ValueError:
        return False
    return True


def _slug(cron: str | None, every: str | None) -> str:
    if cron is None:
        return f"every-{re.sub(r'[^a-z0-9]', '', str(every).lower())}"
    return "cron-" + re.sub(r"[^a-z0-9]+", "-", cron.lower().replace("*", "any")).strip("-")
