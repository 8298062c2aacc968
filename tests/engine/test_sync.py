"""Weight sync under live traffic: whole versions, proven, undone when anything goes wrong."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mutoscope.platform.engine import staging, sync
from mutoscope.platform.engine.adapters import read_adapter, with_adapter
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.features import FeatureCache
from mutoscope.platform.engine.instance import Instance, with_components
from mutoscope.platform.engine.request import Progress, Result
from mutoscope.platform.engine.resident import Resident
from mutoscope.platform.engine.staging import AdapterUpdate, Update, copy_tensor
from mutoscope.platform.engine.sync import Strategy, WeightSync
from mutoscope.platform.engine.ticket import Ticket
from mutoscope.platform.engine.views import origin_of, with_tensors
from mutoscope.platform.errors import InvalidAdapter, RunFailed, SyncFailed
from tests.support.interleaving import content
from tests.support.tiny_flux import save_tiny_flux
from tests.support.versions import (
    TARGETS,
    alone,
    digest_of,
    lora_tensors,
    named,
    request,
    state,
    update,
    write_lora,
)

STRATEGIES: list[Strategy] = ["fence", "drain"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_flux(tmp_path_factory.mktemp("flux") / "folder")


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


@pytest.fixture
def bench(folder: Path) -> Bench:
    return Bench(folder)


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


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ten_syncs_with_fifty_in_flight(bench: Bench, strategy: Strategy) -> None:
    traffic = Traffic(bench, 50)
    traffic.more()
    steps = 0
    for version in range(1, 11):
        while steps < 60 * version:
            bench.engine.step()
            steps += 1
        assert len(bench.engine) >= 50
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


def test_an_abandoned_sync_changes_nothing(bench: Bench) -> None:
    pending = bench.sync.begin(bench.sync.stage(bench.update(1), strategy="drain"))
    waiting = bench.submit()
    bench.finish()
    assert not waiting.done
    bench.sync.abandon(pending)
    bench.finish()
    assert content(waiting.result()) == bench.quiet(0)


def corrupted() -> Callable[[Tensor, Tensor], None]:
    """A transfer that flips one bit of the fifth tensor, once."""
    calls = count(1)

    def transfer(target: Tensor, source: Tensor) -> None:
        copy_tensor(target, source)
        if next(calls) == 5:
            target.view(-1)[:1].view(torch.uint8)[0] ^= 1

    return transfer


def broken(error: BaseException) -> Callable[[Tensor, Tensor], None]:
    """A transfer that ends after four tensors, once."""
    calls = count(1)

    def transfer(target: Tensor, source: Tensor) -> None:
        if next(calls) == 5:
            raise error
        copy_tensor(target, source)

    return transfer


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("transfer", "line"),
    [
        (corrupted, "arrived damaged in .*: its bytes are not the ones sent"),
        (lambda: broken(OSError("link is down")), "link is down"),
    ],
    ids=["corrupted", "broken"],
)
def test_a_transfer_that_goes_wrong_is_undone(
    bench: Bench, strategy: Strategy, transfer: Callable[[], staging.Transfer], line: str
) -> None:
    before = bench.quiet(0)
    failing = WeightSync(bench.engine, bench.resident, transfer=transfer())
    in_flight = bench.submit("a")
    bench.engine.step()
    with pytest.raises((SyncFailed, OSError), match=line) as caught:
        failing.apply(bench.update(1), strategy=strategy)
    assert "\n" not in str(caught.value)
    assert bench.resident.instance is bench.first
    after = bench.submit("b")
    bench.finish()
    assert content(in_flight.result()) == content(after.result()) == before
    assert after.result().weights == bench.first.weights
    assert bench.sync.apply(bench.update(2), strategy=strategy).strategy == strategy
    final = bench.submit("c")
    bench.finish()
    assert content(final.result()) == bench.quiet(2)


def test_an_interrupt_in_the_transfer_restores_and_goes_on(bench: Bench) -> None:
    failing = WeightSync(bench.engine, bench.resident, transfer=broken(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        failing.apply(bench.update(1), strategy="drain")
    after = bench.submit()
    bench.finish()
    assert content(after.result()) == bench.quiet(0)


def test_where_not_even_the_old_version_can_be_put_back_nothing_is_served(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(target: Tensor, source: Tensor) -> None:
        raise OSError("device is gone")

    monkeypatch.setattr(sync, "copy_tensor", fail)
    failing = WeightSync(bench.engine, bench.resident, transfer=fail)
    with pytest.raises(SyncFailed, match=r"could not be put back \(device is gone\): load flux-t2i anew"):
        failing.apply(bench.update(1), strategy="drain")
    with pytest.raises(RunFailed, match="transformer of this flux-t2i holds unknown weights since a sync"):
        bench.submit()


def test_instances_of_overwritten_weights_are_refused_by_name(bench: Bench, tmp_path: Path) -> None:
    lora = read_adapter([write_lora(tmp_path / "lora", lora_tensors(bench.first, 1))], "transformer")
    adapted = with_adapter(bench.first, lora, digest_of("lora"))
    pending = bench.sync.begin(bench.sync.stage(bench.update(1), strategy="drain"))
    waiting = bench.engine.submit(bench.first, request("pinned"))
    waiting_adapted = bench.engine.submit(adapted, request("adapted"))
    bench.finish()
    assert not waiting.done, "an instance that shares the module waits for the sync"
    assert not waiting_adapted.done, "and so does a view of it"
    bench.sync.finish(pending)
    bench.finish()
    held, gone = digest_of("transformer 1")[:12], digest_of("transformer 0")[:12]
    line = f"transformer of this flux-t2i holds {held} since a sync, not {gone}: submit to the resident"
    for ticket in (waiting, waiting_adapted):
        with pytest.raises(RunFailed, match=line):
            ticket.result()
    for instance in (bench.first, adapted):
        with pytest.raises(RunFailed, match=line):
            bench.engine.submit(instance, request("r"))


def test_a_request_on_a_view_drains_before_its_base_is_overwritten(bench: Bench, tmp_path: Path) -> None:
    lora = read_adapter([write_lora(tmp_path / "lora", lora_tensors(bench.first, 1))], "transformer")
    adapted = with_adapter(bench.first, lora, digest_of("lora"))
    expected = alone(adapted, request("r"))
    running = bench.engine.submit(adapted, request("r"))
    bench.engine.step()
    bench.sync.apply(bench.update(1), strategy="drain")
    assert content(running.result()) == expected
    on_view = WeightSync(bench.engine, Resident(adapted))
    with pytest.raises(SyncFailed, match="is an adapter over a base that others use: sync it with a fence"):
        on_view.stage(bench.update(2), strategy="drain")


def test_adapters_are_synced_over_the_base_that_is_resident(bench: Bench, tmp_path: Path) -> None:
    """As a trainer of a LoRA does: one after the other, each over the bare base."""
    base = bench.first.components["transformer"]
    adapters = [
        read_adapter([write_lora(tmp_path / str(seed), lora_tensors(bench.first, seed))], "transformer")
        for seed in range(3)
    ]
    expected = [alone(with_adapter(bench.first, one, digest_of("x")), request("r")) for one in adapters]
    running = bench.submit("bare")
    bench.engine.step()
    for number, adapter in enumerate(adapters):
        report = bench.sync.apply(AdapterUpdate(digest_of(f"lora {number}"), adapter))
        assert report.strategy == "fence"
        assert report.size == sum(base.get_parameter(f"{name}.weight").nbytes for name in TARGETS)
        after = bench.submit()
        bench.finish()
        assert content(after.result()) == expected[number]
        assert after.result().weights["transformer"] == digest_of(f"lora {number}")
        origin = origin_of(bench.resident.instance.components["transformer"])
        assert origin is not None
        assert (origin.base, origin.digest) == (base, digest_of("transformer 0"))
    assert content(running.result()) == bench.quiet(0)
    kept = bench.resident.instance.components["transformer"]
    shared = [name for name, tensor in kept.named_parameters() if tensor is base.get_parameter(name)]
    assert len(shared) == len(list(base.parameters())) - len(TARGETS)

    bench.sync.apply(bench.update(1), strategy="fence")
    whole = bench.submit()
    bench.finish()
    assert content(whole.result()) == bench.quiet(1), "and back to whole weights"


def test_adapters_that_do_not_fit_or_are_not_sound_are_refused(bench: Bench, tmp_path: Path) -> None:
    tensors = lora_tensors(bench.first, 1)
    name = f"transformer.{TARGETS[0]}.lora_A.weight"
    broken = {**tensors, name: torch.full_like(tensors[name], torch.inf)}
    narrow = {**tensors, name: tensors[name][:, :1].contiguous()}
    for bad, error, line in (
        (broken, SyncFailed, f"has NaN or infinity in {TARGETS[0]}.weight once merged"),
        (narrow, InvalidAdapter, "use the base that it was trained on"),
    ):
        adapter = read_adapter([write_lora(tmp_path / "lora", bad)], "transformer")
        with pytest.raises(error, match=line):
            bench.sync.apply(AdapterUpdate(digest_of("lora"), adapter))
    good = read_adapter([write_lora(tmp_path / "lora", tensors)], "transformer")
    with pytest.raises(SyncFailed, match="sync it with a fence"):
        bench.sync.apply(AdapterUpdate(digest_of("lora"), good), strategy="drain")
    assert bench.resident.instance is bench.first


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


def test_a_second_component_that_fails_takes_the_first_back(bench: Bench) -> None:
    before = bench.quiet(0)
    first = len(bench.first.components["transformer"].state_dict())
    calls = count(1)

    def transfer(target: Tensor, source: Tensor) -> None:
        if next(calls) == first + 2:
            raise OSError("link is down")
        copy_tensor(target, source)

    failing = WeightSync(bench.engine, bench.resident, transfer=transfer)
    with pytest.raises(SyncFailed, match="link is down"):
        failing.apply(bench.update(1), update(bench.first, 1, "vae"), strategy="drain")
    after = bench.submit()
    bench.finish()
    assert content(after.result()) == before


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_trainer_may_go_on_changing_its_tensors_once_they_are_staged(
    bench: Bench, strategy: Strategy
) -> None:
    given = bench.update(1)
    staged = bench.sync.stage(given, strategy=strategy)
    expected = bench.quiet(1)
    for tensor in given.tensors.values():
        tensor.add_(1.0)
    bench.sync.finish(bench.sync.begin(staged))
    after = bench.submit()
    bench.finish()
    assert content(after.result()) == expected


def test_memory_decides_between_the_strategies(bench: Bench) -> None:
    size = sum(tensor.nbytes for tensor in bench.first.components["transformer"].state_dict().values())
    for room, chosen in ((size, "drain"), (2 * size, "fence")):
        choosing = WeightSync(bench.engine, bench.resident, room=lambda device, room=room: room)
        assert choosing.stage(bench.update(1)).strategy == chosen
    assert bench.sync.stage(bench.update(1)).strategy == "fence", "a host with megabytes to spare"


def test_weights_staged_over_an_earlier_version_are_refused(bench: Bench) -> None:
    early = bench.sync.stage(bench.update(1), strategy="drain")
    bench.sync.apply(bench.update(2), strategy="fence")
    with pytest.raises(SyncFailed, match="was staged over an earlier version: stage it again"):
        bench.sync.begin(early)
    after = bench.submit()
    bench.finish()
    assert content(after.result()) == bench.quiet(2)


def test_an_instance_made_by_a_sync_is_prepared_like_any_other(bench: Bench) -> None:
    prepared: list[Instance] = []

    def prepare(instance: Instance) -> Instance:
        prepared.append(instance)
        return instance

    WeightSync(bench.engine, bench.resident, prepare=prepare).apply(bench.update(1))
    assert prepared == [bench.resident.instance]


NAME = "x_embedder.weight"


def _without(tensors: dict[str, Tensor]) -> None:
    del tensors[NAME]


def _with_another(tensors: dict[str, Tensor]) -> None:
    tensors["head.weight"] = torch.zeros(1)


def _of_another_shape(tensors: dict[str, Tensor]) -> None:
    tensors[NAME] = tensors[NAME][:1]


def _not_finite(tensors: dict[str, Tensor]) -> None:
    tensors[NAME] = tensors[NAME].clone()
    tensors[NAME][0, 0] = torch.nan


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (_without, f"lacks {NAME}: sync the module's whole state"),
        (_with_another, "has head.weight, which the module does not"),
        (_of_another_shape, rf"has {NAME} of shape \[1, 16\] where the module takes \[32, 16\]"),
        (_not_finite, f"has NaN or infinity in {NAME}"),
    ],
)
def test_weights_that_are_no_whole_version_are_named(
    bench: Bench, change: Callable[[dict[str, Tensor]], None], line: str
) -> None:
    tensors = dict(bench.update(1).tensors)
    change(tensors)
    with pytest.raises(SyncFailed, match=f"^transformer {digest_of('x')[:12]} {line}"):
        bench.sync.apply(Update("transformer", digest_of("x"), tensors))
    assert bench.resident.instance is bench.first


def test_bytes_that_are_not_what_the_artifact_lists_are_refused(bench: Bench) -> None:
    given = bench.update(1)
    proofs = {name: staging.fingerprint(tensor) for name, tensor in given.tensors.items()}
    good = Update(given.component, given.digest, given.tensors, proofs)
    assert bench.sync.stage(good, strategy="fence").updates[0].proofs == proofs
    bad = Update(given.component, given.digest, given.tensors, {**proofs, NAME: "0" * 64})
    with pytest.raises(SyncFailed, match=f"has other bytes in {NAME} than its digest names"):
        bench.sync.apply(bad)


def test_tied_weights_may_be_named_once_but_not_apart(bench: Bench) -> None:
    given = update(bench.first, 1, "text_encoder_2")
    first, second = "shared.weight", "encoder.embed_tokens.weight"
    assert {first, second} <= set(given.tensors)
    staged = [
        bench.sync.stage(
            Update(given.component, given.digest, {k: v for k, v in given.tensors.items() if k != left_out})
        )
        for left_out in (first, second)
    ]
    assert len({tuple(sorted(one.updates[0].proofs.items())) for one in staged}) == 1
    apart = {**given.tensors, second: given.tensors[second] + 1}
    with pytest.raises(SyncFailed, match=f"different values in {first} and {second}, which the module ties"):
        bench.sync.stage(Update(given.component, given.digest, apart))
    bench.sync.finish(bench.sync.begin(staged[1]))
    after = bench.submit()
    bench.finish()
    loaded = copy.deepcopy(bench.first.components["text_encoder_2"])
    loaded.load_state_dict(given.tensors)
    instance = with_components(bench.first, {"text_encoder_2": loaded}, {})
    assert content(after.result()) == alone(instance, request("r"))


@pytest.mark.parametrize("component", ["unet", "tokenizer"])
def test_components_without_weights_are_refused(bench: Bench, component: str) -> None:
    with pytest.raises(SyncFailed, match=f"flux-t2i has no component {component} with weights"):
        bench.sync.apply(Update(component, digest_of("x"), {}))


def test_half_precision_is_proven_in_the_precision_that_serves(bench: Bench) -> None:
    module = nn.Linear(3, 2, dtype=torch.bfloat16).requires_grad_(False)
    given = {"weight": torch.randn(2, 3), "bias": torch.randn(2)}
    staged = staging.stage(Update("net", digest_of("x"), given), module)
    staging.write(staged, module.state_dict(), copy_tensor)
    assert module.weight.equal(given["weight"].bfloat16())
    assert staged.size == 8 * 2
