"""Rollouts of the flow-matching cards: serving plus capture, repeatable, with log-probabilities that hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mutoscope.models.registry import get_card
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.engine import numerics, sde
from mutoscope.platform.engine.calibration import calibrate
from mutoscope.platform.engine.card import Card
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.example import example_request
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.recompute import conditioned, recompute_log_probs, recorded_steps
from mutoscope.platform.engine.request import Profile, Request
from mutoscope.platform.engine.rollout import noise_seed
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.trajectory import TrajectoryGroup, joined
from tests.models.wan.folders import EXPAND, SECOND_UNIPC, write_folder
from tests.support.cards import tiny_folder
from tests.support.interleaving import content, serve_together
from tests.support.parts import few_now

CARDS = ["flux-t2i", "wan-i2v", "wan-t2v"]
STEPS = 6

Folders = Callable[[str, int], Path]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def loaded(card: Card, folder: Path, **how: Any) -> Instance:
    """An instance that knows its weights, as a worker's does."""
    weights = {part.name: digest(f"{folder}/{part.name}") for part in card.components}
    return load_instance(card, folder, weights=weights, **how)


@pytest.fixture(scope="module", autouse=True)
def contract() -> None:
    numerics.configure_torch(numerics.cpu_contract(threads=1))


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    root = tmp_path_factory.mktemp("rollouts")
    return cache(lambda card_id, seed: tiny_folder(card_id, root / f"{card_id}-{seed}", seed))


@pytest.fixture(scope="module")
def instance_of(folder_of: Folders) -> Callable[[str], Instance]:
    return cache(lambda card_id: loaded(get_card(card_id), folder_of(card_id, 0)))


def rollout(instance: Instance, name: str = "r", *, seed: int = 5, **parameters: Any) -> Request:
    asked = {"num_inference_steps": STEPS, "group_seed": 11, **parameters}
    example = example_request(instance.card, instance.recipe, name=name, profile=Profile.ROLLOUT, **asked)
    return replace(example, seed=seed)  # the samples of a group share their inputs


def group_of(instance: Instance, request: Request) -> TrajectoryGroup:
    group: TrajectoryGroup = Engine().run(instance, request).outputs["trajectory"].value
    return group


def sampled(instance: Instance, seeds: tuple[int, ...] = (5, 6, 7), **parameters: Any) -> TrajectoryGroup:
    """A group, its samples served together."""
    engine = Engine()
    requests = [rollout(instance, str(seed), seed=seed, **parameters) for seed in seeds]
    tickets = [engine.submit(instance, request) for request in requests]
    while engine.step():
        pass
    return joined([ticket.result().outputs["trajectory"].value for ticket in tickets])


def without_trajectory(made: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in made.items() if not name.startswith("trajectory")}


