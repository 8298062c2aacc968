"""What a rollout captured of one group: the samples of one prompt under one policy.

Latents are those of the convention x_σ = (1−σ)x₀ + σε. Level i of a schedule is σ_i; step i leads from it to
level i+1. Inside the window steps are stochastic and have a log-probability; everywhere else they follow
the ODE. The window is the group's, drawn once: per-sample windows would bias the group's variance.

Everything is float32: in bfloat16 the ratio of a policy to itself is no longer 1.

Shape suffix: W steps of the window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.ids import is_sha256

LAWS = ("ode", "flow-sde", "cps")
"""How a step inside the window is drawn; ``ode`` groups have an empty window."""

Floats = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, slots=True)
class TrajectoryFacts:
    """What a group is, apart from its numbers.

    Attributes:
        seeds: one per sample, 0 <= seed < 2**63.
        sigmas: the schedule's noise levels, falling, from at most 1 to at least 0; one more than steps.
        law: one of `LAWS`.
        window: first step of the stochastic window, and the step after its last.
        weights: digest of each component's weights that sampled the group. Log-probabilities hold for these.
        prompt_embedding: digest of the embedding that conditioned it.
        law_parameters: the law's own, such as the noise scale ``a``.
    """

    seeds: tuple[int, ...]
    sigmas: tuple[float, ...]
    law: str
    window: tuple[int, int]
    weights: Mapping[str, str]
    prompt_embedding: str
    law_parameters: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, given in (("seeds", self.seeds), ("sigmas", self.sigmas), ("window", self.window)):
            object.__setattr__(self, name, tuple(given))
        object.__setattr__(self, "weights", dict(self.weights))
        object.__setattr__(self, "law_parameters", dict(self.law_parameters))
        self._check_seeds()
        self._check_schedule()
        self._check_law()
        if not self.weights:
            raise InvalidParameter(
                "weights", dict(self.weights), "name the digest of every component's weights"
            )
        for name, digest in {**self.weights, "prompt_embedding": self.prompt_embedding}.items():
            if not is_sha256(digest):
                raise InvalidParameter(name, digest, "use the 64 lower-case hex digits of a SHA-256")

    @property
    def steps(self) -> int:
        """Steps of the schedule."""
        return len(self.sigmas) - 1

    def _check_seeds(self) -> None:
        if not self.seeds:
            raise InvalidParameter("seeds", self.seeds, "a group has one sample or more")
        for seed in self.seeds:
            if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
                raise InvalidParameter("seeds", seed, "use integers from 0 to 2**63 - 1")

    def _check_schedule(self) -> None:
        falling = all(a > b for a, b in zip(self.sigmas, self.sigmas[1:], strict=False))
        if len(self.sigmas) < 2 or not falling or not (self.sigmas[0] <= 1 and self.sigmas[-1] >= 0):
            raise InvalidParameter("sigmas", self.sigmas, "use two noise levels or more, falling from 1 to 0")
        start, stop = self.window
        if not 0 <= start <= stop <= self.steps:
            raise InvalidParameter("window", self.window, f"use a range of the {self.steps} steps")

    def _check_law(self) -> None:
        if self.law not in LAWS:
            raise InvalidParameter("law", self.law, f"use one of {', '.join(LAWS)}")
        if (self.law == "ode") != (self.window[0] == self.window[1]):
            raise InvalidParameter("window", self.window, f"is the window empty? {self.law} says otherwise")
        if not all(math.isfinite(value) for value in self.law_parameters.values()):
            raise InvalidParameter("law_parameters", dict(self.law_parameters), "use finite numbers")


@dataclass(frozen=True, slots=True, eq=False)
class TrajectorySample:
    """One sample of a group.

    Attributes:
        latents: float32 x at each captured level, by the level's index; one shape throughout the group.
        log_probs_W: float32, the log-probability of each step of the window (a mean over latent elements).
    """

    latents: Mapping[int, Floats]
    log_probs_W: Floats


@dataclass(frozen=True, slots=True, eq=False)
class TrajectoryGroup:
    """A whole group, checked: `samples` in the order of `facts.seeds`, each with at least the latents that
    the window's steps lead from and to."""

    facts: TrajectoryFacts
    samples: tuple[TrajectorySample, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", tuple(self.samples))
        if len(self.samples) != len(self.facts.seeds):
            raise InvalidParameter(
                "samples", len(self.samples), f"give one for each of the {len(self.facts.seeds)} seeds"
            )
        for index, sample in enumerate(self.samples):
            self._check(f"samples[{index}]", sample)
        shapes = {array.shape for sample in self.samples for array in sample.latents.values()}
        if len(shapes) != 1:
            raise InvalidParameter("latents", sorted(shapes), "use one shape for every latent of the group")

    def row(self, index: int) -> TrajectoryGroup:
        """One sample as a group of its own."""
        return TrajectoryGroup(replace(self.facts, seeds=(self.facts.seeds[index],)), (self.samples[index],))

    def _check(self, name: str, sample: TrajectorySample) -> None:
        start, stop = self.facts.window
        needed = set(range(start, stop + 1)) if stop > start else set()
        if missing := sorted(needed - set(sample.latents)):
            raise InvalidParameter(
                f"{name}.latents", sorted(sample.latents), f"level {missing[0]} is missing"
            )
        for level, array in sample.latents.items():
            if not 0 <= level <= self.facts.steps:
                raise InvalidParameter(f"{name}.latents", level, f"use levels from 0 to {self.facts.steps}")
            _check_array(f"{name}.latents[{level}]", array)
        _check_array(f"{name}.log_probs_W", sample.log_probs_W)
        if sample.log_probs_W.shape != (stop - start,):
            raise InvalidParameter(
                f"{name}.log_probs_W", list(sample.log_probs_W.shape), f"the window has {stop - start} steps"
            )


def joined(parts: Sequence[TrajectoryGroup]) -> TrajectoryGroup:
    """One group of the samples of several, in their order, such as of the requests that sampled it.

    Raises:
        InvalidParameter: the parts are not of one group: another schedule, law, window, weights or prompt.
    """
    if not parts:
        raise InvalidParameter("parts", 0, "a group has one sample or more")
    first = parts[0].facts
    for index, part in enumerate(parts):
        for name in ("sigmas", "law", "law_parameters", "window", "weights", "prompt_embedding"):
            if (value := getattr(part.facts, name)) != getattr(first, name):
                raise InvalidParameter(
                    f"parts[{index}].{name}", value, f"a group has one {name}: {getattr(first, name)}"
                )
    facts = replace(first, seeds=tuple(seed for part in parts for seed in part.facts.seeds))
    return TrajectoryGroup(facts, tuple(sample for part in parts for sample in part.samples))


def _check_array(name: str, array: Any) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != np.float32:
        raise InvalidParameter(name, getattr(array, "dtype", type(array).__name__), "use a float32 array")
    if not np.isfinite(array).all():
        raise InvalidParameter(name, "non-finite numbers", "drop the sample from its group, on the record")
