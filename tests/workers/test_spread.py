"""Rows of a call divided among ranks: two processes that serve the same requests, each with half the rows."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.parity.content import content
from mutoscope.platform.engine.parity.serving import standstill
from mutoscope.platform.errors import RunFailed
from mutoscope.workers.group import Group
from mutoscope.workers.spread import Spread
from tests.engine.rowtoy import ERROR, row_instance, row_request
from tests.support.servers import free_ports

_CONTEXT = multiprocessing.get_context("forkserver")

Served = dict[str, Any]


def serve(instance: Instance) -> Served:
    """What five requests of one to five rows return, and what one comes to whose rows cannot be computed."""
    engine = Engine(clock=standstill)
    requests = [row_request(f"r{n}", n, passes=n + 1) for n in range(5)]
    broken = row_request("broken", 9, passes=3, trouble=ERROR)
    tickets = [engine.submit(instance, request) for request in (*requests, broken)]
    while engine.step():
        pass
    served = {ticket.request_id: content(ticket.result()) for ticket in tickets[:-1]}
    return {**served, "broken": type(tickets[-1].error).__name__, "calls": instance.components["net"].calls}


def rank(number: int, port: int, answer: Connection) -> None:
    """One of two ranks. They need no lead here: a clock that stands still gives both the same turns."""
    import os

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(number), WORLD_SIZE="2")
    group = Group.join()
    assert group is not None
    instance = row_instance()
    answer.send(serve(replace(instance, batcher=Spread(instance.batcher, group))))
    group.leave()


def test_each_rank_computes_its_rows_and_all_have_all_results() -> None:
    (port,), pipes = free_ports(1), [_CONTEXT.Pipe() for _ in range(2)]
    processes = [_CONTEXT.Process(target=rank, args=(at, port, pipes[at][1])) for at in range(2)]
    for process in processes:
        process.start()
    first, second = (pipe.recv() for pipe, _ in pipes)
    for process in processes:
        process.join()
    alone = serve(row_instance())
    for request in ("r0", "r1", "r2", "r3", "r4"):
        assert first[request] == second[request] == alone[request]
    assert first["broken"] == second["broken"] == alone["broken"]
    halves = sum(first["calls"]), sum(second["calls"])
    assert sum(halves) < 1.3 * sum(alone["calls"]), "what proves itself or fails is computed again"
    assert max(halves) < 0.75 * sum(alone["calls"]), "neither computed it all"


def test_an_error_elsewhere_is_told_here() -> None:
    class TwoRanks(Group):
        """Rank 0 of two, the other of which answers with what it is given."""

        def all(self, value: Any) -> list[Any]:
            return [value, (value[0], (False, "RuntimeError: singular"), [])]

    instance = row_instance()
    spread = replace(instance, batcher=Spread(instance.batcher, TwoRanks(0, 2)))
    ticket = (engine := Engine()).submit(spread, row_request("r", passes=2))
    while engine.step():
        pass
    assert isinstance(ticket.error, RunFailed)
    assert str(ticket.error) == "rank 1 of the group: RuntimeError: singular"
