"""The engine: interleaving, isolation, cancellation, progress and timings, on the toy card."""

from __future__ import annotations

import gc
import traceback
import weakref
from typing import Any

import numpy as np
import pytest
import torch

from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.loop import LoopNode
from mutoscope.platform.engine.request import Progress
from mutoscope.platform.errors import InvalidParameter, RunCancelled
from tests.engine.toy import LeakyLoop, ToyLoop, ToyState, toy_instance, toy_request
from tests.support.interleaving import content, orders_that_differ, serve_together

THREE = [toy_request("a", seed=1), toy_request("b", seed=1), toy_request("c", seed=2, num_inference_steps=5)]


def standstill() -> float:
    """A clock by which nothing takes time: steps are charged what they declare."""
    return 0.0


class WatchedLoop(ToyLoop):
    """Remembers weakly the latents of every request it starts."""

    def __init__(self) -> None:
        self.alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()

    def init(self, slots: Any) -> ToyState:
        state = super().init(slots)
        self.alive.add(state.x)
        return state

    def advance(self, state: ToyState, result: torch.Tensor) -> None:
        super().advance(state, result)
        self.alive.add(state.x)


def living(loop: WatchedLoop) -> int:
    gc.collect()
    return len(loop.alive)


def test_interleaved_equals_serial_in_every_order() -> None:
    assert orders_that_differ(toy_instance(), THREE) == []


def test_equal_requests_agree_and_others_differ() -> None:
    served = serve_together(toy_instance(), THREE)
    assert served["a"] == served["b"] != served["c"]


def test_control_request_state_on_the_instance_is_caught() -> None:
    assert orders_that_differ(toy_instance(LeakyLoop()), THREE) != []


def test_requests_take_turns() -> None:
    engine, turns = Engine(clock=standstill), []
    for name in "abc":
        engine.submit(toy_instance(), toy_request(name), lambda at: turns.append(at.request_id))
    while engine.step():
        pass
    assert "".join(turns) == "abc" * 5  # encode + 3 steps + decode, each in turn


def test_a_step_is_one_plan_and_the_last_one_finishes() -> None:
    engine = Engine()
    ticket = engine.submit(toy_instance(), toy_request())
    for _ in range(4):
        assert engine.step()
        assert not ticket.done
    with pytest.raises(RuntimeError, match="request r is at step 4 of 5"):
        ticket.result()
    assert engine.step()
    assert ticket.done
    assert len(engine) == 0
    assert not engine.step()


def test_progress_counts_to_a_total_known_from_the_start() -> None:
    seen: list[Progress] = []
    engine = Engine()
    ticket = engine.submit(toy_instance(), toy_request(num_inference_steps=2), seen.append)
    assert ticket.progress == Progress("r", "encode", 0, 4)
    while engine.step():
        pass
    assert [(at.stage, at.step, at.total) for at in seen] == [
        ("encode", 1, 4),
        ("denoise", 2, 4),
        ("denoise", 3, 4),
        ("decode", 4, 4),
    ]


def test_timings_cover_every_node() -> None:
    timings = Engine().run(toy_instance(), toy_request()).timings
    assert list(timings) == ["encode", "denoise", "decode"]
    assert all(seconds > 0 for seconds in timings.values())


def test_run_gives_waiting_requests_their_turns() -> None:
    engine = Engine()
    waiting = engine.submit(toy_instance(), toy_request("waiting"))
    engine.run(toy_instance(), toy_request("long", num_inference_steps=20))
    assert waiting.done


@pytest.mark.parametrize("step", [0, 2])
def test_a_failing_request_fails_alone(step: int) -> None:
    instance = toy_instance()
    expected = content(Engine().run(instance, THREE[0]))
    engine = Engine()
    failing = engine.submit(instance, toy_request("bad", fail_at=step))
    other = engine.submit(instance, THREE[0])
    while engine.step():
        pass
    assert isinstance(failing.error, ArithmeticError)
    with pytest.raises(ArithmeticError, match=f"planted at step {step}"):
        failing.result()
    assert content(other.result()) == expected


