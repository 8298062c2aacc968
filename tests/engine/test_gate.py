"""What a weight sync asks of the engine: hold back who has not begun, serve them on what it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.parity.serving import standstill
from tests.engine.rowtoy import Net, row_instance, row_request


def drain(engine: Engine) -> None:
    while engine.step():
        pass


class Place:
    """A source that can be pointed elsewhere."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    def __call__(self) -> Instance:
        return self.instance


PARTS = {
    "source": lambda place: place,
    "instance": lambda place: place.instance,
    "component": lambda place: place.instance.components["net"],
}


@pytest.mark.parametrize("part", PARTS)
def test_a_frozen_part_holds_back_who_has_not_begun(part: str) -> None:
    engine, place, other = Engine(clock=standstill), Place(row_instance()), Place(row_instance())
    frozen: Any = PARTS[part](place)
    begun = engine.submit(place, row_request("begun"))
    engine.step()
    engine.freeze(frozen)
    held = engine.submit(place, row_request("held"))
    passing = engine.submit(other, row_request("passing"))
    assert (engine.in_flight(frozen), len(engine)) == (1, 3)
    drain(engine)
    assert begun.done
    assert passing.done
    assert not held.done
    assert engine.in_flight(frozen) == 0
    engine.resume(frozen)
    drain(engine)
    assert held.result()


def test_freezing_nests() -> None:
    engine, place = Engine(), Place(row_instance())
    engine.freeze(place)
    engine.freeze(place)
    ticket = engine.submit(place, row_request("r"))
    engine.resume(place)
    drain(engine)
    assert not ticket.done
    engine.resume(place)
    drain(engine)
    assert ticket.done
    with pytest.raises(ValueError, match="a Place is resumed that is not frozen"):
        engine.resume(place)


def test_who_waited_is_served_on_what_a_sync_left() -> None:
    engine = Engine()
    old, new = row_instance(weights={"net": "old"}), row_instance(Net(), weights={"net": "new"})
    place = Place(old)
    first = engine.submit(place, row_request("first"))
    engine.step()
    engine.freeze(place)
    second = engine.submit(place, row_request("second"))
    place.instance = new
    drain(engine)
    engine.resume(place)
    drain(engine)
    assert first.result().weights == {"net": "old"}
    assert second.result().weights == {"net": "new"}


def test_a_request_that_waits_can_be_cancelled() -> None:
    engine, place = Engine(), Place(row_instance())
    engine.freeze(place)
    ticket = engine.submit(place, row_request("r"))
    ticket.cancel()
    assert not engine.step()
    assert ticket.cancelled
    assert not len(engine)


def test_running_into_a_frozen_part_is_an_error_and_no_endless_wait() -> None:
    engine, place = Engine(), Place(row_instance())
    engine.freeze(place)
    with pytest.raises(RuntimeError, match="request r waits for a part that is frozen: resume it"):
        engine.run(place, row_request("r"))


def test_a_source_that_is_gone_when_its_turn_comes_fails_its_request_alone() -> None:
    class Closing(Place):
        asked = 0

        def __call__(self) -> Instance:
            self.asked += 1
            if self.asked > 1:
                raise LookupError("closed meanwhile")
            return self.instance

    engine = Engine()
    gone = engine.submit(Closing(row_instance()), row_request("gone"))
    other = engine.submit(row_instance(), row_request("other"))
    drain(engine)
    assert isinstance(gone.error, LookupError)
    assert other.result()


def test_a_source_that_is_gone_stops_nobody_else() -> None:
    """Neither where memory is asked about nor where something is frozen."""

    class Closing(Place):
        closed = False

        def __call__(self) -> Instance:
            if self.closed:
                raise LookupError("closed meanwhile")
            return self.instance

    engine, source, frozen = Engine(budget=2**30), Closing(row_instance()), row_instance()
    engine.submit(row_instance(), row_request("first"))
    engine.step()
    engine.freeze(frozen)
    gone = engine.submit(source, row_request("gone"))
    other = engine.submit(row_instance(), row_request("other"))
    source.closed = True
    drain(engine)
    assert isinstance(gone.error, LookupError)
    assert other.result()
