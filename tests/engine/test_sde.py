"""Step laws against what needs no judgement: the ODE, Monte Carlo, finite differences, closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mutoscope.platform.engine import sde
from mutoscope.platform.engine.sampling import FlowSchedule, ode_step
from mutoscope.platform.engine.sde import Transition

SIGMAS = FlowSchedule(shift=3.0).sigmas(8).tolist()
LAWS = ["flow-sde", "cps"]
STEPS = [0, 1, 4, 6]
"""The first step leaves σ = 1, where Flow-SDE has its pole."""


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, V, NOISE = normal(2, 3, 4, seed=0), normal(2, 3, 4, seed=1), normal(2, 3, 4, seed=2)


def law_of(law: str, step: int, noise_scale: float = 0.7) -> Transition:
    return sde.transition(law, SIGMAS, step, noise_scale)


@pytest.mark.parametrize("step", range(8))
@pytest.mark.parametrize("law", ["ode", *LAWS])
def test_without_noise_every_law_is_the_ode_step(law: str, step: int) -> None:
    made = law_of(law, step, 0.0).sample(X, V, NOISE)
    expected = ode_step(X, V, torch.tensor(SIGMAS[step]), torch.tensor(SIGMAS[step + 1]))
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("law", LAWS)
def test_the_mean_tends_to_the_ode_step_with_the_square_of_the_scale(law: str, step: int) -> None:
    """A step with ξ = 0 departs from the ODE by O(a²): a tenth of the scale, a hundredth of the distance."""
    ode = sde.transition("ode", SIGMAS, step, 0.0)
    for attribute in ("scale", "gain"):
        far, near = (
            abs(getattr(law_of(law, step, a), attribute) - getattr(ode, attribute)) for a in (0.1, 0.01)
        )
        assert near <= 0.011 * far + 1e-12


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("law", LAWS)
def test_monte_carlo_mean_and_variance(law: str, step: int) -> None:
    transition, draws = law_of(law, step), 400_000
    x, v = torch.tensor([[0.8]]), torch.tensor([[-1.3]])
    mean, std = float(transition.mean(x, v)), transition.std
    made = transition.sample(x.expand(draws, 1), v.expand(draws, 1), normal(draws, 1, seed=3)).double()
    assert abs(made.mean().item() - mean) < 4 * std / math.sqrt(draws)
    assert abs(made.var().item() - std**2) < 4 * std**2 * math.sqrt(2 / draws)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("law", LAWS)
def test_log_prob_is_the_mean_of_the_gaussians(law: str, step: int) -> None:
    transition = law_of(law, step)
    moved = transition.sample(X, V, NOISE)
    gaussian = torch.distributions.Normal(transition.mean(X, V).double(), transition.std)
    expected = gaussian.log_prob(moved.double()).flatten(1).mean(1)
    torch.testing.assert_close(transition.log_prob(X, V, moved).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("law", LAWS)
def test_score_equals_finite_differences_and_autograd(law: str, step: int) -> None:
    """log p is quadratic in v, so a central difference of any width is exact but for rounding."""
    transition = law_of(law, step)
    moved = transition.sample(X, V, NOISE)
    velocity = V.clone().requires_grad_()
    transition.log_prob(X, velocity, moved).sum().backward()
    score = transition.score(X, V, moved)
    torch.testing.assert_close(velocity.grad, score, rtol=1e-3, atol=1e-5)
    width = 0.5
    for at in [(0, 0, 0), (1, 2, 3), (0, 1, 2)]:
        ahead, behind = V.clone(), V.clone()
        ahead[at] += width
        behind[at] -= width
        difference = (transition.log_prob(X, ahead, moved) - transition.log_prob(X, behind, moved))[at[0]]
        assert difference.item() / (2 * width) == pytest.approx(score[at].item(), rel=2e-3, abs=2e-5)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("law", LAWS)
def test_the_likeliest_velocity(law: str, step: int) -> None:
    """v_ml = v + (τ/b)ξ, log p there is −ln τ − ½ ln 2π, and less anywhere else."""
    transition = law_of(law, step)
    moved = transition.sample(X, V, NOISE)
    likeliest = transition.likeliest_velocity(X, moved)
    expected = V + transition.std / transition.gain * NOISE
    torch.testing.assert_close(likeliest, expected, rtol=1e-4, atol=1e-4)
    most = -math.log(transition.std) - 0.5 * math.log(2 * math.pi)
    reached = transition.log_prob(X, likeliest, moved)
    torch.testing.assert_close(reached, torch.full((2,), most), rtol=1e-5, atol=1e-5)
    for seed in range(5):
        assert (transition.log_prob(X, likeliest + 0.1 * normal(2, 3, 4, seed=seed), moved) < reached).all()


@pytest.mark.parametrize("noise_scale", [0.3, 0.7, 1.0])
@pytest.mark.parametrize("step", range(7))
def test_cps_keeps_the_next_levels_noise(step: int, noise_scale: float) -> None:
    """With the true velocity of x = (1−σ)x₀ + σε, x' is (1−σ')x₀ plus noise of variance σ'² exactly."""
    transition, sigma, after = law_of("cps", step, noise_scale), SIGMAS[step], SIGMAS[step + 1]
    of_data = transition.scale * (1 - sigma) - transition.gain
    of_noise = transition.scale * sigma + transition.gain
    assert of_data == pytest.approx(1 - after, abs=1e-12)
    assert of_noise**2 + transition.std**2 == pytest.approx(after**2, abs=1e-12)


