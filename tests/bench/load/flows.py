"""Flows of near-empty runs, concurrent in one process: ``python -m tests.bench.load.flows --seed 0 --flows 10
--runs 100 --at-once 8 [--prefect]``.

Writes ``ready`` when all is imported and connected, waits for a line, runs the flows, and writes what became
of them as a line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import time

from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.runtime import get_runtime
from mutoscope.platform.orchestration.workflow import workflow
from tests.support.tinycard.card import CARD


async def runs(first: int, count: int, at_once: int) -> int:
    """That many runs, `at_once` at a time; how many gave outputs."""
    turns = asyncio.Semaphore(at_once)

    async def one(seed: int) -> bool:
        async with turns:
            made = await engine_run(CARD.id, seed=seed, num_inference_steps=1)
        return set(made) == {"image", "latent"}

    return sum(await asyncio.gather(*(one(seed) for seed in range(first, first + count))))


@workflow("bench.load", requires=[CARD.id], name="load")
async def load(first: int, count: int, at_once: int) -> int:
    """One of the concurrent flows."""
    return await runs(first, count, at_once)


async def main(options: argparse.Namespace) -> dict[str, object]:
    flow = load if options.prefect else runs
    began = time.time()
    firsts = [options.seed + number * options.runs for number in range(options.flows)]
    ended = await asyncio.gather(
        *(flow(first, options.runs, options.at_once) for first in firsts), return_exceptions=True
    )
    failures = [f"{type(end).__name__}: {end}" for end in ended if isinstance(end, BaseException)]
    done = sum(end for end in ended if isinstance(end, int))
    return {"began": began, "ended": time.time(), "done": done, "failures": failures}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("seed", "flows", "runs", "at-once"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--prefect", action="store_true")
    logging.disable(logging.INFO)
    get_runtime()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    answers.write("ready\n")
    sys.stdin.readline()
    answers.write(json.dumps(asyncio.run(main(parser.parse_args()))) + "\n")
