"""The pool at a glance, as people and metrics are told it: a line per card and a line per worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mutoscope.platform.catalog.queues import QueueRecord
from mutoscope.platform.catalog.scaling import TARGET_SECONDS, workers_wanted
from mutoscope.platform.catalog.weights import WeightVersion, name_for
from mutoscope.platform.catalog.workers import WorkerInfo


@dataclass(frozen=True, slots=True)
class Depth:
    """One card's runs in flight. `oldest_seconds` is how long the oldest queued one has waited; None when
    none is queued."""

    queued: int
    running: int
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True)
class Rate:
    """One card's runs that ended lately.

    Attributes:
        per_minute: runs that succeeded.
        failed: runs that failed, in that time.
        seconds: mean time one took on its worker; None when none succeeded.
    """

    per_minute: float
    failed: int
    seconds: float | None


NO_DEPTH, NO_RATE = Depth(0, 0, None), Rate(0.0, 0, None)


@dataclass(frozen=True, slots=True)
class CardLine:
    """One card's queue.

    Attributes:
        queued, running: runs in flight. oldest_seconds: how long the oldest queued one has waited.
        per_minute, failed: runs that succeeded per minute, and that failed, lately.
        seconds: mean time of those that succeeded, on their worker; where none did and work waits, of the
            last that did before.
        serving: live workers that take its runs. wanted: how many its queue calls for (see `scaling`).
        paused, most_running, note: what an operator said.
    """

    card: str
    queued: int
    running: int
    oldest_seconds: float | None
    per_minute: float
    failed: int
    seconds: float | None
    serving: int
    wanted: int
    paused: bool
    most_running: int | None
    note: str | None


@dataclass(frozen=True, slots=True)
class ResidentSet:
    """Weights of one card in a worker's memory; `versions` are their names, component by component."""

    card: str
    versions: tuple[str, ...]

    def __str__(self) -> str:
        """``flux-t2i@1``; what differs from the most common number follows: ``flux-t2i@1 +vae@12``."""
        own = f"{self.card}/"
        numbers = [version.rpartition("@")[2] for version in self.versions if version.startswith(own)]
        if not numbers:
            return f"{self.card} {' '.join(self.versions)}".strip()
        (common, _), *_ = Counter(numbers).most_common(1)
        others = [
            version.removeprefix(own) for version in self.versions if version.rpartition("@")[2] != common
        ]
        return " +".join([f"{self.card}@{common}", *others])


@dataclass(frozen=True, slots=True)
class WorkerLine:
    """One worker.

    Attributes:
        age: seconds since its last heartbeat.
        bytes: what its weights take; those that cards share are counted for each of them.
        memory_bytes: that its runs may take, weights included; None: not known.
        running, finished: runs, now and since it started.
        asked: what it was asked and has not done yet; see `Wanted`.
        trouble: why a card's weights are not in its memory although they should be.
    """

    id: str
    host: str
    pid: int
    device: str
    state: str
    age: float
    cards: tuple[str, ...]
    resident: tuple[ResidentSet, ...]
    bytes: int
    memory_bytes: int | None
    running: int
    finished: int
    asked: Mapping[str, Any] | None
    trouble: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PoolReport:
    """Cards by name, workers by host. `incidents` counts those on record, by kind."""

    cards: tuple[CardLine, ...]
    workers: tuple[WorkerLine, ...]
    incidents: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def card_lines(
    depths: Mapping[str, Depth],
    rates: Mapping[str, Rate],
    queues: Iterable[QueueRecord],
    workers: Sequence[WorkerInfo],
    target_seconds: float = TARGET_SECONDS,
) -> tuple[CardLine, ...]:
    """Every card that has runs, had some lately, is served, or was spoken about."""
    said = {record.card: record for record in queues}
    served = Counter(card for worker in workers if worker.state != "draining" for card in worker.cards)
    lines = []
    for card in sorted({*depths, *rates, *said, *served}):
        depth, rate = depths.get(card, NO_DEPTH), rates.get(card, NO_RATE)
        record = said.get(card)
        paused, most = (record.paused, record.most_running) if record else (False, None)
        wanted = workers_wanted(
            queued=depth.queued,
            running=depth.running,
            serving=served[card],
            seconds=rate.seconds,
            most_running=most,
            paused=paused,
            target=target_seconds,
        )
        lines.append(
            CardLine(
                card=card,
                **asdict(depth),
                **asdict(rate),
                serving=served[card],
                wanted=wanted,
                paused=paused,
                most_running=most,
                note=record.note if record else None,
            )
        )
    return tuple(lines)


def worker_line(info: WorkerInfo, names: Mapping[str, Sequence[WeightVersion]]) -> WorkerLine:
    """A live worker's line.

    Args:
        names: every version that the digests of its weights are known as.
    """
    facts = info.cards.values()
    sets = [
        (card, weights)
        for card, told in sorted(info.cards.items())
        for weights in told.get("resident", {}).values()
    ]
    asked = info.wanted if info.wanted is not None and info.wanted.serial > info.done_serial else None
    return WorkerLine(
        id=info.id,
        host=info.host,
        pid=info.pid,
        device=info.device,
        state=info.state,
        age=info.age or 0.0,
        cards=tuple(sorted(info.cards)),
        resident=tuple(
            ResidentSet(
                card,
                tuple(name_for(card, digest, names.get(digest, ())) for digest in weights.values()),
            )
            for card, weights in sets
        ),
        bytes=sum(told.get("bytes", 0) for told in facts),
        memory_bytes=info.memory_bytes,
        running=sum(told.get("running", 0) for told in facts),
        finished=sum(told.get("finished", 0) for told in facts),
        asked=asked.to_dict() if asked else None,
        trouble={card: told["trouble"] for card, told in sorted(info.cards.items()) if "trouble" in told},
    )


def resident_digests(workers: Iterable[WorkerInfo]) -> set[str]:
    """Digests of all weights that are in some worker's memory."""
    return {
        digest
        for worker in workers
        for told in worker.cards.values()
        for weights in told.get("resident", {}).values()
        for digest in weights.values()
    }
