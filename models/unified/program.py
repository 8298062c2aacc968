"""A composed card's program: the refiners' loops, then the generator's nodes as they are.

Nothing but the prompt's text flows from the refiners to the generator. Each part sees the slots as if it were
alone: its own request, with the text so far as its prompt, and its own components' digests.

The generator draws with the request's own seed, so that a composed card with its refiners turned off makes
the generator's bytes; each refiner has a seed derived from it and from the refiner's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor

from mutoscope.models.registry import get_card
from mutoscope.models.unified.card import MULTI_EXPERT, UNIRL_QWENFLUX
from mutoscope.models.unified.chain import TEXT, Refiner, Slots
from mutoscope.models.unified.composition import (
    PROMPT,
    REFINE,
    REFINER,
    SEEDS,
    Composition,
    RefinedRecipe,
    component_names,
    refiner_fields,
    tokens_slot,
)
from mutoscope.platform import ids
from mutoscope.platform.engine.card import resolve_entrypoint
from mutoscope.platform.engine.loop import (
    WEIGHTS,
    BuildContext,
    ComponentNode,
    Done,
    Loop,
    LoopNode,
    LoopState,
    Program,
    WorkPlan,
)
from mutoscope.platform.engine.recompute import SeekableLoop
from mutoscope.platform.engine.request import Output, Profile, Request
from mutoscope.platform.engine.rollout import draw

_SEED_DOMAIN = "mutoscope.part-seed/1"


def part_seed(seed: int, part: str) -> int:
    """A part's own seed, 0 <= n < 2**63: of the request's seed and the part's name."""
    return draw(ids.digest(_SEED_DOMAIN, {"seed": seed, "part": part}))


def text_so_far(slots: Slots) -> str:
    """What the next part reads as its prompt."""
    text: str = slots.get(TEXT, slots["request"].parameters[PROMPT])
    return text


def _weights(slots: Slots) -> Mapping[str, str]:
    """Digests by component; before the first node has run, the slots hold the request and its inputs only."""
    weights: Mapping[str, str] = slots.get(WEIGHTS, {})
    return weights


class GeneratorPart:
    """The generator within a composed card."""

    def __init__(self, composition: Composition, context: BuildContext) -> None:
        self.card = get_card(composition.generator)
        self._names = {spec.name for spec in self.card.components}
        self._others = refiner_fields(get_card(REFINER).parameters) | {REFINE, SEEDS}
        own = {name: part for name, part in context.components.items() if name in self._names}
        self.program: Program = resolve_entrypoint(self.card.builder)(replace(context, components=own))

    def request(self, request: Request, text: str) -> Request:
        """What the generator's own card would be asked."""
        own = {name: value for name, value in request.parameters.items() if name not in self._others}
        return replace(request, card=self.card.id, parameters={**own, PROMPT: text})

    def view(self, slots: Slots) -> dict[str, Any]:
        weights = {name: digest for name, digest in _weights(slots).items() if name in self._names}
        request = self.request(slots["request"], text_so_far(slots))
        return {**slots, "request": request, WEIGHTS: weights}

    def nodes(self) -> tuple[ComponentNode | LoopNode, ...]:
        return tuple(self._node(node) for node in self.program.nodes)

    def _node(self, node: ComponentNode | LoopNode) -> ComponentNode | LoopNode:
        if isinstance(node, LoopNode):
            kind = SeenSeekableLoop if isinstance(node.loop, SeekableLoop) else SeenLoop
            return replace(node, loop=kind(node.loop, self.view), total=Seen(node.total, self.view))
        content = None if node.content is None else Seen(node.content, self.view)
        return replace(
            node, run=Seen(node.run, self.view), shape=Seen(node.shape, self.view), content=content
        )


