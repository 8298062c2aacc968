"""Training as runs: the trainer cards through the real engine, a few steps long."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutoscope.models.registry import get_card
from mutoscope.models.starter.trainers import (
    IMAGE_TRAINER,
    REFINER_TRAINER,
    SCORER_TRAINER,
    TRAINED,
    VIDEO_TRAINER,
)
from mutoscope.platform import settings
from mutoscope.platform.engine.card import Card
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Progress, Request, Result
from mutoscope.platform.errors import InvalidFolder, InvalidParameter

SHORT = {"vae_steps": 5, "polish_steps": 1, "text_steps": 2, "dit_steps": 2, "bank_size": 64}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("MUTOSCOPE_HOME", str(tmp_path))
    settings.get_settings.cache_clear()
    yield tmp_path
    settings.get_settings.cache_clear()


def instance(card: Card) -> Instance:
    return load_instance(card, {}, recipe=card.recipe.model_validate({}))


def request(card: Card, run_id: str, **parameters: Any) -> Request:
    return Request(run_id, card.id, {}, {**SHORT, **parameters}, seed=11)


def digests(result: Result) -> Mapping[str, str]:
    """SHA-256 of every file of every component."""
    return {
        f"{name}/{path}": hashlib.sha256(data).hexdigest()
        for name, output in result.outputs.items()
        if output.kind == "weights"
        for path, data in output.value.items()
    }


def folder_of(result: Result, folder: Path) -> Path:
    for name, output in result.outputs.items():
        if output.kind == "weights":
            for path, data in output.value.items():
                (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / name / path).write_bytes(data)
    return folder


@pytest.mark.parametrize(
    "card",
    [
        pytest.param(IMAGE_TRAINER, id=IMAGE_TRAINER.id),
        pytest.param(VIDEO_TRAINER, id=VIDEO_TRAINER.id, marks=pytest.mark.long),
    ],
)
def test_a_training_makes_every_component_of_the_card_it_trains(card: Card, home: Path) -> None:
    seen: list[Progress] = []
    result = Engine().run(instance(card), request(card, "full", vae_steps=1), seen.append)

    trained = get_card(TRAINED[card.id])
    assert set(result.outputs) == {slot.name for slot in card.outputs}
    assert {part.name for part in trained.components if not part.optional} <= set(result.outputs)
    assert seen[-1].step == seen[-1].total
    assert list((home / "training").iterdir()) == []
    # The components load as the card they were trained for.
    folder = folder_of(result, home / "trained")
    paths = {name: folder / name for name, output in result.outputs.items() if output.kind == "weights"}
    loaded = load_instance(trained, paths, recipe=result.outputs["recipe"].value)
    assert loaded.recipe.sizes == ((64, 64),)


def test_a_refiners_training_makes_both_components(home: Path) -> None:
    """They lie in one folder, and load as two."""
    short = Request("refiner", REFINER_TRAINER.id, {}, {"lm_steps": 3}, seed=31)
    result = Engine().run(instance(REFINER_TRAINER), short)
    assert set(result.outputs) == {"llm", "tokenizer", "recipe"}
    assert set(result.outputs["llm"].value) == {"config.json", "generation_config.json", "model.safetensors"}
    folder = folder_of(result, home / "trained")
    paths = {name: folder / name for name in ("llm", "tokenizer")}
    loaded = load_instance(get_card("refiner-lm"), paths, recipe=result.outputs["recipe"].value)
    assert loaded.recipe.max_new_tokens == 24


def test_a_scorers_training_repeats_itself_and_loads(home: Path) -> None:
    once, again = (
        Engine().run(
            instance(SCORER_TRAINER), Request(name, SCORER_TRAINER.id, {}, {"scorer_steps": 2}, seed=31)
        )
        for name in ("once", "again")
    )
    assert set(once.outputs) == {"scorer", "recipe"}
    assert digests(once) == digests(again)
    folder = folder_of(once, home / "trained")
    card = get_card(TRAINED[SCORER_TRAINER.id])
    loaded = load_instance(card, {"scorer": folder / "scorer"}, recipe=once.outputs["recipe"].value)
    picture = np.zeros((64, 64, 3), np.uint8)
    scored = Engine().run(loaded, Request("one", card.id, {"image": picture}, {"prompt": "a red ring"}, 0))
    assert 0 < scored.outputs["reward"].value["score"] < 1


@pytest.mark.long
def test_a_training_that_was_cut_short_ends_on_the_same_weights(home: Path) -> None:
    whole = Engine().run(instance(IMAGE_TRAINER), request(IMAGE_TRAINER, "whole"))

    # The first attempt stops inside the second stage, after the checkpoint at the end of the first.
    engine = Engine()
    ticket = engine.submit(instance(IMAGE_TRAINER), request(IMAGE_TRAINER, "broken"))
    while not (home / "training" / "broken" / "image_vae.pt").exists():
        engine.step()
    assert not ticket.done
    resumed = Engine().run(instance(IMAGE_TRAINER), request(IMAGE_TRAINER, "broken"))

    assert digests(resumed) == digests(whole)


def test_a_resumed_training_counts_only_what_is_left(home: Path) -> None:
    engine = Engine()
    first = engine.submit(instance(IMAGE_TRAINER), request(IMAGE_TRAINER, "counted"))
    while not (home / "training" / "counted" / "image_vae.pt").exists():
        engine.step()
    second = Engine().submit(instance(IMAGE_TRAINER), request(IMAGE_TRAINER, "counted"))
    # Five steps of the autoencoder are two plans.
    assert second.progress.total == first.progress.total - 2


def test_bad_input_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="vae_steps=0"):
        Engine().submit(instance(IMAGE_TRAINER), request(IMAGE_TRAINER, "bad", vae_steps=0))
    with pytest.raises(InvalidFolder, match="import it for the card it trains"):
        IMAGE_TRAINER.inspect(tmp_path)
