"""A card small enough to reason about: text to a number, noise damped step by step, a picture out of it.

`ToyLoop` follows the loop contract. `LeakyLoop` breaks its central rule by keeping a request's latents on
itself; it is the control that shows the interleaving check can fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from mutoscope.platform.engine.card import Card, Recipe, Slot
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.loop import ComponentNode, Done, LoopNode, LoopState, Program, WorkPlan
from mutoscope.platform.engine.request import Output, Request


class ToyParameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    prompt: str = Field(min_length=1)
    height: int | None = Field(None, gt=0)
    width: int | None = Field(None, gt=0)
    num_inference_steps: int | None = Field(None, ge=1)
    guidance_scale: float | None = Field(None, ge=0)
    fail_at: int = -1


CARD = Card(
    id="toy",
    title="Toy",
    components=(),
    inputs=(
        Slot("image", "image", "Ignored.", required=False),
        Slot("video", "video", "Ignored.", required=False),
        Slot("note", "text", "Ignored.", required=False),
    ),
    outputs=(Slot("image", "image", "Pixels."), Slot("latent", "latent", "Latents.")),
    parameters=ToyParameters,
    recipe=Recipe,
    inspector="nowhere:inspect",
    loader="nowhere:load",
    builder="nowhere:build",
)

RECIPE = Recipe(
    height=8, width=8, size_multiple=4, num_inference_steps=3, guidance_scale=1.0, max_sequence_length=4
)


@dataclass(slots=True, kw_only=True)
class ToyState(LoopState):
    x: Tensor
    pull: Tensor
    fail_at: int


class ToyLoop:
    name = "denoise"

    def init(self, slots: Mapping[str, Any]) -> ToyState:
        request: Request = slots["request"]
        generator = torch.Generator().manual_seed(request.seed)
        size = (request.parameters["height"], request.parameters["width"])
        return ToyState(
            total=request.parameters["num_inference_steps"],
            x=torch.randn(size, generator=generator),
            pull=slots["cond"],
            fail_at=request.parameters["fail_at"],
        )

    def next(self, state: ToyState) -> WorkPlan | Done:
        if state.step == state.total:
            return Done()
        return WorkPlan("denoise", tuple(state.x.shape), lambda: self.velocity(state))

    def velocity(self, state: ToyState) -> Tensor:
        if state.step == state.fail_at:
            raise ArithmeticError(f"planted at step {state.step}")
        return torch.tanh(self.latents(state)) - state.pull

    def latents(self, state: ToyState) -> Tensor:
        return state.x

    def advance(self, state: ToyState, result: Tensor) -> None:
        state.x = self.latents(state) - result / state.total
        state.step += 1

    def finalize(self, state: ToyState) -> dict[str, Any]:
        return {"x": self.latents(state)}


class LeakyLoop(ToyLoop):
    """Keeps latents on the loop, which all requests share."""

    def __init__(self) -> None:
        self.x: Tensor | None = None

    def init(self, slots: Mapping[str, Any]) -> ToyState:
        state = super().init(slots)
        self.x = state.x
        return state

    def latents(self, state: ToyState) -> Tensor:
        assert self.x is not None
        return self.x

    def advance(self, state: ToyState, result: Tensor) -> None:
        super().advance(state, result)
        self.x = state.x


def toy_instance(loop: ToyLoop | None = None) -> Instance:
    program = Program(
        nodes=(
            ComponentNode("encode", "text_encode", _encode),
            LoopNode(
                loop or ToyLoop(), total=lambda slots: slots["request"].parameters["num_inference_steps"]
            ),
            ComponentNode("decode", "vae_decode", _decode),
        ),
        outputs=lambda slots: {
            "image": Output("image", slots["image"]),
            "latent": Output("latent", {"latents": slots["x"].numpy()}),
        },
    )
    return Instance(CARD, program, RECIPE, torch.device("cpu"))


def toy_request(request_id: str = "r", *, seed: int = 0, **parameters: Any) -> Request:
    return Request(request_id, "toy", {}, {"prompt": "a red circle", **parameters}, seed)


def _encode(slots: Mapping[str, Any]) -> dict[str, Any]:
    return {"cond": torch.tensor(float(len(slots["request"].parameters["prompt"])) / 16)}


def _decode(slots: Mapping[str, Any]) -> dict[str, Any]:
    pixels = (torch.sigmoid(slots["x"]) * 255).to(torch.uint8).numpy()
    return {"image": np.repeat(pixels[..., None], 3, axis=-1)}
