"""Does an engine grow? Two thousand requests on the starter weights, failures and cancellations among them.

    python tests/bench/bench_engine_memory.py [--requests 2000] [--output FILE]

Pictures and, one in fifty, videos, eight at a time, batched as a worker batches them. Of ten requests one
fails in a step and one is cancelled on its way. After each hundred the process is weighed: its resident
memory, and the bytes that the engine has promised once nobody is at work.

Bar: between request 400 and the last, resident memory grows by less than the weights of the image model
(16 MB), which is some 8 KB a request; one request's latents and features left behind each time would be
35 KB.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"

import psutil  # noqa: E402

from mutoscope.platform.engine.calibration import calibrate  # noqa: E402
from mutoscope.platform.engine.engine import Engine  # noqa: E402
from mutoscope.platform.engine.example import example_request  # noqa: E402
from mutoscope.platform.engine.features import FeatureCache  # noqa: E402
from mutoscope.platform.engine.instance import Instance  # noqa: E402
from mutoscope.platform.engine.request import Progress, Request  # noqa: E402
from mutoscope.platform.engine.ticket import Ticket  # noqa: E402
from tests.bench import environment  # noqa: E402
from tests.support.starter_digests import starter_instance  # noqa: E402

AT_WORK = 8
EVERY = 100
WARM = 400
BAR_BYTES = 16 * 10**6
BUDGET = 4 * 2**30
RESULT = ROOT / "tests/bench/results/engine_memory.json"


class Planted(Exception):
    """The failure of a request that was chosen to fail."""


def served(card_id: str) -> Instance:
    """The starter card with its steps batched, its components named so that features are kept."""
    loaded = starter_instance(card_id)
    named = replace(loaded, weights={name: f"{card_id}/{name}" for name in loaded.components})
    return calibrate(named).prepare(named)


def request(instance: Instance, number: int) -> Request:
    """One of fifty prompts, two steps, guided or not."""
    return replace(
        example_request(
            instance.card,
            instance.recipe,
            name=str(number),
            seed=number,
            prompt=f"a red circle, take {number % 50}",
            num_inference_steps=2,
            guidance_scale=1.0 + number % 2,
        ),
        group=f"run-{number // 16}",
    )


def fail_at(step: int) -> Any:
    def on_progress(at: Progress) -> None:
        if at.step == step:
            raise Planted(f"at step {step}")

    return on_progress


def stream(engine: Engine, image: Instance, video: Instance, count: int) -> Iterator[Ticket]:
    """Tickets as they are done, eight requests open at any time."""
    draw = random.Random(0)
    open_: list[Ticket] = []
    for number in range(count):
        instance = video if number % 50 == 49 else image
        fails = draw.random() < 0.1
        ticket = engine.submit(
            instance, request(instance, number), fail_at(draw.randint(1, 3)) if fails else None
        )
        open_.append(ticket)
        if draw.random() < 0.1:
            draw.choice(open_).cancel()
        while len(engine) >= AT_WORK or (number == count - 1 and len(engine)):
            engine.step()
            yield from (ticket for ticket in open_ if ticket.done)
            open_ = [ticket for ticket in open_ if not ticket.done]


def measure(count: int) -> dict[str, Any]:
    """Resident bytes after each hundred requests, and how the requests ended."""
    process = psutil.Process()
    image, video = served("flux-t2i"), served("wan-i2v")
    engine = Engine(budget=BUDGET, node_cache=FeatureCache())
    ends: Counter[str] = Counter()
    weighed: list[dict[str, int]] = []
    started = time.perf_counter()
    for number, ticket in enumerate(stream(engine, image, video, count), 1):
        ends["cancelled" if ticket.cancelled else "failed" if ticket.error else "succeeded"] += 1
        if number % EVERY == 0:
            gc.collect()
            weighed.append(
                {"requests": number, "rss": process.memory_info().rss, "objects": len(gc.get_objects())}
            )
            print(
                f"{number:6} {weighed[-1]['rss'] / 2**20:8.1f} MiB {weighed[-1]['objects']:9} objects",
                flush=True,
            )
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "ends": dict(ends),
        "reserved_at_the_end": engine.memory.reserved,
        "weighed": weighed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Weigh an engine while it serves.")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    found = measure(options.requests)
    warm = [point for point in found["weighed"] if point["requests"] >= min(WARM, options.requests // 2)]
    grown = warm[-1]["rss"] - warm[0]["rss"]
    record = {
        "benchmark": "engine_memory",
        **environment.describe(),
        "config": {"requests": options.requests, "at_work": AT_WORK, "steps": 2, "budget": BUDGET},
        "grown_bytes": grown,
        "grown_objects": warm[-1]["objects"] - warm[0]["objects"],
        "bar_bytes": BAR_BYTES,
        **found,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    met = "met" if grown <= BAR_BYTES else "MISSED"
    since = warm[0]["requests"]
    print(f"grown by {grown / 1e6:.1f} MB since request {since}, bar {BAR_BYTES / 1e6:.0f} MB: {met}")
    print(f"{found['ends']}, {found['reserved_at_the_end']} bytes still promised")


if __name__ == "__main__":
    main()
