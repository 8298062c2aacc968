"""Rollouts a second through the system, everything recorded, beside a plain loop over the same modules.

    python tests/bench/bench_rollouts.py [--rounds 3] [--prompts 4] [--samples 8] [--steps 10] [--output FILE]

FLUX and the scene scorer at their starter weights, the same prompts, seeds and windows for all.

    loop      one process: diffusers' modules in a loop, one sample after the other, then its score; nothing
              is stored. One torch thread, and once more with two
    system    `collect`: each rollout, score and group a run in a catalog (SQLite), computed by one worker
              process with one torch thread, its bytes in a store (a folder)
    flow      the same as the workflow `rl.collect_rollouts` against a Prefect server on this machine

Each round every way makes all its groups once, in turn, so that drift of the machine hits all alike; the
system has a new iteration each time, which no memo knows. The first group's samples are compared: a picture
of the loop must be the system's but for one level of 256 where the rounding falls, and its log-probabilities
within 1e-4.

Bar: system at least 1.0x as fast as the loop with one thread. Beside it, what a rollout leaves in the store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
os.environ.update(
    OMP_NUM_THREADS="1",
    MUTOSCOPE_CARDS="tests.support.tinycard.card:CARD",
    PREFECT_HOME=tempfile.mkdtemp(prefix="mutoscope-bench-prefect-"),
    PREFECT_SERVER_ANALYTICS_ENABLED="false",
    PREFECT_LOGGING_LEVEL="ERROR",
    DO_NOT_TRACK="1",
)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from prefect.settings import PREFECT_API_URL, temporary_settings  # noqa: E402

from mutoscope.flows.rl.asks import Ask  # noqa: E402
from mutoscope.flows.rl.collected import Collected, Group  # noqa: E402
from mutoscope.flows.rl.collecting import collect  # noqa: E402
from mutoscope.flows.rl.grouping import Shape  # noqa: E402
from mutoscope.flows.rl.settling import Plan  # noqa: E402
from mutoscope.flows.rl.stages import Stage  # noqa: E402
from mutoscope.models.starter.folders import starter_folder  # noqa: E402
from mutoscope.platform.artifacts import codecs  # noqa: E402
from mutoscope.platform.engine import numerics  # noqa: E402
from mutoscope.platform.orchestration.runtime import Runtime, use_runtime  # noqa: E402
from tests.bench import environment  # noqa: E402
from tests.bench.prefect_server import prefect_server  # noqa: E402
from tests.bench.rollouts.loop import Loop  # noqa: E402
from tests.support.real_engine import publish_folders  # noqa: E402
from tests.support.workshop import Workshop  # noqa: E402

CARDS = ("flux-t2i", "reward-scene")
RESULT = ROOT / "tests/bench/results/rollouts.json"
BAR = 1.0
CLOSE = 1e-4
PROMPTS = (
    "a red circle left of a blue square",
    "a green ring above a yellow cross",
    "a purple triangle on a pink background",
    "an orange square right of a red ring",
    "a blue cross below a green circle",
    "a yellow ring on a black background",
)


@dataclass(frozen=True)
class Size:
    """How much of what."""

    rounds: int
    prompts: int
    samples: int
    steps: int
    at_once: int

    @property
    def rollouts(self) -> int:
        return self.prompts * self.samples

    @property
    def parameters(self) -> dict[str, Any]:
        return {"num_inference_steps": self.steps}

    def plan(self, iteration: int) -> Plan:
        return Plan(
            stages=[Stage("flux-t2i", parameters=self.parameters)],
            asks=[Ask(prompt=prompt) for prompt in PROMPTS[: self.prompts]],
            shape=Shape(self.samples),
            rewards={"reward-scene": 1.0},
            seed=1,
            iteration=iteration,
            at_once=self.at_once,
        )


def folder_of(card_id: str) -> Path:
    folder = starter_folder(card_id)
    assert folder is not None
    return folder


@contextmanager
def installation(folder: Path) -> Iterator[Runtime]:
    """A home with the starter weights and a worker that serves them."""
    with ExitStack() as stack:
        workshop = Workshop(folder / "home", device="cpu", threads=1)
        stack.callback(workshop.close)
        runtime = Runtime(workshop.settings, workshop.catalog, workshop.store)
        publish_folders(runtime, {card_id: folder_of(card_id) for card_id in CARDS})
        served = [word for card_id in (*CARDS, "rollout-group") for word in ("--card", card_id)]
        worker = stack.enter_context(workshop.worker(*served, fresh=True))
        worker.wait_ready()
        yield stack.enter_context(use_runtime(runtime))


def looped(loop: Loop, groups: Sequence[Group], threads: int) -> list[list[Any]]:
    """The same groups by the loop."""
    torch.set_num_threads(threads)

    def samples(group: Group) -> list[Any]:
        asked, target = group.record.parameters, group.record.target
        return [loop.rollout(asked, target, each.seed) for each in group.record.samples]

    return [samples(group) for group in groups]


def by_flow(size: Size, iteration: int) -> Callable[[], Awaitable[Any]]:
    from mutoscope.flows.rl.collect_rollouts import collect_rollouts

    plan = size.plan(iteration)
    return lambda: collect_rollouts(
        prompts=list(plan.asks),
        rewards=dict(plan.rewards),
        samples=size.samples,
        seed=plan.seed,
        iteration=iteration,
        parameters=size.parameters,
        at_once=size.at_once,
    )


def compare(runtime: Runtime, group: Group, samples: Sequence[Any]) -> dict[str, Any]:
    """Pictures, scores and log-probabilities of a group, the system's against the loop's."""
    (ref,) = group.trajectories
    whole = codecs.decode(ref.kind, runtime.store.get(ref.digest), ref.media_type)
    steps, levels, scores = [], [], []
    for row, (sample, looped) in enumerate(zip(group.record.samples, samples, strict=True)):
        steps.append(np.abs(whole.samples[row].log_probs_W - np.array(looped.log_probs)).max())
        (run,) = [
            each
            for each in runtime.catalog.runs.list(card="flux-t2i", limit=1000)
            if each.seed == sample.seed and each.state == "succeeded"
        ]
        image = runtime.catalog.runs.outputs(run.id)["image"]
        pixels = codecs.decode("image", runtime.store.get(image.digest), image.media_type)
        levels.append(int(np.abs(pixels.astype(int) - looped.image.astype(int)).max()))
        scores.append(abs(float(sample.score or 0.0) - looped.score))
    return {
        "log_prob_off": float(max(steps)),
        "equal_pictures": levels.count(0),
        "of": len(samples),
        "levels_off": max(levels),
        "score_off": max(scores),
    }


def stored(folder: Path) -> dict[str, int]:
    """Bytes in the store, and in the catalog."""
    home = folder / "home"
    with closing(sqlite3.connect(home / "catalog.db")) as database:
        database.execute("pragma wal_checkpoint(truncate)")
    store = sum(path.stat().st_size for path in (home / "store").rglob("*") if path.is_file())
    return {"store": store, "catalog": sum(path.stat().st_size for path in home.glob("catalog.db*"))}


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    made = call()
    return time.perf_counter() - started, made


def measure(size: Size, folder: Path, with_prefect: bool) -> dict[str, Any]:
    loop = Loop(*(folder_of(card_id) for card_id in CARDS))
    numerics.configure_torch(numerics.cpu_contract(1))
    seconds: dict[str, list[float]] = {"loop": [], "loop, two threads": [], "system": []}
    with ExitStack() as stack:
        runtime = stack.enter_context(installation(folder))
        if with_prefect:
            server = stack.enter_context(prefect_server(folder, os.environ))
            stack.enter_context(temporary_settings({PREFECT_API_URL: server.url}))
            seconds["flow"] = []
        _, warm = timed(lambda: asyncio.run(collect(size.plan(0))))
        first: Collected = warm
        groups = list(first.groups["flux-t2i"])
        agreement = compare(runtime, groups[0], looped(loop, groups[:1], 1)[0])
        before, made = stored(folder), 0
        for number in range(1, size.rounds + 1):
            taken, collected = timed(lambda at=number: asyncio.run(collect(size.plan(at))))
            seconds["system"].append(taken)
            made += size.rollouts
            again = collected.groups["flux-t2i"]
            seconds["loop"].append(timed(lambda g=again: looped(loop, g, 1))[0])
            seconds["loop, two threads"].append(timed(lambda g=again: looped(loop, g, 2))[0])
            torch.set_num_threads(1)
            if with_prefect:
                call = by_flow(size, 1000 + number)
                seconds["flow"].append(timed(lambda call=call: asyncio.run(call()))[0])
                made += size.rollouts
        after = stored(folder)
    rate = {name: size.rollouts / statistics.median(values) for name, values in seconds.items()}
    return {
        "rollouts_per_second": rate,
        "ratio": {name: value / rate["loop"] for name, value in rate.items()},
        "seconds": seconds,
        "agreement": agreement,
        "bytes_per_rollout": {name: (after[name] - before[name]) / made for name in after},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=4, choices=range(1, len(PROMPTS) + 1))
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--without-prefect", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    size = Size(options.rounds, options.prompts, options.samples, options.steps, options.at_once)
    load = environment.others_load()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(size, Path(folder), not options.without_prefect)
    same = found["agreement"]
    sound = same["log_prob_off"] < CLOSE and same["levels_off"] <= 1
    record = {
        **environment.describe(),
        "others_load": load,
        "busy": environment.is_busy(load),
        "size": vars(size),
        **found,
        "bars": {"ratio": BAR},
        "met": {"ratio": found["ratio"]["system"] >= BAR, "same_work": sound},
    }
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    shown = ("rollouts_per_second", "ratio", "agreement", "bytes_per_rollout", "met", "busy")
    print(json.dumps({name: record[name] for name in shown}, indent=1))
    sys.exit(0 if all(record["met"].values()) else 1)


if __name__ == "__main__":
    main()
