"""Whole training steps of real models: the gradient that the optimiser was given is the objective's.

With β₁ = 0 and no limit on its length, the moment that a first step leaves in its state is the gradient
itself. It is held against two things that share no code with training: closed forms at the bias of the last
layer, which adds to every token's velocity, and differences of log-probabilities recomputed by the engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest
import torch
from safetensors.torch import load
from torch import Tensor

from mutoscope.models.common.causal_lm import token_log_probs
from mutoscope.models.common.sampling import Sampling
from mutoscope.platform.engine import sde
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, with_components
from mutoscope.platform.engine.recompute import Seeker, conditioned, recompute_log_probs
from mutoscope.platform.engine.request import Output, Profile, Request
from mutoscope.platform.engine.rollout import noise_seed
from mutoscope.platform.engine.views import weights_of, with_tensors
from mutoscope.platform.training.advantages import group_advantages
from mutoscope.platform.training.groups import RolloutRecord
from mutoscope.platform.training.objectives import Draws
from mutoscope.platform.trajectory import TrajectoryGroup
from mutoscope.platform.weights import GivenWeights
from tests.support.training import COMPONENT, Rollouts, collect, image, request, starter, train, trainer

PROMPTS = ("a red circle left of a blue square", "a green cross")
SCORES = (0.9, 0.1, 0.4)
STEPS = 4
BIAS = "proj_out.bias"
RATE = 1e-3

ADVANTAGES = group_advantages([SCORES]).values[0]
COUNT = len(PROMPTS) * len(SCORES)


@cache
def rollouts(card: str = "flux-t2i", **parameters: Any) -> Rollouts:
    return collect(starter(card), PROMPTS, SCORES, num_inference_steps=STEPS, **parameters)


def step(given: Rollouts, card: str = "flux-t2i", **parameters: Any) -> dict[str, Output]:
    asked = {"beta1": 0.0, "max_grad_norm": None, "learning_rate": RATE, **parameters}
    return train(starter(card), given, **asked)


def gradients(made: Mapping[str, Output]) -> dict[str, Tensor]:
    """What the optimiser was given, by tensor."""
    state = load(made["state"].value["state.safetensors"])
    prefix = "adam.mean/"
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def assert_near(found: Tensor, expected: Tensor, share: float = 1e-3) -> None:
    """To a share of the greatest of the expected numbers."""
    torch.testing.assert_close(found, expected, rtol=0, atol=share * float(expected.abs().max()))


# Closed forms at the last layer's bias


def by_noise(groups: list[TrajectoryGroup], weigh: Callable[[sde.Transition, float], float]) -> Tensor:
    """−(1/N)·Σ A·weight·ξ/D over the recorded steps, summed over tokens: what b is to v is in the weight."""
    total, count = torch.zeros(()), 0
    for group in groups:
        facts = group.facts
        for index in range(*facts.window):
            law = sde.transition(facts.law, facts.sigmas, index, facts.law_parameters["noise_scale"])
            weight = weigh(law, facts.sigmas[index + 1] - facts.sigmas[index])
            for seed, sample, advantage in zip(facts.seeds, group.samples, ADVANTAGES, strict=True):
                shape = (1, *sample.latents[index].shape)
                noise = sde.step_noise(shape, noise_seed(seed, index), device=torch.device("cpu"))
                total = total - advantage * weight * noise[0].sum(0) / noise.numel()
                count += 1
    return total / count


@pytest.mark.parametrize("law", ["flow-sde", "cps"])
def test_flow_grpo_learns_from_the_noise_that_was_drawn(law: str) -> None:
    """−A·∇log p = −A·(b²/τ²)(v_ml − v)/D, and v_ml − v = (τ/b)ξ: known from the seeds, without a model."""
    given = rollouts(law=law)
    found = gradients(step(given, method="flow-grpo"))[BIAS]
    assert_near(found, by_noise(given.trajectories, lambda law, dt: law.gain / law.std))


def test_grpo_guard_weighs_every_step_alike() -> None:
    found = gradients(step(rollouts(law="flow-sde"), method="flow-grpo", guard=True))[BIAS]
    assert_near(found, by_noise(rollouts(law="flow-sde").trajectories, lambda law, dt: law.gain / -dt))


def test_the_first_update_is_adams() -> None:
    """θ' = θ − η·g/(|g| + ε), tensor by tensor: what was published is what the gradient asked for."""
    made = step(rollouts(law="flow-sde"), method="flow-grpo", beta2=0.9)
    before = weights_of(starter("flux-t2i").components["transformer"])
    for name, gradient in gradients(made).items():
        expected = before[name] - RATE * gradient / (gradient.abs() + 1e-8)
        torch.testing.assert_close(made["weights"].value[name], expected, rtol=0, atol=1e-6)


