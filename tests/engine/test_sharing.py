"""Steps that share a call: who meets whom, who pays what, and that nobody's bytes or luck depend on it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.parity.serving import standstill
from mutoscope.platform.engine.request import Request
from mutoscope.platform.engine.ticket import Ticket
from tests.engine.rowtoy import ERROR, HOST_MEMORY, MEMORY, Net, latent, row_instance, row_request


def drain(engine: Engine) -> None:
    while engine.step():
        pass


def alone(request: Request) -> bytes:
    return latent(Engine().run(row_instance(), request))


class Ticking:
    """A clock that advances by the rows that were computed, a second each, and a second a call."""

    def __init__(self, net: Net) -> None:
        self._net = net

    def __call__(self) -> float:
        return float(sum(self._net.calls) + len(self._net.calls))


def test_rows_of_many_requests_meet_in_one_call() -> None:
    net, engine = Net(), Engine()
    instance = row_instance(net, most=8)
    requests = [row_request(f"r{seed}", seed, passes=1 + seed % 2) for seed in range(5)]
    tickets = [engine.submit(instance, request) for request in requests]
    drain(engine)
    assert net.calls == [7] * 4  # 1 + 2 + 1 + 2 + 1 rows, in each of four steps
    assert [latent(ticket.result()) for ticket in tickets] == [alone(request) for request in requests]


def test_rows_at_different_steps_meet() -> None:
    net, engine = Net(), Engine(clock=standstill)
    instance = row_instance(net, most=8)
    engine.submit(instance, row_request("early"))
    for _ in range(3):
        engine.step()
    late = engine.submit(instance, row_request("late", seed=1))
    drain(engine)
    assert net.calls == [1, 1, 1, 2, 1, 1, 1]  # the last step of one is the first of the other
    assert latent(late.result()) == alone(row_request("late", seed=1))


def test_a_call_is_filled_to_its_capacity_and_no_further() -> None:
    net, engine = Net(), Engine(clock=standstill)
    instance = row_instance(net, most=4)
    for seed in range(6):
        engine.submit(instance, row_request(f"r{seed}", seed, num_inference_steps=2))
    drain(engine)
    assert net.calls == [4, 4, 4]  # two steps of six rows, in the order of their turns


def test_without_capacity_everyone_has_a_call_of_their_own() -> None:
    net, engine = Net(), Engine()
    instance = row_instance(net)
    for seed in range(3):
        engine.submit(instance, row_request(f"r{seed}", seed, passes=2))
    drain(engine)
    assert net.calls == [1] * (3 * 4 * 2)


def test_other_shapes_and_other_weights_never_meet() -> None:
    first, second, engine = Net(), Net(), Engine()
    one, other = row_instance(first, most=8), row_instance(second, most=8)
    engine.submit(one, row_request("a"))
    engine.submit(one, row_request("b", height=16))
    engine.submit(other, row_request("c"))
    engine.submit(one, row_request("d"))
    drain(engine)
    assert sorted(first.calls) == [1] * 4 + [2] * 4
    assert second.calls == [1] * 4


@pytest.mark.parametrize("trouble", [ERROR, MEMORY, HOST_MEMORY])
@pytest.mark.parametrize("culprit", [0, 2, 4])
def test_trouble_in_a_shared_call_stays_with_its_row(trouble: float, culprit: int) -> None:
    net, engine = Net(), Engine()
    instance = row_instance(net, most=8)
    requests = [
        row_request(f"r{seed}", seed, passes=2 if seed == 1 else 1, trouble=trouble if seed == culprit else 0)
        for seed in range(5)
    ]
    tickets = [engine.submit(instance, request) for request in requests]
    drain(engine)
    failed = [ticket.request_id for ticket in tickets if ticket.error is not None]
    assert failed == [f"r{culprit}"]
    assert max(net.calls) == 6  # they did share
    for ticket, request in zip(tickets, requests, strict=True):
        if ticket.error is None:
            assert latent(ticket.result()) == alone(request)
    assert not engine._open
    assert not len(engine)


def test_control_a_whole_batch_fails_without_the_splitting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above would see of an engine that gives up at the first failure."""
    from mutoscope.platform.engine import stepping
    from mutoscope.platform.engine.execution import _attempt

    def give_up(plans: Any, batcher: Any, free_unused: Callable[[], None]) -> list[Any]:
        outcome = _attempt(plans, batcher)
        return outcome if isinstance(outcome, list) else [outcome] * len(plans)

    monkeypatch.setattr(stepping, "execute", give_up)
    engine, instance = Engine(), row_instance(most=8)
    tickets = [engine.submit(instance, row_request(f"r{n}", trouble=ERROR * (n == 1))) for n in range(3)]
    drain(engine)
    assert all(ticket.error is not None for ticket in tickets)


