"""Flow-GRPO's gradient against differences, closed forms and a toy whose expected gradient is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mutoscope.platform.engine import sde
from mutoscope.platform.engine.sampling import FlowSchedule
from mutoscope.platform.engine.sde import Transition
from mutoscope.platform.training.methods.flow_grpo import FlowGrpo, FlowStep, FlowTerm, flow_grpo
from tests.training.methods.differences import assert_gradient, gradient, normal

SIGMAS = FlowSchedule(shift=3.0).sigmas(8).tolist()
LAWS = ["flow-sde", "cps"]
STEPS = [0, 1, 4, 6]
"""The first step leaves σ = 1, where Flow-SDE has its pole."""

SHAPE = (2, 3, 4)
X, V_OLD, NOISE = (normal(*SHAPE, seed=seed) for seed in range(3))
V, V_REF = V_OLD + 0.05 * normal(*SHAPE, seed=3), V_OLD + 0.3 * normal(*SHAPE, seed=4)
ADV = torch.tensor([1.5, -0.5])
OPEN = FlowGrpo(clip_range=0.5, ratio_band=None)
"""A clip so wide that nothing here meets it."""

each_step = [pytest.mark.parametrize("step", STEPS), pytest.mark.parametrize("law", LAWS)]


def over_steps(test):
    for mark in each_step:
        test = mark(test)
    return test


def recorded(law: str, index: int, made: Tensor | None = None) -> FlowStep:
    """A step as a rollout under `V_OLD` records it."""
    transition = sde.transition(law, SIGMAS, index, 0.7)
    moved = transition.sample(X, V_OLD, NOISE)
    old = transition.log_prob(X, V_OLD, moved, made)
    return FlowStep(transition, SIGMAS[index + 1] - SIGMAS[index], X, moved, old, made)


def term(options: FlowGrpo, step: FlowStep, velocity: Tensor, adv: Tensor = ADV) -> FlowTerm:
    return flow_grpo(options, step, velocity, adv, velocity_old=V_OLD, velocity_reference=V_REF)


@pytest.mark.parametrize(
    "options",
    [
        OPEN,
        FlowGrpo(clip_range=0.5, kl_beta=0.3),
        FlowGrpo(clip_range=0.5, guard=True, ratio_band=None),
        FlowGrpo(dppo_epsilon=1e6, ratio_band=None),
        FlowGrpo(guard=True, dppo_epsilon=1e6, kl_beta=0.01, ratio_band=None),
    ],
    ids=str,
)
@over_steps
def test_gradient_by_differences(law: str, step: int, options: FlowGrpo) -> None:
    recording = recorded(law, step)
    assert not term(options, recording, V).policy.clipped_B.any()
    width = 0.05 * recording.law.std / -recording.law.gain  # of the velocity, worth 0.05 deviations of x'
    assert_gradient(lambda at: term(options, recording, at).policy.loss, V, width)


@over_steps
def test_at_ratio_one_it_is_the_score(law: str, step: int) -> None:
    """−A·∇_v log p = −A·b²/(τ²D)·(v_ml − v), whatever the clip."""
    recording = recorded(law, step)
    found = gradient(lambda at: flow_grpo(FlowGrpo(clip_range=0), recording, at, ADV).policy.loss, V_OLD)
    score = recording.law.score(X, V_OLD, recording.moved)
    torch.testing.assert_close(found, -ADV[:, None, None] * score / len(ADV), rtol=1e-3, atol=1e-5)
    assert torch.equal(flow_grpo(FlowGrpo(clip_range=0), recording, V_OLD, ADV).policy.ratio_B, torch.ones(2))


@over_steps
def test_the_squared_error_surrogate_has_one_weight(law: str, step: int) -> None:
    """A·w·mean(v − v_ml)² has the policy's gradient at ratio 1 for w = b²/(2τ²), and for no other."""
    recording = recorded(law, step)
    found = gradient(lambda at: flow_grpo(OPEN, recording, at, ADV).policy.loss, V_OLD)
    likeliest = recording.law.likeliest_velocity(X, recording.moved)

    def surrogate(weight: float) -> Tensor:
        return gradient(
            lambda at: (ADV * weight * (at - likeliest).square().flatten(1).mean(1)).mean(), V_OLD
        )

    weight = recording.law.gain**2 / (2 * recording.law.std**2)
    torch.testing.assert_close(found, surrogate(weight), rtol=1e-3, atol=1e-5)
    assert not torch.allclose(found, surrogate(2 * weight), rtol=0.1)


