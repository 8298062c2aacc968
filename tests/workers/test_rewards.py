"""A picture is drawn and scored by a real worker process, as a training does it all the time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mutoscope.models.registry import get_card
from mutoscope.models.starter.folders import starter_folder
from mutoscope.platform.catalog.tree import render_tree
from mutoscope.platform.orchestration.importing import import_folder
from mutoscope.platform.orchestration.runtime import Runtime, use_runtime
from mutoscope.platform.orchestration.scoring import read_reward
from mutoscope.platform.orchestration.submit import submit_run
from tests.support.workshop import Workshop

CARDS = ("flux-t2i", "reward-scene", "reward-ocr")
PROMPT = "a red circle left of a blue square"


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """A home with the starter weights of three cards, a worker that serves them, and its handles."""
    workshop = Workshop(tmp_path_factory.mktemp("rewards") / "home", concurrency=4)
    for card_id in CARDS:
        folder = starter_folder(card_id)
        assert isinstance(folder, Path)
        import_folder(workshop.catalog, workshop.store, get_card(card_id), folder)
    arguments = [word for card_id in CARDS for word in ("--card", card_id)]
    with workshop.worker(*arguments) as worker:
        worker.wait_ready()
        with use_runtime(Runtime(workshop.settings, workshop.catalog, workshop.store)) as opened:
            yield opened
    workshop.close()


async def test_a_drawn_picture_is_scored_and_both_are_on_record(runtime: Runtime) -> None:
    image = (await submit_run("flux-t2i", prompt=PROMPT, seed=7)).outputs["image"]
    scored = await submit_run("reward-scene", image=image, prompt=PROMPT)
    assert (scored.run.kind, scored.run.seed, set(scored.outputs)) == ("reward", 0, {"reward"})
    reward = read_reward(runtime, scored.outputs["reward"])
    assert (reward.status, reward.card) == ("score", "reward-scene")
    assert reward.score is not None
    assert reward.score > 0.9
    assert set(reward.details) == {
        "colour red", "shape red circle", "colour blue", "shape blue square", "relation left of",
        "background", "count",
    }  # fmt: skip

    again = await submit_run("reward-scene", image=image, prompt=PROMPT)
    assert (again.disposition, again.outputs) == ("hit", scored.outputs)

    shown = render_tree(runtime.catalog.lineage.up(scored.outputs["reward"].digest))
    assert f"score {reward.score:.4f}" in shown.splitlines()[0]
    scorer = runtime.catalog.weights.live("reward-scene")["scorer"]
    assert f"{scorer}" in shown
    assert str(image) in shown


async def test_the_ocr_models_are_weights_like_any_others(runtime: Runtime) -> None:
    image = (await submit_run("flux-t2i", prompt=PROMPT, seed=7)).outputs["image"]
    scored = await submit_run("reward-ocr", image=image, text="OPEN")
    reward = read_reward(runtime, scored.outputs["reward"])
    assert reward.status == "score"
    pinned = runtime.catalog.runs.weights(scored.run.id)
    live = {name: version.digest for name, version in runtime.catalog.weights.live("reward-ocr").items()}
    assert pinned == live
    assert set(live) == {"scorer", "recipe"}
    assert scored.run.key_parts is not None
    assert scored.run.key_parts["weights"] == live
