"""From a published version to a worker that serves it, and where the time goes.

    python tests/bench/bench_publish.py [--versions 8] [--output FILE]

The starter image model, a real worker, one thread. The weights of each step are stored beforehand, as the run
of the step does that. Then, for each version:

    publish   the version's row and the head's move, one transaction
    notice    until a worker that follows the head sees that it moved (it looks once a second)
    load      reading, verifying and building the one component that changed; the others are shared

and, without waiting for anybody to notice, as a training's next rollout does:

    pinned    from the request of a run that pins the version to its end, and what of that was the load
    again     the same for a second run of the version, which is resident by then
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402

from mutoscope.models.flux.card import CARD  # noqa: E402
from mutoscope.models.starter.folders import starter_folder  # noqa: E402
from mutoscope.platform.artifacts.components import put_component  # noqa: E402
from mutoscope.platform.catalog import WeightVersion  # noqa: E402
from mutoscope.platform.orchestration.importing import import_folder  # noqa: E402
from mutoscope.platform.orchestration.runtime import Runtime, use_runtime  # noqa: E402
from mutoscope.platform.orchestration.submit import Outcome, submit_run  # noqa: E402
from tests.bench import environment  # noqa: E402
from tests.support.deadline import until  # noqa: E402
from tests.support.workshop import WorkerProcess, Workshop  # noqa: E402

RESULT = ROOT / "tests/bench/results/publish.json"
COMPONENT, HEAD = "transformer", "head"
_LINE = re.compile(r"^(\S+) INFO \S+ (.*)$", re.MULTILINE)


def stored_step(workshop: Workshop, parent: WeightVersion, number: int) -> tuple[str, str]:
    """A step's weights in the store and the run that made them: its run and their digest."""
    folder = starter_folder(CARD.id)
    assert folder is not None
    from safetensors.torch import load_file, save

    source = folder / COMPONENT
    tensors = load_file(source / "diffusion_pytorch_model.safetensors")
    generator = torch.Generator().manual_seed(number)
    moved = {name: t + 1e-4 * torch.randn(t.shape, generator=generator) for name, t in tensors.items()}
    files = {
        "config.json": (source / "config.json").read_bytes(),
        "diffusion_pytorch_model.safetensors": save(moved, {"format": "pt"}),
    }
    made = put_component(workshop.store, COMPONENT, files)
    run = workshop.catalog.runs.record_completed(
        "train_step",
        card=CARD.id,
        used={f"weights:{COMPONENT}": parent.digest},
        generated={"weights": made.manifest},
        members={made.manifest.digest: made.members},
    )
    return run.id, made.manifest.digest


def said(worker: WorkerProcess, begin: float, pattern: str) -> tuple[float, str] | None:
    """The first line since a moment that fits: when, and the line."""
    for at, words in _LINE.findall(worker.log):
        when = datetime.fromisoformat(at).timestamp()
        if when >= begin - 0.001 and re.search(pattern, words):
            return when, words
    return None


def asked(workshop: Workshop, worker: WorkerProcess, **wanted: list[str]) -> None:
    """Ask it of the worker; back when that is done."""
    serial = workshop.catalog.workers.ask(str(worker.id), **wanted).serial

    def done() -> bool:
        return any(
            each.id == worker.id and each.done_serial >= serial for each in workshop.catalog.workers.list()
        )

    until(done, f"the worker has done {wanted}")


def followed(workshop: Workshop, worker: WorkerProcess, step: tuple[str, str], parent: WeightVersion) -> Any:
    """One version, published to a worker that follows the head."""
    begun = time.time()
    version = workshop.catalog.trainings.publish_step(
        CARD.id, COMPONENT, step[1], step[0], parent, alias=HEAD
    )
    published = time.time()
    noticed, _ = until(lambda: said(worker, published, r"@head moved"), "the worker notices")
    loaded, words = until(lambda: said(worker, noticed, r"loaded card=flux-t2i"), "the worker loads")
    seconds = float(re.findall(r"seconds=(\S+)", words)[0])
    return version, {
        "publish": published - begun,
        "notice": noticed - published,
        "load": max(seconds, loaded - noticed),
        "whole": loaded - begun,
    }


async def pinned(version: WeightVersion, seed: int) -> tuple[float, Outcome]:
    """A run of that version from request to end."""
    begun = time.perf_counter()
    made = await submit_run(
        CARD.id, prompt="a red circle", seed=seed, num_inference_steps=4, weights={COMPONENT: str(version)}
    )
    return time.perf_counter() - begun, made


def median(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(1e3 * statistics.median(one[name] for one in found), 2) for name in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--versions", type=int, default=8, help="of each kind")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    load = environment.others_load()
    followed_by, asked_for = [], []
    with tempfile.TemporaryDirectory(prefix="mutoscope-bench-") as folder:
        workshop = Workshop(Path(folder) / "home")
        starter = starter_folder(CARD.id)
        assert starter is not None
        version = import_folder(workshop.catalog, workshop.store, CARD, starter)[COMPONENT]
        workshop.catalog.weights.set_alias(HEAD, version)
        runtime = Runtime(workshop.settings, workshop.catalog, workshop.store)
        with workshop.worker("--card", CARD.id, fresh=True) as worker, use_runtime(runtime):
            worker.wait_ready()
            asked(workshop, worker, load=[f"{CARD.id}@{HEAD}"])  # it looks at the head by itself from now on
            for number in range(options.versions):
                step = stored_step(workshop, version, number)
                version, seconds = followed(workshop, worker, step, version)
                followed_by.append(seconds)
            asked(workshop, worker, unload=[f"{CARD.id}@{HEAD}"])
            asked(workshop, worker, load=[CARD.id])
            for number in range(options.versions):
                run, digest = stored_step(workshop, version, 1000 + number)
                version = workshop.catalog.trainings.publish_step(
                    CARD.id, COMPONENT, digest, run, version, alias="quiet"
                )
                first, made = asyncio.run(pinned(version, 2 * number))
                again, _ = asyncio.run(pinned(version, 2 * number + 1))
                timings = made.run.timings or {}
                asked_for.append({"pinned": first, "load": timings["worker.load"], "again": again})
        workshop.close()
    record = {
        "benchmark": "publish",
        **environment.describe(),
        "busy_cores_of_others": round(load, 2),
        "representative": not environment.is_busy(load),
        "config": {"card": CARD.id, "component": COMPONENT, "versions": options.versions, "threads": 1},
        "followed_ms": median(followed_by),
        "pinned_ms": median(asked_for),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps({name: record[name] for name in ("followed_ms", "pinned_ms")}, indent=1))


if __name__ == "__main__":
    main()
