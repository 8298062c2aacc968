"""DiffusionNFT: its reported loss against the gradient that is applied, closed forms, and its fixed point."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mutoscope.platform.training.methods import nft
from tests.training.methods.differences import assert_gradient, differences, gradient, normal

SHAPE = (3, 2, 4)
X0, NOISE, V_OLD = (normal(*SHAPE, seed=seed) for seed in range(3))
V = V_OLD + 0.5 * normal(*SHAPE, seed=3)
SIGMA = torch.tensor([1.0, 0.6, 0.1])
X_SIGMA = nft.noised(X0, NOISE, SIGMA)
R = torch.tensor([0.9, 0.5, 0.2])
BETA = 0.3


def term(v: Tensor, r: Tensor = R, **more) -> nft.NftTerm:
    return nft.nft_loss(v, V_OLD, X0, X_SIGMA, SIGMA, r, BETA, **more)


def test_the_loss_by_hand() -> None:
    # x₀ 0, ε 1: x_σ = 0.5. v⁺ = 1 + 0.5·2 = 2, x̂₀⁺ = 0.5 − 0.5·2 = −0.5; v⁻ = 0, x̂₀⁻ = 0.5
    one = torch.ones(1, 1)
    found = nft.nft_loss(3 * one, one, 0 * one, 0.5 * one, 0.5, torch.tensor([0.8]), 0.5)
    assert [weight.item() for weight in found.weights] == [0.5, 0.5]
    assert found.loss.item() == pytest.approx(0.8 * 0.25 / 0.5 + 0.2 * 0.25 / 0.5)
    assert found.drift_B.item() == 4.0


@pytest.mark.parametrize("r", [R, torch.ones(3), torch.zeros(3)], ids=str)
def test_the_gradient_applied_is_that_of_the_loss_reported(r: Tensor) -> None:
    """Of the loss with its weights as they are: they are facts."""
    weights = term(V, r).weights
    assert torch.equal(term(V, r, weights=weights).loss, term(V, r).loss)
    applied = gradient(lambda at: term(at, r).loss, V)
    expected = differences(lambda at: term(at, r, weights=weights).loss, V, 0.05)
    torch.testing.assert_close(applied, expected, rtol=0, atol=2e-3 * float(expected.abs().max()))
    for weight in weights:
        assert not weight.requires_grad


def test_control_weights_that_moved_along_would_be_another_loss() -> None:
    applied = gradient(lambda at: term(at).loss, V)
    along = differences(lambda at: term(at).loss, V, 0.05)
    assert not torch.allclose(applied, along, rtol=0.1, atol=0.1 * float(applied.abs().max()))


def test_the_gradient_at_old_is_the_closed_form() -> None:
    """−2σβ(2r−1)(x̂₀ − x₀)/(D·w) where v is v_old: towards good samples, away from bad ones."""
    sigma = SIGMA[:, None, None]
    error = X_SIGMA - sigma * V_OLD - X0
    weight = error.abs().mean((1, 2), keepdim=True)
    expected = -2 * sigma * BETA * (2 * R[:, None, None] - 1) * error / (8 * weight) / 3
    found = gradient(lambda at: term(at).loss, V_OLD)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)
    assert found[0].all()
    assert found[2].all()


@pytest.mark.parametrize("beta", [0.1, 1 / 3, 1.0, 1.7])
def test_a_sample_neither_good_nor_bad_moves_nothing_at_old(beta: float) -> None:
    half = torch.full((3,), 0.5)
    found = gradient(lambda at: nft.nft_loss(at, V_OLD, X0, X_SIGMA, SIGMA, half, beta).loss, V_OLD)
    assert not found.any()


def test_it_does_elsewhere_so_samples_without_an_advantage_are_left_out() -> None:
    half = torch.full((3,), 0.5)
    found = gradient(lambda at: term(at, half).loss, V)
    assert (found * (V - V_OLD)).sum() > 0  # descending it leads back to old


def test_one_update_of_a_linear_policy_is_the_closed_form() -> None:
    """v = θ for every sample, θ = v_old: θ' = θ + (η/B)·Σ 2σβ(2r−1)(x̂₀ − x₀)/(D·w)."""
    theta = torch.nn.Parameter(torch.full((1, 2, 4), 0.2))
    old = theta.detach().expand(*SHAPE)
    optimiser = torch.optim.SGD([theta], lr=0.1)
    nft.nft_loss(theta.expand(*SHAPE), old, X0, X_SIGMA, SIGMA, R, BETA).loss.backward()
    optimiser.step()
    sigma = SIGMA[:, None, None]
    error = X_SIGMA - sigma * 0.2 - X0
    weight = error.abs().mean((1, 2), keepdim=True)
    each = 2 * sigma * BETA * (2 * R[:, None, None] - 1) * error / (8 * weight)
    torch.testing.assert_close(theta.detach(), 0.2 + 0.1 * each.mean(0, keepdim=True), rtol=1e-4, atol=1e-6)


