"""A training step on starter weights: what it moves, what it leaves alone, and that it repeats itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.example import example_request
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.recompute import Seeker, conditioned
from mutoscope.platform.engine.request import Output, Profile, Request
from mutoscope.platform.training.groups import RolloutRecord
from mutoscope.platform.training.methods.nft import noised
from mutoscope.platform.training.state import fingerprint
from tests.support.interleaving import content as served_content
from tests.support.training import (
    Rollouts,
    advanced,
    collect,
    content,
    request,
    starter,
    train,
    trainer,
)

PROMPTS = ["a red circle left of a blue square", "a green square"]
SCORES = [1.0, 0.0, 0.5]

ASKED: Mapping[str, dict[str, Any]] = {
    "flux-t2i": {"method": "flow-grpo", "clip_range": 1e-2},
    "wan-i2v": {"method": "flow-grpo", "clip_range": 1e-2},
    "refiner-lm": {"method": "token-pg", "learning_rate": 1e-3},
}
SAMPLED: Mapping[str, dict[str, Any]] = {
    "flux-t2i": {"num_inference_steps": 4},
    "wan-i2v": {"num_inference_steps": 3},
    "refiner-lm": {"temperature": 4.0, "max_new_tokens": 8},
}
CARDS = tuple(ASKED)


def bind() -> None:
    """Bind this process to the contract of a CPU worker."""
    numerics.configure_torch(numerics.cpu_contract(threads=1))


@pytest.fixture(scope="module", autouse=True)
def contract() -> None:
    bind()


_collected: dict[str, Rollouts] = {}


def rollouts(card_id: str) -> Rollouts:
    """Groups of the starter weights, sampled once."""
    if card_id not in _collected:
        prompts = PROMPTS if card_id == "refiner-lm" else PROMPTS[:1]
        _collected[card_id] = collect(starter(card_id), prompts, SCORES, **SAMPLED[card_id])
    return _collected[card_id]


def step(card_id: str, **asked: Any) -> dict[str, Output]:
    return train(starter(card_id), rollouts(card_id), **{**ASKED[card_id], **asked})


def told(made: Mapping[str, Output]) -> dict[str, Any]:
    metrics: dict[str, Any] = made["metrics"].value
    return metrics


@pytest.mark.parametrize("card_id", CARDS)
def test_the_first_pass_finds_what_was_captured(card_id: str) -> None:
    first = told(step(card_id))["curve"][0]
    assert first["delta_log_p"] < 1e-5
    assert abs(first["ratio_min"] - 1) < 1e-5
    assert abs(first["ratio_max"] - 1) < 1e-5
    assert first["clip_fraction"] == 0
    assert first["grad_norm"] > 0


@pytest.mark.parametrize("card_id", CARDS)
def test_a_step_makes_what_was_rewarded_likelier(card_id: str) -> None:
    """The mean of A·ρ, which is 0 where the policy is that which sampled, rises: the loss is minus that."""
    curve = told(step(card_id, epochs=2, learning_rate=1e-5 if card_id != "refiner-lm" else 1e-3))["curve"]
    assert curve[0]["loss"] == pytest.approx(0, abs=1e-6)
    assert curve[1]["loss"] < -1e-7


@pytest.mark.parametrize("card_id", CARDS)
def test_a_constant_reward_moves_nothing(card_id: str) -> None:
    """Not even with an optimiser that is in motion, or groups that are kept."""
    made = step(card_id)
    assert made["weights"].value
    served = advanced(starter(card_id), made["weights"], 1)
    same = [[0.7] * len(SCORES) for _ in rollouts(card_id).rollouts]
    for drop in (True, False):
        again = train(
            served,
            rollouts(card_id).scored(*same),
            state=made["state"].value,
            staleness=[1] * len(same),
            max_staleness=1,
            drop_zero_std=drop,
            weight_decay=0.1,
            **ASKED[card_id],
        )
        assert not again["weights"].value, "nothing in place of the pinned weights"
        assert (told(again)["updates"], told(again)["zero_std_groups"]) == (0, len(same))
        assert again["state"].value["state.safetensors"] == made["state"].value["state.safetensors"]


@pytest.mark.parametrize("card_id", CARDS)
def test_equal_steps_are_equal_bytes(card_id: str) -> None:
    asked = {"epochs": 2, "minibatch": 2, "ema_decay": 0.9}
    assert content(step(card_id, **asked)) == content(step(card_id, **asked))
    assert content(step(card_id, **asked)) != content(step(card_id, **asked, seed=4))


@pytest.mark.long
def test_equal_steps_are_equal_bytes_in_another_process() -> None:
    script = (
        "import json; from tests.training import test_trainer as t; t.bind();"
        "print(json.dumps(t.content(t.step('refiner-lm', epochs=2))))"
    )
    root = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout.splitlines()[-1]) == content(step("refiner-lm", epochs=2))


@pytest.mark.parametrize("lora_rank", [None, 4])
@pytest.mark.parametrize("card_id", CARDS)
def test_a_training_may_be_cut_anywhere(card_id: str, lora_rank: int | None) -> None:
    """Three passes in one run, or one and then two that go on from its state: the same to the last bit."""
    asked = {**ASKED[card_id], "minibatch": 2, "ema_decay": 0.9, "lora_rank": lora_rank}
    served, sampled = starter(card_id), rollouts(card_id)
    whole = train(served, sampled, epochs=3, **asked)
    first = train(served, sampled, epochs=1, **asked)
    behind = [1] * len(sampled.rollouts)
    rest = train(
        advanced(served, first["weights"], 1),
        sampled,
        state=first["state"].value,
        epochs=2,
        staleness=behind,
        max_staleness=1,
        **asked,
    )
    assert whole["state"].value == rest["state"].value
    assert told(whole)["curve"] == told(first)["curve"] + told(rest)["curve"]
    assert _final(served, whole["weights"]) == _final(served, first["weights"], rest["weights"])
    assert told(rest)["step"] == told(whole)["step"]


def _final(served: Any, *weights: Output) -> str:
    """The component after several outputs, each of which says what changed; or the adapter."""
    if "base" in weights[-1].meta:
        return str(weights[-1].value)
    for version, each in enumerate(weights):
        served = advanced(served, each, version)
    return fingerprint(dict(served.components[weights[0].meta["component"]].state_dict()))


@pytest.fixture(scope="module")
def given() -> Rollouts:
    """Finished samples, without a stochastic step."""
    return collect(starter("flux-t2i"), PROMPTS[:1], SCORES, num_inference_steps=4, law="ode")


def errors(served: Instance, given: Rollouts) -> list[float]:
    """By sample, the mean (x̂₀ − x₀)² from the same noise at the same levels."""
    (group,) = given.trajectories
    record = RolloutRecord.from_json(given.rollouts[0])
    asked = {**record.parameters, "prompt": record.prompt}
    slots = conditioned(served, Request("errors", "flux-t2i", {}, asked, 0, Profile.ROLLOUT))
    found = []
    for seed, sample in zip(group.facts.seeds, group.samples, strict=True):
        x0 = torch.tensor(sample.latents[group.facts.steps])[None]
        noise = torch.randn(x0.shape, generator=torch.Generator().manual_seed(1))
        seeker, total = Seeker.of(served, slots, seed), 0.0
        for index, sigma in enumerate(group.facts.sigmas[:-1]):
            x = noised(x0, noise, sigma)
            total += float((x - sigma * seeker.plan(index, x).run() - x0).square().mean())
        found.append(total)
    return found


class TestNft:
    ASKED: Mapping[str, Any] = {"method": "nft", "learning_rate": 3e-5}

    def test_finished_samples_are_enough(self, given: Rollouts) -> None:
        """Of what was rewarded the prediction comes nearer, in comparison with what was not."""
        served = starter("flux-t2i")
        made = train(served, given, epochs=4, **self.ASKED)
        assert told(made)["curve"][0]["delta_log_p"] is None
        before, after = (errors(each, given) for each in (served, advanced(served, made["weights"], 1)))
        liked, disliked = SCORES.index(1.0), SCORES.index(0.0)
        assert after[liked] / before[liked] < after[disliked] / before[disliked]

    def test_the_sampling_policy_follows_slowly_and_the_student_goes_on(self, given: Rollouts) -> None:
        served = starter("flux-t2i")
        at_once = train(served, given, old_decay=0.0, **self.ASKED)
        slowly = train(served, given, old_decay=0.75, **self.ASKED)
        never = train(served, given, old_decay=1.0, **self.ASKED)
        assert not never["weights"].value
        resident = dict(served.components["transformer"].named_parameters())
        for name, moved in at_once["weights"].value.items():
            a_quarter = 0.75 * resident[name] + 0.25 * moved
            if name in slowly["weights"].value:
                assert torch.allclose(slowly["weights"].value[name], a_quarter, atol=1e-7)

        again = train(served, given, old_decay=1.0, state=never["state"].value, **self.ASKED)
        whole = train(served, given, old_decay=1.0, epochs=2, **self.ASKED)
        assert again["state"].value == whole["state"].value


def test_served_bytes_do_not_know_of_a_training() -> None:
    """Requests served before, during and after a step on the same modules are equal."""
    served, engine = starter("flux-t2i"), Engine()
    asked = example_request(served.card, served.recipe, seed=5, num_inference_steps=4)
    before = served_content(engine.run(served, asked))
    weights = {name: tensor.clone() for name, tensor in served.components["transformer"].state_dict().items()}
    training = engine.submit(
        trainer(served),
        request(
            served,
            rollouts("flux-t2i"),
            epochs=4,
            learning_rate=1e-3,
            max_shift=1e9,
            **ASKED["flux-t2i"],
        ),
    )
    during = []
    while not training.done:
        ticket = engine.submit(served, asked)
        while not ticket.done:
            engine.step()
        during.append(served_content(ticket.result()))
    assert len(during) >= 2
    assert training.result().outputs["weights"].value
    assert all(each == before for each in during)
    assert served_content(engine.run(served, asked)) == before
    for name, tensor in served.components["transformer"].state_dict().items():
        assert torch.equal(tensor, weights[name])


def test_a_student_of_few_steps_learns_its_teachers_chords() -> None:
    """Two leaps for the teacher's eight steps; scores have no part in it."""
    teacher = collect(
        starter("flux-t2i"), PROMPTS[:1], [None, None], num_inference_steps=8, law="ode", levels="all"
    )
    asked = {"method": "distill", "distill_steps": 2, "learning_rate": 1e-4}
    curve = told(train(starter("flux-t2i"), teacher, epochs=4, **asked))["curve"]
    losses = [entry["loss"] for entry in curve]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.9 * losses[0]
