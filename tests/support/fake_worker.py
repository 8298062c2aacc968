"""A worker without an engine: it claims runs through the catalog like the real one, and paints noise.

What a run becomes is a function the test gives, so a test can hold, fail or lose a run at will. Outputs are
pure functions of the memo key, as a real card's are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from mutoscope.models.registry import get_card
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.artifacts.manifest import ComponentManifest
from mutoscope.platform.catalog import RunRecord, WorkerInfo
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.card import RECIPE, Card, Recipe
from mutoscope.platform.engine.request import Profile
from mutoscope.platform.errors import LeaseLost
from mutoscope.platform.ids import new_id
from mutoscope.platform.orchestration.importing import put_recipe
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.reward import Reward

CONTRACT = {"device": "fake", "dtype": "float32", "mode": "bitwise", "threads": 1, "versions": {}}
_IDLE_SECONDS = 0.002


def publish_weights(runtime: Runtime, card: Card, recipe: Recipe, *, salt: str = "") -> dict[str, str]:
    """Live weight versions for a card without tensors: an empty manifest per component, and the recipe."""
    digests = {}
    for component in card.components:
        manifest = ComponentManifest(component.name + salt, ())
        ref = runtime.store.put(manifest.to_bytes(), kind="weights", media_type="application/json")
        runtime.catalog.artifacts.record(ref)
        digests[component.name] = ref.digest
    ref = put_recipe(runtime.store, recipe)
    runtime.catalog.artifacts.record(ref)
    digests[RECIPE] = ref.digest
    run = runtime.catalog.runs.record_completed("import", card=card.id, generated={})
    runtime.catalog.weights.publish_all(card.id, digests, run.id)
    return digests


def paint(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
    """The run's outputs: noise drawn from its memo key, one artifact per output slot of its card."""
    generator = np.random.default_rng(int(str(run.memo_key), 16))
    outputs = {}
    for slot in get_card(str(run.card)).outputs_under(Profile(run.profile or Profile.SERVE)):
        encoded = codecs.encode(slot.kind, *_value(slot.kind, generator))
        outputs[slot.name] = runtime.store.put(
            encoded.data, kind=slot.kind, media_type=encoded.media_type, meta=encoded.meta
        )
    return outputs


def _value(kind: str, generator: np.random.Generator) -> tuple[object, Mapping[str, object]]:
    match kind:
        case "image":
            return generator.integers(0, 256, (16, 16, 3), dtype=np.uint8), {}
        case "video":
            return generator.integers(0, 256, (4, 16, 16, 3), dtype=np.uint8), {"fps": 8}
        case "reward":
            reward = Reward.of("fake", "", float(generator.random()))
            return reward.to_json(), reward.meta
    return generator.standard_normal((2, 2)).astype(np.float32), {}


@dataclass
class FakeWorker:
    """Serves cards in a thread until the block around it ends.

    Attributes:
        perform: makes a run's outputs; may wait for an event, or raise to fail the run.
        done: ids of the runs it succeeded with, in order.
    """

    runtime: Runtime
    cards: tuple[str, ...]
    perform: Callable[[Runtime, RunRecord], dict[str, ArtifactRef]] = paint
    contract: Mapping[str, object] = field(default_factory=lambda: CONTRACT)
    id: str = field(default_factory=new_id)
    done: list[str] = field(default_factory=list)

    @contextmanager
    def serving(self) -> Iterator[FakeWorker]:
        """Register, and claim runs until the block ends."""
        facts = {
            card: {
                "card_digest": numerics.card_digest(get_card(card)),
                "contract": dict(self.contract),
                "contract_digest": numerics.contract_digest(self.contract),
                "weights": {},
            }
            for card in self.cards
        }
        self.runtime.catalog.workers.register(WorkerInfo(self.id, "here", 1, "fake", facts))
        stop = threading.Event()
        thread = threading.Thread(target=self._serve, args=(stop,), name="fake-worker")
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join(30)
            self.runtime.catalog.workers.mark_stopped(self.id)

    def _serve(self, stop: threading.Event) -> None:
        runs = self.runtime.catalog.runs
        served = {card: numerics.contract_digest(self.contract) for card in self.cards}
        while not stop.is_set():
            for run in runs.claim(self.id, served, 30.0, 1):
                self._work(run)
            stop.wait(_IDLE_SECONDS)

    def _work(self, run: RunRecord) -> None:
        runs = self.runtime.catalog.runs
        runs.progress(run.id, self.id, "paint", 1, 2)
        try:
            outputs = self.perform(self.runtime, run)
            if runs.renew(self.id, [run.id], 30.0).cancelled:
                runs.release(run.id, self.id)
                return
            runs.succeed(run.id, self.id, outputs, {"paint": 0.001})
            self.done.append(run.id)
        except LeaseLost:
            return
        except Exception as error:  # whatever the test raises fails the run
            runs.fail(run.id, self.id, {"type": type(error).__name__, "message": str(error)})