def test_its_fixed_point_is_old_guided_towards_the_good() -> None:
    """With old right about its own samples, v_old = E[u], u = (x_σ − x₀)/σ, the loss of equal weights ends at
    v_old + (2/β)·E[r·(u − v_old)], the theorem of the method."""
    count, sigma, beta = 64, 0.7, 0.4
    x_sigma, x0 = normal(1, 5, seed=0).expand(count, 5), normal(count, 5, seed=1)
    r = torch.rand(count, generator=torch.Generator().manual_seed(2))
    target = (x_sigma - x0) / sigma
    old = target.mean(0, keepdim=True)
    ones = torch.ones(count)

    def loss(at: Tensor) -> Tensor:
        given = at.expand(count, 5), old.expand(count, 5), x0, x_sigma, sigma, r, beta
        return nft.nft_loss(*given, weights=(ones, ones)).loss

    end = old + 2 / beta * (r[:, None] * (target - old)).mean(0, keepdim=True)
    usual = gradient(loss, old)
    assert gradient(loss, end).abs().max() < 1e-4 * usual.abs().max()


@pytest.mark.parametrize("beta", [0.1, 1.0])
@pytest.mark.parametrize(("r", "nearer"), [(1.0, True), (0.0, False)])
def test_a_good_sample_attracts_and_a_bad_one_repels(r: float, nearer: bool, beta: float) -> None:
    sure = torch.full((3,), r)
    down = -gradient(lambda at: nft.nft_loss(at, V_OLD, X0, X_SIGMA, SIGMA, sure, beta).loss, V_OLD)
    towards = (NOISE - X0) - V_OLD
    assert (((down * towards).flatten(1).sum(1) > 0) == nearer).all()


def test_the_level_decides_how_much_is_taught() -> None:
    """At σ = 1 the error is the velocity's, at σ → 0 there is none. The weights make up for one factor of σ
    of the error's square, and so the gradient keeps one."""
    sizes = []
    for sigma in (1.0, 0.1, 0.01):
        x_sigma = nft.noised(X0, NOISE, sigma)
        good = torch.ones(3)
        given = V_OLD, X0, x_sigma, sigma, good, BETA
        sizes.append(float(gradient(lambda at, g=given: nft.nft_loss(at, *g).loss, V_OLD).norm()))
    assert sizes[1] / sizes[0] == pytest.approx(0.1, rel=1e-3)
    assert sizes[2] / sizes[0] == pytest.approx(0.01, rel=1e-3)
    at_one = nft.nft_loss(V_OLD, V_OLD, X0, NOISE, 1.0, torch.ones(3), BETA)
    errors = NOISE - X0 - V_OLD
    expected = errors.square().mean((1, 2)) / errors.abs().mean((1, 2))
    torch.testing.assert_close(at_one.loss_B, expected)