def test_a_group_of_equal_scores_has_no_part() -> None:
    given = rollouts(law="flow-sde")
    mixed = given.scored(SCORES, (0.5, 0.5, 0.5))
    found = gradients(step(mixed, method="flow-grpo"))[BIAS]
    assert_near(found, by_noise(given.trajectories[:1], lambda law, dt: law.gain / law.std))


def test_distillation_learns_the_chords() -> None:
    """(2/D)·(v − v*): the velocity at a level is the chord of the teacher's own next step, the target that of
    two of them."""
    given = rollouts(law="ode", levels="all")
    found = gradients(step(given, method="distill", distill_steps=2))[BIAS]
    total, count = torch.zeros(()), 0
    for group in given.trajectories:
        sigmas = group.facts.sigmas
        for sample in group.samples:
            x = {level: torch.from_numpy(latents) for level, latents in sample.latents.items()}
            for begin in (0, 2):
                own = (x[begin + 1] - x[begin]) / (sigmas[begin + 1] - sigmas[begin])
                chord = (x[begin + 2] - x[begin]) / (sigmas[begin + 2] - sigmas[begin])
                total = total + 2 * (own - chord).sum(0) / own.numel()
                count += 1
    assert_near(found, total / count)


def velocity(slots: Mapping[str, Any], seed: int, index: int, latents: Tensor) -> Tensor:
    """The served model's at a level of its sampler."""
    served = starter("flux-t2i")
    with torch.inference_mode():
        made: Tensor = served.batcher.run([Seeker.of(served, slots, seed).plan(index, latents)])[0]
    return made.clone()


def test_nft_learns_from_finished_samples() -> None:
    """−(1/N)·Σ 2σβ(2r−1)(x̂₀ − x₀)/(D·w) at the levels and with the noise that the seed draws."""
    given, beta, most, served = rollouts(law="ode"), 0.7, 2.0, starter("flux-t2i")
    made = step(given, method="nft", nft_beta=beta, nft_advantage=most, nft_times=2, seed=5)
    total, draws = torch.zeros(()), Draws(seed=5, update=0)
    for place, (value, group) in enumerate(zip(given.rollouts, given.trajectories, strict=True)):
        record = RolloutRecord.from_json(value)
        asked = Request("r", record.card, {}, dict(record.parameters), 0, Profile.ROLLOUT)
        with torch.inference_mode():
            slots = conditioned(served, asked)
        for seed, sample, advantage in zip(group.facts.seeds, group.samples, ADVANTAGES, strict=True):
            generator = draws.of(place, seed)
            x0 = torch.from_numpy(sample.latents[STEPS])[None]
            for index in torch.randperm(STEPS, generator=generator).tolist()[:2]:
                sigma = group.facts.sigmas[index]
                x = (1 - sigma) * x0 + sigma * torch.randn(x0.shape, generator=generator)
                error = x - sigma * velocity(slots, seed, index, x) - x0
                r = min(max(0.5 + advantage / (2 * most), 0.0), 1.0)
                weight = 2 * sigma * beta * (2 * r - 1) / (error.abs().mean() * x0.numel())
                total = total - weight * error[0].sum(0)
    assert_near(gradients(made)[BIAS], total / (2 * COUNT))


