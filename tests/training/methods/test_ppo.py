"""The clipped policy gradient: zero exactly where it is said to be, and what it is everywhere else."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mutoscope.platform.training.methods import ppo
from tests.training.methods.differences import assert_gradient, gradient, normal

CLIP = 0.1
ADVANTAGES = [2.0, 0.5, 0.0, -0.5, -2.0]
LOG_RATIOS = [-2.0, -0.2, -0.106, -0.105, -0.05, 0.0, 0.05, 0.095, 0.0954, 0.2, 2.0]
"""ln 0.9 = −0.10536 and ln 1.1 = 0.09531 lie between."""

OLD = torch.tensor([-1.3, 0.4, 0.9])


@pytest.mark.parametrize("advantage", ADVANTAGES)
@pytest.mark.parametrize("log_ratio", LOG_RATIOS)
def test_no_gradient_exactly_where_it_is_clipped(log_ratio: float, advantage: float) -> None:
    old, ratio = torch.tensor([-1.3]), math.exp(log_ratio)
    log_p = (old + log_ratio).requires_grad_()
    term = ppo.ppo_loss(log_p, old, torch.tensor([advantage]), clip_range=CLIP)
    term.loss.backward()
    clipped = (advantage > 0 and ratio > 1 + CLIP) or (advantage < 0 and ratio < 1 - CLIP)
    assert term.clipped_B.tolist() == [clipped]
    assert (log_p.grad.item() == 0) == (clipped or advantage == 0)
    if not clipped:
        assert log_p.grad.item() == pytest.approx(-advantage * ratio, rel=1e-5)
    expected = max(-advantage * ratio, -advantage * min(max(ratio, 1 - CLIP), 1 + CLIP))
    assert term.loss.item() == pytest.approx(expected, rel=1e-5)
    assert term.ratio_B.item() == pytest.approx(ratio, rel=1e-5)


@pytest.mark.parametrize(("advantage", "edge"), [(1.0, 1 + CLIP), (-1.0, 1 - CLIP)])
def test_the_edge_itself_is_inside(advantage: float, edge: float) -> None:
    """The edge itself has a gradient; the number next to it, beyond, has none."""
    at_edge = torch.tensor(edge)
    beyond = torch.nextafter(at_edge, torch.tensor(math.inf if advantage > 0 else -math.inf))
    for ratio, expected in ((at_edge, False), (beyond, True)):
        term = ppo.clipped_loss(_log_of(ratio), torch.tensor([advantage]), clip_range=CLIP)
        assert term.ratio_B.item() == ratio.item()
        assert term.clipped_B.item() is expected


def _log_of(ratio: Tensor) -> Tensor:
    """The float32 whose exponential rounds to this ratio."""
    log_ratio = ratio.log()
    for _ in range(100):
        if log_ratio.exp() == ratio:
            break
        towards = math.inf if log_ratio.exp() < ratio else -math.inf
        log_ratio = torch.nextafter(log_ratio, torch.tensor(towards))
    return log_ratio[None]


@pytest.mark.parametrize("clip_range", [0.3, 1e-5])
def test_gradient_by_differences(clip_range: float) -> None:
    """Away from the edges, at which the loss has a kink."""
    log_p = OLD + torch.tensor([0.1, 0.5, -0.6])
    adv = torch.tensor([-1.5, -0.7, 2.0])
    assert_gradient(lambda at: ppo.ppo_loss(at, OLD, adv, clip_range=clip_range).loss, log_p)


def test_the_ratio_of_a_policy_to_itself_is_one() -> None:
    log_p = OLD.clone().requires_grad_()
    adv = torch.tensor([1.0, -2.0, 0.0])
    term = ppo.ppo_loss(log_p, OLD, adv, clip_range=0.0)
    assert torch.equal(term.ratio_B, torch.ones(3))
    assert torch.equal(term.loss_B, -adv)
    assert not term.clipped_B.any()
    term.loss.backward()
    assert torch.equal(log_p.grad, -adv / 3)


@pytest.mark.parametrize("log_ratio", [1e3, -1e3, 88.8])
def test_a_ratio_never_overflows(log_ratio: float) -> None:
    assert torch.tensor(1e3).exp().isinf()
    log_p = torch.tensor([log_ratio]).requires_grad_()
    term = ppo.ppo_loss(log_p, torch.zeros(1), torch.tensor([-1.0]), clip_range=CLIP)
    term.loss.backward()
    assert term.ratio_B.item() == pytest.approx(math.exp(math.copysign(10, log_ratio)))
    assert log_p.grad.item() == 0


def test_what_sampled_and_what_was_earned_are_facts() -> None:
    old, adv = OLD.clone().requires_grad_(), torch.ones(3).requires_grad_()
    log_p = OLD.clone().requires_grad_()
    ppo.ppo_loss(log_p, old, adv, clip_range=CLIP).loss.backward()
    assert (old.grad, adv.grad) == (None, None)


def test_half_precision_is_widened_before_it_is_used() -> None:
    term = ppo.ppo_loss(OLD.bfloat16(), OLD.bfloat16(), torch.ones(3).bfloat16(), clip_range=CLIP)
    assert term.loss_B.dtype == torch.float32


# KL


def test_the_kl_by_hand() -> None:
    # (0.3 − 0.1)²/(2·0.1²) = 2 in one element, 0 in the other
    mean, other = torch.tensor([[0.3, 1.0]]), torch.tensor([[0.1, 1.0]])
    assert ppo.gaussian_kl(mean, other, 0.1).item() == pytest.approx(1.0)


def test_the_kl_is_that_of_gaussians() -> None:
    mean, other, std = normal(2, 3, 4, seed=0), normal(2, 3, 4, seed=1), torch.tensor([0.3, 0.7])
    scale = std[:, None, None].expand_as(mean)
    expected = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean, scale), torch.distributions.Normal(other, scale)
    )
    torch.testing.assert_close(ppo.gaussian_kl(mean, other, std), expected.flatten(1).mean(1))


def test_gradient_of_the_kl_by_differences() -> None:
    mean, other = normal(2, 3, seed=0), normal(2, 3, seed=1)
    assert_gradient(lambda at: ppo.gaussian_kl(at, other, 0.4).mean(), mean)
    # (μ − μ')/(τ²D), over B samples
    found = gradient(lambda at: ppo.gaussian_kl(at, other, 0.4).mean(), mean)
    torch.testing.assert_close(found, (mean - other) / (0.16 * 3) / 2)
    assert not gradient(lambda at: ppo.gaussian_kl(at, mean, 0.4).mean(), mean).any()


def test_the_other_policy_is_a_fact() -> None:
    mean, other = normal(2, 3, seed=0).requires_grad_(), normal(2, 3, seed=1).requires_grad_()
    ppo.gaussian_kl(mean, other, 0.4).mean().backward()
    assert other.grad is None


def test_given_elements_have_no_part_in_the_kl() -> None:
    mean, other = normal(2, 3, 4, seed=0), normal(2, 3, 4, seed=1)
    made = torch.ones(1, 1, 4)
    made[..., 0] = 0
    expected = ppo.gaussian_kl(mean[..., 1:], other[..., 1:], 0.4)
    torch.testing.assert_close(ppo.gaussian_kl(mean, other, 0.4, made), expected)


# GRPO-Guard


def guarded(mean: Tensor, mean_old: Tensor, noise: Tensor, std: float) -> tuple[Tensor, Tensor]:
    """Plain and guarded log-ratio of x' = μ_old + τξ."""
    moved = mean_old + std * noise

    def log_p(of: Tensor) -> Tensor:
        return -((moved - of) ** 2 / (2 * std**2)).flatten(1).mean(1)

    divergence = ppo.gaussian_kl(mean, mean_old, std)
    plain = log_p(mean) - log_p(mean_old)
    return plain, ppo.guarded_log_ratio(log_p(mean), log_p(mean_old), divergence, std)


