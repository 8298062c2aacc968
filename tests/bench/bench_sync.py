"""What a weight sync costs the requests that are being served, and what sharing modules saves.

    python tests/bench/bench_sync.py [--syncs 10] [--in-flight 50] [--output FILE]

The starter image model, one thread, float32. So many requests are in flight, each followed by another when it
ends, while the transformer is synced again and again, once by fence and once by drain. Of every sync:

    stage    reading, checking and hashing, beside the stepping
    drain    from closing admission to the last request in flight; the device works all the while
    pause    nothing is stepped: taken from outside, as the longest time between two steps around the sync
    copy     what of the pause moved bytes and proved them

The bar: pause <= 1.5 x the copy alone + the longest step. *The copy alone* is the same transfer and the same
proof, SHA-256 of every tensor read back, on an engine without work. Every output is compared with what a
quiet engine makes at the version it names.

Then: what one more resident version and one more adapter take of memory, what serving through adapters costs,
and how often the text features of a group were found.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch import Tensor  # noqa: E402

from mutoscope.models.flux.card import CARD  # noqa: E402
from mutoscope.models.starter.folders import starter_folder  # noqa: E402
from mutoscope.platform.engine import numerics  # noqa: E402
from mutoscope.platform.engine.adapters import read_adapter, with_adapter  # noqa: E402
from mutoscope.platform.engine.engine import Engine  # noqa: E402
from mutoscope.platform.engine.features import FeatureCache  # noqa: E402
from mutoscope.platform.engine.instance import Instance, load_instance, with_components  # noqa: E402
from mutoscope.platform.engine.request import Progress, Request  # noqa: E402
from mutoscope.platform.engine.resident import Resident  # noqa: E402
from mutoscope.platform.engine.staging import Update, copy_tensor, stage, write  # noqa: E402
from mutoscope.platform.engine.sync import Strategy, SyncReport, WeightSync  # noqa: E402
from mutoscope.platform.engine.ticket import Ticket  # noqa: E402
from mutoscope.platform.engine.views import weights_of, with_tensors  # noqa: E402
from mutoscope.platform.ids import sha256  # noqa: E402
from tests.bench import environment  # noqa: E402
from tests.support.interleaving import content  # noqa: E402

RESULT = ROOT / "tests/bench/results/sync.json"
COMPONENT = "transformer"
PROMPTS = ("a red circle left of a blue square", "a green cross")
SEEDS = 2
DENOISING_STEPS = 4
BETWEEN = 40
"""Steps of the engine between two syncs."""
TARGETS = ("to_q", "to_k", "to_v", "to_out.0")
RANK = 8
COPIES = 9
"""Repetitions of the copy alone."""


def digest_of(version: int) -> str:
    return sha256(f"{COMPONENT} {version}".encode())


class TimedEngine(Engine):
    """Remembers when each step began and ended."""

    def __init__(self) -> None:
        super().__init__(node_cache=FeatureCache())
        self.steps: list[tuple[float, float]] = []

    def step(self) -> bool:
        began = time.perf_counter()
        stepped = super().step()
        if stepped:
            self.steps.append((began, time.perf_counter()))
        return stepped

    @contextmanager
    def window(self) -> Iterator[dict[str, float]]:
        """Fills in the longest step and the longest time between two steps, from one step before the block
        to one after it."""
        found: dict[str, float] = {}
        self.step()
        first = len(self.steps) - 1
        yield found
        self.step()
        steps = self.steps[first:]
        found["longest_step"] = max(ended - began for began, ended in steps)
        found["longest_gap"] = max(later[0] - earlier[1] for earlier, later in pairwise(steps))


class Bench:
    """The starter model, its versions and the traffic."""

    def __init__(self, versions: int) -> None:
        numerics.configure_torch(numerics.cpu_contract(1))
        folder = starter_folder(CARD.id)
        assert folder is not None
        names = CARD.inspect(folder).components
        weights = {name: sha256(name.encode()) for name in names} | {COMPONENT: digest_of(0)}
        self.first: Instance = load_instance(CARD, folder, weights=weights)
        module = self.first.components[COMPONENT]
        self.kept: dict[int, dict[str, Tensor]] = {
            0: {name: tensor.clone() for name, tensor in module.state_dict().items()}
        }
        for version in range(1, versions + 1):
            generator = torch.Generator().manual_seed(version)
            self.kept[version] = {
                name: tensor * (1 + 0.02 * torch.randn(tensor.shape, generator=generator))
                for name, tensor in self.kept[0].items()
            }

    def version(self, version: int) -> Instance:
        """A version in memory of its own."""
        tensors = {name: tensor.clone() for name, tensor in self.kept[version].items()}
        own = with_tensors(self.first.components[COMPONENT], tensors)
        return with_components(self.first, {COMPONENT: own}, {COMPONENT: digest_of(version)})

    def update(self, version: int) -> Update:
        return Update(COMPONENT, digest_of(version), self.kept[version])


def asked(number: int) -> Request:
    """The requests come round again after `SEEDS` times the prompts."""
    prompt, seed = PROMPTS[number % len(PROMPTS)], number // len(PROMPTS) % SEEDS
    return Request(str(number), CARD.id, {}, {"prompt": prompt, "num_inference_steps": DENOISING_STEPS}, seed)


class Traffic:
    """Keeps so many requests in flight."""

    def __init__(self, engine: Engine, resident: Resident, in_flight: int) -> None:
        self.engine, self.resident = engine, resident
        self.numbers = count()
        self.tickets: list[tuple[int, Ticket]] = []
        self.open = True
        for _ in range(in_flight):
            self.next()

    def next(self) -> None:
        number = next(self.numbers)
        ticket = self.engine.submit(self.resident, asked(number), self._follow)
        self.tickets.append((number, ticket))

    def _follow(self, at: Progress) -> None:
        if self.open and at.step == at.total:
            self.next()


def copy_alone(bench: Bench) -> dict[str, float]:
    """Seconds of transfer and proof, and of the transfer by itself, where nothing else runs; medians."""
    module = bench.version(0).components[COMPONENT]
    staged, targets = stage(bench.update(1), module), weights_of(module)
    both, moved = [], []
    with torch.no_grad():
        for _ in range(COPIES):
            began = time.perf_counter()
            write(staged, targets, copy_tensor)
            both.append(time.perf_counter() - began)
            began = time.perf_counter()
            for name, target in targets.items():
                copy_tensor(target, staged.tensors[name])
            moved.append(time.perf_counter() - began)
    return {
        "bytes": staged.size,
        "transfer_and_proof": statistics.median(both),
        "transfer": statistics.median(moved),
    }


def under_traffic(
    bench: Bench, strategy: Strategy, in_flight: int, syncs: int, alone: float
) -> dict[str, Any]:
    """The syncs of one strategy, and whether every output is wholly of the version it names."""
    engine, resident = TimedEngine(), Resident(bench.version(0))
    sync, traffic = WeightSync(engine, resident), Traffic(engine, resident, in_flight)
    rows = []
    for version in range(1, syncs + 1):
        for _ in range(BETWEEN):
            engine.step()
        with engine.window() as seen:
            report = sync.apply(bench.update(version), strategy=strategy)
        rows.append(_row(report, seen, alone))
    traffic.open = False
    while engine.step():
        pass
    assert isinstance(engine.node_cache, FeatureCache)
    return {
        "syncs": rows,
        "requests": len(traffic.tickets),
        **_judged(bench, traffic),
        "features": engine.node_cache.stats.to_dict(),
    }


def _row(report: SyncReport, seen: Mapping[str, float], alone: float) -> dict[str, Any]:
    bar = 1.5 * alone + seen["longest_step"]
    times = {
        "stage": report.stage_seconds,
        "drain": report.drain_seconds,
        "pause": seen["longest_gap"],
        "pause_reported": report.pause_seconds,
        "copy": report.copy_seconds,
        "longest_step": seen["longest_step"],
        "bar": bar,
    }
    return {name: round(value * 1e3, 3) for name, value in times.items()} | {
        "met": seen["longest_gap"] <= bar
    }


def _judged(bench: Bench, traffic: Traffic) -> dict[str, int]:
    """Outputs that differ from a quiet engine's at the version they name, and how many versions were seen."""
    names = {digest_of(version): version for version in bench.kept}
    expected: dict[tuple[int, int], dict[str, bytes]] = {}
    mixed = 0
    for number, ticket in traffic.tickets:
        result = ticket.result()
        key = names[result.weights[COMPONENT]], number % (len(PROMPTS) * SEEDS)
        if key not in expected:
            expected[key] = content(Engine().run(bench.version(key[0]), asked(key[1])))
        mixed += content(result) != expected[key]
    return {"versions_seen": len({version for version, _ in expected}), "outputs_mixed": mixed}