@over_steps
def test_regressing_on_the_velocity_that_sampled_moves_nothing(law: str, step: int) -> None:
    recording = recorded(law, step)
    self_target = gradient(lambda at: (ADV * (at - V_OLD).square().flatten(1).mean(1)).mean(), V_OLD)
    assert not self_target.any()
    assert gradient(lambda at: flow_grpo(OPEN, recording, at, ADV).policy.loss, V_OLD).all()


@over_steps
def test_the_likeliest_velocity_is_where_the_gradient_ends(law: str, step: int) -> None:
    recording = recorded(law, step)
    likeliest = recording.law.likeliest_velocity(X, recording.moved)
    at_most = gradient(lambda at: flow_grpo(OPEN, recording, at, ADV).policy.loss, likeliest)
    usual = gradient(lambda at: flow_grpo(OPEN, recording, at, ADV).policy.loss, V_OLD)
    assert at_most.abs().max() < 1e-4 * usual.abs().max()


def test_one_update_of_a_linear_policy_is_the_closed_form() -> None:
    """v = θ for every sample. θ' = θ + (η/B)·Σ A·b²/(τ²D)·(v_ml − θ)."""
    recording = recorded("flow-sde", 2)
    theta = torch.nn.Parameter(torch.zeros(1, 3, 4))
    rate, policy = 0.1, theta.expand(*SHAPE)
    recording = FlowStep(
        recording.law,
        recording.dt,
        X,
        recording.moved,
        recording.law.log_prob(X, policy.detach(), recording.moved),
    )
    optimiser = torch.optim.SGD([theta], lr=rate)
    flow_grpo(FlowGrpo(), recording, policy, ADV).policy.loss.backward()
    optimiser.step()
    law = recording.law
    pull = ADV[:, None, None] * law.likeliest_velocity(X, recording.moved)
    expected = rate * law.gain**2 / (law.std**2 * 12) * pull.mean(0, keepdim=True)
    torch.testing.assert_close(theta.detach(), expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("law", LAWS)
def test_the_expected_gradient_of_a_linear_reward(law: str) -> None:
    """E[r·∇_v log p] of r = g·x' is b·g/D, the gradient of E[g·μ] over D, here of one group with the mean of
    its scores as baseline, which takes its own share of 1/K."""
    draws, size = 100_000, 3
    transition = sde.transition(law, SIGMAS, 3, 0.7)
    g, x, v = torch.tensor([1.0, -2.0, 0.5]), normal(1, size, seed=5), normal(1, size, seed=6)
    moved = transition.sample(x.expand(draws, -1), v.expand(draws, -1), normal(draws, size, seed=7))
    rewards = moved @ g
    step = FlowStep(
        transition, -0.1, x.expand(draws, -1), moved, transition.log_prob(x, v.expand(draws, -1), moved)
    )
    adv = rewards - rewards.mean()
    found = gradient(lambda at: flow_grpo(OPEN, step, at.expand(draws, -1), adv).policy.loss, v)[0]
    each = -adv[:, None] * transition.score(x, v, moved)
    error = each.std(0) / math.sqrt(draws)
    assert ((found + transition.gain * g / size).abs() < 4 * error).all()
    assert (transition.gain * g / size).abs().min() > 20 * error.max()


# σ = 1


def test_the_first_step_teaches_as_much_as_others() -> None:
    """A step's gradient goes with b²/τ². Clamping σ short of 1 instead of taking the schedule's second level
    for it leaves the first step next to none, beside latents that it multiplies by hundreds."""

    def strength(law: Transition) -> float:
        return (law.gain / law.std) ** 2

    others = [strength(sde.transition("flow-sde", SIGMAS, step, 0.7)) for step in (1, 2)]
    first = strength(sde.transition("flow-sde", SIGMAS, 0, 0.7))
    assert 0.1 < first / min(others) < 10
    clamped = sde.flow_sde(0.9999, SIGMAS[1], 0.7, SIGMAS[1])
    assert strength(clamped) < 0.01 * first
    assert abs(clamped.scale) > 100


# The pieces together


def test_a_clipped_step_feels_the_penalty_alone() -> None:
    recording = recorded("flow-sde", 2)
    far = V_OLD + 0.5 * (recording.law.likeliest_velocity(X, recording.moved) - V_OLD)
    adv = torch.tensor([1.0, 1.0])
    options = FlowGrpo(clip_range=1e-3, kl_beta=0.3, ratio_band=None)
    found = term(options, recording, far, adv)
    assert found.policy.clipped_B.all()
    penalty = gradient(lambda at: 0.3 * recording.divergence(at, V_REF).mean(), far)
    torch.testing.assert_close(
        gradient(lambda at: term(options, recording, at, adv).policy.loss, far), penalty
    )
    alone = flow_grpo(options, recording, far, adv)
    assert alone.kl_B is None
    assert not gradient(lambda at: flow_grpo(options, recording, at, adv).policy.loss, far).any()


def test_steps_too_far_off_policy_are_rejected() -> None:
    recording = recorded("flow-sde", 2)
    stale = FlowStep(
        recording.law,
        recording.dt,
        X,
        recording.moved,
        recording.log_p_old_B + torch.tensor([0.8, 0.0]),  # e^−0.8 = 0.45
    )
    found = flow_grpo(FlowGrpo(), stale, V_OLD, -ADV)
    assert found.policy.rejected_B.tolist() == [True, False]
    slope = gradient(lambda at: flow_grpo(FlowGrpo(), stale, at, -ADV).policy.loss, V_OLD)
    assert not slope[0].any()
    assert slope[1].all()


def test_a_guarded_step_is_weighed_by_its_length() -> None:
    """At ratio 1: the guard multiplies the gradient by τ and by 1/(−dt)."""
    recording = recorded("flow-sde", 2)
    plain, guarded = (
        gradient(lambda at, o=options: term(o, recording, at).policy.loss, V_OLD)
        for options in (OPEN, FlowGrpo(clip_range=0.5, guard=True, ratio_band=None))
    )
    torch.testing.assert_close(guarded, plain * recording.law.std / -recording.dt, rtol=1e-4, atol=1e-6)


def test_given_latents_have_no_part() -> None:
    made = torch.ones(1, 1, 4)
    made[..., 0] = 0
    recording = recorded("cps", 2, made)
    options = FlowGrpo(clip_range=0.5, guard=True, kl_beta=0.3, ratio_band=None)
    slope = gradient(lambda at: term(options, recording, at).policy.loss, V)
    assert not slope[..., 0].any()
    assert slope[..., 1:].all()


@pytest.mark.parametrize("options", [FlowGrpo(guard=True), FlowGrpo(dppo_epsilon=0.1)])
def test_what_compares_with_the_old_velocity_needs_it(options: FlowGrpo) -> None:
    with pytest.raises(ValueError, match="pass velocity_old"):
        flow_grpo(options, recorded("cps", 2), V, ADV)


def test_a_deterministic_step_teaches_nothing() -> None:
    step = FlowStep(sde.transition("ode", SIGMAS, 2, 0.0), -0.1, X, X, torch.zeros(2))
    with pytest.raises(ValueError, match="no density"):
        flow_grpo(FlowGrpo(), step, V, ADV)