def test_a_guarded_ratio_is_the_displacement_along_the_noise() -> None:
    mean_old, noise = normal(3, 8, seed=0), normal(3, 8, seed=1)
    mean = mean_old + 0.1 * normal(3, 8, seed=2)
    _, found = guarded(mean, mean_old, noise, 0.3)
    torch.testing.assert_close(found, ((mean - mean_old) * noise).mean(1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("std", [0.05, 0.3])
def test_a_guarded_ratio_is_centred_and_of_one_spread(std: float) -> None:
    """The plain logarithm's mean is −KL and its spread ∝ 1/τ; the guarded one's depend on no τ."""
    draws, size = 40_000, 4
    mean_old = torch.zeros(draws, size)
    mean = mean_old + 0.1
    plain, found = guarded(mean, mean_old, normal(draws, size, seed=3), std)
    displacement = 0.1 / math.sqrt(size)
    near = 4 * displacement / math.sqrt(draws)
    assert plain.mean().item() == pytest.approx(-(0.1**2) / (2 * std**2), abs=near / std)
    assert found.mean().item() == pytest.approx(0, abs=near)
    assert plain.std().item() == pytest.approx(displacement / std, rel=0.02)
    assert found.std().item() == pytest.approx(displacement, rel=0.02)


# DPPO


@pytest.mark.parametrize(
    ("advantage", "log_ratio", "divergence", "masked"),
    [
        (1.0, 0.5, 0.2, True),  # further up, and far
        (1.0, 0.5, 0.05, False),  # further up, but near
        (1.0, -0.5, 0.2, False),  # far, but on the way back
        (-1.0, -0.5, 0.2, True),
        (-1.0, -0.5, 0.05, False),
        (-1.0, 0.5, 0.2, False),
        (1.0, 2.0, 0.1, False),  # at the limit itself; and no clip, however great the ratio
    ],
)
def test_dppo_masks_what_is_far_and_moves_further(
    advantage: float, log_ratio: float, divergence: float, masked: bool
) -> None:
    def term(log_ratio_B: Tensor) -> ppo.PolicyTerm:
        given = torch.tensor([divergence]), torch.tensor([advantage])
        return ppo.dppo_loss(log_ratio_B, *given, divergence_limit=0.1)

    at = torch.tensor([log_ratio])
    found = gradient(lambda point: term(point).loss, at).item()
    assert found == pytest.approx(0 if masked else -advantage * math.exp(log_ratio))
    assert term(at).clipped_B.item() is masked
    assert term(at).loss.item() == pytest.approx(-advantage * math.exp(log_ratio))


# The band, and putting terms together


def test_steps_outside_the_band_are_rejected() -> None:
    ratios = torch.tensor([0.49, 0.51, 1.0, 1.99, 2.01, math.nan])
    assert ppo.outside_band(ratios.log(), (0.5, 2.0)).tolist() == [True, False, False, False, True, True]


def test_a_rejected_step_has_no_gradient_and_still_counts() -> None:
    log_ratio, adv = torch.tensor([0.01, 1.0, -0.02]), torch.tensor([1.0, -1.0, 2.0])
    outside = ppo.outside_band(log_ratio, (0.5, 2.0))

    def loss(at: Tensor) -> Tensor:
        return ppo.clipped_loss(at, adv, clip_range=CLIP).without(outside).loss

    whole = gradient(lambda at: ppo.clipped_loss(at, adv, clip_range=CLIP).loss, log_ratio)
    assert whole[1] != 0
    assert torch.equal(gradient(loss, log_ratio), torch.where(outside, 0.0, whole))
    term = ppo.clipped_loss(log_ratio, adv, clip_range=CLIP).without(outside)
    assert term.rejected_B.tolist() == [False, True, False]
    assert term.loss_B[1] == 0


def test_terms_add_up() -> None:
    term = ppo.clipped_loss(torch.zeros(2), torch.tensor([1.0, -1.0]), clip_range=CLIP)
    sum_B = term.times(2.0).plus(torch.tensor([0.5, 0.0])).loss_B
    assert sum_B.tolist() == [-1.5, 2.0]
