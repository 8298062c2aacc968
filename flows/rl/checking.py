"""Evaluations on the way of a training: what is best, what gets worse, and when to stop.

Fixed prompts and seeds are served at the heads and judged. A head that judges better than all before becomes
NAME-best; readings beyond their limits halt the training and put its head back to where the last evaluation
found it well.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from mutoscope.flows.rl import records
from mutoscope.flows.rl.course import Course, Part
from mutoscope.flows.rl.drawing import draw_curves, draw_samples
from mutoscope.flows.rl.evaluate import Shown, read, shown, summary
from mutoscope.flows.rl.telling import show_picture
from mutoscope.platform.catalog import WeightVersion
from mutoscope.platform.catalog.trainings import BEST
from mutoscope.platform.catalog.weights import LIVE
from mutoscope.platform.errors import TrainingHalted
from mutoscope.platform.orchestration.patience import Patience
from mutoscope.platform.orchestration.runtime import Runtime, get_runtime
from mutoscope.platform.training import notes
from mutoscope.platform.training.sentinels import Breach, Readings, breaches

FORMAT = "mutoscope.evaluation/1"

Heads = Mapping[Part, WeightVersion]


class Inspector:
    """Looks at a training's heads when it is time, in the order of iterations."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._settings = course.configuration.evaluation
        self._first: Readings | None = None
        self._well: Heads = course.beginning.heads
        self._highest: float | None = None
        self._best: Heads = {}

    @property
    def best(self) -> dict[str, str]:
        """The version that evaluations liked best, by card/component."""
        return {"/".join(part): str(version) for part, version in self._best.items()}

    def is_due(self, iteration: int) -> bool:
        """Whether there is an evaluation before an iteration, the one after the last included."""
        if self._settings is None:
            return False
        return iteration % self._settings.every == 0 or iteration == self._course.configuration.iterations

    async def look(self, iteration: int, heads: Heads) -> None:
        """Evaluate the heads if it is time, and draw the consequences.

        Raises:
            TrainingHalted: a reading is beyond its limit.
        """
        if not self.is_due(iteration):
            return
        runtime = get_runtime()
        patience = Patience(runtime.settings.catalog_patience_seconds)
        noted = await patience.ask(records.read, runtime, self._course.name, notes.EVALUATION, iteration)
        if noted is None:
            noted = await self._evaluated(runtime, iteration, heads)
            await draw_curves(self._course, iteration)
        found = self._judge(noted)
        await patience.ask(self._conclude, runtime, iteration, heads, noted, found)

    async def _evaluated(self, runtime: Runtime, iteration: int, heads: Heads) -> Mapping[str, Any]:
        """Serve and judge; the record."""
        assert self._settings is not None
        course, settings = self._course, self._settings
        asks = settings.prompts or course.configuration.prompts
        stages, judges = course.served(heads), course.judges()
        at_once = course.configuration.at_once
        samples = await shown(stages, asks, settings.seeds, judges, at_once=at_once)
        others = await shown(stages, settings.held_out, settings.seeds, judges, at_once=at_once)
        statistics = await read(samples)
        record = {
            "format": FORMAT,
            "training": course.name,
            "iteration": iteration,
            "versions": {"/".join(part): str(version) for part, version in heads.items()},
            "scores": summary(samples, judges),
            "held_out": summary(others, judges) if others else None,
            "statistics": None if statistics is None else _json(runtime, statistics.digest),
            "samples": [one.told() for one in samples],
            "held_out_samples": [one.told() for one in others],
        }
        used = records.numbered("samples", (one.made for one in (*samples, *others) if one.made is not None))
        rewards = (scored.ref for one in (*samples, *others) for scored in one.scores.values())
        used |= records.numbered("rewards", (ref for ref in rewards if ref is not None))
        if statistics is not None:
            used["statistics"] = statistics
        sheet = await self._drawn(iteration, samples, len(settings.seeds))
        await asyncio.to_thread(
            records.write,
            runtime,
            course.name,
            notes.EVALUATION,
            iteration,
            record,
            used=used,
            pictures=sheet,
        )
        return record

    async def _drawn(self, iteration: int, samples: Sequence[Shown], columns: int) -> dict[str, Any]:
        sheet = await draw_samples(samples, columns, self._by, f"{self._course.name}, iteration {iteration}")
        if sheet is None:
            return {}
        show_picture(f"samples-{self._course.name}", sheet, f"Before iteration {iteration}")
        return {"samples": sheet}

    @property
    def _by(self) -> str:
        """The judge whose scores decide."""
        assert self._settings is not None
        chosen = (self._settings.best_by, *self._settings.judges, *self._course.configuration.rewards)
        return next(card for card in chosen if card is not None)

    def _judge(self, record: Mapping[str, Any]) -> list[Breach]:
        """What is beyond its limit, held against the first evaluation."""
        assert self._settings is not None
        held_out = record["held_out"]
        nothing = dict.fromkeys(("diversity", "edge_density", "colour_entropy", "dark_fraction"))
        now = Readings.of(record["statistics"] or nothing, held_out and held_out[self._by]["mean"])
        if self._first is None:
            self._first = now
            return []
        return breaches(self._first, now, self._settings.limits)

    def _conclude(
        self,
        runtime: Runtime,
        iteration: int,
        heads: Heads,
        record: Mapping[str, Any],
        found: Sequence[Breach],
    ) -> None:
        """Move aliases; halt if something is wrong."""
        if found:
            self._halt(runtime, iteration, heads, found)
        self._well = heads
        score = record["scores"][self._by]["mean"]
        if score is None or (self._highest is not None and score <= self._highest):
            return
        self._highest, self._best = score, heads
        for version in heads.values():
            runtime.catalog.trainings.advance(f"{self._course.name}{BEST}", version)
            if self._course.configuration.live and iteration:
                runtime.catalog.trainings.advance(LIVE, version)

    def _halt(self, runtime: Runtime, iteration: int, heads: Heads, found: Sequence[Breach]) -> None:
        """Put the head back and say why. Raises TrainingHalted."""
        name = self._course.name
        told = "; ".join(map(str, found))
        back = {"/".join(part): str(version) for part, version in self._well.items()}
        record = {
            "iteration": iteration,
            "reasons": [str(breach) for breach in found],
            "from": {"/".join(part): str(version) for part, version in heads.items()},
            "back_to": back,
        }
        if records.read(runtime, name, notes.HALT, iteration) is None:
            records.write(runtime, name, notes.HALT, iteration, record)
        for version in self._well.values():
            runtime.catalog.weights.set_alias(name, version)
        raise TrainingHalted(
            f"training {name} halted before iteration {iteration}: {told}; "
            f"{name} is back at {', '.join(back.values())}"
        )


def _json(runtime: Runtime, digest: str) -> Any:
    return json.loads(runtime.store.get(digest))
