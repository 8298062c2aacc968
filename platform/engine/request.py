"""What goes into the engine and what comes out: plain records, no torch at import."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Profile(enum.StrEnum):
    """Execution profile: one loop definition serves all; ROLLOUT is SERVE plus capture."""

    SERVE = "serve"
    ROLLOUT = "rollout"
    TRAIN = "train"


@dataclass(frozen=True, slots=True)
class Request:
    """One engine run.

    Attributes:
        inputs: slot name to decoded value (image: uint8 array (H, W, 3); video: uint8 (T, H, W, 3); audio:
            float32 (channels, samples); text: str).
        parameters: resolved by `Card.resolve`; complete, no None left where the recipe has a value.
        seed: seeds every random draw of the request, 0 <= seed < 2**63.
        group: what the request is part of, such as a workflow run; groups share the device evenly, whatever
            their number of requests. Empty: the request is a group of its own.
        priority: share of the device relative to others, greater than 0: 2 gets twice the time of 1.
    """

    id: str
    card: str
    inputs: Mapping[str, Any]
    parameters: Mapping[str, Any]
    seed: int
    profile: Profile = Profile.SERVE
    group: str = ""
    priority: float = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a request is: `step` of `total` work plans are done, `stage` is the program node at work."""

    request_id: str
    stage: str
    step: int
    total: int


@dataclass(frozen=True, slots=True)
class Output:
    """One filled output slot.

    `value` is a NumPy array for media and latents (image: uint8 (H, W, 3); video: uint8 (T, H, W, 3), or a
    `Clip` with its sound; audio: float32 (channels, samples)), a mapping of arrays for a latent, a
    `TrajectoryGroup`, or text; `meta` is small JSON such as {"fps": 8} or {"sample_rate": 24000}.
    """

    kind: str
    value: Any
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """A finished request: its outputs by slot, seconds spent per program node, what the user should know
    although it succeeded, such as that a prompt was cut, and the digest of the weights that every step of it
    ran under, by component."""

    request_id: str
    outputs: Mapping[str, Output]
    timings: Mapping[str, float]
    warnings: tuple[str, ...] = ()
    weights: Mapping[str, str] = field(default_factory=dict)
