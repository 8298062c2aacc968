"""Distillation: chords land where the teacher came, and a student of few steps learns them in closed form."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from mutoscope.platform.engine import sde
from mutoscope.platform.engine.sampling import FlowSchedule
from mutoscope.platform.training.methods.distill import chord_velocity, distill_loss
from tests.training.methods.differences import assert_gradient, gradient, normal

SIGMAS = FlowSchedule(shift=3.0).sigmas(8).tolist()
STUDENT = (0, 4, 8)
"""The levels of a student of two steps."""


def velocity(x: Tensor, sigma: float) -> Tensor:
    """A teacher whose paths bend: it turns the plane with the level."""
    turn = torch.tensor([[0.0, -2.0], [2.0, 0.0]])
    return x @ turn * sigma + 0.5 * x + torch.tensor([1.0, -1.0])


def taught(count: int = 5) -> list[Tensor]:
    """The teacher's latents at every level, by the ODE."""
    latents = [normal(count, 2, seed=0)]
    for index, sigma in enumerate(SIGMAS[:-1]):
        step = sde.ode(sigma, SIGMAS[index + 1])
        latents.append(step.mean(latents[-1], velocity(latents[-1], sigma)))
    return latents


def test_a_step_along_the_chord_lands_where_the_teacher_came() -> None:
    latents = taught()
    for start, stop in pairwise(STUDENT):
        chord = chord_velocity(latents[start], latents[stop], SIGMAS[start], SIGMAS[stop])
        landed = sde.ode(SIGMAS[start], SIGMAS[stop]).mean(latents[start], chord)
        torch.testing.assert_close(landed, latents[stop])
        own = sde.ode(SIGMAS[start], SIGMAS[stop]).mean(
            latents[start], velocity(latents[start], SIGMAS[start])
        )
        assert (landed - own).norm() > 0.1  # the teacher itself, with as few steps


def test_the_chord_to_the_end_is_that_of_a_straight_flow() -> None:
    x0, noise = normal(3, 2, seed=1), normal(3, 2, seed=2)
    for sigma in (1.0, 0.6, 0.05):
        x_sigma = (1 - sigma) * x0 + sigma * noise
        torch.testing.assert_close(chord_velocity(x_sigma, x0, sigma, 0.0), noise - x0, rtol=0, atol=1e-4)


@pytest.mark.parametrize("space", ["velocity", "x0"])
def test_gradient_by_differences(space: str) -> None:
    latents, levels = taught(), torch.tensor([1.0, 0.9, 0.8, 0.7, 0.6])
    at = normal(5, 2, seed=3)
    assert_gradient(lambda v: distill_loss(v, latents[0], latents[4], levels, 0.5, space=space).mean(), at)


def test_where_a_step_lands_weighs_by_the_square_of_its_length() -> None:
    latents, v = taught(), normal(5, 2, seed=3)
    given = v, latents[0], latents[4], 1.0, 0.6
    torch.testing.assert_close(distill_loss(*given, space="x0"), 0.16 * distill_loss(*given))
    # with the end point it is the error of x̂₀ = x − σv
    x0_error = (latents[4] - 0.6 * v - latents[8]).square().mean(1)
    torch.testing.assert_close(distill_loss(v, latents[4], latents[8], 0.6, space="x0"), x0_error)


def test_a_chord_over_one_step_of_the_teacher_teaches_nothing() -> None:
    latents = taught()
    own = velocity(latents[0], SIGMAS[0])
    one = gradient(lambda v: distill_loss(v, latents[0], latents[1], SIGMAS[0], SIGMAS[1]).mean(), own)
    four = gradient(lambda v: distill_loss(v, latents[0], latents[4], SIGMAS[0], SIGMAS[4]).mean(), own)
    assert one.abs().max() < 1e-4 * four.abs().max()


def test_one_update_of_a_linear_student_is_the_closed_form() -> None:
    """v = θ for every sample: θ' = θ − (η/B)·Σ 2(θ − v*)/D."""
    latents = taught()
    theta = torch.nn.Parameter(torch.zeros(1, 2))
    optimiser = torch.optim.SGD([theta], lr=0.1)
    distill_loss(theta.expand(5, 2), latents[0], latents[4], SIGMAS[0], SIGMAS[4]).mean().backward()
    optimiser.step()
    chord = chord_velocity(latents[0], latents[4], SIGMAS[0], SIGMAS[4])
    torch.testing.assert_close(theta.detach(), 0.1 * chord.mean(0, keepdim=True))


def test_a_student_of_two_steps_comes_where_its_teacher_came_with_eight() -> None:
    """The teacher's map is affine, and so is the student's velocity at each of its levels: least squares."""
    latents = taught(50)
    x = latents[0]
    for start, stop in pairwise(STUDENT):
        chord = chord_velocity(latents[start], latents[stop], SIGMAS[start], SIGMAS[stop])
        affine = torch.linalg.lstsq(torch.cat([latents[start], torch.ones(50, 1)], 1), chord).solution
        learned = torch.cat([x, torch.ones(50, 1)], 1) @ affine
        assert distill_loss(learned, x, latents[stop], SIGMAS[start], SIGMAS[stop]).max() < 1e-8
        x = sde.ode(SIGMAS[start], SIGMAS[stop]).mean(x, learned)
    torch.testing.assert_close(x, latents[-1], rtol=1e-3, atol=1e-4)


def test_the_teacher_is_a_fact_and_given_latents_have_no_part() -> None:
    latents = [latent.clone().requires_grad_() for latent in taught()]
    v = normal(5, 2, seed=3).requires_grad_()
    made = torch.tensor([[1.0, 0.0]])
    found = distill_loss(v, latents[0], latents[4], 1.0, 0.6, made=made)
    found.mean().backward()
    assert (latents[0].grad, latents[4].grad) == (None, None)
    assert v.grad[:, 0].all()
    assert not v.grad[:, 1].any()
    cut = [tensor.detach()[:, :1] for tensor in (v, latents[0], latents[4])]
    torch.testing.assert_close(found, distill_loss(*cut, 1.0, 0.6))


@pytest.mark.parametrize(
    ("start", "stop"), [(0.5, 0.5), (0.5, 0.6), (0.0, 0.0), (torch.tensor([1.0, 0.2]), 0.3)]
)
def test_levels_that_do_not_fall_are_refused(start: float | Tensor, stop: float) -> None:
    x = normal(2, 2, seed=0)
    with pytest.raises(ValueError, match="to a lower one"):
        chord_velocity(x, x, start, stop)
