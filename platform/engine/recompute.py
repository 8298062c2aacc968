"""Log-probabilities of recorded steps under an instance: what C2 compares and what training differentiates.

The steps of a trajectory are put before the same loop that sampled them, each from its recorded latents, so
that nothing of the sampler is written twice. Under the weights that sampled a trajectory the recomputed
log-probabilities equal the captured ones, and the ratio of the policy to itself is 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from mutoscope.platform.engine.capture import Capture
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.loop import (
    WEIGHTS,
    ComponentNode,
    Done,
    Loop,
    LoopNode,
    LoopState,
    Program,
    WorkPlan,
)
from mutoscope.platform.engine.request import Profile, Request
from mutoscope.platform.engine.validation import checked_request
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.trajectory import Floats, TrajectoryFacts, TrajectoryGroup, TrajectorySample


@runtime_checkable
class SeekableLoop(Loop[Any], Protocol):
    """A loop that can be put before any of its steps, at given latents."""

    def seek(self, state: Any, step: int, latents: Tensor) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class RecordedStep:
    """A stochastic step of a sample.

    Attributes:
        latents, moved: float32 (1, …), where it led from and to.
        plan: the work plan whose result is the velocity at `latents`; run it under the instance's weights.
    """

    index: int
    latents: Tensor
    moved: Tensor
    plan: WorkPlan
    capture: Capture

    def log_prob(self, velocity: Tensor) -> Tensor:
        """log p(moved | latents), (1,), float32; differentiable in the velocity."""
        return self.capture.log_prob(self.index, self.latents, velocity.float(), self.moved)


def recompute_log_probs(instance: Instance, request: Request, group: TrajectoryGroup) -> list[Floats]:
    """The log-probability of every stochastic step of a group under an instance, float32 (W,) by sample.

    Args:
        request: the one that sampled the group, or any of them: seeds are the group's.

    Raises:
        InvalidParameter: the request is not one of the group: another schedule, law or window.
    """
    with torch.inference_mode():
        slots = conditioned(instance, request)
        return [
            np.array([step.log_prob(_result(instance, step.plan)).item() for step in steps], np.float32)
            for steps in (
                recorded_steps(instance, slots, group.facts, seed, sample)
                for seed, sample in zip(group.facts.seeds, group.samples, strict=True)
            )
        ]


def conditioned(instance: Instance, request: Request) -> Mapping[str, Any]:
    """The slots with which a request's denoising begins: its prompt encoded, and its image if it has one."""
    request = checked_request(instance.card, instance.recipe, replace(request, profile=Profile.ROLLOUT))
    slots: dict[str, Any] = {"request": request, WEIGHTS: instance.weights, **request.inputs}
    for node in instance.program.nodes:
        if isinstance(node, ComponentNode):
            slots |= node.run(slots)
        elif isinstance(node.loop, SeekableLoop):
            break
        else:
            slots |= _driven(instance, node.loop, slots)
    return slots


def recorded_steps(
    instance: Instance,
    slots: Mapping[str, Any],
    facts: TrajectoryFacts,
    seed: int,
    sample: TrajectorySample,
) -> Iterator[RecordedStep]:
    """The stochastic steps of one sample, ready to be run under an instance.

    Args:
        slots: as `conditioned` makes them; a group's samples share them.

    Raises:
        InvalidParameter: the slots' request is not one of the group.
    """
    seeker = Seeker.of(instance, slots, seed)
    check_recorded(facts, seeker.capture)
    device = seeker.capture.sigmas.device
    for index in range(*facts.window):
        latents, moved = (
            # A copy: what the store hands out may be read only.
            torch.tensor(sample.latents[level]).unsqueeze(0).to(device)
            for level in (index, index + 1)
        )
        yield RecordedStep(index, latents, moved, seeker.plan(index, latents), seeker.capture)


@dataclass(frozen=True, slots=True, eq=False)
class Seeker:
    """One sample's sampler, ready to be put before any of its steps, at any latents."""

    loop: SeekableLoop
    state: LoopState

    @classmethod
    def of(cls, instance: Instance, slots: Mapping[str, Any], seed: int) -> Seeker:
        """The sampler of an instance, for a sample of that seed; `slots` as `conditioned` makes them."""
        loop = _loop(instance.program)
        return cls(loop, loop.init({**slots, "request": replace(slots["request"], seed=seed)}))

    @property
    def capture(self) -> Capture:
        """The rollout's own: its schedule and its law."""
        capture = self.state.capture
        assert isinstance(capture, Capture)
        return capture

    def plan(self, index: int, latents: Tensor) -> WorkPlan:
        """The work plan of step `index` from latents (1, …), whose result is the velocity there. Its rows are
        those of the sampler's latest place: take them before the next one is asked for."""
        self.loop.seek(self.state, index, latents)
        plan = self.loop.next(self.state)
        assert isinstance(plan, WorkPlan)
        return plan


def check_recorded(facts: TrajectoryFacts, capture: Capture) -> None:
    """Refuse a request that did not sample a group: InvalidParameter names what differs."""
    plan = capture.plan
    for name, recorded, asked in (
        ("sigmas", facts.sigmas, capture.levels),
        ("law", facts.law, plan.law),
        ("noise_scale", facts.law_parameters.get("noise_scale"), plan.noise_scale),
        ("window", facts.window, plan.window),
    ):
        if recorded != asked:
            remedy = f"the request makes {asked}: pass the request that sampled the group"
            raise InvalidParameter(f"trajectory.{name}", recorded, remedy)


def _loop(program: Program) -> SeekableLoop:
    for node in program.nodes:
        if isinstance(node, LoopNode) and isinstance(node.loop, SeekableLoop):
            return node.loop
    raise InvalidParameter("profile", str(Profile.ROLLOUT), "no loop of this card can repeat recorded steps")


def _result(instance: Instance, plan: WorkPlan) -> Any:
    """A plan run as the engine runs a lone one: rows that pad a call decide its last bits."""
    outcome = plan.run() if plan.rows is None else instance.batcher.run([plan])[0]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _driven(instance: Instance, loop: Loop[Any], slots: Mapping[str, Any]) -> Mapping[str, Any]:
    """A loop that comes before the sampler, run to its end."""
    state = loop.init(slots)
    while not isinstance(plan := loop.next(state), Done):
        loop.advance(state, _result(instance, plan))
    return loop.finalize(state)
