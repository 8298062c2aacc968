"""`mutoscope cancel`, at every stage of a workflow run: nothing of it is left running, on any host."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mutoscope.platform.catalog.workflows import WorkflowRecord
from tests.fire.crowd import Crowd
from tests.fire.film import PATIENCE_S, check_clean
from tests.fire.report import Report
from tests.fire.site import Site
from tests.fire.stages import COMPUTED, STAGES, Stage
from tests.support.contradictions import contradictions
from tests.support.deadline import until

pytestmark = pytest.mark.fire

FINAL = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}
_LISTED = 50


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_nothing_is_left_of_it(
    site: Site, report: Report, fresh_seed: Callable[[], int], tmp_path: Path, stage: Stage
) -> None:
    seed = fresh_seed()
    with stage(site, seed, tmp_path) as flow_run:
        site.command("cancel", flow_run, "--wait", "0")
        asked = time.monotonic()
        # The workflow ends at the word, whatever its worker and the store are busy with.
        until(lambda: all(row.finished_at for row in _rows(site, seed)), "its rows are closed", every=0.1)
    until(lambda: _is_over(site, flow_run), f"the end of flow run {flow_run}", seconds=PATIENCE_S, every=0.1)
    seconds = time.monotonic() - asked

    assert site.api(f"/flow_runs/{flow_run}")["state"]["type"] == "CANCELLED"
    rows = _rows(site, seed)
    assert {row.state for row in rows} <= {"cancelled"}
    computed = f"\n{seed} " in f"\n{_journal(site)}"
    assert computed == (stage in COMPUTED), "a step after the word was one too many"
    assert contradictions(site.catalog) == {}

    after = Crowd.queue(site, [fresh_seed()])
    until(lambda: after.states() == {"succeeded": 1}, "the workers are of use", seconds=PATIENCE_S, every=0.1)
    check_clean(site)
    report.add(f"cancel_{stage.__name__}", {"over_after_seconds": round(seconds, 2), "rows": len(rows)})


def test_the_pool_is_of_use_afterwards(site: Site, seed: int) -> None:
    flow_run = site.submit("fire_nest", seed=seed)
    until(
        lambda: site.api(f"/flow_runs/{flow_run}")["state"]["type"] == "COMPLETED",
        "a workflow after all that were cancelled",
        seconds=PATIENCE_S,
        every=0.25,
    )
    assert [row.state for row in _rows(site, seed)] == ["succeeded", "succeeded"]


def _is_over(site: Site, flow_run: str) -> bool:
    """No row, no process and no flow run of it is open any more."""
    if site.api(f"/flow_runs/{flow_run}")["state"]["type"] not in FINAL:
        return False
    in_flight = {"queued", "running"} & set(site.catalog.runs.counts())
    open_rows = site.catalog.workflows.list(state="running")
    ours = {
        "flow_runs": {"state": {"type": {"not_any_": sorted(FINAL)}}},
        "flows": {"name": {"like_": "fire_"}},
    }
    open_flow_runs = site.api("/flow_runs/filter", ours)
    processes = [flow for host in site.away for flow in host.flows()]
    return not (in_flight or open_rows or open_flow_runs or processes)


def _rows(site: Site, seed: int) -> list[WorkflowRecord]:
    listed = site.catalog.workflows.list(limit=_LISTED)
    return [row for row in listed if row.parameters.get("seed") == seed]


def _journal(site: Site) -> str:
    return site.journal.read_text()
