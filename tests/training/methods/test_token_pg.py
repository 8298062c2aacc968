"""The policy gradient of tokens: masks, the k3 penalty and its overflow, and a toy of known gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mutoscope.platform.training.methods import token_pg
from mutoscope.platform.training.methods.token_pg import k3, token_policy_gradient, until_stop
from tests.training.methods.differences import assert_gradient, differences, gradient, normal

MASK = torch.tensor([[True, True, True, False], [True, True, True, True]])
LOG_P = -1 - normal(2, 4, seed=0).abs()
OLD, REF = LOG_P + 0.1 * normal(2, 4, seed=1), LOG_P + 0.5 * normal(2, 4, seed=2)
ADV = torch.tensor([1.5, -0.5])


def loss(log_p: Tensor, **more) -> Tensor:
    return token_policy_gradient(log_p, ADV, MASK, **more).loss


def test_the_loss_by_hand() -> None:
    # ρ = e^0.1 for both tokens, A = 2, k3(0.5) = e^0.5 − 1.5 = 0.148721 and k3(0) = 0, β = 0.01
    log_p = torch.tensor([[-1.0, -2.0]])
    found = token_policy_gradient(
        log_p,
        torch.tensor([2.0]),
        torch.tensor([[True, True]]),
        log_p_old_BT=log_p - 0.1,
        log_p_ref_BT=log_p + torch.tensor([[0.5, 0.0]]),
    )
    assert found.kl_B.item() == pytest.approx(0.148721 / 2, rel=1e-5)
    assert found.loss.item() == pytest.approx(-2 * math.exp(0.1) + 0.01 * 0.148721 / 2, rel=1e-5)


@pytest.mark.parametrize(
    "more",
    [
        {"log_p_old_BT": OLD},
        {"log_p_old_BT": OLD, "log_p_ref_BT": REF, "kl_beta": 0.5},
        {"log_p_old_BT": OLD, "clip_range": 0.9, "ratio_band": (0.1, 10.0)},
    ],
    ids="+".join,
)
def test_gradient_by_differences(more: dict) -> None:
    assert_gradient(lambda at: loss(at, **more), LOG_P)


def test_gradient_of_the_penalty_by_differences() -> None:
    """The policy's ratio to itself is 1 whatever the policy, so only the penalty has differences."""
    found = gradient(lambda at: loss(at, log_p_ref_BT=REF, kl_beta=0.5), LOG_P)
    reinforce = gradient(loss, LOG_P)
    expected = differences(lambda at: loss(at, log_p_ref_BT=REF, kl_beta=0.5), LOG_P, 0.01)
    torch.testing.assert_close(found - reinforce, expected, rtol=0, atol=1e-4)


def test_on_policy_it_is_reinforce() -> None:
    """−A/T for each of an answer's T tokens, over B answers; with the captured log-probabilities as well."""
    expected = -ADV[:, None] * MASK / MASK.sum(1, keepdim=True) / 2
    torch.testing.assert_close(gradient(loss, LOG_P), expected)
    torch.testing.assert_close(gradient(lambda at: loss(at, log_p_old_BT=LOG_P), LOG_P), expected)
    assert torch.equal(token_policy_gradient(LOG_P, ADV, MASK).ratio_BT, torch.ones(2, 4))


def test_a_known_bandit_gets_its_gradient() -> None:
    """One token of three with rewards R: the mean of the loss's gradient over draws, each weighed by its
    probability, is −∇ Σ p·R."""
    logits, rewards = torch.tensor([0.2, -0.5, 0.9]), torch.tensor([1.0, 3.0, -2.0])

    def expected_loss(at: Tensor) -> Tensor:
        log_p_V = at.log_softmax(0)
        each = token_policy_gradient(log_p_V[:, None], rewards, torch.ones(3, 1, dtype=torch.bool))
        return (log_p_V.exp().detach() * each.loss_B).sum()

    truth = gradient(lambda at: -(at.softmax(0) * rewards).sum(), logits)
    torch.testing.assert_close(gradient(expected_loss, logits), truth)
    baseline = (logits.softmax(0) * rewards).sum()
    torch.testing.assert_close(truth, -logits.softmax(0) * (rewards - baseline))


def test_one_update_of_a_bandit_is_the_closed_form() -> None:
    """θ' = θ + η·A·(onehot − p)."""
    theta = torch.nn.Parameter(torch.tensor([0.2, -0.5, 0.9]))
    p = theta.detach().softmax(0)
    optimiser = torch.optim.SGD([theta], lr=0.1)
    log_p = theta.log_softmax(0)[1].reshape(1, 1)
    token_policy_gradient(log_p, torch.tensor([2.0]), torch.ones(1, 1, dtype=torch.bool)).loss.backward()
    optimiser.step()
    expected = torch.tensor([0.2, -0.5, 0.9]) + 0.1 * 2 * (torch.tensor([0.0, 1.0, 0.0]) - p)
    torch.testing.assert_close(theta.detach(), expected)


# k3


def test_k3_by_hand() -> None:
    found = k3(torch.tensor([0.0, 1.0, -1.0]))
    assert found.tolist() == pytest.approx([0.0, math.e - 2, 1 / math.e], abs=1e-6)


def test_k3_is_never_negative() -> None:
    assert (k3(torch.linspace(-50, 50, 1001)) >= 0).all()


