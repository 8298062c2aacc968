"""A rank other than the first: it loads what it is told to and computes every step along.

It has no queue, no catalog and no say. A signal to end is rank 0's business: the others end by its command,
or because it is gone.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from weakref import WeakKeyDictionary

import torch

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.engine.batching import Batcher
from mutoscope.platform.engine.calibration import Calibration
from mutoscope.platform.engine.card import Card
from mutoscope.platform.engine.execution import execute
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.job import Job
from mutoscope.platform.engine.request import Progress
from mutoscope.platform.engine.stepping import book, free_unused
from mutoscope.platform.engine.ticket import Ticket
from mutoscope.platform.settings import Settings
from mutoscope.workers.device import Device
from mutoscope.workers.group import Group
from mutoscope.workers.lead import Begin, Calibrated, Call, End, Free, Load, Ping, Recall, Stop, Unload
from mutoscope.workers.residency import Residency
from mutoscope.workers.spread import Spread
from mutoscope.workers.weight_cache import WeightCache

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Followed:
    """A request at work, and the weights that are held for it."""

    card: str
    weights: Mapping[str, str]
    job: Job


class Follower:
    """Carries out rank 0's commands until it stops, or is lost."""

    def __init__(
        self, settings: Settings, store: ArtifactStore, device: Device, cards: Sequence[Card], group: Group
    ) -> None:
        self._group = group
        cache = WeightCache(store, settings.home / "cache" / "weights")
        self._residency = Residency({card.id: card for card in cards}, store, cache, device)
        self._calibrations: dict[str, Calibration] = {}
        self._requests: dict[str, _Followed] = {}
        self._served: WeakKeyDictionary[Instance, dict[bool, Instance]] = WeakKeyDictionary()

    def run(self) -> None:
        """Follow. Raises GroupLost: another rank is gone."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        log.info("following rank=%d of=%d", self._group.rank, self._group.size)
        while not isinstance(command := self._group.hear(), Stop):
            self._carry_out(command)
        log.info("stopped rank=%d", self._group.rank)

    def _carry_out(self, command: object) -> None:
        match command:
            case Load(card, weights):
                self._load(card, weights)
            case Calibrated(card, calibration):
                self._calibrations[card] = calibration
            case Unload(card, chosen):
                self._residency.unload(card, chosen)
            case Free(size):
                self._residency.free(size)
            case Begin():
                self._begin(command)
            case Call(requests):
                self._call(requests)
            case Recall(request, filled):
                self._requests[request].job.leave(filled)
            case End(request):
                self._end(request)
            case Ping():
                pass

    def _load(self, card: str, weights: Mapping[str, str]) -> None:
        """Load ahead. What is wrong is told when a request begins."""
        try:
            self._residency.acquire(card, weights)
        except Exception as error:
            log.warning("card=%s not loaded: %s", card, error)
        else:
            self._residency.release(card, weights)

    def _begin(self, command: Begin) -> None:
        card = command.request.card
        try:
            instance = self._residency.acquire(card, command.weights)
        except Exception as error:
            self._group.all([str(error)])
            return
        served = self._prepared(instance, command.alone)
        ticket = Ticket(command.request.id, Progress(command.request.id, "", 0, 0))
        self._requests[command.request.id] = _Followed(
            card, command.weights, Job(served, command.request, ticket)
        )
        self._group.all([None])

    def _prepared(self, instance: Instance, alone: bool) -> Instance:
        """As rank 0 serves it: one and the same each time, as a batcher remembers which calls have proved
        themselves."""
        known = self._served.setdefault(instance, {})
        if alone in known:
            return known[alone]
        calibration = self._calibrations.get(instance.card.id)
        ready = instance if calibration is None else calibration.prepare(instance)
        inner = Batcher() if alone else ready.batcher
        known[alone] = replace(ready, batcher=Spread(inner, self._group))
        return known[alone]

    def _call(self, requests: Sequence[str]) -> None:
        jobs = [self._requests[request].job for request in requests]
        instance = jobs[0].instance
        with torch.inference_mode():
            plans = [job.plan() for job in jobs]
            outcomes = execute(plans, instance.batcher, partial(free_unused, instance.device))
            errors = [book(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]
        instance.synchronize()
        self._group.all([None if error is None else str(error) for error in errors])

    def _end(self, request: str) -> None:
        followed = self._requests.pop(request, None)
        if followed is not None:
            self._residency.release(followed.card, followed.weights)
