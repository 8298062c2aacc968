"""A workflow run held still at each stage of its life, for somebody to cancel it there.

Each stage is a block around the moment: inside it the run is where the stage says, and stays; leaving the
block takes away what held it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from mutoscope.platform.catalog import RunRecord
from tests.fire.film import PATIENCE_S
from tests.fire.site import Site
from tests.support.deadline import until
from tests.support.tinycard.card import CARD

_LOOK_S = 0.05

Stage = Callable[[Site, int, Path], AbstractContextManager[str]]
"""(site, the run's seed, an empty folder) -> id of the flow run."""


@contextmanager
def scheduled(site: Site, seed: int, folder: Path) -> Iterator[str]:
    """At Prefect only: no process has begun it."""
    yield site.submit("fire_one", seed=seed)


@contextmanager
def queued(site: Site, seed: int, folder: Path) -> Iterator[str]:
    """Its engine run waits for a worker."""
    site.catalog.queues.pause(CARD.id, "tests of cancelling")
    try:
        flow_run = site.submit("fire_one", seed=seed)
        _run_of(site, seed, "queued")
        yield flow_run
    finally:
        site.catalog.queues.resume(CARD.id)


@contextmanager
def claimed(site: Site, seed: int, folder: Path) -> Iterator[str]:
    """A worker holds its engine run, and has not done the first step."""
    with _held_at_step(site, seed, folder, 0) as flow_run:
        yield flow_run


@contextmanager
def mid_step(site: Site, seed: int, folder: Path) -> Iterator[str]:
    """Its engine run is in the second of its steps."""
    with _held_at_step(site, seed, folder, 1) as flow_run:
        yield flow_run


@contextmanager
def put(site: Site, seed: int, folder: Path) -> Iterator[str]:
    """Its engine run is computed, and its bytes are on their way to a store that does not answer."""
    site.catalog.queues.pause(CARD.id, "tests of cancelling")
    flow_run = site.submit("fire_one", seed=seed)
    # Only now: whoever plans a run reads the card's recipe from the store.
    _run_of(site, seed, "queued")
    try:
        for host in site.away:
            assert host.link is not None
            host.link.cut("s3")
        site.catalog.queues.resume(CARD.id)
        _until(lambda: f"\n{seed} " in f"\n{site.journal.read_text()}", "the run is computed")
        assert not _run_of(site, seed, "running").finished
        yield flow_run
    finally:
        for host in site.away:
            assert host.link is not None
            host.link.mend()


@contextmanager
def nested(site: Site, seed: int, folder: Path) -> Iterator[str]:
    """It is the outer of two workflows, and the inner one's engine run is in a step."""
    gate = folder / f"{seed}"
    flow_run = site.submit("fire_nest", seed=seed, gate=str(gate))
    try:
        _reached(gate)
        yield flow_run
    finally:
        gate.touch()


@contextmanager
def suspended(site: Site, seed: int, folder: Path) -> Iterator[str]:
    """It has asked a person, and has no process until there is an answer."""
    flow_run = site.submit("fire_ask", seed=seed)
    _until(lambda: site.api(f"/flow_runs/{flow_run}")["state"]["type"] == "PAUSED", "the question is asked")
    _until(lambda: not any(host.flows() for host in site.away), "its process has ended")
    yield flow_run


STAGES: tuple[Stage, ...] = (scheduled, queued, claimed, mid_step, put, nested, suspended)
COMPUTED: tuple[Stage, ...] = (put, suspended)
"""Stages at which the engine run is computed already."""


def _until(probe: Callable[[], object], what: str) -> None:
    until(probe, what, seconds=PATIENCE_S, every=_LOOK_S)


def _run_of(site: Site, seed: int, state: str) -> RunRecord:
    """The run of that seed, once it is in that state."""

    def look() -> RunRecord | None:
        listed = site.catalog.runs.list(card=CARD.id, state=state, limit=50)
        return next((run for run in listed if run.seed == seed), None)

    return until(look, f"run of seed {seed} {state}", seconds=PATIENCE_S, every=_LOOK_S)


@contextmanager
def _held_at_step(site: Site, seed: int, folder: Path, step: int) -> Iterator[str]:
    gate = folder / f"{seed}"
    flow_run = site.submit("fire_one", seed=seed, gate=str(gate), gate_step=step)
    try:
        _reached(gate)
        yield flow_run
    finally:
        gate.touch()


def _reached(gate: Path) -> None:
    _until(gate.with_name(f"{gate.name}.reached").exists, f"a run at gate {gate.name}")