def test_a_reference_pulls() -> None:
    """The reference's last bias is another by δ, so v − v_ref = −δ for every token, and the KL's gradient is
    −β·(b²/τ²)·δ/D for each of them."""
    given, served, beta = rollouts(law="flow-sde"), starter("flux-t2i"), 0.3
    tensors = {name: tensor.clone() for name, tensor in weights_of(served.components["transformer"]).items()}
    delta = torch.linspace(-0.1, 0.1, len(tensors[BIAS]))
    tensors[BIAS] += delta
    reference = GivenWeights("f" * 64, "transformer", tensors, {})
    asked = {"method": "flow-grpo", "kl_beta": beta, "beta1": 0.0, "max_grad_norm": None}
    pulled = Engine().run(trainer(served), request(served, given, reference=reference, **asked)).outputs
    free = step(given, method="flow-grpo")
    every = [group.facts for group in given.trajectories]
    laws = [sde.transition(f.law, f.sigmas, index, 0.7) for f in every for index in range(*f.window)]
    strength, x = (
        sum((law.gain / law.std) ** 2 for law in laws) / len(laws),
        given.trajectories[0].samples[0].latents[STEPS],
    )
    found = gradients(pulled)[BIAS] - gradients(free)[BIAS]
    assert_near(found, -beta * strength * delta * len(x) / x.size)
    assert pulled["metrics"].value["kl"] == pytest.approx(
        strength * float(delta.square().mean()) / 2, rel=1e-3
    )


# Differences along the gradient, of every weight


def moved(served: Instance, component: str, by: Mapping[str, Tensor]) -> Instance:
    """A served card whose component's weights are changed by so much."""
    module = served.components[component]
    known = weights_of(module)
    changed = {name: known[name].detach() + change for name, change in by.items()}
    return with_components(served, {component: with_tensors(module, changed)}, {})


def assert_slope(
    loss: Callable[[Instance], float],
    served: Instance,
    component: str,
    slope: Mapping[str, Tensor],
    width: float,
) -> None:
    """The loss rises along its gradient by the gradient's length."""
    length = math.sqrt(sum(float(part.double().square().sum()) for part in slope.values()))
    ahead, behind = (
        loss(moved(served, component, {name: sign * width / length * part for name, part in slope.items()}))
        for sign in (1, -1)
    )
    assert (ahead - behind) / (2 * width) == pytest.approx(length, rel=0.01)


def recorded_loss(given: Rollouts, instance: Instance) -> float:
    """−mean A·ρ of the recorded steps, recomputed by the engine."""
    losses: list[float] = []
    for place, (value, group) in enumerate(zip(given.rollouts, given.trajectories, strict=True)):
        record = RolloutRecord.from_json(value)
        inputs = {"image": image(place)} if given.images else {}
        asked = Request(
            "r", record.card, inputs, dict(record.parameters), group.facts.seeds[0], Profile.ROLLOUT
        )
        found = recompute_log_probs(instance, asked, group)
        for sample, log_probs, advantage in zip(group.samples, found, ADVANTAGES, strict=True):
            deltas = log_probs.astype(float) - sample.log_probs_W.astype(float)
            losses += [-advantage * math.exp(delta) for delta in deltas]
    return sum(losses) / len(losses)


@pytest.mark.parametrize("card", ["flux-t2i", "wan-i2v"])
def test_the_loss_of_recorded_steps_rises_along_the_gradient(card: str) -> None:
    given, served = rollouts(card, law="flow-sde"), starter(card)
    slope = gradients(step(given, card, method="flow-grpo"))
    parameters = dict(served.components["transformer"].named_parameters())
    assert set(slope) <= set(parameters)
    assert len(slope) > 0.9 * len(parameters)
    assert_slope(lambda instance: recorded_loss(given, instance), served, COMPONENT[card], slope, 0.02)


def test_passes_add_up_to_one_gradient() -> None:
    whole = gradients(step(rollouts(law="flow-sde"), method="flow-grpo"))
    parts = gradients(step(rollouts(law="flow-sde"), method="flow-grpo", rows=5))  # 12 items: 5, 5 and 2
    assert whole.keys() == parts.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=0, atol=1e-6)


def test_the_loss_of_answers_rises_along_the_gradient() -> None:
    served = starter("refiner-lm")
    given = collect(served, ("two shapes", "a shape"), SCORES, temperature=3.0)
    slope = gradients(step(given, "refiner-lm", method="token-pg"))

    def loss(instance: Instance) -> float:
        losses = []
        for at, tokens in enumerate(given.tokens):
            sampling = Sampling(do_sample=True, temperature=tokens["temperature"])
            with torch.no_grad():
                log_p = token_log_probs(
                    instance.components["llm"], tokens["prompt"], tokens["answer"], sampling
                )
            ratios = (log_p.double() - torch.tensor(tokens["log_probs"]).double()).exp()
            losses.append(-ADVANTAGES[at % len(SCORES)] * float(ratios.mean()))
        return sum(losses) / len(losses)

    assert_slope(loss, served, "llm", slope, 0.002)
