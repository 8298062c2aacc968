"""Rank 0's side of a group: every decision of its engine becomes a command to the others.

Commands are these few frozen records; `follower` carries them out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mutoscope.platform.engine.batching import Batcher, Mode
from mutoscope.platform.engine.calibration import Calibration
from mutoscope.platform.engine.card import Card
from mutoscope.platform.engine.job import Job
from mutoscope.platform.engine.request import Request
from mutoscope.platform.errors import GroupLost, RunFailed
from mutoscope.workers.group import Group
from mutoscope.workers.residency import Residency, Resident
from mutoscope.workers.spread import Spread

PING_EVERY_S = 5.0
"""Seconds of silence after which an idle rank 0 says that it is there, and learns whether the others are."""


@dataclass(frozen=True, slots=True)
class Load:
    """Rank 0 loads a card at these weights: do so meanwhile."""

    card: str
    weights: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What rank 0 found out about a card."""

    card: str
    calibration: Calibration


@dataclass(frozen=True, slots=True)
class Unload:
    """Let a card's instances go that hold these weights."""

    card: str
    chosen: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Free:
    """Let idle instances go until so many bytes are free."""

    size: int


@dataclass(frozen=True, slots=True)
class Begin:
    """A request begins. `alone`: no two of its rows share a call."""

    request: Request
    weights: Mapping[str, str]
    alone: bool


@dataclass(frozen=True, slots=True)
class Call:
    """The next plans of these requests are run."""

    requests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recall:
    """A node of a request is filled already."""

    request: str
    filled: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class End:
    """A request has ended."""

    request: str


@dataclass(frozen=True, slots=True)
class Ping:
    """Nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The worker ends."""


class LeadResidency(Residency):
    """Rank 0's residency: what it loads and drops, the others do as well."""

    def __init__(self, lead: Lead, *given: Any) -> None:
        super().__init__(*given)
        self._lead = lead

    def free(self, size: int) -> int:
        self._lead.tell(Free(size))
        return super().free(size)

    def unload(self, card_id: str, chosen: Mapping[str, str] = MappingProxyType({})) -> int:
        self._lead.tell(Unload(card_id, dict(chosen)))
        return super().unload(card_id, chosen)

    def _load(self, card: Card, weights: Mapping[str, str]) -> Resident:
        self._lead.tell(Load(card.id, dict(weights)))
        return super()._load(card, weights)


class Lead:
    """The other ranks, for rank 0's engine (`Ranks`) and for what loads and unloads there.

    Every method that tells something raises GroupLost when a rank is gone.
    """

    def __init__(self, group: Group, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._group = group
        self._clock = clock
        self._told_at = clock()

    @property
    def size(self) -> int:
        """Ranks in all."""
        return self._group.size

    def tell(self, command: Any) -> None:
        """Have a command carried out by the others."""
        self._group.tell(command)
        self._told_at = self._clock()

    def calibrated(self, card: str, calibration: Calibration) -> None:
        """Rank 0 serves a card so."""
        self.tell(Calibrated(card, calibration))

    def spread(self, batcher: Batcher) -> Batcher:
        """A batcher whose rows all ranks compute."""
        return Spread(batcher, self._group)

    def stop(self) -> None:
        """Let the others end, if they are there."""
        with suppress(GroupLost):
            self.tell(Stop())

    def ping(self) -> None:
        """Find out whether the others are there, if that is long ago."""
        if self._clock() - self._told_at > PING_EVERY_S:
            self.tell(Ping())

    def begin(self, job: Job) -> None:
        """Raises RunFailed: a rank cannot begin the request."""
        instance = job.instance
        self.tell(Begin(job.request, dict(instance.weights), instance.batcher.mode is Mode.OFF))
        (error,) = self.agree([None])
        if error is not None:
            self.tell(End(job.request.id))
            raise error

    def call(self, jobs: Sequence[Job]) -> None:
        self.tell(Call(tuple(job.request.id for job in jobs)))

    def agree(self, errors: Sequence[Exception | None]) -> list[Exception | None]:
        told = self._group.all([None if error is None else str(error) for error in errors])
        agreed = list(errors)
        for rank, theirs in enumerate(told):
            for at, line in enumerate(theirs):
                if line is not None and agreed[at] is None:
                    agreed[at] = RunFailed(f"rank {rank} of the group: {line}")
        return agreed

    def recall(self, job: Job, filled: Mapping[str, Any]) -> None:
        self.tell(Recall(job.request.id, dict(filled)))

    def end(self, job: Job) -> None:
        self.tell(End(job.request.id))
