"""The program of a trainer: one loop, whose work plans are the passes of a training step.

The plans change the loop's state, which is the request's own: its copy of the trained component, gradients
and moments. A plan is never run twice. The engine interleaves them with other requests, and a cancelled step
stops between two of them; nothing of it is kept, and equal steps have equal ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from mutoscope.platform.engine.loop import BuildContext, Done, LoopNode, LoopState, Program, WorkPlan
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.training.setup import Setup
from mutoscope.platform.training.step import Training


@dataclass(slots=True, kw_only=True)
class TrainState(LoopState):
    """A training step under way: what is left of its work, and what it is about once that has begun."""

    work: Iterator[bool]
    slots: Mapping[str, Any]
    training: Training | None = None
    done: bool = False


class Train:
    """Drives a training step."""

    name = "train"

    def __init__(self, context: BuildContext) -> None:
        self.context = context

    def total(self, slots: Mapping[str, Any]) -> int:
        """Work plans at most: to begin, the passes of every update, and to judge what came of it.

        Raises:
            InvalidParameter: as `Gathering.batch`, apart from what the pinned weights tell.
        """
        return Setup(self.context, slots).total()

    def init(self, slots: Mapping[str, Any]) -> TrainState:
        """Nothing is copied yet: a plan does that, where gradients may flow."""
        setup = Setup(self.context, slots)
        state = TrainState(total=setup.total(), slots=slots, work=iter(()))
        state.work = _work(state, setup)
        return state

    def next(self, state: TrainState) -> WorkPlan | Done:
        """The next pass."""
        if state.done:
            return Done()
        kind = "train_step" if state.step else "train_begin"
        return WorkPlan(kind, (state.slots["request"].card,), partial(_advance, state))

    def advance(self, state: TrainState, result: Any) -> None:
        """Count the plan."""
        state.step += 1

    def finalize(self, state: TrainState) -> dict[str, Any]:
        """The card's outputs."""
        assert state.training is not None
        with torch.inference_mode(False), torch.no_grad():
            return {"made": state.training.outputs()}


def build(context: BuildContext) -> Program:
    """Builder of every trainer."""
    train = Train(context)
    return Program((LoopNode(train, train.total),), _outputs, extent=_extent)


def _extent(request: Request) -> float:
    """What a pass takes grows with its rows."""
    return float(request.parameters["rows"])


def _outputs(slots: Mapping[str, Any]) -> dict[str, Output]:
    made: dict[str, Output] = slots["made"]
    return made


def _advance(state: TrainState) -> None:
    with torch.inference_mode(False), torch.enable_grad():
        state.done = next(state.work)


def _work(state: TrainState, setup: Setup) -> Iterator[bool]:
    """All of a step's plans; True after the last."""
    state.training = setup.training()
    yield False
    yield from state.training.work()
