"""Train a shipped recipe on starter weights, with several seeds, beside controls whose updates are off.

    python tests/learning/run.py --recipe train_nft --seeds 1 2 3 --control [--home DIR] [--set PATH=JSON ...]
    python tests/learning/run.py --recipe train_unified --variant prompt-only 'stages.0.train={"refiner": …}'

Everything is the system's own: a home with a catalog and a store, one worker process, the training loop that
the workflows wrap. A seed is that of everything drawn in training, and of the evaluation's samples, which no
training ever sees. A control is the same configuration with nothing to train: the same prompts, samples and
evaluations at the weights it began with. A variant is the recipe with something different, trained beside it.

`evidence` reads what a training left on record, `pictures` and `refined` draw it. pytest collects nothing
here: a recipe takes tens of minutes. Started again with the same home, it goes on where it was. After every
training it writes `results/RECIPE.json`, `RECIPE-curves.png`, `RECIPE-samples.png` and, of refiners,
`RECIPE-refined.png`, so that a stopped one leaves what it had.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["PREFECT_LOGGING_LEVEL"] = "ERROR"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["DO_NOT_TRACK"] = "1"

from mutoscope.flows.rl.configuration import TrainingConfiguration, read  # noqa: E402
from mutoscope.flows.rl.training import train  # noqa: E402
from mutoscope.models.registry import get_card  # noqa: E402
from mutoscope.platform.errors import TrainingHalted  # noqa: E402
from mutoscope.platform.orchestration.importing import import_folder  # noqa: E402
from mutoscope.platform.orchestration.runtime import Runtime, use_runtime  # noqa: E402
from mutoscope.platform.refs import TRAINER_SUFFIX  # noqa: E402
from tests.bench import environment  # noqa: E402
from tests.learning import evidence, experts, pictures, refined  # noqa: E402
from tests.learning.evidence import CONTROL, UPDATES  # noqa: E402
from tests.support.deadline import until  # noqa: E402
from tests.support.workshop import Workshop  # noqa: E402

RESULTS = Path(__file__).parent / "results"

HELPERS = ("rollout-group", "line-charts", "picture-statistics", "contact-sheet", "video-frame")
"""Cards without weights that a training calls."""

PATIENCE_S = 1800.0
"""For a worker to load and calibrate its cards, however busy the machine."""

EVALUATION_SEEDS = 1_000_000
"""Seeds of evaluated samples begin at so many times the training's seed: every training has its own."""


def configured(recipe: str, seed: int, changes: dict[str, Any]) -> TrainingConfiguration:
    """The recipe as one seed trains it."""
    asked = read(recipe, changes)
    count = len(asked.evaluation.seeds) if asked.evaluation else 0
    seeds = [seed * EVALUATION_SEEDS + number for number in range(count)]
    return read(recipe, {**changes, "seed": seed, "evaluation.seeds": seeds})


def without_updates(configuration: TrainingConfiguration) -> TrainingConfiguration:
    """The control: the same, with nothing to train."""
    stages = tuple(stage.model_copy(update={"train": {}}) for stage in configuration.stages)
    return TrainingConfiguration.model_validate({**configuration.model_dump(), "stages": stages})


@contextmanager
def serving(home: Path, configuration: TrainingConfiguration) -> Iterator[Runtime]:
    """A home with the starter weights of all cards that the recipe needs, and a worker that serves them."""
    judges = configuration.evaluation.judges if configuration.evaluation else ()
    staged = [stage.card for stage in configuration.stages]
    weighted = list(dict.fromkeys((*staged, *configuration.rewards, *judges)))
    fresh = not home.exists()
    workshop = Workshop(home, concurrency=16, poll_seconds=0.05)
    for card in weighted if fresh else ():
        folder = experts.folder(card)
        if folder is not None:
            import_folder(workshop.catalog, workshop.store, get_card(card), folder)
    cards = (*weighted, *(f"{card}{TRAINER_SUFFIX}" for card in staged), *HELPERS)
    arguments = [word for card in cards for word in ("--card", card)]
    with workshop.worker(*arguments, fresh=True, PYTHONPATH=os.pathsep.join(sys.path)) as worker:
        until(lambda: worker.state() == "ready", f"worker {worker.pid} ready", seconds=PATIENCE_S)
        with use_runtime(Runtime(workshop.settings, workshop.catalog, workshop.store)) as runtime:
            yield runtime
    workshop.close()


def one(runtime: Runtime, recipe: str, configuration: TrainingConfiguration, variant: str) -> dict[str, Any]:
    """One training, or what is on record of it so far, as plain data."""
    name = f"{recipe.replace('_', '-')}-{variant}-{configuration.seed}"
    print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
    halted = None
    try:
        asyncio.run(train(name, configuration))
    except TrainingHalted as error:
        halted = str(error)
    told = evidence.of(runtime, name, configuration, variant, halted)
    for line in evidence.lines(told):
        print(f"    {line}", flush=True)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--control", action="store_true", help="also train nothing, with every seed")
    parser.add_argument("--home", type=Path, help="go on with this home; left out, build/learning/RECIPE")
    parser.add_argument("--set", nargs="*", default=[], metavar="PATH=JSON", help="changes to the recipe")
    parser.add_argument(
        "--variant", nargs="+", action="append", default=[], metavar="", help="a name, and its PATH=JSON ..."
    )
    parser.add_argument("--name", help="of the result's files; left out, the recipe's")
    asked = parser.parse_args()
    changes = changes_of(asked.set)
    variants = {name: {**changes, **changes_of(own)} for name, *own in asked.variant}
    home = asked.home or ROOT / "build" / "learning" / (asked.name or asked.recipe)
    result: dict[str, Any] = {
        "recipe": asked.recipe,
        "changes": changes,
        "variants": variants,
        "environment": environment.describe(),
        "configuration": read(asked.recipe, changes).to_json(),
        "trainings": [],
    }
    RESULTS.mkdir(exist_ok=True)
    with serving(home, read(asked.recipe, changes)) as runtime:
        for seed, (variant, own) in product(asked.seeds, {UPDATES: changes, **variants}.items()):
            learn(runtime, result, asked, variant, configured(asked.recipe, seed, own))
        for seed in asked.seeds if asked.control else ():
            control = without_updates(configured(asked.recipe, seed, changes))
            learn(runtime, result, asked, CONTROL, control)
    print(json.dumps(result["summary"], indent=2))


def changes_of(given: Sequence[str]) -> dict[str, Any]:
    """What a command line says by PATH=JSON."""
    return {path: json.loads(value) for path, _, value in (each.partition("=") for each in given)}


def learn(
    runtime: Runtime,
    result: dict[str, Any],
    asked: argparse.Namespace,
    variant: str,
    configuration: TrainingConfiguration,
) -> None:
    """One more training, and the result's files with it."""
    result["trainings"].append(one(runtime, asked.recipe, configuration, variant))
    result["summary"] = evidence.summary(result["trainings"])
    write(asked.name or asked.recipe, result, runtime)


def write(name: str, result: dict[str, Any], runtime: Runtime) -> None:
    """The result's files."""
    plain = {**result, "trainings": [evidence.without_samples(each) for each in result["trainings"]]}
    (RESULTS / f"{name}.json").write_text(json.dumps(plain, indent=1) + "\n")
    pictures.curves(result, RESULTS / f"{name}-curves.png")
    pictures.samples(runtime, result, RESULTS / f"{name}-samples.png")
    trained = next((one for one in result["trainings"] if one["variant"] == UPDATES), None)
    if trained is not None:
        refined.draw(runtime, trained, RESULTS / f"{name}-refined.png")


if __name__ == "__main__":
    main()
