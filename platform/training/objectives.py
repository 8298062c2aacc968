"""What a training step asks of the policy: for each method, an update's items and the loss of some of them.

An *item* is what one row of a pass is about: a stochastic step of a sample (flow-grpo), a sample noised to a
level (nft, distill), an answer (token-pg). Losses come one to an item, so that an update may be split over
several passes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from mutoscope.platform import ids
from mutoscope.platform.engine import sde
from mutoscope.platform.engine.rollout import draw
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.training.batch import Example
from mutoscope.platform.training.methods.distill import distill_loss
from mutoscope.platform.training.methods.flow_grpo import FlowGrpo, FlowStep, flow_grpo
from mutoscope.platform.training.methods.nft import drift, nft_loss, noised, optimality
from mutoscope.platform.training.methods.token_pg import token_policy_gradient
from mutoscope.platform.training.policy import FlowPolicy, Place, TokenPolicy, padded

SAME_LEVEL = 1e-5
"""Noise levels closer than this are one."""

_DRAW_DOMAIN = "mutoscope.train-draw/1"


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One row's worth of an update.

    Attributes:
        place: where the sampler is put; None for an answer.
        target: what the loss compares with: the latents that a step led to, or the finished sample.
        sigma: noise level of the place, and of the target.
        made: 1 where the sampler decides a latent; None: everywhere.
    """

    example: Example
    place: Place | None = None
    target: Tensor | None = None
    sigma: tuple[float, float] = (1.0, 0.0)
    made: Tensor | None = None


@dataclass(slots=True)
class Measured:
    """The loss (B,) of items, and what is known of them by name, a number for each of them that has it.

    `delta_log_p` is |log p − as captured|, and `delta_fresh` the same of samples of the pinned weights alone;
    `ratio`, `clipped`, `rejected` and `kl` are as `methods` define them.
    """

    loss_B: Tensor
    facts: dict[str, list[float]] = field(default_factory=dict)


class Objective(ABC):
    """One method's.

    Attributes:
        captures: whether what is recomputed equals what was captured, under the weights that sampled.
    """

    captures: ClassVar[bool] = True

    @abstractmethod
    def items(self, examples: Sequence[Example], draws: Draws) -> list[Item]:
        """The items of an update, in a fixed order."""

    @abstractmethod
    def measure(self, items: Sequence[Item]) -> Measured:
        """Loss and facts of some of an update's items."""

    @abstractmethod
    def shift(self, items: Sequence[Item]) -> float:
        """How far the policy has gone from the pinned one: the squared change of its velocity relative to
        the square of that, or the mean change of a token's log-probability."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Where an update's randomness comes from: the run's seed and the number of the update, never a generator
    that goes on, so that a training may be cut anywhere."""

    seed: int
    update: int

    def of(self, *what: str | int) -> torch.Generator:
        """A generator of one use."""
        place = [self.seed, self.update, *what]
        return torch.Generator("cpu").manual_seed(draw(ids.digest(_DRAW_DOMAIN, place)))


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
                _advantages([items[at] for at in same]),
                velocity_old=None if old is None else _pick(old, same),
                velocity_reference=None if reference is None else _pick(reference, same),
            )
            for at, loss in zip(same, term.policy.loss_B.split(1), strict=True):
                losses[at] = loss
            delta_B = (term.log_p_B - step.log_p_old_B).abs()
            _note(made, "delta_log_p", delta_B)
            _note(made, "delta_fresh", delta_B[_fresh([items[at] for at in same])])
            _note(made, "ratio", term.policy.ratio_B)
            _note(made, "clipped", term.policy.clipped_B)
            _note(made, "rejected", term.policy.rejected_B)
            if term.kl_B is not None:
                _note(made, "kl", term.kl_B)
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
            r_B = optimality(_advantages([item]).to(v.device), self.advantage)
            sigma, x0 = item.sigma[0], item.target
            term = nft_loss(v, v_old, x0, place.latents, sigma, r_B, self.beta, made=item.made)
            losses.append(term.loss_B)
            if self.drift is None:
                continue
            distance_B = drift(v, v_ref, item.made)
            losses[-1] = losses[-1] + self.drift[1] * distance_B
            _note(made, "kl", distance_B)
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


class Tokens(Objective):
    """The policy gradient of a language model's answers."""

    def __init__(
        self,
        policy: TokenPolicy,
        pinned: TokenPolicy,
        reference: TokenPolicy | None,
        options: Mapping[str, Any],
    ) -> None:
        self.policy, self.pinned, self.reference, self.options = policy, pinned, reference, options

    def items(self, examples: Sequence[Example], draws: Draws) -> list[Item]:
        return [Item(example) for example in examples]

    def measure(self, items: Sequence[Item]) -> Measured:
        examples = [item.example for item in items]
        log_p_BT = self.policy.log_probs(examples)
        device = log_p_BT.device
        old_BT, mask_BT = (part.to(device) for part in _captured(examples))
        with torch.no_grad():
            ref_BT = None if self.reference is None else self.reference.log_probs(examples)
        term = token_policy_gradient(
            log_p_BT,
            _advantages(items).to(device),
            mask_BT,
            log_p_old_BT=old_BT,
            log_p_ref_BT=ref_BT,
            **self.options,
        )
        made = Measured(term.loss_B)
        _note(made, "ratio", term.ratio_BT[mask_BT])
        _note(made, "clipped", term.clipped_BT[mask_BT])
        _note(made, "rejected", term.rejected_BT[mask_BT])
        delta_BT = (log_p_BT - old_BT).abs()
        fresh_B = _fresh(items).to(device)
        _note(made, "delta_log_p", delta_BT[mask_BT])
        _note(made, "delta_fresh", delta_BT[mask_BT & fresh_B[:, None]])
        if ref_BT is not None:
            _note(made, "kl", term.kl_B)
        return made

    def shift(self, items: Sequence[Item]) -> float:
        examples = [item.example for item in items]
        with torch.no_grad():
            change_BT = (self.policy.log_probs(examples) - self.pinned.log_probs(examples)).abs()
            mask_BT = _captured(examples)[1].to(change_BT.device)
            return float(change_BT[mask_BT].mean())


def _captured(examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Log-probabilities as captured (B, T), and which of them are tokens of the answer."""
    rows = [torch.tensor(e.tokens["log_probs"], dtype=torch.float32) for e in examples if e.tokens]
    return padded(rows), padded([torch.ones(len(row), dtype=torch.bool) for row in rows])


def _places(items: Sequence[Item]) -> list[Place]:
    return [item.place for item in items if item.place is not None]


def _fresh(items: Sequence[Item]) -> Tensor:
    """Bool (B,): whose samples the pinned weights drew."""
    return torch.tensor([item.example.staleness == 0 for item in items])


def _nearest(levels: Mapping[int, float], sigma: float) -> int | None:
    """The level of that noise, up to the rounding in which schedules of several lengths differ."""
    return next((level for level, known in levels.items() if abs(known - sigma) < SAME_LEVEL), None)


def _latents(example: Example, level: int, device: torch.device) -> Tensor:
    return torch.from_numpy(example.captured.latents[level]).unsqueeze(0).to(device)


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


def _advantages(items: Sequence[Item]) -> Tensor:
    return torch.tensor([item.example.advantage for item in items], dtype=torch.float32)


def _note(made: Measured, name: str, values: Tensor) -> None:
    made.facts.setdefault(name, []).extend(values.detach().float().flatten().tolist())
