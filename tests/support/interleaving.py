"""Does serving requests together change what they return? Asked of any instance, in every order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from mutoscope.platform.clip import Clip
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.parity.serving import standstill
from mutoscope.platform.engine.request import Request, Result
from mutoscope.platform.trajectory import TrajectoryGroup


def content(result: Result) -> dict[str, bytes]:
    """The bytes of every output, each array under "slot" or "slot.name"."""
    found = {}
    for slot, output in result.outputs.items():
        arrays = _arrays(output.value)
        found.update({f"{slot}.{name}".rstrip("."): array.tobytes() for name, array in arrays.items()})
    return found


def _arrays(value: Any) -> dict[str, Any]:
    if isinstance(value, Clip):
        return {"": value.frames_THWC, "sound": value.audio_CN}
    if isinstance(value, str):
        return {"": np.frombuffer(value.encode(), np.uint8)}
    if isinstance(value, TrajectoryGroup):
        return {"facts": _arrays(repr(value.facts))[""], **dict(_steps(value))}
    if isinstance(value, dict) and not all(isinstance(part, np.ndarray) for part in value.values()):
        return _arrays(json.dumps(value, sort_keys=True))
    return value if isinstance(value, dict) else {"": value}


def _steps(group: TrajectoryGroup) -> Iterator[tuple[str, Any]]:
    for index, sample in enumerate(group.samples):
        yield f"{index}.log_probs", sample.log_probs_W
        yield from ((f"{index}.{level}", array) for level, array in sample.latents.items())


def serve_together(
    instance: Instance, requests: Sequence[Request], stagger: int = 0
) -> dict[str, dict[str, bytes]]:
    """Outputs by request id, all interleaved on one engine; `stagger` steps pass between arrivals."""
    engine, tickets = Engine(clock=standstill), []
    for request in requests:
        tickets.append(engine.submit(instance, request))
        for _ in range(stagger):
            engine.step()
    while engine.step():
        pass
    return {ticket.request_id: content(ticket.result()) for ticket in tickets}


def orders_that_differ(instance: Instance, requests: Sequence[Request]) -> list[tuple[str, ...]]:
    """Orders of arrival, as request ids, in which serving together returned other bytes than one by one."""
    alone = {request.id: content(Engine().run(instance, request)) for request in requests}
    return [
        tuple(request.id for request in order)
        for order in permutations(requests)
        for stagger in (0, 2)
        if serve_together(instance, order, stagger) != alone
    ]
