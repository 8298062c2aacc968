"""The loop contract: `init -> (next -> advance)* -> finalize`.

The model owns control flow, the engine owns execution. `next` only describes work (it launches no kernel): it
returns a `WorkPlan` whose thunk the engine runs when it chooses, interleaved with plans of other requests, or
`Done`. All mutable state of a request lives in its `LoopState`; a loop object itself is shared by every
request on the instance and must not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from mutoscope.platform.engine.card import Recipe
from mutoscope.platform.engine.request import Output, Request


@dataclass(frozen=True, slots=True)
class WorkPlan:
    """One schedulable step.

    Attributes:
        kind: what the step is, such as "text_encode", "denoise" or "vae_decode".
        shape: signature of everything that must agree for two steps to share a batch.
        run: the thunk. It reads its state but changes nothing; its result goes to `advance`.
        cost: relative cost, in units of the card's choosing; the scheduler's currency.
    """

    kind: str
    shape: tuple[Any, ...]
    run: Callable[[], Any]
    cost: float = 1.0

    def __post_init__(self) -> None:
        if not self.cost > 0:
            raise ValueError(
                f"a work plan costs more than nothing, or its request starves the rest: {self.cost}"
            )


@dataclass(frozen=True, slots=True)
class Done:
    """The loop has no further step."""


@dataclass(slots=True)
class LoopState:
    """Base of all per-request state. Families subclass it; nothing per-request lives anywhere else."""

    step: int = 0
    total: int = 0
    capture: dict[str, Any] | None = None


StateT = TypeVar("StateT", bound=LoopState)


class Loop(Protocol[StateT]):
    """A driven state machine over the program's slots.

    `init` makes the state of one request and `finalize` turns it into the slots the node fills; between them
    `next` describes a step and `advance` books its result in the state.
    """

    @property
    def name(self) -> str: ...
    def init(self, slots: Mapping[str, Any]) -> StateT: ...
    def next(self, state: StateT) -> WorkPlan | Done: ...
    def advance(self, state: StateT, result: Any) -> None: ...
    def finalize(self, state: StateT) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class ComponentNode:
    """A program node that is a single step: `run(slots) -> slots it fills`. `cost` is its work plan's."""

    name: str
    kind: str
    run: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    shape: Callable[[Mapping[str, Any]], tuple[Any, ...]] = field(default=lambda slots: ())
    cost: float = 1.0


@dataclass(frozen=True, slots=True)
class LoopNode:
    """A program node that is driven step by step, at least once.

    `total` gives its number of steps, for progress; it is asked before any node has run, so the slots hold
    the request and its inputs only.
    """

    loop: Loop[Any]
    total: Callable[[Mapping[str, Any]], int]

    @property
    def name(self) -> str:
        return self.loop.name


@dataclass(frozen=True, slots=True)
class Program:
    """One card's nodes in order, over named slots.

    Slots start as `{"request": Request, **inputs}`; each node's result is merged in. Nodes see them
    read-only.

    Attributes:
        outputs: turns the final slots into the card's output slots, all of them and no others.
        check: what only the loaded card can judge of a request, such as an input's size; raises
            InvalidParameter before any work is done.
    """

    nodes: tuple[ComponentNode | LoopNode, ...]
    outputs: Callable[[Mapping[str, Any]], Mapping[str, Output]]
    check: Callable[[Request], None] = field(default=lambda request: None)

    def total(self, slots: Mapping[str, Any]) -> int:
        """Work plans a request takes in all, known before the first."""
        return sum(node.total(slots) if isinstance(node, LoopNode) else 1 for node in self.nodes)


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What a card's builder receives: its loaded components (modules in eval mode on the device) and the
    recipe.

    Attributes:
        device, dtype: a `torch.device` and a `torch.dtype`.
    """

    components: Mapping[str, Any]
    recipe: Recipe
    device: Any
    dtype: Any
