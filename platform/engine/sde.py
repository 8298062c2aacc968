"""How a sampler steps from one noise level to the next, and with what probability.

Convention (see `sampling`): x_σ = (1−σ)x₀ + σε, v = ε − x₀, σ falls to σ', dt = σ' − σ < 0. Every law here is
Gaussian with a mean linear in the latents and in the velocity,

    x' ~ N(A·x + b·v, τ²)      per latent element, independently,

so a law is three numbers, and everything else follows from them. Latents, velocities and probabilities are
float32 whatever the model runs in: in half precision a policy's ratio to itself is no longer 1. The three
numbers are computed in double from float32 noise levels and rounded once, when they meet a tensor.

    ode        A = 1, b = dt, τ = 0
    flow-sde   Flow-GRPO, arXiv 2505.05470: s = a·√(σ/(1−σ̂)), A = 1 + s²dt/(2σ), b = (1 + s²(1−σ)/(2σ))·dt,
               τ = s·√(−dt); σ̂ is σ, but at σ = 1 the schedule's second level
    cps        coefficients-preserving sampling, arXiv 2509.05952: τ = σ'·sin(aπ/2),
               μ = (1−σ')·x̂₀ + √(σ'²−τ²)·x̂₁ with x̂₀ = x − σv and x̂₁ = x + (1−σ)v
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
"""½ ln 2π, of the Gaussian's normalisation."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One step's law: x' ~ N(A·x + b·v, τ²). Tensors are of one shape, the first axis a batch.

    Attributes:
        scale: A, of the latents.
        gain: b, of the velocity; negative for every law here.
        std: τ >= 0; 0 is a deterministic step, which has no density.
    """

    scale: float
    gain: float
    std: float

    def mean(self, x: Tensor, v: Tensor) -> Tensor:
        """μ = A·x + b·v, float32."""
        return self.scale * x.float() + self.gain * v.float()

    def sample(self, x: Tensor, v: Tensor, noise: Tensor) -> Tensor:
        """x' = μ + τξ, float32, with `noise` ξ standard normal."""
        return self.mean(x, v) + self.std * noise.float()

    def log_prob(self, x: Tensor, v: Tensor, x_next: Tensor, made: Tensor | None = None) -> Tensor:
        """log p(x' | x), (B,): −(x'−μ)²/(2τ²) − ln τ − ½ ln 2π, as a mean over each sample's elements.

        A mean, not a sum, so that it does not grow with the picture. Differentiable in `v`; x' is a fact.

        Args:
            made: 1 for elements to take the mean over and 0 for others, broadcastable; None: all of them.

        Raises:
            ValueError: the step is deterministic.
        """
        self._check_random()
        z = (x_next.detach().float() - self.mean(x, v)) / self.std
        each = -0.5 * z.square() - math.log(self.std) - HALF_LOG_2PI
        if made is None:
            return each.flatten(1).mean(1)
        counted = made.expand_as(each)
        return (each * counted).flatten(1).sum(1) / counted.flatten(1).sum(1)

    def likeliest_velocity(self, x: Tensor, x_next: Tensor) -> Tensor:
        """v_ml = (x' − A·x)/b, where log p(x' | x) has its maximum in v: −ln τ − ½ ln 2π."""
        return (x_next.float() - self.scale * x.float()) / self.gain

    def score(self, x: Tensor, v: Tensor, x_next: Tensor) -> Tensor:
        """∇_v log p = b²/(τ²D)·(v_ml − v), with D elements a sample; the shape of `v`.

        Raises:
            ValueError: the step is deterministic.
        """
        self._check_random()
        pull = self.likeliest_velocity(x, x_next) - v.float()
        return (self.gain / self.std) ** 2 / v[0].numel() * pull

    def _check_random(self) -> None:
        if self.std == 0:
            raise ValueError("a deterministic step has no density: ask only steps of a stochastic law")


def ode(sigma: float, sigma_next: float) -> Transition:
    """The Euler step of the probability flow."""
    return Transition(scale=1.0, gain=sigma_next - sigma, std=0.0)


def flow_sde(sigma: float, sigma_next: float, noise_scale: float, sigma_below_one: float) -> Transition:
    """Flow-GRPO's reverse SDE with the marginals of the flow, one Euler-Maruyama step.

    Args:
        noise_scale: a >= 0; 0 is the ODE.
        sigma_below_one: σ̂ where σ is 1, at which the formula has a pole: the second level of the schedule.
            Clamping σ to a little below 1 instead makes s so large that the first step destroys the sample.
    """
    dt = sigma_next - sigma
    pole = sigma_below_one if sigma == 1 else sigma
    s = noise_scale * math.sqrt(sigma / (1 - pole))
    drift = s * s / (2 * sigma)
    return Transition(scale=1 + drift * dt, gain=(1 + drift * (1 - sigma)) * dt, std=s * math.sqrt(-dt))


def cps(sigma: float, sigma_next: float, noise_scale: float) -> Transition:
    """Coefficients-preserving sampling: part of the next level's noise is fresh, its amount is unchanged.

    Args:
        noise_scale: a from 0, the ODE, to 1, where all of it is fresh.
    """
    fresh = sigma_next * math.sin(noise_scale * math.pi / 2)
    kept = sigma_next * math.cos(noise_scale * math.pi / 2)
    return Transition(
        scale=(1 - sigma_next) + kept,
        gain=kept * (1 - sigma) - (1 - sigma_next) * sigma,
        std=fresh,
    )


def transition(law: str, sigmas: Sequence[float], index: int, noise_scale: float) -> Transition:
    """The law of step `index` of a schedule.

    Args:
        law: one of `trajectory.LAWS`.
        sigmas: noise levels, falling, one more than steps.
    """
    sigma, sigma_next = float(sigmas[index]), float(sigmas[index + 1])
    match law:
        case "ode":
            return ode(sigma, sigma_next)
        case "flow-sde":
            return flow_sde(sigma, sigma_next, noise_scale, float(sigmas[1]))
        case "cps":
            return cps(sigma, sigma_next, noise_scale)
    raise ValueError(f"no such law: {law}")


def step_noise(shape: Sequence[int], seed: int, *, device: torch.device) -> Tensor:
    """Standard normal float32 noise of one step, from a CPU generator of its own."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(tuple(shape), generator=generator, dtype=torch.float32).to(device)
