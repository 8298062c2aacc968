"""What a rollout records: the solver that draws its steps by a law and remembers what it drew.

A rollout is serving with another solver. Outside the window it takes the same Euler step, inside it the law's
step with noise of its own; a folder's multistep solver is left aside, because its memory of earlier
velocities has no meaning across a random step. Noise depends on the request's seed and the step alone, so a
rollout repeats bit for bit in whatever company it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from mutoscope.platform import ids
from mutoscope.platform.engine import sde
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.engine.rollout import RolloutPlan, noise_seed
from mutoscope.platform.engine.sampling import ode_step
from mutoscope.platform.trajectory import Floats, TrajectoryFacts, TrajectoryGroup, TrajectorySample

_EMBEDDING_DOMAIN = "mutoscope.embedding/1"


class Capture:
    """One rollout's steps, in float32.

    Attributes:
        timesteps: (steps,), what the model is told.
        sigmas: (steps + 1,) float32 on the latents' device, falling.
        plan: law, window and stored levels.
        made: 1 where the sampler decides a latent, 0 where it is given, broadcastable to the latents; None:
            all are made. What is given has no part in a log-probability.
    """

    def __init__(
        self, request: Request, timesteps: Tensor, sigmas: Tensor, made: Tensor | None = None
    ) -> None:
        self.timesteps, self.sigmas, self.made = timesteps, sigmas, made
        self.plan = RolloutPlan.of(request.parameters, len(timesteps))
        self._seed = request.seed
        self._latents: dict[int, Tensor] = {}
        self._log_probs: list[Tensor] = []

    @cached_property
    def levels(self) -> tuple[float, ...]:
        """The noise levels as exact numbers."""
        return tuple(self.sigmas.tolist())

    def step(self, velocity: Tensor, index: int, latents: Tensor) -> Tensor:
        """The latents (1, …) at the next noise level; what the plan asks for is kept."""
        velocity = velocity.float()
        self._keep(index, latents)
        if self.plan.stochastic(index):
            noise = sde.step_noise(latents.shape, noise_seed(self._seed, index), device=latents.device)
            moved = self._law(index).sample(latents, velocity, noise)
            self._log_probs.append(self.log_prob(index, latents, velocity, moved))
        else:
            moved = ode_step(latents, velocity, self.sigmas[index], self.sigmas[index + 1])
        self._keep(index + 1, moved)
        return moved

    def log_prob(self, index: int, latents: Tensor, velocity: Tensor, moved: Tensor) -> Tensor:
        """log p(moved | latents) of a step of the window, (B,), under `velocity`; differentiable in it."""
        return self._law(index).log_prob(latents, velocity, moved, self.made)

    def output(self, weights: Mapping[str, str], **conditioning: Tensor) -> Output:
        """The finished rollout as a group of one sample.

        Args:
            weights: digest by component of the weights that sampled it.
            conditioning: what the model read of the prompt, by name.
        """
        facts = TrajectoryFacts(
            seeds=(self._seed,),
            sigmas=self.levels,
            law=self.plan.law,
            window=self.plan.window,
            weights=weights,
            prompt_embedding=embedding_digest(conditioning),
            law_parameters={"noise_scale": self.plan.noise_scale},
        )
        latents = {level: _array(kept[0]) for level, kept in sorted(self._latents.items())}
        log_probs = _array(torch.cat(self._log_probs)) if self._log_probs else _array(torch.zeros(0))
        return Output("trajectory", TrajectoryGroup(facts, (TrajectorySample(latents, log_probs),)))

    def _law(self, index: int) -> sde.Transition:
        return sde.transition(self.plan.law, self.levels, index, self.plan.noise_scale)

    def _keep(self, level: int, latents: Tensor) -> None:
        if level in self.plan.levels:
            self._latents[level] = latents


def embedding_digest(conditioning: Mapping[str, Tensor]) -> str:
    """Hex digest of named tensors: their dtypes, shapes and bytes."""
    return ids.digest(
        _EMBEDDING_DOMAIN,
        {
            name: {
                "dtype": str(tensor.dtype),
                "shape": list(tensor.shape),
                "data": tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes(),
            }
            for name, tensor in conditioning.items()
        },
    )


def _array(tensor: Tensor) -> Floats:
    array: Floats = tensor.float().cpu().numpy()
    return array
