"""Loops run one after the other as a single node, where a request decides how many there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mutoscope.platform.engine.loop import Done, Loop, LoopState, WorkPlan


@dataclass(slots=True, kw_only=True)
class InTurnState(LoopState):
    """Each loop with its state, and which of them is at work."""

    parts: Sequence[tuple[Loop[Any], LoopState]]
    at: int = 0


class InTurn:
    """Independent loops, all started from the slots the node sees; each fills slots of its own."""

    def __init__(self, name: str, loops: Callable[[Mapping[str, Any]], Sequence[Loop[Any]]]) -> None:
        self.name, self.loops = name, loops

    def init(self, slots: Mapping[str, Any]) -> InTurnState:
        parts = [(loop, loop.init(slots)) for loop in self.loops(slots)]
        return InTurnState(total=sum(state.total for _, state in parts), parts=parts)

    def next(self, state: InTurnState) -> WorkPlan | Done:
        if state.at == len(state.parts):
            return Done()
        loop, inner = state.parts[state.at]
        return loop.next(inner)

    def advance(self, state: InTurnState, result: Any) -> None:
        loop, inner = state.parts[state.at]
        loop.advance(inner, result)
        state.step += 1
        if isinstance(loop.next(inner), Done):
            state.at += 1

    def finalize(self, state: InTurnState) -> dict[str, Any]:
        return {name: value for loop, inner in state.parts for name, value in loop.finalize(inner).items()}
