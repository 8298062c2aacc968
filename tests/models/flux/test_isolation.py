"""Trouble in a call that pictures share, on the real classes: it stays with whom it belongs to, and the
others' bytes are what they are alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from mutoscope.models.registry import get_card
from mutoscope.platform.engine.calibration import calibrate
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.loop import ComponentNode
from mutoscope.platform.engine.request import Request
from mutoscope.platform.engine.ticket import Ticket
from mutoscope.platform.engine.validation import checked_request
from tests.models.flux.test_program import request
from tests.support.interleaving import content
from tests.support.tiny_flux import make

BAD = "a blue cross"
REQUESTS = [
    request(f"r{n}", seed=n, num_inference_steps=2 + n % 2, guidance_scale=2.0 if n % 2 else 1.0)
    for n in range(4)
]


@pytest.fixture(scope="module")
def flux(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    """A tiny FLUX whose steps share calls bit for bit."""
    loaded = load_instance(get_card("flux-t2i"), make(tmp_path_factory.mktemp("flux") / "f", "flux-t2i"))
    return calibrate(loaded, most=8).prepare(loaded)


@pytest.fixture(scope="module")
def alone(flux: Instance) -> dict[str, dict[str, bytes]]:
    """The bytes of each request when nobody else is there."""
    return {each.id: content(Engine().run(flux, each)) for each in REQUESTS}


@contextmanager
def planted(flux: Instance, refuses: Callable[[dict[str, Any]], bool]) -> Iterator[list[int]]:
    """The transformer runs out of memory on calls that `refuses` picks; tells the rows of all calls."""
    rows: list[int] = []

    def look(module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        rows.append(len(named["hidden_states"]))
        if refuses(named):
            raise torch.OutOfMemoryError(f"planted on {rows[-1]} rows")

    hook = flux.components["transformer"].register_forward_pre_hook(look, with_kwargs=True)
    try:
        yield rows
    finally:
        hook.remove()


def serve(flux: Instance, requests: list[Request]) -> list[Ticket]:
    engine = Engine()
    tickets = [engine.submit(flux, each) for each in requests]
    while engine.step():
        pass
    return tickets


def test_a_call_too_large_for_memory_is_made_in_parts(
    flux: Instance, alone: dict[str, dict[str, bytes]]
) -> None:
    with planted(flux, lambda named: len(named["hidden_states"]) > 4) as rows:
        tickets = serve(flux, REQUESTS)
    assert max(rows) > 4  # they did meet
    assert {ticket.request_id: content(ticket.result()) for ticket in tickets} == alone


def test_one_rows_trouble_fails_its_request_and_no_other(
    flux: Instance, alone: dict[str, dict[str, bytes]]
) -> None:
    bad = request("bad", prompt=BAD, seed=9, num_inference_steps=2, guidance_scale=1.0)
    encode = flux.program.nodes[0]
    assert isinstance(encode, ComponentNode)
    with torch.inference_mode():
        slots = encode.run({"request": checked_request(flux.card, flux.recipe, bad)})
    (text_SD,) = slots["conditionings"][0]["text_BSD"]
    with planted(flux, lambda named: any(map(text_SD.equal, named["encoder_hidden_states"]))) as rows:
        first, second, *others = serve(flux, [REQUESTS[0], bad, *REQUESTS[1:]])
    assert max(rows) > 4
    assert isinstance(second.error, torch.OutOfMemoryError)
    assert {ticket.request_id: content(ticket.result()) for ticket in (first, *others)} == alone


def test_being_measured_changes_no_bytes(flux: Instance, alone: dict[str, dict[str, bytes]]) -> None:
    """The first steps of each size run under a probe that sees every operation."""
    engine = Engine(budget=2**30)
    tickets = [engine.submit(flux, each) for each in REQUESTS]
    while engine.step():
        pass
    assert {ticket.request_id: content(ticket.result()) for ticket in tickets} == alone
