"""What the platform adds to a run: a near-empty card through the queue against the engine in process.

    python tests/bench/bench_overhead.py [--samples 200] [--without-prefect] [--output FILE]

Five ways to the same outputs, one sample of each in turn so that drift of the machine hits all alike:

    in_process        Engine.run on a resident instance: what the computation itself takes
    queue             engine_run outside a flow: key, enqueue, claim by a worker process, store, record, wait
    memo_hit          the same call again: key and lookup
    prefect_queue     engine_run as a task of a Prefect flow, against a Prefect server on this machine
    prefect_memo_hit  the same task again
    prefect_empty     a Prefect task that does nothing, in the same flow: the part that is Prefect's

Bars: median(queue) - median(in_process) <= 20 ms and median(memo_hit) <= 10 ms, on SQLite. They decide the
poll interval (`Settings.poll_seconds`) and that idle workers watch a counter instead of querying the queue
(`workers/lookout.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MUTOSCOPE_CARDS"] = "tests.support.tinycard.card:CARD"
os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="mutoscope-bench-prefect-")
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["PREFECT_LOGGING_LEVEL"] = "ERROR"
os.environ["DO_NOT_TRACK"] = "1"

from mutoscope.platform.engine import numerics  # noqa: E402
from mutoscope.platform.engine.engine import Engine  # noqa: E402
from mutoscope.platform.engine.instance import load_instance  # noqa: E402
from mutoscope.platform.engine.request import Request  # noqa: E402
from mutoscope.platform.ids import new_id  # noqa: E402
from mutoscope.platform.orchestration.engine_run import engine_run  # noqa: E402
from mutoscope.platform.orchestration.runtime import Runtime, use_runtime  # noqa: E402
from tests.bench import environment  # noqa: E402
from tests.support.tinycard.card import CARD  # noqa: E402
from tests.support.tinycard.folder import write_folder  # noqa: E402
from tests.support.workshop import Workshop  # noqa: E402

STEPS = 1
WARM_UP = 10
BARS_MS = {"queue_added": 20.0, "memo_hit": 10.0}
RESULT = ROOT / "tests/bench/results/overhead.json"

Samples = dict[str, list[float]]


async def timed(call: Callable[[], Awaitable[Any]]) -> float:
    """Milliseconds one call takes."""
    started = time.perf_counter()
    await call()
    return (time.perf_counter() - started) * 1e3


class InProcess:
    """The card on an engine of this process."""

    def __init__(self, folder: Path) -> None:
        numerics.configure_torch(numerics.cpu_contract(1))
        self._engine = Engine()
        self._instance = load_instance(CARD, write_folder(folder))

    async def __call__(self, seed: int) -> None:
        parameters = CARD.resolve({"num_inference_steps": STEPS}, self._instance.recipe)
        self._engine.run(self._instance, Request(new_id(), CARD.id, {}, parameters, seed))


async def through_queue(seed: int) -> None:
    await engine_run(CARD.id, seed=seed, num_inference_steps=STEPS)


async def sample(count: int, in_process: InProcess) -> Samples:
    """Samples without Prefect. Seeds never repeat, except where a hit is meant."""
    samples: Samples = {"in_process": [], "queue": [], "memo_hit": []}
    for seed in range(count + WARM_UP):
        row = {
            "in_process": await timed(lambda seed=seed: in_process(seed)),
            "queue": await timed(lambda seed=seed: through_queue(seed)),
            "memo_hit": await timed(lambda seed=seed: through_queue(seed)),
        }
        if seed >= WARM_UP:
            for name, value in row.items():
                samples[name].append(value)
    return samples


async def sample_prefect(count: int) -> Samples:
    """Samples as tasks of one flow."""
    from prefect import flow, task

    @task(cache_policy=None, persist_result=False)
    async def empty() -> None:
        return None

    @flow(name="overhead", persist_result=False)
    async def overhead() -> Samples:
        samples: Samples = {"prefect_empty": [], "prefect_queue": [], "prefect_memo_hit": []}
        for seed in range(10**6, 10**6 + count + WARM_UP):
            row = {
                "prefect_empty": await timed(empty),
                "prefect_queue": await timed(lambda seed=seed: through_queue(seed)),
                "prefect_memo_hit": await timed(lambda seed=seed: through_queue(seed)),
            }
            if seed >= 10**6 + WARM_UP:
                for name, value in row.items():
                    samples[name].append(value)
        return samples

    return await overhead()


def summary(values: list[float]) -> dict[str, float]:
    """Median, 95th percentile, least and most, in ms."""
    return {
        "median_ms": round(statistics.median(values), 3),
        "p95_ms": round(statistics.quantiles(values, n=20)[-1], 3),
        "min_ms": round(min(values), 3),
        "max_ms": round(max(values), 3),
    }


def measure(options: argparse.Namespace, home: Path) -> Samples:
    """All samples, against one worker process started as users start it."""
    in_process = InProcess(home / "in_process")
    workshop = Workshop(home / "home")
    with ExitStack() as stack:
        stack.callback(workshop.close)
        stack.enter_context(use_runtime(Runtime(workshop.settings, workshop.catalog, workshop.store)))
        stack.enter_context(workshop.worker(fresh=True)).wait_ready()
        samples = asyncio.run(sample(options.samples, in_process))
        if not options.without_prefect:
            from prefect.testing.utilities import prefect_test_harness

            stack.enter_context(prefect_test_harness(server_startup_timeout=180))
            samples |= asyncio.run(sample_prefect(options.prefect_samples))
    return samples


def report(samples: Samples, load: float, options: argparse.Namespace) -> dict[str, Any]:
    """The record that is kept."""
    medians = {name: statistics.median(values) for name, values in samples.items()}
    figures = {"queue_added": medians["queue"] - medians["in_process"], "memo_hit": medians["memo_hit"]}
    if "prefect_queue" in medians:
        figures["prefect_queue_added"] = medians["prefect_queue"] - medians["in_process"]
        figures["prefect_memo_hit"] = medians["prefect_memo_hit"]
        figures["prefect_empty"] = medians["prefect_empty"]
    return {
        "benchmark": "overhead",
        **environment.describe(),
        "busy_cores_of_others": round(load, 2),
        "representative": not environment.is_busy(load),
        "config": {
            "card": CARD.id,
            "steps": STEPS,
            "samples": options.samples,
            "database": "sqlite",
            "store": "file",
        },
        "figures_ms": {name: round(value, 3) for name, value in figures.items()},
        "bars_ms": BARS_MS,
        "summary": {name: summary(values) for name, values in samples.items()},
        "samples_ms": {name: [round(value, 3) for value in values] for name, values in samples.items()},
    }


def show(record: dict[str, Any]) -> None:
    """The figures, and what to make of them."""
    print(f"{'':18}{'median':>9}{'p95':>9}   ms")
    for name, row in record["summary"].items():
        print(f"{name:18}{row['median_ms']:9.2f}{row['p95_ms']:9.2f}")
    for name, bar in record["bars_ms"].items():
        value = record["figures_ms"][name]
        print(f"{name}: {value:.2f} ms, bar {bar:.0f} ms: {'met' if value <= bar else 'MISSED'}")
    if not record["representative"]:
        busy, cores = record["busy_cores_of_others"], record["machine"]["cores"]
        print(f"Not representative: others kept {busy:.1f} of {cores} cores busy. Repeat on an idle machine.")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what the platform adds to a run.")
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--prefect-samples", type=int, default=60)
    parser.add_argument("--without-prefect", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    load = environment.others_load()
    with tempfile.TemporaryDirectory(prefix="mutoscope-bench-") as folder:
        samples = measure(options, Path(folder))
    record = report(samples, load, options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    show(record)


if __name__ == "__main__":
    main()
