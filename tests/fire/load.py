"""Mixed load: nested workflows, pictures of a real model, failures, cancellations, lone runs; each with the
end that it must have.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fire.crowd import Crowd
from tests.fire.site import Site

FINAL = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}
LONE_RUNS = 40


@dataclass
class Job:
    """A flow run under way, and how it must end."""

    kind: str
    flow_run: str
    end: str
    nudge: Callable[[], None] = lambda: None
    """Called at each look: what a person does to it meanwhile."""


@dataclass
class Load:
    """Keeps a number of jobs under way.

    Attributes:
        ended: how many jobs of each kind have ended as they must.
        wrong: those that have not, in words.
    """

    site: Site
    folder: Path
    at_once: int = 2
    ended: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    _under_way: list[Job] = field(default_factory=list)
    _seeds: Iterator[int] = field(default_factory=lambda: itertools.count(10_000_000, 1_000))
    _crowds: list[Crowd] = field(default_factory=list)

    def __post_init__(self) -> None:
        makers = [self._film, self._failing, self._nested, self._cancelled]
        if "flux-t2i" in self.site.served:
            makers.insert(1, self._picture)
        self._next = itertools.cycle(makers)

    def turn(self, *, more: bool = True) -> bool:
        """Look at every job once, and begin new ones if `more`. Says whether any is under way."""
        for job in list(self._under_way):
            job.nudge()
            state = self.site.api(f"/flow_runs/{job.flow_run}")["state"]
            if state["type"] in FINAL:
                self._under_way.remove(job)
                self._settle(job, state)
        while more and len(self._under_way) < self.at_once:
            self._under_way.append(next(self._next)())
        return bool(self._under_way)

    def lone_runs_done(self) -> bool:
        return all(set(crowd.states()) == {"succeeded"} for crowd in self._crowds)

    def _settle(self, job: Job, state: dict[str, str]) -> None:
        if state["type"] == job.end:
            self.ended[job.kind] += 1
        else:
            self.wrong.append(f"{job.kind} {job.flow_run}: {state['type']} {state['message']}")

    def _film(self) -> Job:
        seed = next(self._seeds)
        self._crowds.append(Crowd.queue(self.site, range(seed + 500, seed + 500 + LONE_RUNS)))
        return Job("film", self.site.submit("fire_film", seed=seed), "COMPLETED")

    def _picture(self) -> Job:
        prompt = "a red circle left of a blue square"
        flow_run = self.site.submit("text_to_image", prompt=prompt, seed=next(self._seeds), steps=4)
        return Job("picture", flow_run, "COMPLETED")

    def _nested(self) -> Job:
        return Job("nested", self.site.submit("fire_nest", seed=next(self._seeds)), "COMPLETED")

    def _failing(self) -> Job:
        return Job("failing", self.site.submit("fire_one", seed=next(self._seeds), trouble="error"), "FAILED")

    def _cancelled(self) -> Job:
        seed = next(self._seeds)
        gate = self.folder / f"gate-{seed}"
        flow_run = self.site.submit("fire_one", seed=seed, gate=str(gate), gate_step=1)

        def cancel() -> None:
            row = next(
                (r for r in self.site.catalog.workflows.list() if r.prefect_flow_run_id == flow_run), None
            )
            if row is not None and gate.with_name(f"{gate.name}.reached").exists() and not gate.exists():
                self.site.catalog.workflows.request_cancel(row.id)
                gate.touch()

        return Job("cancelled", flow_run, "CANCELLED", cancel)