def test_an_exact_prediction_has_no_error_and_no_gradient() -> None:
    nothing = torch.zeros(SHAPE)  # x₀, so that ε is the velocity and no rounding is left
    found = nft.nft_loss(NOISE, NOISE, nothing, NOISE, 1.0, R, BETA)
    assert found.loss.item() == 0
    slope = gradient(lambda at: nft.nft_loss(at, NOISE, nothing, NOISE, 1.0, R, BETA).loss, NOISE)
    assert not slope.any()


def test_only_the_policy_is_differentiated() -> None:
    given = [tensor.clone().requires_grad_() for tensor in (V, V_OLD, X0, X_SIGMA, R)]
    v, old, x0, x_sigma, r = given
    nft.nft_loss(v, old, x0, x_sigma, SIGMA, r, BETA).loss.backward()
    assert [tensor.grad is None for tensor in given] == [False, True, True, True, True]


def test_given_latents_have_no_part() -> None:
    made = torch.ones(1, 1, 4)
    made[..., 0] = 0
    cut = [tensor[..., 1:] for tensor in (V, V_OLD, X0, X_SIGMA)]
    expected = nft.nft_loss(*cut, SIGMA, R, BETA)
    found = term(V, made=made)
    torch.testing.assert_close(found.loss_B, expected.loss_B)
    torch.testing.assert_close(found.drift_B, expected.drift_B)
    noised = nft.noised(X0, NOISE, SIGMA, made)
    assert torch.equal(noised[..., 0], X0[..., 0])
    assert torch.equal(noised[..., 1:], X_SIGMA[..., 1:])


def test_half_precision_is_widened_before_it_is_used() -> None:
    given = [tensor.bfloat16() for tensor in (V, V_OLD, X0, X_SIGMA)]
    wide = nft.nft_loss(*[tensor.float() for tensor in given], SIGMA, R, BETA)
    assert torch.equal(nft.nft_loss(*given, SIGMA, R, BETA).loss_B, wide.loss_B)


# What goes in and comes after


def test_optimality_by_hand() -> None:
    given = torch.tensor([-100.0, -5.0, -2.5, 0.0, 2.5, 5.0, 100.0])
    assert nft.optimality(given, 5.0).tolist() == [0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0]


def test_noising_by_hand() -> None:
    x0, noise = torch.tensor([[2.0], [2.0], [2.0]]), torch.tensor([[-1.0], [-1.0], [-1.0]])
    made = nft.noised(x0, noise, torch.tensor([0.0, 0.25, 1.0]))
    assert made.tolist() == [[2.0], [1.25], [-1.0]]


def test_the_distance_of_policies() -> None:
    assert nft.drift(torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 1.0]])).tolist() == [2.5]
    assert_gradient(lambda at: nft.drift(at, V_OLD).mean(), V)
    assert not gradient(lambda at: nft.drift(at, V_OLD).mean(), V_OLD).any()


@pytest.mark.parametrize(("d", "expected"), [(0.0, 3.0), (0.75, 1.5), (1.0, 1.0)])
def test_the_policy_that_samples_follows(d: float, expected: float) -> None:
    old, theta = {"a": torch.tensor([1.0])}, {"a": torch.tensor([3.0], requires_grad=True)}
    made = nft.decay(old, theta, d)
    assert made["a"].tolist() == [expected]
    assert not made["a"].requires_grad
    assert old["a"].tolist() == [1.0]


def test_what_follows_keeps_its_dtype() -> None:
    made = nft.decay({"a": torch.ones(1).bfloat16()}, {"a": torch.tensor([2.0])}, 0.5)
    assert made["a"].dtype == torch.bfloat16
    assert made["a"].item() == 1.5


def test_a_missing_parameter_is_not_passed_over() -> None:
    with pytest.raises(KeyError):
        nft.decay({"a": torch.ones(1)}, {}, 0.5)