def test_a_failed_request_tells_where_but_keeps_no_tensors() -> None:
    class Wrapping(WatchedLoop):
        def velocity(self, state: ToyState) -> torch.Tensor:
            try:
                return super().velocity(state)
            except ArithmeticError as error:
                raise LookupError("no velocity") from error

    loop = Wrapping()
    engine = Engine()
    ticket = engine.submit(toy_instance(loop), toy_request(fail_at=1))
    while engine.step():
        pass
    assert ticket.error is not None
    told = "".join(traceback.format_exception(ticket.error))
    assert "planted at step 1" in told
    assert "raise LookupError" in told
    assert living(loop) == 0


def test_an_exception_in_the_progress_callback_fails_its_own_request() -> None:
    def refuse(at: Progress) -> None:
        raise LookupError("planted in the callback")

    engine = Engine()
    ticket = engine.submit(toy_instance(), toy_request("a"), refuse)
    other = engine.submit(toy_instance(), toy_request("b"))
    while engine.step():
        pass
    assert isinstance(ticket.error, LookupError)
    assert other.result().outputs["image"].value.shape == (8, 8, 3)


def test_outputs_must_be_those_the_card_declares() -> None:
    instance = toy_instance()
    object.__setattr__(instance.program, "outputs", lambda slots: {})
    with pytest.raises(RuntimeError, match=r"toy fills \[\], but declares \['image', 'latent'\]"):
        Engine().run(instance, toy_request())


def test_cancelling_ends_a_request_at_the_next_step_and_frees_its_state() -> None:
    loop = WatchedLoop()
    instance, engine = toy_instance(loop), Engine(clock=standstill)
    ticket = engine.submit(instance, toy_request("gone"))
    other = engine.submit(instance, toy_request("stays"))
    for _ in range(4):
        engine.step()
    assert living(loop) == 2
    ticket.cancel()
    assert not ticket.done
    engine.step()
    assert ticket.done
    assert ticket.cancelled
    assert living(loop) == 1
    with pytest.raises(RunCancelled, match="run gone was cancelled at step 2 of 5"):
        ticket.result()
    while engine.step():
        pass
    assert content(other.result()) == content(Engine().run(toy_instance(), toy_request("stays")))


def test_cancelling_from_the_progress_callback() -> None:
    engine, tickets = Engine(), []
    tickets.append(engine.submit(toy_instance(), toy_request(), lambda at: tickets[0].cancel()))
    assert engine.step()
    assert not engine.step()
    assert tickets[0].cancelled


def test_cancelling_a_finished_request_changes_nothing() -> None:
    engine = Engine()
    ticket = engine.submit(toy_instance(), toy_request())
    while engine.step():
        pass
    ticket.cancel()
    engine.step()
    assert ticket.result().request_id == "r"


def test_a_finished_request_leaves_nothing_behind_but_its_result() -> None:
    loop = WatchedLoop()
    ticket = (engine := Engine()).submit(toy_instance(loop), toy_request())
    while engine.step():
        pass
    result = ticket.result()
    assert living(loop) == 0  # what is left is NumPy's view of the last latents
    assert isinstance(result.outputs["latent"].value["latents"], np.ndarray)


def test_steps_run_without_autograd() -> None:
    class Probe(ToyLoop):
        seen: list[bool]

        def __init__(self) -> None:
            self.seen = []

        def velocity(self, state: ToyState) -> torch.Tensor:
            self.seen.append(torch.is_inference_mode_enabled())
            return super().velocity(state)

    probe = Probe()
    Engine().run(toy_instance(probe), toy_request())
    assert probe.seen == [True] * 3
    assert not torch.is_inference_mode_enabled()


def test_a_loop_that_has_nothing_to_do_is_reported() -> None:
    instance = toy_instance()
    node = next(node for node in instance.program.nodes if isinstance(node, LoopNode))
    object.__setattr__(
        node.loop, "init", lambda slots: ToyState(x=torch.zeros(1), pull=torch.zeros(1), fail_at=-1)
    )
    with pytest.raises(RuntimeError, match="denoise of toy is done before its first step"):
        Engine().run(instance, toy_request())


def test_submit_refuses_what_the_program_refuses() -> None:
    def refuse(request: Any) -> None:
        raise InvalidParameter("image", "3x3", "too small")

    instance = toy_instance()
    object.__setattr__(instance.program, "check", refuse)
    engine = Engine()
    with pytest.raises(InvalidParameter, match="too small"):
        engine.submit(instance, toy_request())
    assert len(engine) == 0