def test_control_flow_sde_keeps_it_only_in_the_limit_of_small_steps() -> None:
    def excess(steps: int) -> float:
        sigmas = FlowSchedule().sigmas(steps).tolist()
        step = steps // 2
        transition = sde.transition("flow-sde", sigmas, step, 0.7)
        of_noise = transition.scale * sigmas[step] + transition.gain
        return of_noise**2 + transition.std**2 - sigmas[step + 1] ** 2

    assert abs(excess(8)) > 1e-4
    assert abs(excess(800)) < abs(excess(8)) / 1000  # the error of a step is of second order


def test_the_first_step_leaves_the_sample_whole() -> None:
    """At σ = 1 the schedule's second level stands in for σ; a clamp to 0.9999 would multiply x by −244."""
    ruled, clamped = sde.flow_sde(1.0, 0.9, 0.7, 0.9), sde.flow_sde(0.9999, 0.8999, 0.7, 0.9)
    # s² = 0.49 / (1 − 0.9) = 4.9, A = 1 − 4.9·0.1/2 = 0.755, b = −0.1, τ = √(4.9·0.1) = 0.7
    assert (ruled.scale, ruled.gain, ruled.std) == pytest.approx((0.755, -0.1, 0.7))
    assert clamped.scale == pytest.approx(-244, abs=1)


def test_log_prob_does_not_grow_with_the_picture() -> None:
    transition = law_of("flow-sde", 2)
    moved = transition.sample(X, V, NOISE)
    twice = [torch.cat([part, part], dim=-1) for part in (X, V, moved)]
    torch.testing.assert_close(transition.log_prob(*twice), transition.log_prob(X, V, moved))


def test_given_elements_have_no_part() -> None:
    transition = law_of("cps", 2)
    moved = transition.sample(X, V, NOISE)
    made = torch.ones(1, 1, 4)
    made[..., 0] = 0
    within = transition.log_prob(X[..., 1:], V[..., 1:], moved[..., 1:])
    torch.testing.assert_close(transition.log_prob(X, V, moved, made), within)
    elsewhere = V.clone()
    elsewhere[..., 0] += 5
    assert torch.equal(transition.log_prob(X, elsewhere, moved, made), transition.log_prob(X, V, moved, made))


def test_half_precision_is_widened_before_it_is_used() -> None:
    transition = law_of("flow-sde", 2)
    x, v = X.bfloat16(), V.bfloat16()
    assert torch.equal(transition.sample(x, v, NOISE), transition.sample(x.float(), v.float(), NOISE))
    assert transition.log_prob(x, v, x).dtype == torch.float32


def test_the_sample_is_a_fact() -> None:
    """The log-probability is differentiated in the velocity alone, not through x'."""
    transition = law_of("flow-sde", 2)
    moved = transition.sample(X, V, NOISE).requires_grad_()
    velocity = V.clone().requires_grad_()
    transition.log_prob(X, velocity, moved).sum().backward()
    assert moved.grad is None
    assert velocity.grad is not None


def test_a_deterministic_step_has_no_density() -> None:
    for transition in (law_of("ode", 2), sde.cps(SIGMAS[-2], SIGMAS[-1], 0.7)):
        with pytest.raises(ValueError, match="no density"):
            transition.log_prob(X, V, X)
        with pytest.raises(ValueError, match="no density"):
            transition.score(X, V, X)
