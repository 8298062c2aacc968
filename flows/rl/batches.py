"""What an iteration learns from: rollouts made for it, or such as others have made meanwhile.

Apart, collector and trainer each go at their own pace: rollouts of `rl.data_generation` that follow the
training are taken in the order in which they were made, each once, unless their weights lie too far behind
by then. Which were taken depends on when the trainer looked, so it is noted before anything is learned.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mutoscope.flows.rl import records
from mutoscope.flows.rl.collected import CARD, Group, group_of, inputs_of
from mutoscope.flows.rl.collecting import collect
from mutoscope.flows.rl.course import Course, Part
from mutoscope.platform.catalog import WeightVersion
from mutoscope.platform.errors import RunFailed
from mutoscope.platform.orchestration.patience import Patience
from mutoscope.platform.orchestration.runtime import Runtime, get_runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.training import notes

COLLECTOR = "rl.data_generation"
FOLLOW = "follow"
"""The collector's parameter that names the training it collects for."""

LOOK_EVERY_S = 1.0
MOST_COLLECTIONS = 200
"""Of the newest runs of the collector that are looked through."""

Heads = Mapping[Part, WeightVersion]


@dataclass(frozen=True, slots=True)
class Batch:
    """Groups by card, those that were dropped too, in their order.

    Attributes:
        most_behind: how many versions a rollout's weights may lie behind.
        passed_over: rollouts that lay further behind, by their digest, and how far.
    """

    groups: Mapping[str, Sequence[Group]]
    most_behind: int = 0
    passed_over: Mapping[str, int] = field(default_factory=dict)

    def kept(self, card: str) -> list[Group]:
        """The groups of a card that can teach something."""
        return [group for group in self.groups.get(card, ()) if group.record.kept]

    def inputs(self, card: str) -> dict[str, list[ArtifactRef]]:
        """A trainer's inputs; empty where there is nothing to learn from."""
        return inputs_of(self.kept(card))

    def staleness(self, part: Part, head: WeightVersion) -> dict[str, Any]:
        """A trainer's parameters that say how far each rollout lies behind; none where none may."""
        if not self.most_behind:
            return {}
        card, component = part
        behind = [_behind(group, component, head) for group in self.kept(card)]
        return {"staleness": behind, "max_staleness": self.most_behind}

    @property
    def rollouts(self) -> list[ArtifactRef]:
        """All records, each once."""
        found = {group.rollout.digest: group.rollout for groups in self.groups.values() for group in groups}
        return list(found.values())

    @property
    def last(self) -> Sequence[Group]:
        """The groups of the last card, which rewards have seen."""
        return list(self.groups.values())[-1] if self.groups else ()

    @property
    def samples(self) -> int:
        """Of the last card."""
        return sum(len(group.record.samples) for group in self.last)

    @property
    def scores(self) -> list[float]:
        """Every score that there is, group by group."""
        return [score for group in self.last for score in group.record.scores if score is not None]

    def told(self) -> dict[str, Any]:
        """As an iteration's record has it."""
        told: dict[str, Any] = {
            card: {
                "groups": len(groups),
                "kept": len(self.kept(card)),
                "dropped_samples": sum(len(group.record.dropped) for group in groups),
                "reasons": sorted({str(g.record.reason) for g in groups if not g.record.kept}),
                "records": [group.rollout.digest for group in groups],
            }
            for card, groups in self.groups.items()
        }
        return {"cards": told, "passed_over": dict(self.passed_over)}


async def gather(course: Course, iteration: int, heads: Heads) -> Batch:
    """What the iteration learns from.

    Raises:
        InvalidInput: as `collect`.
        RunFailed: the collector made nothing in time.
    """
    if not course.configuration.off_policy:
        return Batch((await collect(course.plan(iteration, heads))).groups)
    runtime = get_runtime()
    patience = Patience(runtime.settings.catalog_patience_seconds)
    deadline = time.monotonic() + course.configuration.patience_seconds
    while (taken := await patience.ask(_take, runtime, course, iteration, heads)) is None:
        if time.monotonic() > deadline:
            raise RunFailed(
                f"training {course.name} waited {course.configuration.patience_seconds:g} s for rollouts: "
                f"start {COLLECTOR} with {FOLLOW}={course.name}"
            )
        await asyncio.sleep(LOOK_EVERY_S)
    return await patience.ask(_batch, runtime, course, taken)


def _take(runtime: Runtime, course: Course, iteration: int, heads: Heads) -> Mapping[str, Any] | None:
    """The note of what the iteration takes; None while there is not enough."""
    noted = records.read(runtime, course.name, notes.BATCH, iteration)
    if noted is not None:
        return noted
    before = records.read_all(runtime, course.name, notes.BATCH, range(iteration))
    known = {digest for note in before.values() for digest in (*note["rollouts"], *note["passed_over"])}
    wanted = course.configuration.groups or len(course.configuration.prompts)
    chosen: list[ArtifactRef] = []
    passed_over: dict[str, int] = {}
    for ref in _made(runtime, course.name):
        if ref.digest in known:
            continue
        behind = _furthest(group_of(runtime, ref), heads)
        if behind is None:
            continue
        if behind > course.configuration.off_policy:
            passed_over[ref.digest] = behind
        else:
            chosen.append(ref)
        if len(chosen) == wanted:
            record = {"rollouts": [one.digest for one in chosen], "passed_over": passed_over}
            used = records.numbered("rollouts", chosen)
            records.write(runtime, course.name, notes.BATCH, iteration, record, used=used)
            return record
    return None


def _made(runtime: Runtime, name: str) -> Iterator[ArtifactRef]:
    """Records that the collector made for a training, in the order in which they were made."""
    catalog = runtime.catalog
    collections = catalog.workflows.list(workflow=COLLECTOR, limit=MOST_COLLECTIONS)
    for collection in reversed(collections):
        if collection.parameters.get(FOLLOW) != name:
            continue
        asked = catalog.calls.asked(collection.id, limit=100_000)
        runs = catalog.runs.get_many(list(asked))
        done = [run for run in runs.values() if run.card == CARD and run.state == "succeeded"]
        for run in sorted(done, key=lambda run: (run.finished_at or 0.0, run.id)):
            yield catalog.runs.outputs(run.id)["rollout"]


def _batch(runtime: Runtime, course: Course, taken: Mapping[str, Any]) -> Batch:
    groups: dict[str, list[Group]] = {}
    for digest in taken["rollouts"]:
        ref = runtime.catalog.artifacts.get(digest)
        assert ref is not None, "what was taken is in the catalog"
        group = group_of(runtime, ref)
        groups.setdefault(group.record.card, []).append(group)
    return Batch(groups, course.configuration.off_policy, taken["passed_over"])


def _furthest(group: Group, heads: Heads) -> int | None:
    """How far a group's weights lie behind, of the component that lies furthest; None where nothing of its
    card is trained, or nothing can be learned from it."""
    if not group.record.kept:
        return None
    own = [(part, head) for (card, part), head in heads.items() if card == group.record.card]
    return max((_behind(group, part, head) for part, head in own), default=None)


def _behind(group: Group, component: str, head: WeightVersion) -> int:
    return max(0, head.ordinal - int(group.record.versions[component].rpartition("@")[2]))