class RefinerPart:
    """One refiner within a composed card."""

    def __init__(self, part: str, recipe: RefinedRecipe, context: BuildContext) -> None:
        self.name, self.card, self.recipe = part, get_card(REFINER), recipe.refiners[part]
        self._names = component_names(self.card, part)
        own = {name: context.components[outer] for name, outer in self._names.items()}
        self.program: Program = resolve_entrypoint(self.card.builder)(
            replace(context, components=own, recipe=self.recipe)
        )
        (self._inner,) = self.program.nodes

    def request(self, request: Request, text: str) -> Request:
        """What the refiner's own card would be asked; what the request leaves open, its recipe says."""
        fields = refiner_fields(self.card.parameters)
        given = {name: value for name, value in request.parameters.items() if name in fields}
        parameters = self.card.resolve({**given, PROMPT: text}, self.recipe, request.profile)
        given_seeds = request.parameters.get(SEEDS) or {}
        seed = given_seeds.get(self.name, part_seed(request.seed, self.name))
        return replace(request, card=self.card.id, parameters=parameters, seed=seed)

    def view(self, slots: Slots) -> dict[str, Any]:
        known = _weights(slots)
        weights = {name: known[outer] for name, outer in self._names.items() if outer in known}
        return {"request": self.request(slots["request"], text_so_far(slots)), WEIGHTS: weights}

    def node(self) -> LoopNode:
        inner = self._inner
        assert isinstance(inner, LoopNode)

        def total(slots: Slots) -> int:
            return inner.total(self.view(slots)) if slots["request"].parameters[REFINE] else 1

        uses = tuple(self._names[name] for name in inner.uses)
        return LoopNode(Refiner(self.name, inner.loop, self.view, text_so_far), total, uses)

    def tokens(self, slots: Slots) -> Output | None:
        """Its rollout, if it was asked."""
        if slots["request"].profile is not Profile.ROLLOUT or slots[self.name] is None:
            return None
        return self.program.outputs({**self.view(slots), **slots[self.name]})["tokens"]


class Seen:
    """A callable of slots that sees them through a view.

    It goes by the name of what it calls: a node's result is kept under its code's name, and is the same
    whether the part's own card or a composed one has asked for it.
    """

    def __init__(self, call: Callable[[Slots], Any], view: Callable[[Slots], Slots]) -> None:
        self._call, self._view = call, view
        while isinstance(call, partial):
            call = call.func
        code = call if hasattr(call, "__qualname__") else type(call)
        self.__module__, self.__qualname__ = code.__module__, code.__qualname__

    def __call__(self, slots: Slots) -> Any:
        return self._call(self._view(slots))


@dataclass(frozen=True, slots=True)
class SeenLoop:
    """A loop that begins from a view of the slots."""

    loop: Loop[Any]
    view: Callable[[Slots], Slots]

    @property
    def name(self) -> str:
        return self.loop.name

    def init(self, slots: Slots) -> LoopState:
        state: LoopState = self.loop.init(self.view(slots))
        return state

    def next(self, state: LoopState) -> WorkPlan | Done:
        return self.loop.next(state)

    def advance(self, state: LoopState, result: Any) -> None:
        self.loop.advance(state, result)

    def finalize(self, state: LoopState) -> Mapping[str, Any]:
        return self.loop.finalize(state)


class SeenSeekableLoop(SeenLoop):
    """The same of a loop whose recorded steps can be put before it again."""

    __slots__ = ()

    def seek(self, state: Any, step: int, latents: Tensor) -> None:
        assert isinstance(self.loop, SeekableLoop)
        self.loop.seek(state, step, latents)


def build(composition: Composition, context: BuildContext) -> Program:
    """The composed card's program over its loaded components."""
    recipe = context.recipe
    assert isinstance(recipe, RefinedRecipe)
    generator = GeneratorPart(composition, context)
    present = [part for part in composition.refiners if part in recipe.refiners]
    refiners = [RefinerPart(part, recipe, context) for part in present]

    def outputs(slots: Slots) -> dict[str, Output]:
        tokens = {tokens_slot(part.name): part.tokens(slots) for part in refiners}
        return {
            **generator.program.outputs(generator.view(slots)),
            TEXT: Output("text", text_so_far(slots)),
            **{slot: output for slot, output in tokens.items() if output is not None},
        }

    def check(request: Request) -> None:
        for part in (generator, *(refiners if request.parameters[REFINE] else ())):
            part.program.check(part.request(request, request.parameters[PROMPT]))

    def extent(request: Request) -> float:
        return generator.program.extent(generator.request(request, request.parameters[PROMPT]))

    nodes = (*(part.node() for part in refiners), *generator.nodes())
    return Program(nodes, outputs, check, extent)


build_unirl_qwenflux = partial(build, UNIRL_QWENFLUX)
build_multi_expert = partial(build, MULTI_EXPERT)