def test_the_mean_of_k3_is_the_kl() -> None:
    """Σ p·(e^d − d − 1) with d = ln(q/p) is KL(p‖q) exactly."""
    p, q = normal(6, seed=3).log_softmax(0), normal(6, seed=4).log_softmax(0)
    exact = (p.exp() * (p - q)).sum()
    torch.testing.assert_close((p.exp() * k3(q - p)).sum(), exact)


@pytest.mark.parametrize("given_up", [-40.0, -89.0, -1000.0])
def test_a_token_all_but_given_up_does_not_overflow(given_up: float) -> None:
    log_p = torch.tensor([[given_up, -1.0]])
    ref = torch.tensor([[-0.1, -1.0]])
    found = token_policy_gradient(log_p, ADV[:1], torch.ones(1, 2, dtype=torch.bool), log_p_ref_BT=ref)
    assert found.kl_B.item() == pytest.approx((math.exp(10) - 11) / 2, rel=1e-5)
    assert torch.isfinite(found.loss)
    slope = gradient(lambda at: k3(ref - at).mean(), log_p)
    assert torch.isfinite(slope).all()
    assert slope[0, 0] <= 0  # never further down


def test_control_the_exponential_of_such_a_token_does() -> None:
    assert torch.tensor(89.0).exp().isinf()


def test_a_token_far_above_its_reference_is_pulled_down_however_far() -> None:
    for distance in (-1.0, -9.0, -11.0, -500.0):
        slope = gradient(lambda at: k3(REF[0, 0] - at).sum(), REF[0, :1] - distance)
        assert slope.item() == pytest.approx(1 - math.exp(distance))


def test_the_reference_itself_costs_nothing() -> None:
    found = gradient(lambda at: loss(at, log_p_ref_BT=LOG_P, kl_beta=100.0), LOG_P)
    assert torch.equal(found, gradient(loss, LOG_P))


# Masks


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [
        ([5, 7, 2, 9], [1, 1, 1, 0]),
        ([5, 2, 2, 2], [1, 1, 0, 0]),
        ([2, 5, 7, 9], [1, 0, 0, 0]),
        ([5, 7, 9, 2], [1, 1, 1, 1]),
        ([5, 7, 9, 8], [1, 1, 1, 1]),
        ([5, 3, 9, 2], [1, 1, 0, 0]),
    ],
)
def test_a_mask_ends_with_the_first_stop_token(tokens: list[int], kept: list[int]) -> None:
    assert until_stop(torch.tensor([tokens]), {2, 3}).int().tolist() == [kept]


def test_without_a_stop_token_all_counts() -> None:
    assert until_stop(torch.tensor([[1, 2, 3]]), ()).all()


def test_an_answer_is_worth_the_same_whatever_its_length_and_padding() -> None:
    short = token_policy_gradient(LOG_P[:1, :3], ADV[:1], MASK[:1, :3], log_p_old_BT=OLD[:1, :3])
    padded = token_policy_gradient(LOG_P[:1], ADV[:1], MASK[:1], log_p_old_BT=OLD[:1])
    torch.testing.assert_close(short.loss_B, padded.loss_B)


@pytest.mark.parametrize("padding", [math.nan, -math.inf, 1e30])
def test_padding_may_hold_anything(padding: float) -> None:
    def padded(values: Tensor) -> Tensor:
        return torch.where(MASK, values, padding)

    more = {"log_p_old_BT": padded(OLD), "log_p_ref_BT": padded(REF)}
    plain = {"log_p_old_BT": OLD, "log_p_ref_BT": REF}
    assert torch.equal(loss(padded(LOG_P), **more), loss(LOG_P, **plain))
    slope = gradient(lambda at: loss(at, **more), padded(LOG_P))
    assert torch.equal(slope, gradient(lambda at: loss(at, **plain), LOG_P))
    assert not slope[~MASK].any()
    found = token_policy_gradient(padded(LOG_P), ADV, MASK, log_p_old_BT=padded(OLD))
    assert (found.ratio_BT[~MASK] == 1).all()


# Off-policy


def test_tokens_are_clipped_one_by_one() -> None:
    old = LOG_P - torch.tensor([0.5, -0.5, 0.0, 0.0])
    found = token_policy_gradient(LOG_P, ADV, MASK, log_p_old_BT=old, clip_range=0.2)
    assert found.clipped_BT.tolist() == [[True, False, False, False], [False, True, False, False]]
    slope = gradient(lambda at: loss(at, log_p_old_BT=old, clip_range=0.2), LOG_P)
    assert torch.equal(slope == 0, found.clipped_BT | ~MASK)


def test_tokens_outside_the_band_are_rejected() -> None:
    old = LOG_P - torch.tensor([0.8, -0.8, 0.0, 5.0])  # e^0.8 = 2.2, e^−0.8 = 0.45
    found = token_policy_gradient(LOG_P, ADV, MASK, log_p_old_BT=old, ratio_band=(0.5, 2.0))
    assert found.rejected_BT.tolist() == [[True, True, False, False], [True, True, False, True]]
    slope = gradient(lambda at: loss(at, log_p_old_BT=old, ratio_band=(0.5, 2.0)), LOG_P)
    assert torch.equal(slope == 0, found.rejected_BT | ~MASK)


def test_nothing_earned_moves_nothing() -> None:
    idle = torch.zeros(2)
    slope = gradient(lambda at: token_policy_gradient(at, idle, MASK, log_p_ref_BT=LOG_P).loss, LOG_P)
    assert not slope.any()


def test_the_usual_weight_of_the_penalty() -> None:
    assert token_pg.KL_BETA == 0.01