def test_a_batch_too_large_for_memory_runs_in_smaller_ones() -> None:
    """No row is to blame, only their number: everybody finishes, with the same bytes."""
    net, engine = Net(), Engine()
    instance = row_instance(net, most=8)
    requests = [row_request(f"r{seed}", seed, most_rows=2) for seed in range(5)]
    tickets = [engine.submit(instance, request) for request in requests]
    drain(engine)
    assert max(net.calls) == 2
    assert [latent(ticket.result()) for ticket in tickets] == [alone(request) for request in requests]


def test_a_step_too_large_by_itself_runs_row_by_row() -> None:
    net = Net()
    request = row_request("r", passes=3, most_rows=1)
    result = Engine().run(row_instance(net, most=8), request)
    assert net.calls == [1] * (4 * 3)
    assert latent(result) == alone(request)


def test_what_a_failed_call_held_is_gone_before_it_is_made_again() -> None:
    """A traceback keeps the frames of a failed call, and they its tensors: made again beside them, a call
    that ran out of memory would run out again."""
    held: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    class Greedy(Net):
        def forward(self, x_BHW: torch.Tensor, sigma_B: torch.Tensor) -> torch.Tensor:
            alive.append(sum(each() is not None for each in held))
            activation = torch.ones(len(x_BHW), 8)
            held.append(weakref.ref(activation))
            if len(activation) > 1:
                raise torch.OutOfMemoryError("planted")
            return super().forward(x_BHW, sigma_B)

    engine, instance = Engine(), row_instance(Greedy(), most=4)
    tickets = [engine.submit(instance, row_request(f"r{n}", n, num_inference_steps=1)) for n in range(4)]
    gc.disable()
    try:
        drain(engine)
    finally:
        gc.enable()
    assert all(ticket.error is None for ticket in tickets)
    assert len(alive) == 7  # calls of 4, 2, 1, 1, 2, 1, 1 rows
    assert alive == [0] * 7


def test_everyone_in_a_call_is_charged_its_share() -> None:
    """A guided request has two rows of the three, so it pays two thirds."""
    net = Net()
    clock = Ticking(net)
    engine, instance = Engine(clock=clock), row_instance(net, most=8)
    guided = engine.submit(instance, row_request("guided", passes=2))
    plain = engine.submit(instance, row_request("plain"))
    drain(engine)
    # Four calls of three rows take four seconds each, by this clock.
    assert guided.result().timings["denoise"] == pytest.approx(4 * 4 * 2 / 3)
    assert plain.result().timings["denoise"] == pytest.approx(4 * 4 * 1 / 3)


def served_until(engine: Engine, tickets: list[Ticket], done: Ticket) -> dict[str, int]:
    """Steps of each request when one of them is done."""
    while not done.done:
        assert engine.step()
    return {ticket.request_id: ticket.progress.step for ticket in tickets}


def test_two_groups_share_the_device_however_many_requests_each_has() -> None:
    net = Net()
    engine, instance = Engine(clock=Ticking(net)), row_instance(net)
    many = [
        engine.submit(instance, row_request(f"m{n}", n, group="many", num_inference_steps=60))
        for n in range(8)
    ]
    one = engine.submit(instance, row_request("one", group="one", num_inference_steps=40))
    at = served_until(engine, [*many, one], one)
    # The one got every second step; the eight divided the others evenly.
    assert sum(at[ticket.request_id] for ticket in many) == pytest.approx(at["one"], abs=12)
    assert max(at[t.request_id] for t in many) - min(at[t.request_id] for t in many) <= 1


def test_priority_is_a_share_of_time() -> None:
    net = Net()
    engine, instance = Engine(clock=Ticking(net)), row_instance(net)
    fast = engine.submit(instance, row_request("fast", priority=3.0, num_inference_steps=60))
    slow = engine.submit(instance, row_request("slow", num_inference_steps=60))
    at = served_until(engine, [fast, slow], fast)
    assert at["slow"] == pytest.approx(20, abs=2)


def test_equal_measurements_give_equal_turns() -> None:
    def turns() -> list[str]:
        net, seen = Net(), list[str]()
        engine, instance = Engine(clock=Ticking(net)), row_instance(net, most=3)
        for n in range(7):
            request = row_request(
                f"r{n}",
                n,
                group=f"g{n % 3}",
                passes=1 + n % 3,
                num_inference_steps=4 + n,
                priority=1.0 + n % 2,
            )
            engine.submit(instance, request, lambda at: seen.append(at.request_id))
        drain(engine)
        return seen

    assert turns() == turns()
