"""Several experts in one card: a sync of one leaves versions, modules and caches of the others alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutoscope.models.registry import get_card
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.features import FeatureCache
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Request
from mutoscope.platform.engine.resident import Resident
from mutoscope.platform.engine.sync import Strategy, WeightSync
from tests.engine.sync.bench import STRATEGIES
from tests.support.tiny_unified import make
from tests.support.versions import digest_of, update

CARD = get_card("multi-expert")
EXPERTS = ("refiner_1", "refiner_2", "transformer")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("experts") / "folder", CARD.id)


@pytest.fixture
def experts(folder: Path) -> Instance:
    weights = {name: digest_of(f"{name} 0") for name in CARD.inspect(folder).components}
    return load_instance(CARD, folder, weights=weights)


def asked(name: str) -> Request:
    return Request(
        name, CARD.id, {}, {"prompt": "a red circle", "num_inference_steps": 2, "refine": False}, 3
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("synced", EXPERTS)
def test_a_sync_of_one_expert_is_of_that_expert_alone(
    experts: Instance, synced: str, strategy: Strategy
) -> None:
    resident, cache = Resident(experts), FeatureCache()
    engine = Engine(node_cache=cache)
    sync = WeightSync(engine, resident)
    engine.run(resident.instance, asked("before"))
    kept, missed = cache.stats.entries, cache.stats.misses
    assert kept, "the prompt's encoding"

    report = sync.apply(update(experts, 1, synced), strategy=strategy)
    assert (report.before, report.after) == (
        {synced: digest_of(f"{synced} 0")},
        {synced: digest_of(f"{synced} 1")},
    )
    after = resident.instance
    assert after.weights == {**experts.weights, synced: digest_of(f"{synced} 1")}
    for name in after.components:
        same = after.components[name] is experts.components[name]
        assert same or (name == synced and strategy == "fence"), name

    assert cache.stats.entries == kept, "nothing that others computed is dropped"
    engine.run(after, asked("after"))
    assert cache.stats.misses == missed, "and what they computed is found"


def test_two_experts_are_synced_at_once_and_keep_their_own_versions(experts: Instance) -> None:
    resident, engine = Resident(experts), Engine()
    sync = WeightSync(engine, resident)
    sync.apply(update(experts, 2, "refiner_2"), update(experts, 5, "transformer"), strategy="fence")
    versions = {name: resident.instance.weights[name] for name in EXPERTS}
    assert versions == {
        "refiner_1": digest_of("refiner_1 0"),
        "refiner_2": digest_of("refiner_2 2"),
        "transformer": digest_of("transformer 5"),
    }
