"""How many samples a second are scored: one request at a time, and many at once through shared calls.

    python tests/bench/bench_rewards.py [--images 64] [--rounds 5] [--output FILE]

One thread, fp32, in process; each round measures every way once, so that drift of the machine hits all alike.

    scene       the shipped scene scorer, 64 x 64 pictures
    clip-b32    a CLIP ViT-B/32 with random weights, 224 x 224
    ocr         RapidOCR's models, words of 256 x 64; they take one picture a call, so there is no second way

    alone       a request to the end, then the next; every picture in a call of its own
    shared      all requests at once, in calls of the sizes that keep bits
    forward     the network alone on batches of 16: what sharing could reach at best

`shared` must give the very scores that one request alone gives under the same contract; that is checked here.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel  # noqa: E402

from mutoscope.models.registry import get_card  # noqa: E402
from mutoscope.models.reward.ocr.folder import packaged_folder  # noqa: E402
from mutoscope.models.starter.folders import starter_folder  # noqa: E402
from mutoscope.models.starter.grammar import caption_of, sample_scene  # noqa: E402
from mutoscope.models.starter.render import place, render  # noqa: E402
from mutoscope.platform.engine import numerics  # noqa: E402
from mutoscope.platform.engine.calibration import calibrate  # noqa: E402
from mutoscope.platform.engine.engine import Engine  # noqa: E402
from mutoscope.platform.engine.instance import Instance, assemble, load_instance  # noqa: E402
from mutoscope.platform.engine.request import Request  # noqa: E402
from tests.bench import environment  # noqa: E402
from tests.models.reward.test_ocr import written  # noqa: E402
from tests.support.tiny_reward import clip_tokenizer  # noqa: E402

BATCH = 16
RESULT = ROOT / "tests/bench/results/rewards.json"


@dataclass(frozen=True)
class Subject:
    """A scorer, its requests, and its network's forward pass on a batch of 16."""

    instance: Instance
    requests: Sequence[Request]
    forward: Callable[[], Any] | None


def scene(count: int) -> Subject:
    """True renderings under their captions."""
    folder = starter_folder("reward-scene")
    assert folder is not None
    instance = load_instance(get_card("reward-scene"), folder)
    rng = np.random.default_rng(0)
    scenes = [sample_scene(rng, "held_out", motion_share=0.0) for _ in range(count)]
    samples = [({"image": render(s, place(s, rng))}, {"prompt": caption_of(s)}) for s in scenes]
    batch = torch.zeros(BATCH, 3, 64, 64)
    return Subject(instance, _requests(instance, samples), lambda: instance.components["scorer"](batch))


def clip(count: int) -> Subject:
    """Noise: what is drawn makes no difference to the time."""
    torch.manual_seed(0)
    model = (
        CLIPModel(CLIPConfig(text_config={"vocab_size": 64, "bos_token_id": 0, "eos_token_id": 1}))
        .eval()
        .requires_grad_(False)
    )
    components = {"scorer": model, "tokenizer": clip_tokenizer(), "image_processor": CLIPImageProcessorPil()}
    card = get_card("reward-clip")
    instance = assemble(
        card, components, card.recipe(height=224, width=224), device=torch.device("cpu"), dtype=torch.float32
    )
    pictures = np.random.default_rng(0).integers(0, 256, (count, 224, 224, 3), dtype=np.uint8)
    samples = [({"image": picture}, {"prompt": "a red circle"}) for picture in pictures]
    batch = torch.zeros(BATCH, 3, 224, 224)
    return Subject(instance, _requests(instance, samples), lambda: model.get_image_features(batch))


def ocr(count: int) -> Subject:
    """Words that are right and wrong."""
    folder = packaged_folder()
    assert folder is not None
    instance = load_instance(get_card("reward-ocr"), folder)
    words = ["OPEN", "CLOSED", "hello world", "SALE 50%"]
    samples = [
        ({"image": written(words[n % 4], size=(256, 64))}, {"text": words[n % 3]}) for n in range(count)
    ]
    return Subject(instance, _requests(instance, samples), None)


def _requests(
    instance: Instance, samples: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> list[Request]:
    return [
        Request(f"{n}", instance.card.id, inputs, parameters, 0)
        for n, (inputs, parameters) in enumerate(samples)
    ]


def alone(instance: Instance, requests: Sequence[Request]) -> list[Any]:
    """Rewards, one request after the other."""
    engine = Engine()
    return [engine.run(instance, request).outputs["reward"].value for request in requests]


def shared(instance: Instance, requests: Sequence[Request]) -> list[Any]:
    """Rewards of requests that are all there at once."""
    engine = Engine()
    tickets = [engine.submit(instance, request) for request in requests]
    while engine.step():
        pass
    return [ticket.result().outputs["reward"].value for ticket in tickets]


def measure(subject: Subject, rounds: int) -> dict[str, Any]:
    """Samples a second in each way, and whether sharing kept every bit."""
    instance, requests = subject.instance, subject.requests
    ways: dict[str, Callable[[], Any]] = {"alone": lambda: alone(instance, requests)}
    figures: dict[str, Any] = {"samples": len(requests)}
    if subject.forward is not None:
        started = time.perf_counter()
        batching = calibrate(instance).prepare(instance)
        figures["calibration_s"] = round(time.perf_counter() - started, 2)
        figures["bits_kept"] = shared(batching, requests) == alone(batching, requests)
        ways["shared"] = lambda: shared(batching, requests)
        ways["forward"] = lambda: _repeat(subject.forward, len(requests) // BATCH)
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    with torch.inference_mode():
        for run in ways.values():
            run()
        for _ in range(rounds):
            for way, run in ways.items():
                started = time.perf_counter()
                run()
                seconds[way].append(time.perf_counter() - started)
    figures["per_second"] = {
        way: round(len(requests) / statistics.median(taken), 1) for way, taken in seconds.items()
    }
    return figures


def _repeat(run: Callable[[], Any] | None, times: int) -> None:
    assert run is not None
    for _ in range(times):
        run()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    os.environ.setdefault("MUTOSCOPE_HOME", tempfile.mkdtemp(prefix="mutoscope-bench-"))
    numerics.configure_torch(numerics.cpu_contract(1))
    load = environment.others_load()
    result = {
        "environment": environment.describe(),
        "others_load_cores": round(load, 2),
        "busy": environment.is_busy(load),
        "scene": measure(scene(options.images), options.rounds),
        "clip-b32": measure(clip(options.images // 4), options.rounds),
        "ocr": measure(ocr(options.images // 4), options.rounds),
    }
    options.output.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({name: result[name] for name in ("scene", "clip-b32", "ocr")}, indent=2))


if __name__ == "__main__":
    main()
