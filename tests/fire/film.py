"""A film under way on a site: what it has done so far, and the account of it once it is over."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.catalog.workflows import WorkflowRecord
from mutoscope.platform.custody.fsck import Report, fsck
from tests.fire import expected
from tests.fire.shape import RUNS, WORKFLOWS
from tests.fire.site import Site
from tests.support.contradictions import contradictions
from tests.support.deadline import until
from tests.support.tinycard.card import CARD

PATIENCE_S = 600.0
"""Seconds until something counts as lost. No bar: the time it took is in the report."""
_LISTED = 200
"""Rows looked at, newest first: a film's own are among them as long as nothing else is made."""
_LOOK_S = 0.1


@dataclass(frozen=True)
class Film:
    """One `fire_film`, handed to the work pool. Its runs are those of the seeds from `seed` on."""

    site: Site
    seed: int
    flow_run_id: str
    began: float

    @classmethod
    def begin(cls, site: Site, seed: int) -> Film:
        return cls(site, seed, site.submit("fire_film", seed=seed), time.monotonic())

    @property
    def seconds(self) -> float:
        """Since it was submitted."""
        return time.monotonic() - self.began

    @property
    def row(self) -> WorkflowRecord | None:
        """The outermost workflow's row, once it is open."""
        rows = self.site.catalog.workflows.list(workflow="fire.film", limit=_LISTED)
        return next((row for row in rows if row.prefect_flow_run_id == self.flow_run_id), None)

    def runs(self) -> list[RunRecord]:
        """Its engine runs, oldest first."""
        listed = self.site.catalog.runs.list(card=CARD.id, kind="engine", limit=_LISTED)
        return [run for run in reversed(listed) if self._is_mine(run.seed)]

    def done(self) -> int:
        return sum(run.state == "succeeded" for run in self.runs())

    def running(self) -> list[RunRecord]:
        return [run for run in self.runs() if run.state == "running"]

    def at_work(self, done: int = 8) -> list[RunRecord]:
        """The runs that workers hold, once some are done, some held, and many are still to come."""

        def look() -> list[RunRecord] | None:
            runs = self.runs()
            held = [run for run in runs if run.state == "running"]
            finished = sum(run.state == "succeeded" for run in runs)
            assert finished < RUNS, "the film was over before anything happened to it"
            return held if finished >= done else None

        return until(look, f"film {self.seed} at work", seconds=PATIENCE_S, every=_LOOK_S)

    def wait(self) -> WorkflowRecord:
        """The outermost row, once the catalog and Prefect agree that it has succeeded."""

        def look() -> WorkflowRecord | None:
            row, state = self.row, self.site.api(f"/flow_runs/{self.flow_run_id}")["state"]
            ended = row is not None and row.state == "succeeded" and state["type"] == "COMPLETED"
            return row if ended else None

        try:
            return until(look, f"film {self.seed} succeeded", seconds=PATIENCE_S, every=0.25)
        except AssertionError as error:
            state = self.site.api(f"/flow_runs/{self.flow_run_id}")["state"]
            told = f"{error}: row {self.row}, Prefect {state['type']} {state['message']}, {self.runs()}"
            raise AssertionError(told + self.site.logs()) from None

    def check(self, row: WorkflowRecord, *, twice: Collection[str] = ()) -> dict[str, int]:
        """Nothing is lost, nothing counted twice, nothing left over. Returns the account.

        Args:
            twice: ids of runs that may have been computed again: those whose worker was taken from them.
        """
        site, runs = self.site, self.runs()
        assert dict(row.outputs or {}) == expected.film(site.weights, self.seed)
        others = [run for run in runs if run.state != "succeeded"]
        assert not others, f"each run has one row, and succeeded: {others}"
        assert len(runs) == RUNS
        assert len({run.seed for run in runs}) == len({run.memo_key for run in runs}) == RUNS

        again = {run.id: run.attempt for run in runs if run.attempt > 1}
        assert set(again) <= set(twice), f"taken again: {again}, allowed: {sorted(twice)}"
        computed = self.computed()
        repeated = {seed: times for seed, times in computed.items() if times > 1}
        may = {run.seed for run in runs if run.id in twice}
        assert set(repeated) <= may, f"computed again: {repeated}, allowed: {may}"
        assert len(computed) == RUNS

        calls = Counter(call.disposition for run in runs for call in site.catalog.calls.of_run(run.id))
        assert calls["new"] == RUNS
        self._check_nothing_left_over()
        return {
            "runs": RUNS,
            "computed": sum(computed.values()),
            "attempts": sum(run.attempt for run in runs),
            "taken_again": len(again),
            "calls_new": calls["new"],
            "calls_attached": calls["attached"],
            "calls_hit": calls["hit"],
        }

    def computed(self) -> Counter[int]:
        """How often each run was computed, by its seed, as the card itself noted."""
        seeds = (int(line.split()[0]) for line in self.site.journal.read_text().splitlines())
        return Counter(seed for seed in seeds if self._is_mine(seed))

    def _check_nothing_left_over(self) -> None:
        catalog = self.site.catalog
        assert catalog.workflows.list(state="running") == []
        assert not {"queued", "running"} & set(catalog.runs.counts())
        rows = [w for w in catalog.workflows.list(limit=_LISTED) if w.workflow.startswith("fire.")]
        mine = [w for w in rows if self._is_mine(w.parameters.get("seed")) and w.state == "succeeded"]
        # What goes on in another process goes through its inner workflows again, by way of the memo.
        made = {(w.workflow, w.parameters["seed"], str(w.outputs)) for w in mine}
        assert len(made) == WORKFLOWS, f"{len(mine)} workflow runs, {len(made)} of them different"
        assert contradictions(catalog) == {}
        check_clean(self.site)

    def _is_mine(self, seed: int | None) -> bool:
        return seed is not None and self.seed <= seed < self.seed + RUNS


def check_clean(site: Site) -> None:
    """fsck finds no fault, every byte read."""
    report = Report()
    findings = list(fsck(site.catalog, site.store, deep=True, report=report))
    assert report.clean, [str(found.finding) for found in findings]
    assert report.tally.objects > 0
