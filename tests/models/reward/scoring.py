"""Scoring through the engine, as a worker does it."""

from __future__ import annotations

from typing import Any

from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.request import Request
from mutoscope.platform.reward import Reward


def request_of(instance: Instance, name: str = "a sample", /, **given: Any) -> Request:
    """A request of a reward card: `image` or `video`, the rest are parameters."""
    inputs = {slot: given.pop(slot) for slot in ("image", "video") if slot in given}
    return Request(name, instance.card.id, inputs, given, 0)


def reward_of(instance: Instance, **given: Any) -> Reward:
    """The reward of one sample, scored alone."""
    result = Engine().run(instance, request_of(instance, **given))
    return Reward.from_json(result.outputs["reward"].value)


def score_of(instance: Instance, **given: Any) -> float:
    """The score of one sample. Fails where there is none."""
    score = reward_of(instance, **given).score
    assert score is not None
    return score
