"""How a request to a trainer becomes a training step: the served program, the examples, the policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import nn

from mutoscope.models.registry import get_card
from mutoscope.platform import ids
from mutoscope.platform.engine.card import Card
from mutoscope.platform.engine.instance import Instance, assemble, with_components
from mutoscope.platform.engine.loop import WEIGHTS, BuildContext, LoopNode
from mutoscope.platform.engine.recompute import SeekableLoop
from mutoscope.platform.engine.request import Request
from mutoscope.platform.engine.rollout import draw
from mutoscope.platform.engine.views import origin_of, with_tensors
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.training.batch import Batch, Example, Gathering, minibatches
from mutoscope.platform.training.flow_objectives import Distil, Grpo, Nft
from mutoscope.platform.training.learner import Learner, learner_of, reference_of
from mutoscope.platform.training.methods.flow_grpo import FlowGrpo
from mutoscope.platform.training.objectives import Objective
from mutoscope.platform.training.policy import Conditions, FlowPolicy, TokenPolicy
from mutoscope.platform.training.state import TrainingState
from mutoscope.platform.training.step import Training
from mutoscope.platform.training.token_objective import Tokens
from mutoscope.platform.training.trainable import require_float32
from mutoscope.platform.weights import GivenWeights

_ORDER_DOMAIN = "mutoscope.train-order/1"

WRITES = "ForCausalLM"
"""How the classes end whose loops draw tokens."""

FLOW_CLIP = 1e-4
"""PPO's ε for steps of a flow, unless it is given."""


