"""The loop contract: `init -> (next -> advance)* -> finalize`.

The model owns control flow, the engine owns execution. `next` only describes work (it launches no kernel): it
returns a `WorkPlan` whose thunk the engine runs when it chooses, interleaved with plans of other requests, or
`Done`. All mutable state of a request lives in its `LoopState`; a loop object itself is shared by every
request on the instance and must not change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from mutoscope.platform.engine.card import Recipe
from mutoscope.platform.engine.request import Output, Request


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The passes of a step that may share a forward call with those of other steps.

    A row is one sample's share of a call: tensors by argument name, each with a first axis of length 1. Rows
    of one step (the two passes of guidance) and of many requests are concatenated along that axis, and what
    the call returns, a tensor or a tuple of tensors, is cut apart again. A row's result depends on nothing
    but the row, up to the rounding that a batch's size may change; see `batching`.

    Attributes:
        call: `(mapping of stacked rows) -> stacked results`. Steps share a call only if their `call` is
            equal, which bound methods of one object are: steps of different weights never meet. What it reads
            besides its rows (position ids, say) may depend on their shapes alone.
        count: how many rows there are, at least one.
        make: the rows; asked for once, when the step is run.
        combine: the results of the rows, in their order, to the step's result; guidance happens here.
    """

    call: Callable[[Mapping[str, Any]], Any]
    count: int
    make: Callable[[], Sequence[Mapping[str, Any]]]
    combine: Callable[[Sequence[Any]], Any]

    def alone(self) -> Any:
        """The step's result with every row in a call of its own."""
        return self.combine([self.call(row) for row in self.make()])


@dataclass(frozen=True, slots=True, eq=False)
class WorkPlan:
    """One schedulable step.

    Attributes:
        kind: what the step is, such as "text_encode", "denoise" or "vae_decode".
        shape: signature of everything that must agree for two steps to share a batch.
        run: the thunk. It reads its state but changes nothing; its result goes to `advance`.
        cost: relative cost, in units of the card's choosing: a first guess, which the engine's cost model
            turns into seconds.
        rows: the same work as rows that may share a call with other steps; None if it runs by itself only.
    """

    kind: str
    shape: tuple[Any, ...]
    run: Callable[[], Any]
    cost: float = 1.0
    rows: Rows | None = None

    @classmethod
    def of_rows(cls, kind: str, shape: tuple[Any, ...], rows: Rows, cost: float = 1.0) -> WorkPlan:
        """A step made of rows."""
        return cls(kind, shape, rows.alone, cost, rows)

    def __post_init__(self) -> None:
        if not self.cost > 0:
            raise ValueError(
                f"a work plan costs more than nothing, or its request starves the rest: {self.cost}"
            )


WARNINGS = "warnings"
"""The slot through which a node tells what the user should know about a run that succeeds all the same."""

WEIGHTS = "instance_weights"
"""The slot that holds the digest of each component's weights, as the instance knows them."""


@dataclass(frozen=True, slots=True)
class Done:
    """The loop has no further step."""


@dataclass(slots=True)
class LoopState:
    """Base of all per-request state. Families subclass it; nothing per-request lives anywhere else.

    Attributes:
        step, total: steps done, and steps there are.
        capture: what a rollout records, of the loop's own kind; None when serving.
    """

    step: int = 0
    total: int = 0
    capture: Any = None


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
    """A program node that is a single step: `run(slots) -> slots it fills`.

    Attributes:
        cost: its work plan's.
        uses: names of the components it runs, for what may be cached by their content.
        content: everything besides those components that decides what the node fills, as a hashable value;
            None if the node's result is not worth keeping. Equal content under equal components is computed
            once.
    """

    name: str
    kind: str
    run: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    shape: Callable[[Mapping[str, Any]], tuple[Any, ...]] = field(default=lambda slots: ())
    cost: float = 1.0
    uses: tuple[str, ...] = ()
    content: Callable[[Mapping[str, Any]], Hashable] | None = None


@dataclass(frozen=True, slots=True)
class LoopNode:
    """A program node that is driven step by step, at least once.

    `total` gives its number of steps, for progress, or the most it may take where the content decides; it is
    asked before any node has run, so the slots hold the request and its inputs only. `uses` names the
    components its steps run, for whoever has to look for what went wrong in one.
    """

    loop: Loop[Any]
    total: Callable[[Mapping[str, Any]], int]
    uses: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.loop.name


@dataclass(frozen=True, slots=True)
class Program:
    """One card's nodes in order, over named slots.

    Slots start as `{"request": Request, WEIGHTS: digests, **inputs}`; each node's result is merged in. Nodes
    see them read-only. What a node fills under `WARNINGS`, a tuple of lines, goes to the request's result
    instead.

    Attributes:
        outputs: turns the final slots into the card's output slots, all of them and no others.
        check: what only the loaded card can judge of a request, such as an input's size; raises
            InvalidParameter before any work is done.
        extent: how large a request is, such as its number of latent tokens. Memory and time of one card's
            requests are taken to grow with it.
    """

    nodes: tuple[ComponentNode | LoopNode, ...]
    outputs: Callable[[Mapping[str, Any]], Mapping[str, Output]]
    check: Callable[[Request], None] = field(default=lambda request: None)
    extent: Callable[[Request], float] = field(default=lambda request: 1.0)

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