def adapters(bench: Bench, folder: Path) -> dict[str, Any]:
    """What one more version and one more adapter take, and what serving through adapters costs."""
    module = bench.first.components[COMPONENT]
    weights = dict(module.named_parameters())
    instances, seconds = [], []
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        tensors = {}
        for name, weight in weights.items():
            if name.endswith(tuple(f".attn.{target}.weight" for target in TARGETS)):
                rows, columns = weight.shape
                layer = f"{COMPONENT}.{name.removesuffix('.weight')}"
                tensors[f"{layer}.lora_A.weight"] = torch.randn(RANK, columns, generator=generator) * 0.1
                tensors[f"{layer}.lora_B.weight"] = torch.randn(rows, RANK, generator=generator) * 0.1
        file = folder / f"{seed}.safetensors"
        save_file(tensors, file)
        began = time.perf_counter()
        instances.append(with_adapter(bench.first, read_adapter([file], COMPONENT), sha256(bytes([seed]))))
        seconds.append(time.perf_counter() - began)
    base = {id(tensor) for tensor in weights.values()}
    own = sum(t.nbytes for t in instances[0].components[COMPONENT].parameters() if id(t) not in base)
    every = sum(
        tensor.nbytes
        for value in bench.first.components.values()
        if isinstance(value, torch.nn.Module)
        for tensor in value.state_dict().values()
    )
    bare, mixed = [], []
    for _ in range(5):
        bare.append(_serve([bench.first] * 4))
        mixed.append(_serve(instances))
    return {
        "whole_card_bytes": every,
        "another_transformer_bytes": sum(weight.nbytes for weight in weights.values()),
        "another_adapter_bytes": own,
        "adapter_ready_ms": round(statistics.median(seconds) * 1e3, 3),
        "eight_requests_bare_ms": round(statistics.median(bare) * 1e3, 3),
        "eight_requests_four_adapters_ms": round(statistics.median(mixed) * 1e3, 3),
    }