class Setup:
    """One request's.

    Args:
        context: what the trainer's program was built over.
        slots: the request and its inputs; digests of the pinned weights once they are known.
    """

    def __init__(self, context: BuildContext, slots: Mapping[str, Any]) -> None:
        self._context, self._slots = context, slots
        self._request: Request = slots["request"]
        self._parameters = self._request.parameters
        self._component: str = self._parameters["component"]

    def total(self) -> int:
        """Work plans: to begin, the passes of every update, and to judge."""
        rows: int = self._parameters["rows"]
        items = (sum(self._items(example) for example in examples) for examples in self.updates)
        return 2 + sum(-(-count // rows) for count in items)

    def training(self) -> Training:
        """The step, ready to be worked on. Call it where gradients may flow.

        Raises:
            InvalidParameter: the component cannot be trained so, or what was given does not go together.
        """
        resident = require_float32(self._component, self._context.components.get(self._component))
        digest = self._slots[WEIGHTS].get(self._component, "")
        learner = learner_of(resident, digest, self._parameters, self._state, self._request.seed)
        return Training(
            learner=learner,
            objective=self._objective(learner),
            batch=self.batch,
            updates=self.updates,
            parameters=self._parameters,
            seed=self._request.seed,
        )

    @cached_property
    def batch(self) -> Batch:
        """The examples. Raises InvalidParameter."""
        gathering = Gathering(
            card=self._served.id,
            component=self._component,
            experts=self._experts,
            parameters=self._parameters,
            weights=self._slots.get(WEIGHTS),
            lists={name: self._slots.get(name) or () for name in ("trajectories", "tokens", "images")},
        )
        return gathering.batch(self._slots["rollouts"])

    @cached_property
    def updates(self) -> Sequence[Sequence[Example]]:
        """The examples of every optimiser step. One that nobody's advantage asks for is none: a constant
        reward moves nothing, whatever the optimiser remembers."""
        examples, first = self.batch.examples, self._state.epochs if self._state else 0
        if self._parameters["method"] == "nft":
            # r = ½ is no silence: it pulls a policy that has moved back to the one that sampled.
            examples = tuple(example for example in examples if example.advantage)
        found: list[list[Example]] = []
        for epoch in range(first, first + self._parameters["epochs"]):
            place = ids.digest(_ORDER_DOMAIN, {"seed": self._request.seed, "epoch": epoch})
            generator = torch.Generator("cpu").manual_seed(draw(place))
            order = torch.randperm(len(examples), generator=generator).tolist()
            found += minibatches(examples, order, self._parameters["minibatch"])
        return [mine for mine in found if any(example.advantage for example in mine)]

    @cached_property
    def _served(self) -> Card:
        return get_card(get_card(self._request.card).weights_card)

    @cached_property
    def _instance(self) -> Instance:
        """The served card over the same components."""
        context, served = self._context, self._served
        recipe = served.recipe.model_validate(context.recipe.model_dump())
        return assemble(
            served,
            context.components,
            recipe,
            device=context.device,
            dtype=context.dtype,
            weights=self._slots.get(WEIGHTS),
        )

    @cached_property
    def _state(self) -> TrainingState | None:
        given: GivenWeights | None = self._slots.get("state")
        return None if given is None else TrainingState.opened(given)

    @property
    def _experts(self) -> list[str]:
        """The components that loops run, in the order of the program."""
        return [use for node in self._loops for use in node.uses]

    @property
    def _loops(self) -> list[LoopNode]:
        return [node for node in self._instance.program.nodes if isinstance(node, LoopNode)]

    def _items(self, example: Example) -> int:
        """Rows' worth of a sample in an update."""
        match self._parameters["method"]:
            case "flow-grpo":
                start, stop = example.facts.window
                return stop - start
            case "nft":
                return int(self._parameters["nft_times"])
            case "distill":
                return int(self._parameters["distill_steps"] or example.facts.steps)
        return 1

    def _objective(self, learner: Learner) -> Objective:
        self._check_method()
        if self._parameters["method"] == "token-pg":
            return self._tokens(learner)
        return self._flow(learner)

    def _check_method(self) -> None:
        """Refuse a method that the component's loop has no use for."""
        asked, component = self._parameters["method"], self._component
        flows = {use for node in self._loops if isinstance(node.loop, SeekableLoop) for use in node.uses}
        writers = {spec.name for spec in self._served.components if spec.classes[0].endswith(WRITES)}
        if component not in flows | writers:
            known = ", ".join(use for use in self._experts if use in flows | writers)
            raise InvalidParameter("component", component, f"train one of {known}")
        if (component in writers) != (asked == "token-pg"):
            kind = "token-pg" if component in writers else "flow-grpo, nft or distill"
            raise InvalidParameter("method", asked, f"train {component} with {kind}")

    def _flow(self, learner: Learner) -> Objective:
        asked = self._parameters
        distils = asked["method"] == "distill"
        conditions = Conditions(self._instance, asked["distill_steps"] if distils else None)
        pinned = FlowPolicy(self._instance, conditions)
        policy = FlowPolicy(self._with(learner.trainable.module), conditions)
        reference = self._reference(learner)
        other = None if reference is None else FlowPolicy(self._with(reference), conditions)
        match asked["method"]:
            case "nft":
                beta, times = asked["nft_beta"], asked["nft_times"]
                drift = None if other is None else (other, asked["kl_beta"])
                return Nft(
                    policy, pinned, beta=beta, times=times, advantage=asked["nft_advantage"], drift=drift
                )
            case "distill":
                if other is not None:
                    remedy = "leave it out: a student has its teacher, and no penalty besides"
                    raise InvalidParameter("reference", learner.component, remedy)
                return Distil(policy, pinned)
        self._check_window()
        options = FlowGrpo(
            clip_range=FLOW_CLIP if asked["clip_range"] is None else asked["clip_range"],
            kl_beta=asked["kl_beta"],
            guard=asked["guard"],
            dppo_epsilon=asked["dppo_epsilon"],
            ratio_band=(asked["ratio_low"], asked["ratio_high"]),
        )
        if options.needs_old and any(self.batch.staleness):
            remedy = "it compares with the policy that sampled: use it on rollouts of the pinned weights"
            raise InvalidParameter("guard" if asked["guard"] else "dppo_epsilon", True, remedy)
        return Grpo(policy, pinned, options, other)

    def _check_window(self) -> None:
        for example in self.batch.examples:
            if example.facts.law == "ode":
                remedy = "flow-grpo learns from stochastic steps: roll out with flow-sde or cps, or use nft"
                raise InvalidParameter(f"rollouts.{example.group}.law", "ode", remedy)

    def _tokens(self, learner: Learner) -> Objective:
        asked, reference = self._parameters, self._reference(learner)
        options = {
            "kl_beta": asked["kl_beta"],
            "clip_range": asked["clip_range"],
            "ratio_band": (asked["ratio_low"], asked["ratio_high"]),
        }
        other = None if reference is None else TokenPolicy(reference)
        return Tokens(TokenPolicy(learner.trainable.module), TokenPolicy(learner.resident), other, options)

    def _reference(self, learner: Learner) -> nn.Module | None:
        """The module that the KL is taken to, which shares what it can with the resident one."""
        given: GivenWeights | None = self._slots.get("reference")
        if given is None:
            return None
        below = origin_of(learner.resident)
        if given.digest == learner.digest:
            return learner.resident
        if below is not None and given.digest == below.digest:
            return below.base
        return with_tensors(learner.resident, reference_of(given, learner.resident))

    def _with(self, module: nn.Module) -> Instance:
        return with_components(self._instance, {self._component: module}, {})
