"""An engine with one resident whose weights are synced, and requests that keep it at work."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from torch import Tensor

from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.features import FeatureCache
from mutoscope.platform.engine.instance import Instance, with_components
from mutoscope.platform.engine.request import Progress, Result
from mutoscope.platform.engine.resident import Resident
from mutoscope.platform.engine.staging import Update
from mutoscope.platform.engine.sync import Strategy, WeightSync
from mutoscope.platform.engine.ticket import Ticket
from mutoscope.platform.engine.views import with_tensors
from tests.support.versions import (
    alone,
    digest_of,
    named,
    request,
    state,
)

STRATEGIES: list[Strategy] = ["fence", "drain"]


class Bench:
    """An engine with one resident, and copies of its versions to compare with."""

    def __init__(self, folder: Path) -> None:
        self.first = named(folder)
        self.resident = Resident(self.first)
        self.engine = Engine(node_cache=FeatureCache())
        self.sync = WeightSync(self.engine, self.resident)
        self._kept = {0: self._copy(self.first.components["transformer"].state_dict())}
        for version in range(1, 11):
            self._kept[version] = state(self.first.components["transformer"], version)

    def version(self, version: int) -> Instance:
        """An instance of its own at that version of the transformer."""
        own = with_tensors(self.first.components["transformer"], self._copy(self._kept[version]))
        digest = digest_of(f"transformer {version}")
        return with_components(self.first, {"transformer": own}, {"transformer": digest})

    def update(self, version: int) -> Update:
        return Update("transformer", digest_of(f"transformer {version}"), self._kept[version])

    def submit(self, name: str = "r", seed: int = 0) -> Ticket:
        return self.engine.submit(self.resident, request(name, seed))

    def finish(self) -> None:
        while self.engine.step():
            pass

    def quiet(self, version: int, seed: int = 0) -> dict[str, bytes]:
        return alone(self.version(version), request("r", seed))

    @staticmethod
    def _copy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in tensors.items()}


class Traffic:
    """Keeps so many requests in flight: each that ends is followed by another."""

    def __init__(self, bench: Bench, in_flight: int) -> None:
        self._bench, self._in_flight = bench, in_flight
        self._numbers = count()
        self.tickets: list[tuple[int, Ticket]] = []
        self.open = True

    def more(self) -> None:
        for _ in range(self._in_flight):
            self._next()

    def _next(self) -> None:
        seed = next(self._numbers) % 4
        prompt = ("a red circle", "a blue square")[seed % 2]
        asked = request(f"r{len(self.tickets)}", seed, prompt, num_inference_steps=2)
        self.tickets.append((seed, self._bench.engine.submit(self._bench.resident, asked, self._follow)))

    def _follow(self, at: Progress) -> None:
        if self.open and at.step == at.total:
            self._next()

    def results(self) -> Iterator[tuple[int, Result]]:
        return ((seed, ticket.result()) for seed, ticket in self.tickets)
