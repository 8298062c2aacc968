"""Nodes whose results are kept: computed once for equal content, a step all the same, and never billed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.features import FeatureCache
from mutoscope.platform.engine.loop import WARNINGS
from mutoscope.platform.engine.request import Progress
from tests.engine.rowtoy import latent, row_instance, row_request


class Encoder:
    """Counts what it is asked to compute."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, slots: Mapping[str, Any]) -> dict[str, Any]:
        self.prompts.append(slots["request"].parameters["prompt"])
        return {"cond": torch.zeros(4), WARNINGS: (f"{len(self.prompts[-1])} letters",)}


def drain(engine: Engine) -> None:
    while engine.step():
        pass


def test_samples_of_a_group_share_one_encoding() -> None:
    encoder, engine = Encoder(), Engine(node_cache=FeatureCache())
    instance = row_instance(encode=encoder, weights={"net": "1" * 64})
    seen: list[Progress] = []
    requests = [row_request(f"r{n}", n, group="g") for n in range(4)]
    tickets = [engine.submit(instance, request, seen.append) for request in requests]
    engine.submit(instance, row_request("other", prompt="a blue square"))
    drain(engine)
    assert encoder.prompts == ["a red circle", "a blue square"]
    plain = row_instance(encode=Encoder())
    for ticket, request in zip(tickets, requests, strict=True):
        result = ticket.result()
        assert latent(result) == latent(Engine().run(plain, request))
        assert result.warnings == ("12 letters",)
        steps = [(at.stage, at.step, at.total) for at in seen if at.request_id == request.id]
        assert steps == [("encode", 1, 5), *(("denoise", at, 5) for at in range(2, 6))]
    assert [ticket.result().timings["encode"] for ticket in tickets[1:]] == [0.0] * 3


@pytest.mark.parametrize("weights", [{}, {"net": "1" * 64}])
def test_without_a_cache_or_a_digest_everyone_computes(weights: dict[str, str]) -> None:
    encoder = Encoder()
    engine = Engine(node_cache=None if weights else FeatureCache())
    instance = row_instance(encode=encoder, weights=weights)
    for name in "ab":
        engine.run(instance, row_request(name))
    assert len(encoder.prompts) == 2


def test_an_error_of_the_cache_fails_its_request_alone() -> None:
    class Broken(FeatureCache):
        def get(self, instance: Any, node: Any, slots: Any) -> Any:
            if slots["request"].id == "bad":
                raise LookupError("planted")
            return super().get(instance, node, slots)

    engine, instance = Engine(node_cache=Broken()), row_instance(weights={"net": "1" * 64})
    bad, good = (engine.submit(instance, row_request(name)) for name in ("bad", "good"))
    drain(engine)
    assert isinstance(bad.error, LookupError)
    assert good.result()
