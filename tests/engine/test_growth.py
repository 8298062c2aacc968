"""An engine that has served thousands of requests is as large as one that has served a few."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Iterator

import psutil
import pytest

from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.features import FeatureCache
from mutoscope.platform.engine.footprint import LiveBytes
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.parity.serving import standstill
from mutoscope.platform.engine.ticket import Ticket
from tests.engine.rowtoy import ERROR, MEMORY, NAN, row_instance, row_request

REQUESTS, WATCHED, WARM_UP = 2_000, 400, 400
AT_WORK = 8
LATENT = 64 * 64 * 4
"""Bytes of one request's latents."""


@pytest.fixture(scope="module")
def instance() -> Instance:
    return row_instance(most=8, weights={"net": "1" * 64})


def traffic(engine: Engine, instance: Instance, count: int, seed: int) -> Iterator[Ticket]:
    """Requests in a stream that keeps eight open: of ten, one fails, one runs out of memory, one turns to NaN
    and two are cancelled somewhere on their way."""
    draw = random.Random(seed)
    open_: list[Ticket] = []
    for number in range(count):
        trouble = draw.choice([0.0] * 7 + [ERROR, MEMORY, NAN])
        request = row_request(
            f"{seed}-{number}", number, group=f"g{number % 7}", trouble=trouble, height=64, width=64,
            prompt=f"prompt {number % 50}", passes=draw.randint(1, 2),
        )  # fmt: skip
        ticket = engine.submit(instance, request)
        open_.append(ticket)
        while len(engine) >= AT_WORK:
            if draw.random() < 0.05:
                draw.choice(open_).cancel()
            engine.step()
            yield from (ticket for ticket in open_ if ticket.done)
            open_ = [ticket for ticket in open_ if not ticket.done]
    while engine.step():
        pass
    yield from open_


def outcomes(engine: Engine, instance: Instance, count: int, seed: int) -> dict[str, int]:
    """How many ended how; results are let go of as a worker does."""
    ended = {"succeeded": 0, "cancelled": 0, "failed": 0}
    for ticket in traffic(engine, instance, count, seed):
        ended["cancelled" if ticket.cancelled else "failed" if ticket.error else "succeeded"] += 1
    return ended


def test_hundreds_of_requests_leave_no_bytes_and_no_records(instance: Instance) -> None:
    engine = Engine(budget=2**30, node_cache=FeatureCache(), clock=standstill)
    outcomes(engine, instance, 50, seed=0)
    gc.collect()
    gc.disable()
    live = LiveBytes()
    try:
        with live:
            ended = outcomes(engine, instance, WATCHED, seed=1)
        # Nothing is left but the fifty prompts that the cache keeps, a number each, and of those none is new.
        assert live.now <= 50 * 64
    finally:
        gc.enable()
    assert sum(ended.values()) == WATCHED
    assert min(ended.values()) > WATCHED // 40
    # Eight requests of at most two rows, and some six tensors in a step's arithmetic.
    assert live.most < 6 * 2 * AT_WORK * LATENT
    assert (engine.memory.reserved, engine.memory.weights, len(engine)) == (0, 0, 0)
    assert not engine._open
    assert not engine._groups
    assert not engine._admission.waiting
    assert len(engine._queue) == 0
    assert len(engine._queue._shares.gone) <= 7


@pytest.mark.long
def test_two_thousand_requests_leave_the_process_as_large_as_it_was(instance: Instance) -> None:
    process = psutil.Process(os.getpid())
    engine = Engine(budget=2**30, node_cache=FeatureCache(), clock=standstill)
    outcomes(engine, instance, WARM_UP, seed=2)
    gc.collect()
    before, objects = process.memory_info().rss, len(gc.get_objects())
    outcomes(engine, instance, REQUESTS, seed=3)
    gc.collect()
    # Had every request left its latents, that were 31 MiB; had each left a record, thousands of objects.
    assert process.memory_info().rss - before < REQUESTS * LATENT / 4
    assert len(gc.get_objects()) - objects < REQUESTS / 4


def test_control_a_leak_of_one_tensor_in_ten_requests_is_seen(instance: Instance) -> None:
    kept = []
    engine = Engine(clock=standstill)
    with LiveBytes() as live:
        for number, ticket in enumerate(traffic(engine, instance, 200, seed=4)):
            if number % 10 == 0 and not ticket.error:
                kept.append(ticket.result())
        assert live.now >= len(kept) * LATENT > 0