def _serve(instances: list[Instance]) -> float:
    """Seconds of eight requests, two on each instance, interleaved."""
    engine = Engine()
    for number in range(8):
        engine.submit(instances[number % 4], asked(number))
    began = time.perf_counter()
    while engine.step():
        pass
    return time.perf_counter() - began


def show(record: dict[str, Any]) -> None:
    """The figures, and what to make of them."""
    alone = record["copy_alone_ms"]
    print(
        f"copy alone: {alone['transfer_and_proof']:.1f} ms for {alone['bytes'] / 1e6:.1f} MB, of which "
        f"moving them {alone['transfer']:.1f} ms"
    )
    names = ("stage", "drain", "pause", "copy", "longest_step", "bar")
    print(f"{'median, ms':12}" + "".join(f"{name:>14}" for name in names))
    for strategy, found in record["strategies"].items():
        rows = found["syncs"]
        medians = (statistics.median(row[name] for row in rows) for name in names)
        print(f"{strategy:12}" + "".join(f"{value:14.1f}" for value in medians))
        met = sum(row["met"] for row in rows)
        print(
            f"{'':12}{met} of {len(rows)} pauses within the bar; {found['requests']} requests, "
            f"{found['versions_seen']} versions seen, {found['outputs_mixed']} outputs mixed; "
            f"{found['features']['hit_rate']:.1%} of encodings cached"
        )
    for name, value in record["adapters"].items():
        print(f"{name:34}{value:14,.1f}")
    if not record["representative"]:
        busy, cores = record["busy_cores_of_others"], record["machine"]["cores"]
        print(f"Not representative: others kept {busy:.1f} of {cores} cores busy. Repeat on an idle machine.")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what a weight sync costs.")
    parser.add_argument("--syncs", type=int, default=10)
    parser.add_argument("--in-flight", type=int, default=50)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    load = environment.others_load()
    bench = Bench(options.syncs)
    alone = copy_alone(bench)
    strategies: tuple[Strategy, ...] = ("fence", "drain")
    found = {
        strategy: under_traffic(
            bench, strategy, options.in_flight, options.syncs, alone["transfer_and_proof"]
        )
        for strategy in strategies
    }
    with tempfile.TemporaryDirectory(prefix="mutoscope-bench-") as folder:
        adapted = adapters(bench, Path(folder))
    record = {
        "benchmark": "sync",
        **environment.describe(),
        "busy_cores_of_others": round(load, 2),
        "representative": not environment.is_busy(load),
        "config": {
            "card": CARD.id,
            "component": COMPONENT,
            "steps": DENOISING_STEPS,
            "in_flight": options.in_flight,
            "syncs": options.syncs,
            "threads": 1,
        },
        "copy_alone_ms": {
            name: value if name == "bytes" else round(value * 1e3, 3) for name, value in alone.items()
        },
        "strategies": found,
        "adapters": adapted,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    show(record)


if __name__ == "__main__":
    main()
