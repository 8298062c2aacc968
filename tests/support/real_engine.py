"""A fake worker's work done in earnest: the engine itself, at the weights that a run pins.

What the real worker adds is calibration, batching and its process; the values are those of one row a call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from mutoscope.models.registry import cards
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.orchestration.importing import import_folder
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.workers.device import Device
from mutoscope.workers.executor import Executor
from mutoscope.workers.residency import Residency
from mutoscope.workers.weight_cache import WeightCache
from tests.support.fake_worker import FakeWorker

Work = Callable[[Runtime, RunRecord], dict[str, ArtifactRef]]


@dataclass
class RealEngine:
    """Computes runs.

    Attributes:
        instead: by card, work that a test puts in the engine's place; it may call `compute` itself.
        computed: runs by card, in order.
    """

    runtime: Runtime
    instead: dict[str, Work] = field(default_factory=dict)
    computed: list[RunRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        contract = numerics.cpu_contract(1)
        numerics.configure_torch(contract)
        device = Device(torch.device("cpu"), "float32", contract, memory_budget=2**32)
        cache = WeightCache(self.runtime.store, self.runtime.settings.home / "weights")
        self._residency = Residency(cards(), self.runtime.store, cache, device)
        self._executor = Executor(self.runtime.catalog, self.runtime.store, "real-engine")
        self._turn = threading.Lock()

    @contextmanager
    def serving(self, *card_ids: str) -> Iterator[RealEngine]:
        """Serve cards while the block lasts."""
        worker = FakeWorker(self.runtime, card_ids, self.perform, numerics.cpu_contract(1))
        with worker.serving():
            yield self

    def perform(self, runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        with self._turn:
            self.computed.append(run)
        return self.instead.get(str(run.card), self.compute)(runtime, run)

    def compute(self, runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        """The run's outputs by the engine."""
        with self._turn:
            weights = (run.key_parts or {})["weights"]
            instance = self._residency.acquire(str(run.card), weights)
            request = self._executor.request(run, runtime.catalog.runs.inputs(run.id))
            made = Engine().run(instance, request)
            self._residency.release(str(run.card), weights)
        outputs = {}
        for slot, output in made.outputs.items():
            encoded = codecs.encode(output.kind, output.value, output.meta)
            outputs[slot] = runtime.store.put(
                encoded.data, kind=output.kind, media_type=encoded.media_type, meta=encoded.meta
            )
        return outputs

    def counts(self) -> dict[str, int]:
        """Runs by card since this was last asked."""
        runs, self.computed = self.computed, []
        found: dict[str, int] = {}
        for run in runs:
            found[str(run.card)] = found.get(str(run.card), 0) + 1
        return found


def publish_folders(runtime: Runtime, folders: Mapping[str, Path]) -> None:
    """Make folders the live weights of their cards."""
    for card_id, folder in folders.items():
        import_folder(runtime.catalog, runtime.store, cards()[card_id], folder)
