"""Refiners in front of a generator, on starter weights: each component learns from the same rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from mutoscope.models.registry import get_card
from mutoscope.models.starter.folders import starter_folder
from mutoscope.models.unified.assembly import assemble
from mutoscope.platform import ids
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Profile, Request
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.training.groups import Draw, RolloutRecord, Sample
from mutoscope.platform.training.state import to_file
from tests.support.training import Rollouts, digest_of, train

PROMPT = "red circle, blue square left"
SCORES = (1.0, 0.0, 0.6)
ASKED: dict[str, Any] = {
    "prompt": PROMPT,
    "num_inference_steps": 4,
    "temperature": 4.0,
    "max_new_tokens": 8,
}
REFINERS = {"unirl-qwenflux": ("refiner",), "multi-expert": ("refiner_1", "refiner_2")}


@pytest.fixture(scope="module", autouse=True)
def contract() -> None:
    numerics.configure_torch(numerics.cpu_contract(threads=1))


@pytest.fixture(scope="module", params=list(REFINERS))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Instance:
    card_id, generator, refiner = request.param, starter_folder("flux-t2i"), starter_folder("refiner-lm")
    assert isinstance(generator, Path)
    assert isinstance(refiner, Path)
    folder = tmp_path_factory.mktemp("composed") / card_id
    assemble(folder, generator, dict.fromkeys(REFINERS[card_id], refiner), copy=False)
    card = get_card(card_id)
    names = card.inspect(folder).components
    return load_instance(card, folder, weights={name: digest_of(f"{card_id}/{name}") for name in names})


@pytest.fixture(scope="module")
def rollouts(served: Instance) -> Rollouts:
    """A group whose last sample kept the prompt as it was."""
    draw = Draw(seed=1, iteration=0, prompt_index=0)
    parts, samples, made = REFINERS[served.card.id], [], Rollouts()
    asked = {**ASKED, "group_seed": draw.group_seed}
    for at, score in enumerate(SCORES):
        refined = at < len(SCORES) - 1
        request = Request(
            str(at), served.card.id, {}, {**asked, "refine": refined}, draw.sample_seed(at), Profile.ROLLOUT
        )
        outputs = Engine().run(served, request).outputs
        made.trajectories.append(outputs["trajectory"].value)
        tokens = {part: outputs[f"{part}_tokens"].value for part in parts if f"{part}_tokens" in outputs}
        written = {part: len(made.tokens) + number for number, part in enumerate(tokens)}
        made.tokens += tokens.values()
        samples.append(
            Sample(
                seed=request.seed,
                prompt=outputs["text"].value,
                refined=refined,
                status="score",
                score=score,
                trajectory=(at, 0),
                tokens=written,
            )
        )
    record = RolloutRecord(
        card=served.card.id,
        prompt=PROMPT,
        target=PROMPT,
        draw=draw,
        parameters=served.card.resolve(asked, served.recipe, Profile.ROLLOUT),
        group_seed=draw.group_seed,
        law="flow-sde",
        window=made.trajectories[0].facts.window,
        noise_scale=0.7,
        weights=served.weights,
        versions={},
        rewards={"reward-scene": 1.0},
        samples=tuple(samples),
        trajectories=tuple(digest_of(f"t{at}") for at in range(len(samples))),
        tokens=tuple(digest_of(f"w{at}") for at in range(len(made.tokens))),
    )
    made.rollouts.append(record.to_json())
    return made


def test_the_generator_learns_from_prompts_as_they_were_drawn(served: Instance, rollouts: Rollouts) -> None:
    made = train(served, rollouts, component="transformer", method="flow-grpo")
    metrics = made["metrics"].value
    assert (metrics["examples"], metrics["updates"]) == (3, 1)
    assert metrics["curve"][0]["delta_log_p"] < 1e-5
    assert made["weights"].meta["component"] == "transformer"


def test_each_refiner_learns_from_what_it_wrote(served: Instance, rollouts: Rollouts) -> None:
    """From two samples: the third, which it did not write, is in the contrast only."""
    for part in REFINERS[served.card.id]:
        made = train(served, rollouts, component=part, method="token-pg", learning_rate=1e-3, max_shift=10)
        metrics = made["metrics"].value
        assert metrics["samples"] == 3
        assert 1 <= metrics["examples"] <= 2
        assert metrics["curve"][0]["delta_log_p"] < 1e-5
        assert metrics["policy_shift"] > 0
        assert made["weights"].meta["component"] == part
        assert made["weights"].value


def test_refiners_alone_leave_every_byte_of_the_generator(served: Instance, rollouts: Rollouts) -> None:
    before = held_bytes(served)
    for part in REFINERS[served.card.id]:
        made = train(served, rollouts, component=part, method="token-pg", learning_rate=1e-3, max_shift=10)
        assert list(made) == ["weights", "state", "metrics"], "one component's weights, nothing of another's"
        assert held_bytes(served) == before


def held_bytes(served: Instance) -> dict[str, str]:
    """Digest of what each component holds, the refiners included: a step works on a copy."""
    modules = {name: each for name, each in served.components.items() if isinstance(each, nn.Module)}
    assert {"transformer", "vae", *REFINERS[served.card.id]} <= modules.keys()
    return {name: ids.sha256(to_file(dict(module.state_dict()))) for name, module in modules.items()}


def test_the_components_that_learn_are_named(served: Instance, rollouts: Rollouts) -> None:
    known = ", ".join((*REFINERS[served.card.id], "transformer"))
    with pytest.raises(InvalidParameter, match=f"component='vae' is not valid: train one of {known}"):
        train(served, rollouts, component="vae", method="flow-grpo")
