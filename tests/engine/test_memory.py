"""Memory: what is measured, what is promised, who is let in, who is refused, and that all of it returns."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

from mutoscope.platform.engine.admission import PATIENCE
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.footprint import held_bytes, module_storages, watching, weights_bytes
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.memory import FIRST_GUESS, MARGIN, Ledger, MemoryModel, Need
from mutoscope.platform.engine.parity.serving import standstill
from mutoscope.platform.engine.ticket import Ticket
from mutoscope.platform.engine.views import view_of
from mutoscope.platform.errors import InvalidParameter
from tests.engine.rowtoy import ERROR, Net, latent, row_instance, row_request

KIB = 2**10
CPU = torch.device("cpu")


def drain(engine: Engine) -> None:
    while engine.step():
        pass


# What things take


def test_weights_are_counted_once_however_they_are_shared() -> None:
    tied = nn.Linear(16, 16, bias=False)
    both = nn.Sequential(tied, nn.Linear(16, 16, bias=False))
    both[1].weight = tied.weight
    assert sum(module_storages(both).values()) == 16 * 16 * 4
    view = view_of(both, {"0.weight": torch.zeros(16, 16)})
    assert weights_bytes({"base": both, "again": both, "tokenizer": "no module"}) == 1024
    assert weights_bytes({"base": both, "adapted": view}) == 2048  # a view's own tensor, tied as its base's


def test_a_peak_counts_what_is_alive_at_once() -> None:
    x = torch.zeros(1024)  # was there before: 4 KiB that do not count
    with torch.inference_mode(), watching(CPU) as peak:
        y = x + 1  # 4 KiB
        z = y * 2  # 8 KiB
        del y  # 4 KiB
        w = torch.cat([z, z, z])  # 16 KiB
        w.mul_(2)
        w.view(3, -1)[0]
    assert peak.bytes == 16 * KIB


def test_what_a_request_holds_is_found_wherever_it_is() -> None:
    shared = torch.zeros(256)
    held = {"a": shared, "b": [shared[:10], {"c": torch.zeros(3, dtype=torch.uint8)}], "net": nn.Linear(9, 9)}
    assert held_bytes(held) == 1024 + 3


@pytest.mark.parametrize("extent", [1.0, 8.0, 100.0])
def test_an_estimate_covers_every_smaller_measurement(extent: float) -> None:
    model = MemoryModel()
    for at, peak in ((4.0, 1000), (16.0, 4000), (8.0, 2500)):
        model.observe("c", "denoise", at, peak=peak, held=int(10 * at))
    model.complete("c")
    need = model.need("c", extent, weights=0)
    # Between measurements the next larger one; beyond them the line through the ends, 250 bytes a unit.
    expected = {1.0: 1000, 8.0: 2500, 100.0: 4000 + 84 * 250}[extent]
    assert need == Need({1.0: 50, 8.0: 100, 100.0: 1250}[extent], int(expected * MARGIN))


def test_a_single_measurement_is_scaled() -> None:
    model = MemoryModel()
    model.observe("c", "denoise", 10.0, peak=1000, held=0)
    model.complete("c")
    assert model.need("c", 30.0, weights=0).peak == int(3000 * MARGIN)


def test_an_unmeasured_card_is_taken_to_need_as_much_as_it_weighs() -> None:
    model = MemoryModel()
    assert model.need("c", 1.0, weights=10**9) == Need(10**9 // 8, 10**9, measured=False)
    assert model.need("c", 1.0, weights=0).peak == FIRST_GUESS
    model.observe("c", "text_encode", 1.0, peak=5, held=1)
    # One kind is known, the others may need more.
    assert not model.need("c", 1.0, weights=0).measured


def test_points_are_bounded_and_keep_the_ends() -> None:
    model = MemoryModel()
    for at in range(1, 200):
        model.observe("c", "k", float(at), peak=at * 10, held=0)
    growth = model._peaks["c"]["k"]
    assert len(growth.points) == len(growth.steps) <= 65
    assert {1.0, 199.0} <= set(growth.points)
    assert growth.at(398.0) == 3980.0


# What is promised


def test_holdings_add_up_and_peaks_do_not() -> None:
    ledger, net = Ledger(budget=10_000), {"net": nn.Linear(10, 10, bias=False)}
    one, other = object(), object()
    ledger.reserve(one, net, Need(held=1000, peak=5000))
    ledger.reserve(other, net, Need(held=1000, peak=3000))
    assert (ledger.weights, ledger.held, ledger.reserved) == (400, 2000, 7400)
    assert ledger.room == 10_000 - 400 - 2000
    assert ledger.missing(net, Need(held=1000, peak=5000)) == 0
    assert ledger.missing(net, Need(held=1000, peak=7000)) == 400
    assert ledger.missing({"net": nn.Linear(50, 10, bias=False)}, Need(held=1000, peak=5000)) == 400
    ledger.release(one, net)
    ledger.release(other, net)
    assert (ledger.weights, ledger.reserved) == (0, 0)


# Who is let in


def measured_engine(instance: Instance, budget: int, **options: Any) -> Engine:
    """An engine that has served one request of 8 x 8, so that the card is measured."""
    engine = Engine(budget=budget, clock=standstill, **options)
    engine.run(instance, row_request("pilot"))
    return engine


def needs(instance: Instance, **asked: Any) -> Need:
    """What an engine with all the room in the world has measured of such a request."""
    engine = Engine(budget=2**40)
    engine.run(instance, row_request("probe", **asked))
    height, width = asked.get("height", 8), asked.get("width", 8)
    return engine._model.need("row-toy", height * width, 0)


def test_measuring_changes_no_bytes() -> None:
    instance = row_instance()
    watched = Engine(budget=2**30).run(instance, row_request("r", passes=2))
    assert latent(watched) == latent(Engine().run(instance, row_request("r", passes=2)))


def test_each_size_is_measured_once_and_whenever_a_loop_has_doubled_its_steps() -> None:
    engine, seen = Engine(budget=2**30), []
    instance = row_instance()
    observe = engine._model.observe
    engine._model.observe = lambda *key, **sizes: (seen.append(key), observe(*key, **sizes))  # type: ignore[method-assign, assignment]
    for name in "ab":
        engine.run(instance, row_request(name))
    denoise = [("row-toy", "denoise", 64, step) for step in (1, 2, 4)]
    assert seen == [("row-toy", "text_encode", 64, 1), *denoise]
    engine.run(instance, row_request("c", height=16, num_inference_steps=1))
    assert seen[4:] == [("row-toy", "text_encode", 128, 1), ("row-toy", "denoise", 128, 1)]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"height": 4096}, r"^height=4096 is not valid: it needs [\d.]+ [KM]iB beside 8 B of weights"),
        ({"width": 4096, "height": 16}, r"^width=4096 is not valid"),
    ],
)
def test_a_request_that_never_fits_is_refused_at_once(asked: dict[str, int], names: str) -> None:
    instance = row_instance()
    engine = measured_engine(instance, budget=64 * KIB)
    with pytest.raises(InvalidParameter, match=names) as refusal:
        engine.submit(instance, row_request("huge", **asked))
    assert "the device has 64.0 KiB: use" in str(refusal.value)
    assert not len(engine)
    # What the refusal proposes is served, and the next larger size is not.
    field, fitting = refusal.value.field, int(str(refusal.value).split("use ")[1].split()[0])
    engine.run(instance, row_request("fits", **{**asked, field: fitting}))
    with pytest.raises(InvalidParameter):
        engine.submit(instance, row_request("larger", **{**asked, field: fitting * 2}))


def test_weights_larger_than_the_device_name_the_card() -> None:
    instance = row_instance()
    engine = measured_engine(instance, budget=2**20)
    engine.memory.budget = 7
    with pytest.raises(InvalidParameter, match=r"height=8 is not valid: .* use a larger device"):
        engine.submit(instance, row_request("r"))


def test_an_unmeasured_request_is_tried_and_measured_rather_than_refused() -> None:
    engine = Engine(budget=1 * KIB)
    engine.run(row_instance(), row_request("tried"))
    with pytest.raises(InvalidParameter, match=r"the device has 1\.0 KiB"):
        engine.submit(row_instance(), row_request("known", height=64))


def test_what_turns_out_never_to_fit_while_it_waits_is_refused_then() -> None:
    engine = Engine(budget=8 * KIB)
    instance = row_instance()
    first = engine.submit(instance, row_request("first"))
    hopeless = engine.submit(instance, row_request("hopeless", height=256))
    while not first.done:
        engine.step()
    assert not hopeless.done
    others = [engine.submit(instance, row_request(f"r{n}")) for n in range(20)]
    engine.step()
    # It is told before anybody passes it, let alone waits for it.
    assert isinstance(hopeless.error, InvalidParameter)
    drain(engine)
    assert all(ticket.result() for ticket in others)


def at_work(engine: Engine) -> set[str]:
    return {job.request.id for job in engine._queue}


def crowded(instance: Instance) -> tuple[Engine, int]:
    """An engine with room for three requests of 8 x 8, and what one of them holds."""
    need = needs(instance)
    return measured_engine(instance, budget=8 + 3 * need.held + need.peak), need.held


def test_what_does_not_fit_waits_and_is_served_in_order() -> None:
    instance = row_instance()
    engine, _ = crowded(instance)
    tickets = [engine.submit(instance, row_request(f"r{n}", n)) for n in range(8)]
    engine.step()
    assert at_work(engine) == {"r0", "r1", "r2"}
    assert engine.memory.reserved <= (engine.memory.budget or 0)
    finished: list[str] = []
    while engine.step():
        assert engine.memory.reserved <= (engine.memory.budget or 0)
        finished += [t.request_id for t in tickets if t.done and t.request_id not in finished]
    assert finished == [f"r{n}" for n in range(8)]
    assert engine.memory.reserved == 0


def test_smaller_requests_pass_a_large_one_but_not_for_ever() -> None:
    """Small ones keep coming, two at work at any time, which leaves no room for the large one: after
    `PATIENCE` of them it is given way to."""
    instance = row_instance()
    small, large = needs(instance), needs(instance, height=16)
    engine = measured_engine(instance, budget=8 + large.held + large.peak + small.held // 2)
    engine.run(instance, row_request("measured", height=16))
    first = [engine.submit(instance, row_request(f"s{n}")) for n in range(2)]
    engine.step()
    wanted = engine.submit(instance, row_request("large", height=16))
    small_ones: list[Ticket] = first
    while wanted.progress.step == 0:
        if sum(not ticket.done for ticket in small_ones) < 4:
            small_ones.append(engine.submit(instance, row_request(f"s{len(small_ones)}")))
        assert engine.step()
        assert len(small_ones) < 3 * PATIENCE
    started = sum(ticket.progress.step > 0 for ticket in small_ones)
    assert 2 < started <= 2 + PATIENCE
    drain(engine)
    assert wanted.result()


def test_a_group_does_not_fill_the_device_with_its_queue() -> None:
    instance = row_instance()
    engine, _ = crowded(instance)
    many = [engine.submit(instance, row_request(f"m{n}", group="many")) for n in range(10)]
    engine.step()
    assert at_work(engine) == {"m0", "m1", "m2"}
    other = engine.submit(instance, row_request("other", group="other"))
    while "other" not in at_work(engine):
        engine.step()
    assert not other.done
    # m0's place became its, and in the step that saw to it m1 ended as well.
    assert [ticket.request_id for ticket in many if ticket.done] == ["m0", "m1"]
    assert at_work(engine) == {"m2", "other"}


def test_requests_without_a_group_are_groups_of_their_own() -> None:
    instance = row_instance()
    engine, _ = crowded(instance)
    begun: dict[str, None] = {}
    asked = [("s0", ""), ("s1", ""), ("s2", ""), ("g0", "g"), ("g1", "g"), ("s3", "")]
    for name, group in asked:
        engine.submit(
            instance, row_request(name, group=group), lambda at: begun.setdefault(at.request_id, None)
        )
    drain(engine)
    # The fourth that is nobody's stands behind one of the group, and before the group's second.
    assert list(begun) == ["s0", "s1", "s2", "g0", "s3", "g1"]


def test_room_is_made_for_what_requests_may_take() -> None:
    asked: list[int] = []
    instance = row_instance()
    need = needs(instance)
    engine = measured_engine(instance, budget=8 + 2 * need.held + need.peak, make_room=asked.append)
    asked.clear()
    for name in "ab":
        engine.submit(instance, row_request(name))
    drain(engine)
    assert asked == [need.held + need.peak, 2 * need.held + need.peak]


def test_a_host_that_cannot_make_room_fails_the_request_and_nothing_is_reserved_for_it() -> None:
    def refuse(size: int) -> None:
        raise LookupError("no room")

    engine, instance = Engine(budget=2**30, make_room=refuse), row_instance()
    ticket = engine.submit(instance, row_request("r"))
    drain(engine)
    assert isinstance(ticket.error, LookupError)
    assert (engine.memory.reserved, len(engine)) == (0, 0)


def test_a_shared_call_takes_no_more_steps_than_their_peaks_have_room_for() -> None:
    net = Net()
    instance = row_instance(net, most=8)
    need = needs(instance)
    peak = measured_engine(instance, 2**30)._model.peak("row-toy", "denoise", 64)
    engine = measured_engine(instance, budget=8 + 5 * need.held + 2 * peak + need.peak - peak)
    net.calls.clear()
    for n in range(4):
        engine.submit(instance, row_request(f"r{n}", n))
    drain(engine)
    assert max(net.calls) < 4
    assert sum(net.calls) == 4 * 4


# That it returns


@pytest.mark.parametrize("end", ["success", "failure", "cancelled while waiting", "cancelled at work"])
def test_reservations_are_returned(end: str) -> None:
    instance = row_instance()
    engine, _ = crowded(instance)
    asked: Mapping[str, Any] = {"trouble": ERROR} if end == "failure" else {}
    tickets = [engine.submit(instance, row_request(f"r{n}", **asked)) for n in range(5)]
    engine.step()
    if end.startswith("cancelled"):
        victims = tickets[3:] if "waiting" in end else tickets[:3]
        for ticket in victims:
            ticket.cancel()
    drain(engine)
    assert all(ticket.done for ticket in tickets)
    assert (engine.memory.reserved, engine.memory.weights, len(engine)) == (0, 0, 0)


@pytest.mark.parametrize(
    "end", [lambda engine, ticket: drain(engine), lambda engine, ticket: (ticket.cancel(), engine.step())]
)
def test_the_bytes_of_a_request_are_gone_with_it(end: Callable[[Engine, Ticket], Any]) -> None:
    """Counted by the storages that came to life under the request, without the help of the collector."""
    from mutoscope.platform.engine.footprint import LiveBytes

    engine, instance = Engine(), row_instance()
    gc.collect()
    gc.disable()
    live = LiveBytes()
    try:
        with live:
            ticket = engine.submit(instance, row_request("r", height=64, width=64, num_inference_steps=6))
            for _ in range(4):
                engine.step()
            assert live.now >= 64 * 64 * 4
            end(engine, ticket)
            if ticket.cancelled:
                assert live.now == 0
            else:
                # The result is a view of the last latents, and all that is left.
                assert live.now == 64 * 64 * 4 == len(latent(ticket.result()))
                ticket._result = None
                assert live.now == 0
    finally:
        gc.enable()
