"""A composed card through a real worker: one run rewrites the prompt and draws it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mutoscope.models.registry import get_card
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import load_instance
from mutoscope.platform.engine.request import Request
from mutoscope.platform.orchestration.importing import import_folder
from mutoscope.platform.orchestration.plan import plan_run
from mutoscope.platform.orchestration.runtime import Runtime
from tests.support.tiny_unified import save_tiny_unified
from tests.support.workshop import Workshop

UNIRL, FLUX, REFINER = "unirl-qwenflux", "flux-t2i", "refiner-lm"
PROMPT = "red circle, blue square left"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_unified(tmp_path_factory.mktemp("unirl") / "folder")


@pytest.fixture
def home(workshop: Workshop, folder: Path) -> Workshop:
    """A home with the composed card's weights and those of its parts."""
    parts = folder.with_name("folder.parts")
    for card_id, place in ((UNIRL, folder), (FLUX, parts / "generator"), (REFINER, parts / "refiner")):
        import_folder(workshop.catalog, workshop.store, get_card(card_id), place)
    return workshop


def queue(home: Workshop, card_id: str, seed: int = 7, **given: Any) -> str:
    runtime = Runtime(home.settings, home.catalog, home.store)
    spec = plan_run(runtime, card_id, {"prompt": PROMPT, **given}, seed=seed)
    return home.catalog.runs.enqueue(spec, present=home.store.contains).run.id


def digests(home: Workshop, run: RunRecord) -> dict[str, str]:
    return {slot: ref.digest for slot, ref in home.catalog.runs.outputs(run.id).items()}


def text_of(home: Workshop, run: RunRecord) -> str:
    ref = home.catalog.runs.outputs(run.id)["text"]
    text: str = codecs.decode(ref.kind, home.store.get(ref.digest), ref.media_type)
    return text


def test_the_parts_bytes_are_stored_once(home: Workshop) -> None:
    live = {
        card_id: {name: version.digest for name, version in home.catalog.weights.live(card_id).items()}
        for card_id in (UNIRL, FLUX, REFINER)
    }
    generator = {spec.name for spec in get_card(FLUX).components}
    assert {live[UNIRL][name] for name in generator} == {live[FLUX][name] for name in generator}
    assert set(live[UNIRL]) == {*generator, "refiner", "refiner_tokenizer", "recipe"}
    tensors = [
        set(home.catalog.audit.members(live[card][name]).values())
        for card, name in ((UNIRL, "refiner"), (REFINER, "llm"))
    ]
    assert tensors[0] == tensors[1] != set()


@pytest.mark.long
def test_a_worker_refines_and_draws(home: Workshop, folder: Path) -> None:
    before = queue(home, UNIRL)
    with home.worker("--card", UNIRL, "--card", FLUX) as worker:
        run = home.wait(before)
        assert (run.state, run.error) == ("succeeded", None), worker.log
        text = text_of(home, run)
        # Planned before any worker was there, so every step has a call of its own, as here.
        request = Request("r", UNIRL, {}, {"prompt": PROMPT}, 7)
        here = Engine().run(load_instance(get_card(UNIRL), folder), request)
        assert text == here.outputs["text"].value
        ref = home.catalog.runs.outputs(run.id)["image"]
        shown = codecs.decode(ref.kind, home.store.get(ref.digest), ref.media_type)
        assert shown.tobytes() == here.outputs["image"].value.tobytes()

        # Planned now, steps share calls as the worker found that they may. The picture of a text is one,
        # whichever of the two cards draws it.
        worker.wait_ready()
        refined = home.wait(queue(home, UNIRL, seed=8))
        plain = home.wait(queue(home, UNIRL, seed=8, refine=False))
        drawn = home.wait(queue(home, FLUX, seed=8, prompt=text_of(home, refined)))
        same = home.wait(queue(home, FLUX, seed=8))
        assert {run.state for run in (refined, plain, drawn, same)} == {"succeeded"}, worker.log
        assert digests(home, drawn).items() <= digests(home, refined).items()
        assert digests(home, same).items() <= digests(home, plain).items()
        assert digests(home, refined)["image"] != digests(home, plain)["image"]
        assert text_of(home, plain) == PROMPT
    assert home.catalog.incidents.list() == []
