"""A refiner in its place in the chain: it reads the text so far and leaves the text that follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mutoscope.models.unified.composition import REFINE
from mutoscope.platform.engine.loop import WARNINGS, Done, Loop, LoopState, WorkPlan

TEXT = "text"
"""The slot of the text so far; before the first refiner, the request's prompt stands for it."""

SETTLED = "settled"
"""The slot that says a refiner has left the text as it was: the others are not asked any more."""

Slots = Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class ChainState(LoopState):
    """A refiner at work, or passed over (`inner` is None).

    Attributes:
        given: the text before it.
    """

    inner: LoopState | None
    given: str
    settled: bool


class Refiner:
    """Drives one refiner's own loop.

    A refiner that is not asked takes one step that does nothing, since the nodes of a program are fixed and
    each takes a step at least.
    """

    def __init__(
        self,
        name: str,
        loop: Loop[Any],
        view: Callable[[Slots], Slots],
        given: Callable[[Slots], str],
    ) -> None:
        """
        Args:
            loop: fills `text`, and `tokens` under a rollout.
            view: the program's slots as that loop is to see them.
            given: the text so far.
        """
        self.name, self.loop = name, loop
        self._view, self._given = view, given

    def init(self, slots: Slots) -> ChainState:
        settled = slots.get(SETTLED, False)
        asked = slots["request"].parameters[REFINE] and not settled
        inner = self.loop.init(self._view(slots)) if asked else None
        given = self._given(slots)
        if inner is None:
            return ChainState(total=1, inner=None, given=given, settled=settled)
        return ChainState(total=inner.total, capture=inner.capture, inner=inner, given=given, settled=settled)

    def next(self, state: ChainState) -> WorkPlan | Done:
        if state.inner is not None:
            return self.loop.next(state.inner)
        return Done() if state.step else WorkPlan("bypass", (), _nothing, cost=0.01)

    def advance(self, state: ChainState, result: Any) -> None:
        if state.inner is not None:
            self.loop.advance(state.inner, result)
        state.step += 1

    def finalize(self, state: ChainState) -> dict[str, Any]:
        if state.inner is None:
            return {TEXT: state.given, SETTLED: state.settled, self.name: None}
        filled = self.loop.finalize(state.inner)
        warnings = tuple(f"{self.name}: {line}" for line in filled.get(WARNINGS, ()))
        text = filled[TEXT] or state.given
        made = {name: value for name, value in filled.items() if name != WARNINGS}
        return {TEXT: text, SETTLED: text == state.given, self.name: made, WARNINGS: warnings}


def _nothing() -> None:
    return None
