"""Flow-GRPO, arXiv 2505.05470: the clipped policy gradient of the stochastic steps of a flow.

A step is x' ~ N(A·x + b·v, τ²) (see `sde`), its policy the velocity v. The gradient of its log-probability is
b²/(τ²D)·(v_ml − v), with v_ml the velocity under which x' would have been likeliest: towards what the noise
turned out to be where that was good, away from it where it was bad. The velocity that sampled is no such
target: regressing on it moves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mutoscope.platform.engine.sde import Transition
from mutoscope.platform.training.methods import ppo
from mutoscope.platform.training.methods.ppo import PolicyTerm


@dataclass(frozen=True, slots=True)
class FlowGrpo:
    """What keeps the update small.

    Attributes:
        clip_range: ε of the clip.
        kl_beta: β >= 0 of the KL to a reference; 0 for none.
        guard: normalise ratios and weigh steps by 1/(−dt) as GRPO-Guard does.
        dppo_epsilon: > 0: no clip, but DPPO's mask at this divergence; None: the clip.
        ratio_band: steps whose ratio is outside are rejected; None: all are used.
    """

    clip_range: float = 1e-4
    kl_beta: float = 0.0
    guard: bool = False
    dppo_epsilon: float | None = None
    ratio_band: tuple[float, float] | None = (0.5, 2.0)

    @property
    def needs_old(self) -> bool:
        """Whether the velocity that sampled has to be known besides its log-probability."""
        return self.guard or self.dppo_epsilon is not None


@dataclass(frozen=True, slots=True, eq=False)
class FlowStep:
    """Recorded steps of one law, one a sample.

    Attributes:
        dt: σ' − σ < 0.
        x, moved: float32 (B, …), where a step led from and to.
        log_p_old_B: as captured under the weights that sampled.
        made: 1 where the sampler decided a latent, broadcastable to `x`; None: everywhere.
    """

    law: Transition
    dt: float
    x: Tensor
    moved: Tensor
    log_p_old_B: Tensor
    made: Tensor | None = None

    def divergence(self, velocity: Tensor, other: Tensor) -> Tensor:
        """KL (B,) of the step under one velocity from the step under another, which is a fact."""
        mean, mean_other = self.law.mean(self.x, velocity), self.law.mean(self.x, other.detach())
        return ppo.gaussian_kl(mean, mean_other, self.law.std, self.made)


@dataclass(frozen=True, slots=True, eq=False)
class FlowTerm:
    """The loss of steps and what is known of them; all but the loss without gradient, (B,).

    Attributes:
        policy: its loss includes the penalty.
        log_p_B: under the policy being trained.
        kl_B: to the reference; None without one.
    """

    policy: PolicyTerm
    log_p_B: Tensor
    kl_B: Tensor | None


def flow_grpo(
    options: FlowGrpo,
    step: FlowStep,
    velocity: Tensor,
    adv_B: Tensor,
    *,
    velocity_old: Tensor | None = None,
    velocity_reference: Tensor | None = None,
) -> FlowTerm:
    """The loss of recorded steps under a velocity (B, …), which it is differentiated in.

    Args:
        adv_B: the samples' advantages.
        velocity_old: under the weights that sampled, at the same latents; required if `options.needs_old`.
        velocity_reference: under the reference weights; the penalty is left out without it.

    Raises:
        ValueError: `velocity_old` is required and missing, or the step is deterministic.
    """
    log_p_B = step.law.log_prob(step.x, velocity, step.moved, step.made)
    policy = _policy(options, step, velocity, adv_B, log_p_B, velocity_old)
    if options.ratio_band is not None:
        policy = policy.without(ppo.outside_band(log_p_B - step.log_p_old_B, options.ratio_band))
    if velocity_reference is None:
        return FlowTerm(policy, log_p_B.detach(), None)
    kl_B = step.divergence(velocity, velocity_reference)
    return FlowTerm(policy.plus(options.kl_beta * kl_B), log_p_B.detach(), kl_B.detach())


def _policy(
    options: FlowGrpo,
    step: FlowStep,
    velocity: Tensor,
    adv_B: Tensor,
    log_p_B: Tensor,
    velocity_old: Tensor | None,
) -> PolicyTerm:
    log_ratio_B = log_p_B - step.log_p_old_B.detach().float()
    if not options.needs_old:
        return ppo.clipped_loss(log_ratio_B, adv_B, clip_range=options.clip_range)
    if velocity_old is None:
        raise ValueError("GRPO-Guard and DPPO compare with the velocity that sampled: pass velocity_old")
    divergence_B = step.divergence(velocity, velocity_old)
    if options.guard:
        log_ratio_B = ppo.guarded_log_ratio(log_p_B, step.log_p_old_B, divergence_B, step.law.std)
    if options.dppo_epsilon is None:
        policy = ppo.clipped_loss(log_ratio_B, adv_B, clip_range=options.clip_range)
    else:
        policy = ppo.dppo_loss(log_ratio_B, divergence_B, adv_B, divergence_limit=options.dppo_epsilon)
    return policy.times(1 / -step.dt) if options.guard else policy
