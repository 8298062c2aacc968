"""The engine against diffusers' pipelines: one request, sixteen at once, and what interleaving costs.

    python tests/bench/bench_engine.py [--rounds 5] [--card flux-t2i ...] [--output FILE]

One process, one torch thread, the starter weights at their recipe's defaults. In each round every alternative
runs once, in turn, so that drift of the machine hits all alike; figures are ratios of medians.

    pipeline         FluxPipeline or WanImageToVideoPipeline, one request
    engine           the same request through Engine.run, on an instance calibrated as a worker has it
    one by one       sixteen requests through the pipeline
    batched          the same sixteen submitted together
    serial           four requests one after the other, no two rows in a call
    interleaved      the same four together, no two rows in a call
    forward 1, 16    one forward pass of the transformer, over one row and over sixteen
    rest             the request with every velocity known beforehand: all but the transformer

Bars: `engine` at least 0.97x as fast as `pipeline`; `batched` at least 1.5x as fast as `one by one`, or as
fast as batched forward passes allow, within a tenth: the ceiling, where a request takes `rest` and its share
of `forward 16`;
`interleaved` at most 2 % slower than `serial`. They decide the default of `Settings.batching`.

Both wall time and the process's CPU time are kept. On a machine that others use, the latter tells more; the
bars are judged by wall time, and the record says whether the machine was quiet.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402
from PIL import Image  # noqa: E402

from mutoscope.models.registry import get_card  # noqa: E402
from mutoscope.models.starter.folders import starter_folder  # noqa: E402
from mutoscope.platform.engine import numerics  # noqa: E402
from mutoscope.platform.engine.calibration import Calibration, calibrate  # noqa: E402
from mutoscope.platform.engine.engine import Engine  # noqa: E402
from mutoscope.platform.engine.example import example_request  # noqa: E402
from mutoscope.platform.engine.instance import Instance, load_instance  # noqa: E402
from mutoscope.platform.engine.loop import WorkPlan  # noqa: E402
from mutoscope.platform.engine.request import Request  # noqa: E402
from mutoscope.platform.engine.walk import walk  # noqa: E402
from tests.bench import environment  # noqa: E402

RESULT = ROOT / "tests/bench/results/engine.json"
CONCURRENT, INTERLEAVED, ROWS = 16, 4, 16
BARS = {"engine": 0.97, "batched": 1.5, "interleaving_overhead": 0.02}

CEILING_SHARE = 0.9
"""Share of the ceiling that counts as reaching it: a bound that leaves no time for stacking rows, cutting
results and choosing who goes next is never met to the last per cent."""

Samples = dict[str, list[tuple[float, float]]]
"""Wall and CPU seconds of each round, by alternative."""


@dataclass(frozen=True)
class Subject:
    """A card and the pipeline that does the same."""

    instance: Instance
    calibration: Calibration
    pipeline: Callable[[Request], Any]
    steps: int
    passes: int

    def request(self, seed: int) -> Request:
        return example_request(self.instance.card, self.instance.recipe, name=f"r{seed}", seed=seed)


def flux() -> Callable[[Request], Any]:
    """FluxPipeline on the starter weights, weights in memory of their own as the engine has them."""
    from tests.models.flux.oracle import load_pipeline

    pipeline = load_pipeline(_folder("flux-t2i"), aligned=True)

    def run(request: Request) -> Any:
        asked = get_card("flux-t2i").resolve(request.parameters, _recipe("flux-t2i"))
        return pipeline(
            prompt=asked["prompt"],
            negative_prompt=asked["negative_prompt"],
            true_cfg_scale=asked["guidance_scale"],
            guidance_scale=asked["embedded_guidance"],
            height=asked["height"],
            width=asked["width"],
            num_inference_steps=asked["num_inference_steps"],
            max_sequence_length=asked["max_sequence_length"],
            generator=torch.Generator("cpu").manual_seed(request.seed),
        ).images[0]

    return run


def wan() -> Callable[[Request], Any]:
    """WanImageToVideoPipeline on the starter weights."""
    from tests.models.wan.oracle import load_pipeline

    pipeline = load_pipeline(_folder("wan-i2v"))

    def run(request: Request) -> Any:
        asked = get_card("wan-i2v").resolve(request.parameters, _recipe("wan-i2v"))
        names = ("prompt", "negative_prompt", "height", "width", "num_frames", "num_inference_steps",
                 "guidance_scale", "max_sequence_length")  # fmt: skip
        return pipeline(
            image=Image.fromarray(request.inputs["image"]),
            generator=torch.Generator("cpu").manual_seed(request.seed),
            **{name: asked[name] for name in names},
        ).frames[0]

    return run


PIPELINES = {"flux-t2i": flux, "wan-i2v": wan}


def subject(card_id: str) -> Subject:
    """The card as a worker serves it, and its pipeline."""
    instance = load_instance(get_card(card_id), _folder(card_id))
    calibration = calibrate(instance, most=ROWS)
    recipe = instance.recipe
    return Subject(
        instance=calibration.prepare(instance),
        calibration=calibration,
        pipeline=PIPELINES[card_id](),
        steps=recipe.num_inference_steps,
        passes=2 if recipe.guidance_scale > 1 else 1,
    )


def together(instance: Instance, requests: Sequence[Request]) -> None:
    engine = Engine()
    tickets = [engine.submit(instance, request) for request in requests]
    while engine.step():
        pass
    for ticket in tickets:
        ticket.result()


def one_by_one(instance: Instance, requests: Sequence[Request]) -> None:
    engine = Engine()
    for request in requests:
        engine.run(instance, request)


def forward(subject: Subject) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """One forward pass of the transformer over one row, and over ROWS rows."""
    seen: list[tuple[Callable[[Mapping[str, Any]], Any], Mapping[str, Any]]] = []

    def run(plan: WorkPlan) -> Any:
        if plan.kind == "denoise" and plan.rows is not None:
            seen.append((plan.rows.call, plan.rows.make()[0]))
        return plan.run()

    with torch.inference_mode():
        walk(subject.instance, subject.request(0), run)
        call, row = seen[0]
        many = {name: torch.cat([value] * ROWS) for name, value in row.items()}

    def timed(rows: Mapping[str, Any]) -> None:
        with torch.inference_mode():
            call(rows)

    return lambda: timed(row), lambda: timed(many)


def rest(subject: Subject) -> Callable[[], Any]:
    """A request whose denoising steps are answered with a velocity computed once."""
    known: list[Any] = []

    def run(plan: WorkPlan) -> Any:
        if plan.kind != "denoise":
            return plan.run()
        if not known:
            known.append(plan.run())
        return known[0]

    def timed() -> None:
        with torch.inference_mode():
            walk(subject.instance, subject.request(0), run)

    return timed


def alternatives(subject: Subject) -> dict[str, Callable[[], Any]]:
    """What is timed, by name."""
    single, sixteen = subject.request(0), [subject.request(seed) for seed in range(CONCURRENT)]
    four = sixteen[:INTERLEAVED]
    alone = replace(subject.instance, batcher=subject.instance.batcher.one_by_one())
    once, batch = forward(subject)
    return {
        "pipeline": lambda: subject.pipeline(single),
        "engine": lambda: Engine().run(subject.instance, single),
        "one by one": lambda: [subject.pipeline(request) for request in sixteen],
        "batched": lambda: together(subject.instance, sixteen),
        "serial": lambda: one_by_one(alone, four),
        "interleaved": lambda: together(alone, four),
        "forward 1": once,
        "forward 16": batch,
        "rest": rest(subject),
    }


REPEATS = {
    "pipeline": 3,
    "engine": 3,
    "rest": 3,
    "serial": 2,
    "interleaved": 2,
    "forward 1": 20,
    "forward 16": 5,
}
"""Times an alternative runs within a round; the median of these is its sample."""


def measure(ways: Mapping[str, Callable[[], Any]], rounds: int) -> Samples:
    """Rounds of all alternatives in turn; every other round backwards. A first round warms up."""
    samples: Samples = {name: [] for name in ways}
    for at in range(rounds + 1):
        order = list(ways) if at % 2 else list(reversed(ways))
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for repeat in range(max(REPEATS.values())):
            for name in order:
                if repeat < REPEATS.get(name, 1):
                    taken[name].append(_timed(ways[name]))
        if at:
            for name, values in taken.items():
                samples[name].append(_middle(values))
    return samples


def figures(samples: Samples, subject: Subject, clock: int) -> dict[str, float]:
    """Ratios of medians by one clock: 0 wall, 1 CPU. Above 1 is faster than the pipeline."""
    median = {name: statistics.median(value[clock] for value in values) for name, values in samples.items()}
    least = median["rest"] + subject.steps * subject.passes * median["forward 16"] / ROWS
    return {
        "engine": median["pipeline"] / median["engine"],
        "batched": median["one by one"] / median["batched"],
        "batched_ceiling": median["one by one"] / (CONCURRENT * least),
        "forward_gain": ROWS * median["forward 1"] / median["forward 16"],
        "interleaving_overhead": median["interleaved"] / median["serial"] - 1,
    }


def verdicts(found: Mapping[str, float]) -> dict[str, bool]:
    """Whether each bar is met."""
    return {
        "engine": found["engine"] >= BARS["engine"],
        "batched": found["batched"] >= min(BARS["batched"], CEILING_SHARE * found["batched_ceiling"]),
        "interleaving_overhead": found["interleaving_overhead"] <= BARS["interleaving_overhead"],
    }


def record(card_id: str, rounds: int) -> dict[str, Any]:
    """All there is to say about one card."""
    tried = subject(card_id)
    samples = measure(alternatives(tried), rounds)
    wall, cpu = (figures(samples, tried, clock) for clock in (0, 1))
    return {
        "batching": tried.calibration.contract(),
        "steps": tried.steps,
        "passes": tried.passes,
        "figures": wall,
        "figures_by_cpu_time": cpu,
        "met": verdicts(wall),
        "met_by_cpu_time": verdicts(cpu),
        "samples_seconds": {
            name: {"wall": [value[0] for value in values], "cpu": [value[1] for value in values]}
            for name, values in samples.items()
        },
    }


def show(card_id: str, entry: Mapping[str, Any]) -> None:
    """The figures, each beside its bar."""
    print(f"{card_id}: {entry['steps']} steps of {entry['passes']} passes")
    for key, clock in (("figures", "wall"), ("figures_by_cpu_time", "cpu")):
        found = entry[key]
        met = entry["met" if clock == "wall" else "met_by_cpu_time"]
        verdict = {name: "met" if value else "MISSED" for name, value in met.items()}
        print(
            f"  {clock:4}  one request {found['engine']:.3f}x (bar {BARS['engine']}, {verdict['engine']})"
            f"  16 batched {found['batched']:.2f}x (bar {BARS['batched']}, ceiling "
            f"{found['batched_ceiling']:.2f}, {verdict['batched']})"
            f"  interleaving {found['interleaving_overhead']:+.1%} (bar {BARS['interleaving_overhead']:.0%}, "
            f"{verdict['interleaving_overhead']})  forward passes {found['forward_gain']:.2f}x"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the engine against diffusers' pipelines.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--card", action="append", choices=list(PIPELINES))
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    load = environment.others_load()
    numerics.configure_torch(numerics.cpu_contract(1))
    cards = {card_id: record(card_id, options.rounds) for card_id in options.card or PIPELINES}
    written = {
        "benchmark": "engine",
        **environment.describe(),
        "busy_cores_of_others": round(load, 2),
        "representative": not environment.is_busy(load),
        "config": {"rounds": options.rounds, "concurrent": CONCURRENT, "rows": ROWS, "threads": 1},
        "bars": BARS,
        "cards": cards,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(written, indent=1) + "\n")
    for card_id, entry in cards.items():
        show(card_id, entry)
    if environment.is_busy(load):
        print(f"Not representative: others kept {load:.1f} cores busy. Repeat on an idle machine.")


def _folder(card_id: str) -> Path:
    folder = starter_folder(card_id)
    assert folder is not None, f"the package ships starter weights for {card_id}"
    return folder


def _recipe(card_id: str) -> Any:
    return get_card(card_id).inspect(_folder(card_id)).recipe


def _timed(work: Callable[[], Any]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def _middle(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(value[0] for value in values), statistics.median(value[1] for value in values)


if __name__ == "__main__":
    main()
