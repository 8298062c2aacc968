"""Weight sync where modules are shared: adapters, and instances pinned to what was overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mutoscope.platform.engine.adapters import read_adapter, with_adapter
from mutoscope.platform.engine.resident import Resident
from mutoscope.platform.engine.staging import AdapterUpdate
from mutoscope.platform.engine.sync import WeightSync
from mutoscope.platform.engine.views import origin_of
from mutoscope.platform.errors import InvalidAdapter, RunFailed, SyncFailed
from tests.engine.sync.bench import Bench
from tests.support.interleaving import content
from tests.support.versions import (
    TARGETS,
    alone,
    digest_of,
    lora_tensors,
    request,
    write_lora,
)


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
