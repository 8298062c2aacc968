"""A picture too large for the device is refused, by the parameter that asks for it, before any work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.errors import InvalidParameter
from tests.models.flux.test_program import request
from tests.support.interleaving import content


def test_a_shape_beyond_memory_is_refused_at_once(instance: Callable[[str], Instance]) -> None:
    flux, engine = instance("plain"), Engine(budget=16 * 2**20)
    small, larger = request("s", height=32, width=32), request("l", height=64, width=32)
    assert content(engine.run(flux, small)) == content(Engine().run(flux, small))
    engine.run(flux, larger)
    with pytest.raises(InvalidParameter) as refusal:
        engine.submit(flux, request("huge", height=32, width=8192))
    assert refusal.value.field == "width"
    said = r"width=8192 is not valid: it needs .*iB beside .*iB of weights, and the device has 16\.0 MiB: use"
    assert refusal.match(rf"^{said} \d+ or less$")
    assert not len(engine)
    assert engine.memory.reserved == 0
