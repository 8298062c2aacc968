"""A home whose cards are tiny, with a real worker that samples, scores and trains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mutoscope.flows.rl.configuration import TrainingConfiguration, configuration_of
from mutoscope.models.registry import get_card
from mutoscope.platform.orchestration.importing import import_folder
from mutoscope.platform.orchestration.runtime import Runtime, use_runtime
from mutoscope.platform.training import notes
from tests.support.cards import tiny_folder
from tests.support.workshop import WorkerProcess, Workshop

LEARNING = ("flux-t2i", "reward-scene")
OTHERS = (
    *("flux-t2i-trainer", "rollout-group", "scene-check"),
    *("line-charts", "picture-statistics", "contact-sheet", "video-frame"),
)
PROMPT = "a red circle"
OTHER = "a blue square"


class School(Workshop):
    """A home where flux-t2i is taught by reward-scene, both with random weights."""

    def __init__(self, home: Path, cards: Sequence[str] = LEARNING, **settings: Any) -> None:
        super().__init__(home, concurrency=8, poll_seconds=0.005, run_pages=False, **settings)
        for card_id in cards:
            folder = tiny_folder(card_id, home / "folders" / card_id)
            import_folder(self.catalog, self.store, get_card(card_id), folder)
        self.cards = (*cards, *OTHERS)
        self.runtime = Runtime(self.settings, self.catalog, self.store)

    @contextmanager
    def teaching(self, **environment: str) -> Iterator[WorkerProcess]:
        """A worker that serves everything a training runs."""
        arguments = [word for card_id in self.cards for word in ("--card", card_id)]
        with self.worker(*arguments, **environment) as worker, use_runtime(self.runtime):
            yield worker.wait_ready()

    def noted(self, name: str, title: str, until: int = 100) -> dict[int, Mapping[str, Any]]:
        """What a training noted under a title."""
        return notes.read_all(self.catalog, self.store, name, title, range(until))


def lesson(**changes: Any) -> TrainingConfiguration:
    """A short training of flux-t2i's transformer; `changes` are whole fields."""
    train = {"transformer": {"method": "flow-grpo", "learning_rate": 1e-3, "clip_range": 0.01}}
    values: dict[str, Any] = {
        "stages": [{"card": "flux-t2i", "train": train, "parameters": {"num_inference_steps": 3}}],
        "prompts": [{"prompt": PROMPT, "target": f"{PROMPT} on a pink background"}, OTHER],
        "samples": 3,
        "iterations": 3,
        "seed": 7,
        "evaluation": {"every": 2, "seeds": [1, 2], "held_out": [f"{OTHER} on a black background"]},
    }
    return configuration_of({**values, **changes})
