"""The power fails: a thousand queued runs outlive every process of the installation."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.fire.crowd import Crowd
from tests.fire.film import PATIENCE_S, check_clean
from tests.fire.report import Report, say
from tests.fire.site import Site
from tests.support.contradictions import contradictions
from tests.support.deadline import until
from tests.support.tinycard.card import CARD

pytestmark = pytest.mark.fire

RUNS = 1_000
EARLY = 20
"""Runs done when the power fails: work is under way by then, and nearly all of it still to come."""


def test_a_thousand_queued_runs_survive_a_restart_of_everything(
    site: Site, report: Report, fresh_seed: Callable[[], int]
) -> None:
    first = fresh_seed()
    began = time.monotonic()
    site.catalog.queues.pause(CARD.id, "until all of them are queued")
    crowd = Crowd.queue(site, range(first, first + RUNS), num_inference_steps=1)
    assert crowd.states() == {"queued": RUNS}
    say(f"restart: {RUNS} runs queued in {time.monotonic() - began:.1f} s")
    site.catalog.queues.resume(CARD.id)
    until(
        lambda: crowd.states()["succeeded"] >= EARLY,
        "the first of the crowd",
        seconds=PATIENCE_S,
        every=0.25,
    )

    for host in site.hosts:
        host.crash()
    held = {run.id for run in crowd.runs() if run.state == "running"}
    states = crowd.states()
    site.postgres.kill()
    site.s3.kill()
    assert states["succeeded"] < RUNS
    assert states["queued"] > 0
    down = time.monotonic()
    site.postgres.start()
    site.s3.start()
    assert crowd.states() == states, "what was acknowledged is there"
    site.begin()
    up = time.monotonic()
    say(f"restart: everything killed at {dict(states)}, up again after {up - down:.0f} s")

    until(lambda: crowd.states() == {"succeeded": RUNS}, "the whole crowd", seconds=PATIENCE_S, every=0.5)
    done = time.monotonic()
    runs = crowd.runs()
    again = [run for run in runs if run.attempt > 1]
    assert {run.id for run in again} <= held
    assert len(crowd.computed()) == RUNS
    assert crowd.computed_again(held) == {}
    assert contradictions(site.catalog) == {}
    check_clean(site)
    report.add(
        "restart_of_everything",
        {
            "runs": RUNS,
            "states_when_killed": dict(states),
            "taken_again": len(again),
            "up_again_seconds": round(up - down, 1),
            "all_done_after_seconds": round(done - up, 1),
        },
    )
