"""Weight sync under live traffic: whole versions, and nobody waits without need."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutoscope.platform.engine.features import FeatureCache
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.sync import Strategy, WeightSync
from tests.engine.sync.bench import STRATEGIES, Bench, Traffic
from tests.support.interleaving import content
from tests.support.versions import (
    alone,
    digest_of,
    named,
    request,
    update,
)


@pytest.mark.parametrize("in_flight", [6, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ten_syncs_under_traffic(bench: Bench, strategy: Strategy, in_flight: int) -> None:
    traffic = Traffic(bench, in_flight)
    traffic.more()
    steps = 0
    for version in range(1, 11):
        while steps < 1.2 * in_flight * version:
            bench.engine.step()
            steps += 1
        assert len(bench.engine) >= in_flight
        report = bench.sync.apply(bench.update(version), strategy=strategy)
        assert report.strategy == strategy
        assert report.after == {"transformer": digest_of(f"transformer {version}")}
        assert report.before == {"transformer": digest_of(f"transformer {version - 1}")}
    traffic.more()
    traffic.open = False
    bench.finish()

    names = {digest_of(f"transformer {version}"): version for version in range(11)}
    seen = set()
    expected: dict[tuple[int, int], dict[str, bytes]] = {}
    for seed, result in traffic.results():
        version = names[result.weights["transformer"]]
        seen.add(version)
        if (version, seed) not in expected:
            prompt = ("a red circle", "a blue square")[seed % 2]
            asked = request("r", seed, prompt, num_inference_steps=2)
            expected[version, seed] = alone(bench.version(version), asked)
        assert content(result) == expected[version, seed]
    assert seen >= {0, 10}, "traffic ran before the first sync and after the last"
    assert len(seen) > 5
    assert len({tuple(sorted(one.items())) for one in expected.values()}) == len(expected)
    stats = bench.engine.node_cache.stats  # type: ignore[union-attr]
    assert stats.misses == 2, "one encoding of each prompt survived every sync of the transformer"
    assert stats.hits == len(traffic.tickets) - 2


def test_a_fence_keeps_nobody_waiting(bench: Bench) -> None:
    running = bench.submit("old")
    bench.engine.step()
    bench.engine.step()
    staged = bench.sync.stage(bench.update(1), strategy="fence")
    pending = bench.sync.begin(staged)
    assert bench.sync.is_ready(pending)
    report = bench.sync.finish(pending)
    later = bench.submit("new")
    bench.finish()
    assert content(running.result()) == bench.quiet(0)
    assert content(later.result()) == bench.quiet(1)
    assert (report.drain_seconds, report.copy_seconds) == (0.0, 0.0)
    new = bench.resident.instance
    assert {name for name in new.components if new.components[name] is not bench.first.components[name]} == {
        "transformer"
    }
    assert alone(bench.first, request("r")) == bench.quiet(0), "the old instance is as it was"


def test_a_fence_is_built_without_looking_at_a_module_at_work(bench: Bench) -> None:
    class Working:
        """What a call keeps on its module while it lasts."""

        def __deepcopy__(self, memo: object) -> None:
            raise RuntimeError("dictionary changed size during iteration")

    bench.first.components["transformer"].working = Working()
    bench.sync.apply(bench.update(1), strategy="fence")
    after = bench.submit()
    bench.finish()
    del bench.first.components["transformer"].working
    assert content(after.result()) == bench.quiet(1)


def test_a_drain_overwrites_in_place_once_those_in_flight_are_done(bench: Bench) -> None:
    module = bench.first.components["transformer"]
    addresses = [tensor.data_ptr() for tensor in module.state_dict().values()]
    running = bench.submit("old")
    bench.engine.step()
    pending = bench.sync.begin(bench.sync.stage(bench.update(1), strategy="drain"))
    waiting = bench.submit("new")
    assert not bench.sync.is_ready(pending)
    with pytest.raises(RuntimeError, match="still use the module"):
        bench.sync.finish(pending)
    bench.finish()
    assert running.done
    assert not waiting.done
    assert waiting.progress.step == 0
    assert bench.sync.is_ready(pending)
    bench.sync.finish(pending)
    bench.finish()
    assert content(running.result()) == bench.quiet(0)
    assert content(waiting.result()) == bench.quiet(1)
    assert bench.resident.instance.components["transformer"] is module
    assert [tensor.data_ptr() for tensor in module.state_dict().values()] == addresses


def test_others_are_served_while_one_drains(bench: Bench, folder: Path) -> None:
    other = named(folder)
    bench.submit("old")
    bench.engine.step()
    pending = bench.sync.begin(bench.sync.stage(bench.update(1), strategy="drain"))
    elsewhere = bench.engine.submit(other, request("r", 3))
    bench.finish()
    assert content(elsewhere.result()) == alone(other, request("r", 3))
    bench.sync.abandon(pending)


def test_only_what_used_the_synced_component_is_encoded_again(bench: Bench) -> None:
    cache = bench.engine.node_cache
    assert isinstance(cache, FeatureCache)
    for name in "ab":
        bench.submit(name)
    bench.finish()
    assert (cache.stats.misses, cache.stats.hits) == (1, 1)
    assert bench.sync.apply(bench.update(1), strategy="drain").features_bytes == 0
    bench.submit("c")
    bench.finish()
    assert (cache.stats.misses, cache.stats.hits) == (1, 2)
    freed = bench.sync.apply(update(bench.resident.instance, 1, "text_encoder_2"), strategy="drain")
    assert freed.features_bytes > 0
    assert cache.stats.entries == 0
    text = bench.submit("d")
    bench.finish()
    assert (cache.stats.misses, cache.stats.hits) == (2, 2)
    assert text.result().weights["text_encoder_2"] == digest_of("text_encoder_2 1")
    assert text.result().weights["transformer"] == digest_of("transformer 1")
    assert text.result().weights["vae"] == digest_of("vae 0")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_components_synced_together_are_never_seen_apart(bench: Bench, strategy: Strategy) -> None:
    updates = [bench.update(1), update(bench.first, 1, "vae")]
    old = [bench.submit(f"old{seed}", seed) for seed in range(3)]
    bench.engine.step()
    bench.sync.apply(*updates, strategy=strategy)
    new = [bench.submit(f"new{seed}", seed) for seed in range(3)]
    bench.finish()
    pairs = {
        (result.weights["transformer"], result.weights["vae"])
        for result in (ticket.result() for ticket in old + new)
    }
    assert pairs == {(digest_of(f"transformer {v}"), digest_of(f"vae {v}")) for v in (0, 1)}


def test_memory_decides_between_the_strategies(bench: Bench) -> None:
    size = sum(tensor.nbytes for tensor in bench.first.components["transformer"].state_dict().values())
    for room, chosen in ((size, "drain"), (2 * size, "fence")):
        choosing = WeightSync(bench.engine, bench.resident, room=lambda device, room=room: room)
        assert choosing.stage(bench.update(1)).strategy == chosen
    assert bench.sync.stage(bench.update(1)).strategy == "fence", "a host with megabytes to spare"


def test_an_instance_made_by_a_sync_is_prepared_like_any_other(bench: Bench) -> None:
    prepared: list[Instance] = []

    def prepare(instance: Instance) -> Instance:
        prepared.append(instance)
        return instance

    WeightSync(bench.engine, bench.resident, prepare=prepare).apply(bench.update(1))
    assert prepared == [bench.resident.instance]