@pytest.mark.parametrize("card_id", few_now(CARDS, lambda card_id: card_id != "wan-t2v"))
class TestRollouts:
    def test_capture_alone_changes_no_byte(
        self, card_id: str, instance_of: Callable[[str], Instance]
    ) -> None:
        """Along the ODE a rollout serves what serving does, and serving captures nothing."""
        instance = instance_of(card_id)
        asked = rollout(instance, law="ode", levels="all")
        own = {name: asked.parameters[name] for name in ("prompt", "num_inference_steps")}
        served = replace(asked, profile=Profile.SERVE, parameters={**own, "guidance_scale": 1.0})
        captured, plain = (content(Engine().run(instance, each)) for each in (asked, served))
        assert without_trajectory(captured) == plain
        assert without_trajectory(captured) != captured

    @pytest.mark.parametrize("law", ["flow-sde", "cps"])
    def test_it_repeats_and_interleaves_bit_for_bit(
        self, card_id: str, law: str, instance_of: Callable[[str], Instance]
    ) -> None:
        instance = instance_of(card_id)
        requests = [
            rollout(instance, name, seed=seed, law=law) for name, seed in zip("abc", (5, 5, 6), strict=True)
        ]
        alone = {each.id: content(Engine().run(instance, each)) for each in requests}
        assert serve_together(instance, requests, stagger=1) == alone
        assert alone["a"] == alone["b"]
        assert alone["a"]["latent.latents"] != alone["c"]["latent.latents"]

    @pytest.mark.parametrize("law", ["flow-sde", "cps"])
    def test_c2_recomputed_log_probs_are_the_captured_ones(
        self, card_id: str, law: str, instance_of: Callable[[str], Instance], folder_of: Folders
    ) -> None:
        """|Δ| < 1e-5 and a ratio of 1 under the weights that sampled; control: not under others."""
        instance = instance_of(card_id)
        group = sampled(instance, law=law, window_size=3)
        again = recompute_log_probs(instance, rollout(instance, law=law, window_size=3), group)
        for sample, log_probs_W in zip(group.samples, again, strict=True):
            assert log_probs_W.shape == (3,)
            np.testing.assert_allclose(log_probs_W, sample.log_probs_W, rtol=0, atol=1e-5)
            np.testing.assert_allclose(np.exp(log_probs_W - sample.log_probs_W), 1, rtol=0, atol=1e-5)
        other = loaded(instance.card, folder_of(card_id, 1))
        swapped = recompute_log_probs(other, rollout(other, law=law, window_size=3), group)
        assert np.abs(swapped[0] - group.samples[0].log_probs_W).max() > 1e-4

    def test_c2_is_exact_where_samples_share_calls(
        self, card_id: str, instance_of: Callable[[str], Instance]
    ) -> None:
        """A calibrated instance samples a group in shared calls, and recomputes it alone to the last bit."""
        instance = instance_of(card_id)
        shared = calibrate(instance, most=4).prepare(instance)
        group = sampled(shared)
        for sample, again in zip(
            group.samples, recompute_log_probs(shared, rollout(shared), group), strict=True
        ):
            np.testing.assert_array_equal(again, sample.log_probs_W)

    def test_steps_follow_the_law_inside_the_window_and_the_ode_outside(
        self, card_id: str, instance_of: Callable[[str], Instance]
    ) -> None:
        """Each recorded step again from its velocity and its own noise."""
        instance = instance_of(card_id)
        asked = rollout(instance, window_start=2, window_size=2, levels="all", noise_scale=0.5)
        group = group_of(instance, asked)
        facts, (sample,) = group.facts, group.samples
        assert facts.window == (2, 4)
        assert sorted(sample.latents) == list(range(STEPS + 1))
        slots = conditioned(instance, asked)
        for index in range(STEPS):
            x, moved = (torch.from_numpy(sample.latents[level])[None] for level in (index, index + 1))
            velocity = velocity_at(instance, slots, index, x)
            law = sde.transition(facts.law if 2 <= index < 4 else "ode", facts.sigmas, index, 0.5)
            noise = sde.step_noise(x.shape, noise_seed(asked.seed, index), device=x.device)
            torch.testing.assert_close(law.sample(x, velocity, noise), moved, rtol=0, atol=1e-5)

    def test_log_probs_can_be_differentiated_in_the_weights(
        self, card_id: str, instance_of: Callable[[str], Instance]
    ) -> None:
        instance = instance_of(card_id)
        asked = rollout(instance)
        group = group_of(instance, asked)
        weight = next(
            tensor
            for name, tensor in instance.components["transformer"].named_parameters()
            if name.startswith("proj_out")
        )
        with torch.inference_mode(False):
            slots = conditioned(instance, asked)
            weight.requires_grad_(True)
            try:
                steps = recorded_steps(instance, slots, group.facts, asked.seed, group.samples[0])
                total = torch.stack([step.log_prob(step.plan.run()) for step in steps]).sum()
                (gradient,) = torch.autograd.grad(total, weight)
            finally:
                weight.requires_grad_(False)
        assert gradient.abs().max() > 0

    def test_what_a_group_records(self, card_id: str, instance_of: Callable[[str], Instance]) -> None:
        instance = instance_of(card_id)
        group = sampled(instance, seeds=(5, 6))
        assert group.facts.seeds == (5, 6)
        assert group.facts.weights == instance.weights
        assert group.facts.law_parameters == {"noise_scale": 0.7}
        assert group_of(instance, rollout(instance, prompt="a blue circle")).facts.prompt_embedding not in (
            group.facts.prompt_embedding
        )
        start, stop = group.facts.window
        for sample in group.samples:
            assert sorted(sample.latents) == sorted({*range(start, stop + 1), STEPS})
            assert sample.log_probs_W.dtype == np.float32
        stored = codecs.encode("trajectory", group)
        restored = codecs.decode("trajectory", stored.data, stored.media_type)
        assert restored.facts == group.facts

    def test_latents_are_float32_under_a_half_precision_model(self, card_id: str, folder_of: Folders) -> None:
        """Bfloat16 weights, float32 policy: nothing stored is a rounded bfloat16, and C2 holds."""
        instance = loaded(get_card(card_id), folder_of(card_id, 0), dtype="bfloat16")
        asked = rollout(instance, levels="all")
        group = group_of(instance, asked)
        for level in (0, STEPS):
            kept = torch.from_numpy(group.samples[0].latents[level])
            assert not torch.equal(kept, kept.bfloat16().float())
        (again,) = recompute_log_probs(instance, asked, group)
        np.testing.assert_allclose(again, group.samples[0].log_probs_W, rtol=0, atol=1e-5)

    def test_an_instance_of_unknown_weights_is_not_rolled_out(self, card_id: str, folder_of: Folders) -> None:
        """Log-probabilities hold for the weights that sampled them, and those must have a name."""
        instance = load_instance(get_card(card_id), folder_of(card_id, 0))
        with pytest.raises(InvalidParameter, match=r"profile='rollout' .* load the instance with weights="):
            Engine().run(instance, rollout(instance))

    def test_no_guidance_unless_asked_for(self, card_id: str, instance_of: Callable[[str], Instance]) -> None:
        instance = instance_of(card_id)
        assert instance.recipe.guidance_scale > 1
        resolve = instance.card.resolve
        for profile, scale in ((Profile.SERVE, instance.recipe.guidance_scale), (Profile.ROLLOUT, 1.0)):
            assert resolve({"prompt": "a"}, instance.recipe, profile)["guidance_scale"] == scale
        asked = resolve({"prompt": "a", "guidance_scale": 2.0}, instance.recipe, Profile.ROLLOUT)
        assert asked["guidance_scale"] == 2.0

    def test_a_request_of_another_group_is_refused(
        self, card_id: str, instance_of: Callable[[str], Instance]
    ) -> None:
        instance = instance_of(card_id)
        group = sampled(instance, seeds=(5,), window_start=1)
        for change, named in (
            ({"window_start": 2}, "trajectory.window"),
            ({"window_start": 1, "noise_scale": 0.3}, "trajectory.noise_scale"),
            ({"window_start": 1, "law": "cps"}, "trajectory.law"),
            ({"window_start": 1, "num_inference_steps": 5}, "trajectory.sigmas"),
        ):
            with pytest.raises(InvalidParameter, match=named):
                recompute_log_probs(instance, rollout(instance, **change), group)


