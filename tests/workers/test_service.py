"""Cards loaded, unloaded and drained at run time, as an operator asks through the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mutoscope.models.registry import get_card
from mutoscope.platform.catalog import weights_key
from mutoscope.platform.errors import CatalogUnavailable, UnknownReference
from mutoscope.workers.device import open_device
from mutoscope.workers.reports import RETRY_S
from mutoscope.workers.selection import select
from mutoscope.workers.service import Service
from mutoscope.workers.worker import Worker
from tests.support.deadline import until
from tests.support.tinycard.card import CARD
from tests.support.workshop import WorkerProcess, Workshop


@pytest.fixture
def hall(tmp_path: Any) -> Any:
    """A home whose workers beat often: what is asked is heard with a beat."""
    workshop = Workshop(tmp_path / "home", heartbeat_seconds=0.1)
    yield workshop
    workshop.close()


def ask(workshop: Workshop, worker: WorkerProcess, **wanted: Any) -> None:
    """Ask, and wait until the worker says that it has done so."""
    assert worker.id is not None
    serial = workshop.catalog.workers.ask(worker.id, **wanted).serial
    until(lambda: row(workshop, worker).done_serial >= serial, f"{wanted} done")


def row(workshop: Workshop, worker: WorkerProcess) -> Any:
    return next(each for each in workshop.catalog.workers.list() if each.pid == worker.pid)


def key(workshop: Workshop) -> str | None:
    """What the live weights are called."""
    live = workshop.catalog.weights.live(CARD.id)
    return weights_key(CARD.id, {name: version.digest for name, version in live.items()})


def resident(workshop: Workshop, worker: WorkerProcess) -> Callable[[], list[str]]:
    return lambda: list(row(workshop, worker).cards.get(CARD.id, {}).get("resident", {}))


@pytest.fixture
def service(hall: Workshop) -> Iterator[Service]:
    """Of a worker that does not run: the test takes its steps."""
    cards = [CARD, get_card("flux-t2i")]
    worker = Worker(hall.settings, hall.catalog, hall.store, open_device(hall.settings), cards)
    yield worker._service
    worker._watch.close()


def test_a_card_is_served_while_others_are_prepared(service: Service) -> None:
    assert (service.served(), service.preparing) == ([], True)
    service.prepare_next()
    assert (service.served(), service.preparing) == ([CARD.id], True)
    assert set(service.contracts()) == {CARD.id}
    facts = service.facts(complete=False)
    assert "contract" in facts[CARD.id]
    assert "contract" not in facts["flux-t2i"], "no run is planned for less than it will have in a moment"
    service.prepare_next()  # it has no weights here: it is served from the moment it has
    assert (service.served(), service.preparing) == ([CARD.id, "flux-t2i"], False)


def test_a_card_about_which_nobody_answers_stays_in_line(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as outage:
        outage.setattr(service.catalog.weights, "live", away)
        service.prepare_next()
    assert (service.served(), service.may_prepare) == ([], False)
    now = service.clock() + RETRY_S
    service.clock = lambda: now
    assert service.may_prepare
    service.prepare_next()
    assert service.served() == [CARD.id]


def away(card: str) -> Any:
    raise CatalogUnavailable("no route to host")


def test_its_row_says_what_is_in_memory_and_what_it_did(hall: Workshop) -> None:
    with hall.worker() as worker:
        worker.wait_ready()
        assert resident(hall, worker)() == [key(hall)]
        assert row(hall, worker).memory_bytes > 0
        hall.run(seed=1)

        def counted() -> bool:
            facts = row(hall, worker).cards[CARD.id]
            return (facts["running"], facts["finished"]) == (0, 1)

        until(counted, "the run counted")
        config = '{"_class_name": "Matrix"}'
        assert row(hall, worker).cards[CARD.id]["bytes"] == 4 * 4 * 4 + len(config), "a matrix of float32"


def test_an_unloaded_card_is_not_served_until_it_is_loaded_again(hall: Workshop) -> None:
    with hall.worker() as worker:
        worker.wait_ready()
        ask(hall, worker, unload=[CARD.id])
        assert CARD.id not in row(hall, worker).cards
        assert hall.catalog.workers.alive(CARD.id) == []
        waiting = hall.enqueue(seed=2).run.id
        ask(hall, worker, unload=[CARD.id])  # a later word was heard: it has looked at the queue since
        assert hall.catalog.runs.get(waiting).state == "queued"
        ask(hall, worker, load=[CARD.id])
        assert hall.wait(waiting).state == "succeeded"
        assert resident(hall, worker)() == [key(hall)]


def test_an_alias_that_is_loaded_is_followed(hall: Workshop) -> None:
    with hall.worker() as worker:
        worker.wait_ready()
        before = key(hall)
        hall.import_weights(seed=7)
        assert resident(hall, worker)() == [before], "nobody asked yet"
        ask(hall, worker, load=[f"{CARD.id}@live"])
        assert resident(hall, worker)() == [before, key(hall)]
        hall.import_weights(seed=8)
        until(lambda: key(hall) in resident(hall, worker)(), "the weights that the alias names now")


def test_one_version_is_loaded_and_dropped_and_the_card_goes_on(hall: Workshop) -> None:
    first = key(hall)
    hall.import_weights(seed=9)
    with hall.worker() as worker:
        worker.wait_ready()
        assert resident(hall, worker)() == [key(hall)]
        ask(hall, worker, load=[f"{CARD.id}/net@1"])
        assert set(resident(hall, worker)()) == {first, key(hall)}
        ask(hall, worker, unload=[f"{CARD.id}/net@1"])
        assert resident(hall, worker)() == [key(hall)]
        assert hall.run(seed=3).state == "succeeded"


def test_what_cannot_be_loaded_is_told_and_harms_nothing(hall: Workshop) -> None:
    with hall.worker() as worker:
        worker.wait_ready()
        ask(hall, worker, load=[f"{CARD.id}/net@99"])
        assert "no weights are named 'tiny-test/net@99'" in row(hall, worker).cards[CARD.id]["trouble"]
        assert hall.run(seed=4).state == "succeeded"


def test_a_worker_that_is_asked_to_drain_ends(hall: Workshop) -> None:
    with hall.worker() as worker:
        worker.wait_ready()
        assert worker.id is not None
        hall.catalog.workers.ask(worker.id, drain=True)
        assert worker.wait_exit() == 0
        assert worker.state() == "stopped"


def test_a_selection_is_spelled_as_elsewhere(hall: Workshop) -> None:
    live = {name: version.digest for name, version in hall.catalog.weights.live(CARD.id).items()}
    whole = select(hall.catalog, {CARD.id: CARD}, CARD.id)
    assert (whole.weights, whole.chosen, whole.follows) == (live, {}, False)
    aliased = select(hall.catalog, {CARD.id: CARD}, f"{CARD.id}@live")
    assert (aliased.weights, aliased.chosen, aliased.follows) == (live, live, True)
    numbered = select(hall.catalog, {CARD.id: CARD}, f"{CARD.id}/net@1")
    assert (numbered.weights, numbered.chosen, numbered.follows) == (live, {"net": live["net"]}, False)
    with pytest.raises(UnknownReference):
        select(hall.catalog, {CARD.id: CARD}, f"{CARD.id}@nonesuch")
