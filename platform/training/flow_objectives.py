"""The objectives of a flow: recorded steps, finished samples noised afresh, the chords of a teacher."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from mutoscope.platform.engine import sde
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.training.batch import Example
from mutoscope.platform.training.methods.distill import distill_loss
from mutoscope.platform.training.methods.flow_grpo import FlowGrpo, FlowStep, flow_grpo
from mutoscope.platform.training.methods.nft import drift, nft_loss, noised, optimality
from mutoscope.platform.training.objectives import Draws, Item, Measured, Objective, advantages_of, fresh
from mutoscope.platform.training.policy import FlowPolicy, Place

SAME_LEVEL = 1e-5
"""Noise levels closer than this are one."""


class FlowObjective(Objective, ABC):
    """Of velocities. `policy` learns, `pinned` is what it began as."""

    def __init__(self, policy: FlowPolicy, pinned: FlowPolicy) -> None:
        self.policy, self.pinned = policy, pinned

    def shift(self, items: Sequence[Item]) -> float:
        places = _places(items)
        with torch.no_grad():
            now, before = torch.cat(self.policy.velocities(places)), torch.cat(self.pinned.velocities(places))
            return float((now - before).square().mean() / before.square().mean())


class Grpo(FlowObjective):
    """Flow-GRPO of the recorded stochastic steps."""

    def __init__(
        self, policy: FlowPolicy, pinned: FlowPolicy, options: FlowGrpo, reference: FlowPolicy | None
    ) -> None:
        super().__init__(policy, pinned)
        self.options, self.reference = options, reference

    def items(self, examples: Sequence[Example], draws: Draws) -> list[Item]:
        found = []
        for example in examples:
            capture, sigmas = self.policy.capture(example), example.facts.sigmas
            device = capture.sigmas.device
            for index in range(*example.facts.window):
                latents, moved = (_latents(example, level, device) for level in (index, index + 1))
                place, levels = Place(example, index, latents), (sigmas[index], sigmas[index + 1])
                found.append(Item(example, place, moved, levels, capture.made))
        return found

    def measure(self, items: Sequence[Item]) -> Measured:
        places = _places(items)
        velocities = self.policy.velocities(places)
        with torch.no_grad():
            old = self.pinned.velocities(places) if self.options.needs_old else None
            reference = None if self.reference is None else self.reference.velocities(places)
        made = Measured(torch.empty(0))
        losses: list[Tensor] = [torch.empty(0)] * len(items)
        for same in _by_step(items):
            step = self._step([items[at] for at in same])
            term = flow_grpo(
                self.options,
                step,
                _pick(velocities, same),
                advantages_of([items[at] for at in same]).to(step.x.device),
                velocity_old=None if old is None else _pick(old, same),
                velocity_reference=None if reference is None else _pick(reference, same),
            )
            for at, loss in zip(same, term.policy.loss_B.split(1), strict=True):
                losses[at] = loss
            delta_B = (term.log_p_B - step.log_p_old_B).abs()
            made.note("delta_log_p", delta_B)
            made.note("delta_fresh", delta_B[fresh([items[at] for at in same])])
            made.note("ratio", term.policy.ratio_B)
            made.note("clipped", term.policy.clipped_B)
            made.note("rejected", term.policy.rejected_B)
            if term.kl_B is not None:
                made.note("kl", term.kl_B)
        made.loss_B = torch.cat(losses)
        return made

    def _step(self, items: Sequence[Item]) -> FlowStep:
        """Steps of one index and one law as a batch."""
        first, places = items[0].example, _places(items)
        facts, index = first.facts, places[0].index
        law = sde.transition(facts.law, facts.sigmas, index, facts.law_parameters["noise_scale"])
        captured = [item.example.captured.log_probs_W[index - facts.window[0]] for item in items]
        x = torch.cat([place.latents for place in places])
        moved = torch.cat([item.target for item in items if item.target is not None])
        log_p_old_B = torch.tensor(captured, device=x.device)
        dt = facts.sigmas[index + 1] - facts.sigmas[index]
        return FlowStep(law, dt, x, moved, log_p_old_B, items[0].made)


class Nft(FlowObjective):
    """DiffusionNFT of finished samples, noised afresh. The pinned policy is the one that sampled, *old*."""

    captures = False

    def __init__(
        self,
        policy: FlowPolicy,
        pinned: FlowPolicy,
        *,
        beta: float,
        times: int,
        advantage: float,
        drift: tuple[FlowPolicy, float] | None = None,
    ) -> None:
        """
        Args:
            drift: a reference, and the weight of the squared distance from its velocity.
        """
        super().__init__(policy, pinned)
        self.beta, self.times, self.advantage, self.drift = beta, times, advantage, drift

    def items(self, examples: Sequence[Example], draws: Draws) -> list[Item]:
        found = []
        for example in examples:
            capture = self.policy.capture(example)
            last = example.facts.steps
            finished = _latents(example, last, capture.sigmas.device)
            # Levels as the sampler meets them, without repetition as long as there are others.
            generator = draws.of(example.group, example.sample.seed)
            levels = torch.randperm(last, generator=generator).tolist()
            for at in range(self.times):
                index = levels[at % last]
                noise = torch.randn(finished.shape, generator=generator).to(finished.device)
                sigma = capture.levels[index]
                latents = noised(finished, noise, sigma, capture.made)
                place = Place(example, index, latents)
                found.append(Item(example, place, finished, (sigma, 0.0), capture.made))
        return found

    def measure(self, items: Sequence[Item]) -> Measured:
        places = _places(items)
        velocities = self.policy.velocities(places)
        with torch.no_grad():
            old = self.pinned.velocities(places)
            reference = velocities if self.drift is None else self.drift[0].velocities(places)
        losses, made = [], Measured(torch.empty(0))
        for item, place, v, v_old, v_ref in zip(items, places, velocities, old, reference, strict=True):
            assert item.target is not None
            r_B = optimality(advantages_of([item]).to(v.device), self.advantage)
            sigma, x0 = item.sigma[0], item.target
            term = nft_loss(v, v_old, x0, place.latents, sigma, r_B, self.beta, made=item.made)
            losses.append(term.loss_B)
            if self.drift is None:
                continue
            distance_B = drift(v, v_ref, item.made)
            losses[-1] = losses[-1] + self.drift[1] * distance_B
            made.note("kl", distance_B)
        made.loss_B = torch.cat(losses)
        return made


class Distil(FlowObjective):
    """A student of few steps from the chords of its teacher's trajectories."""

    captures = False

    def items(self, examples: Sequence[Example], draws: Draws) -> list[Item]:
        return [item for example in examples for item in self._chords(example)]

    def measure(self, items: Sequence[Item]) -> Measured:
        places, losses = _places(items), []
        for item, place, v in zip(items, places, self.policy.velocities(places), strict=True):
            assert item.target is not None
            losses.append(distill_loss(v, place.latents, item.target, *item.sigma, made=item.made))
        return Measured(torch.cat(losses))

    def _chords(self, example: Example) -> list[Item]:
        """From each level of the student's schedule to the next, along what the teacher passed through.

        Raises:
            InvalidParameter: the teacher's latents were not kept where the student's schedule needs them.
        """
        capture = self.policy.capture(example, recorded=False)
        device, known = capture.sigmas.device, example.captured.latents
        passed = {level: example.facts.sigmas[level] for level in known}
        places = [_nearest(passed, sigma) for sigma in capture.levels]
        if None in places:
            remedy = (
                f"the teacher's latents at noise level {capture.levels[places.index(None)]:.4f} were not "
                "kept: roll out with levels=all and a multiple of the student's steps"
            )
            raise InvalidParameter("distill_steps", len(places) - 1, remedy)
        found = []
        for index, (begin, end) in enumerate(pairwise(places)):
            assert begin is not None
            assert end is not None
            latents, target = (_latents(example, level, device) for level in (begin, end))
            sigma = (passed[begin], passed[end])
            found.append(Item(example, Place(example, index, latents), target, sigma, capture.made))
        return found


def _places(items: Sequence[Item]) -> list[Place]:
    return [item.place for item in items if item.place is not None]


def _nearest(levels: Mapping[int, float], sigma: float) -> int | None:
    """The level of that noise, up to the rounding in which schedules of several lengths differ."""
    return next((level for level, known in levels.items() if abs(known - sigma) < SAME_LEVEL), None)


def _latents(example: Example, level: int, device: torch.device) -> Tensor:
    # A copy: what the store decodes cannot be written to, and torch warns of sharing it.
    return torch.tensor(example.captured.latents[level]).unsqueeze(0).to(device)


def _by_step(items: Sequence[Item]) -> list[list[int]]:
    """Places of items whose steps have one law and one size, together."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for at, item in enumerate(items):
        assert item.place is not None
        facts, index = item.example.facts, item.place.index
        law = (facts.law, facts.sigmas, tuple(sorted(facts.law_parameters.items())), facts.window)
        found.setdefault((law, index, item.place.latents.shape), []).append(at)
    return list(found.values())


def _pick(tensors: Sequence[Tensor], places: Sequence[int]) -> Tensor:
    return torch.cat([tensors[at] for at in places])