def velocity_at(instance: Instance, slots: Mapping[str, Any], index: int, x: torch.Tensor) -> torch.Tensor:
    """What the card's loop predicts before a step."""
    loop = next(node.loop for node in instance.program.nodes if hasattr(getattr(node, "loop", None), "seek"))
    state = loop.init(slots)
    loop.seek(state, index, x)
    velocity: torch.Tensor = loop.next(state).run()
    return velocity.float()


def test_a_multistep_solver_is_left_aside(tmp_path: Path) -> None:
    """A UniPC folder with two experts is rolled out by Euler on UniPC's own noise levels."""
    instance = loaded(get_card("wan-i2v"), write_folder(tmp_path / "card", SECOND_UNIPC))
    asked = rollout(instance, law="ode", levels="all")
    group = group_of(instance, asked)
    slots = conditioned(instance, asked)
    x = torch.from_numpy(group.samples[0].latents[0])[None]
    for index in range(STEPS):
        velocity = velocity_at(instance, slots, index, x)
        x = sde.ode(*group.facts.sigmas[index : index + 2]).mean(x, velocity)
    torch.testing.assert_close(x[0], torch.from_numpy(group.samples[0].latents[STEPS]), rtol=0, atol=1e-5)


def test_a_given_first_frame_has_no_part_in_the_log_probability(tmp_path: Path) -> None:
    """What the TI2V layout holds fixed is not the policy's doing, whatever the model predicts there."""
    instance = loaded(get_card("wan-i2v"), write_folder(tmp_path / "card", EXPAND))
    asked = rollout(instance)
    group = group_of(instance, asked)
    slots = conditioned(instance, asked)
    (step, *_) = recorded_steps(instance, slots, group.facts, asked.seed, group.samples[0])
    velocity = step.plan.run().float()
    given, made = velocity.clone(), velocity.clone()
    given[:, :, 0] += 1
    made[:, :, 1] += 1
    assert torch.equal(step.log_prob(given), step.log_prob(velocity))
    assert not torch.equal(step.log_prob(made), step.log_prob(velocity))


def test_a_card_that_only_serves_says_so(instance_of: Callable[[str], Instance]) -> None:
    card = get_card("wan-adaptive")
    with pytest.raises(
        InvalidParameter, match="profile='rollout' is not valid: wan-adaptive runs under serve"
    ):
        card.resolve({"prompt": "a"}, card.recipe(), Profile.ROLLOUT)


def test_rollout_parameters_belong_to_rollouts(instance_of: Callable[[str], Instance]) -> None:
    instance = instance_of("flux-t2i")
    with pytest.raises(InvalidParameter, match="law='cps' is not valid: flux-t2i takes prompt"):
        instance.card.resolve({"prompt": "a", "law": "cps"}, instance.recipe)
    with pytest.raises(InvalidParameter, match="window_size=9"):
        instance.card.resolve(
            {"prompt": "a", "num_inference_steps": 4, "window_size": 9}, instance.recipe, Profile.ROLLOUT
        )


def test_samples_of_different_groups_are_not_joined(instance_of: Callable[[str], Instance]) -> None:
    instance = instance_of("flux-t2i")
    one = group_of(instance, rollout(instance, window_start=1))
    for change, named in (
        ({"window_start": 2}, "window"),
        ({"window_start": 1, "prompt": "x"}, "prompt_emb"),
    ):
        with pytest.raises(InvalidParameter, match=named):
            joined([one, group_of(instance, rollout(instance, **change))])
