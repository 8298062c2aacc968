"""A toy card whose steps are rows, and that has weights: a scale and a shift for every step.

All its arithmetic is elementwise, so that a row's bits cannot depend on the batch it is computed in: what the
tests here ask is whether the engine keeps rows apart, not whether a kernel does. Trouble is planted by
request: its rows carry the number of what shall go wrong, and the call that meets it fails as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from mutoscope.platform.engine.batching import Batcher, Mode
from mutoscope.platform.engine.card import Card, ComponentSpec, Recipe, Slot
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.loop import ComponentNode, Done, LoopNode, LoopState, Program, Rows, WorkPlan
from mutoscope.platform.engine.request import Output, Request

RECIPE = Recipe(
    height=8, width=8, size_multiple=4, num_inference_steps=4, guidance_scale=1.0, max_sequence_length=4
)


class RowParameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    prompt: str = "a red circle"
    height: int | None = Field(None, gt=0)
    width: int | None = Field(None, gt=0)
    num_inference_steps: int | None = Field(None, ge=1)
    passes: int = 1
    trouble: float = 0.0
    trouble_step: int = 1
    most_rows: int = 10**6


CARD = Card(
    id="row-toy",
    title="Row toy",
    components=(ComponentSpec("net", "torch", ("Net",)),),
    inputs=(),
    outputs=(Slot("latent", "latent", "Latents."),),
    parameters=RowParameters,
    recipe=Recipe,
    inspector="nowhere:inspect",
    loader="nowhere:load",
    builder="nowhere:build",
)

ERROR, MEMORY, HOST_MEMORY, NAN = 1.0, 2.0, 3.0, 4.0
"""What a row's `trouble` asks for."""


class Net(nn.Module):
    """x -> tanh(scale x + shift) - x / 2, elementwise, and what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.25), requires_grad=False)
        self.shift = nn.Parameter(torch.tensor(0.5), requires_grad=False)
        self.calls: list[int] = []

    def forward(self, x_BHW: Tensor, sigma_B: Tensor) -> Tensor:
        self.calls.append(len(x_BHW))
        return torch.tanh(self.scale * x_BHW + self.shift * sigma_B[:, None, None]) - x_BHW / 2


@dataclass(slots=True, kw_only=True)
class RowState(LoopState):
    x_1HW: Tensor
    request: Request


class RowLoop:
    """Every pass of a step is a row; a step's velocity is the mean of its passes."""

    name = "denoise"

    def __init__(self, net: Net) -> None:
        self.net = net

    def init(self, slots: Mapping[str, Any]) -> RowState:
        request: Request = slots["request"]
        size = (1, request.parameters["height"], request.parameters["width"])
        x_1HW = torch.randn(size, generator=torch.Generator().manual_seed(request.seed))
        return RowState(total=request.parameters["num_inference_steps"], x_1HW=x_1HW, request=request)

    def next(self, state: RowState) -> WorkPlan | Done:
        if state.step == state.total:
            return Done()
        passes = state.request.parameters["passes"]
        rows = Rows(self.predict, passes, partial(self.rows, state), _mean)
        return WorkPlan.of_rows("denoise", tuple(state.x_1HW.shape[1:]), rows, cost=float(passes))

    def rows(self, state: RowState) -> list[dict[str, Tensor]]:
        asked = state.request.parameters
        trouble = asked["trouble"] if state.step == asked["trouble_step"] else 0.0
        return [
            {
                "x_BHW": state.x_1HW,
                "sigma_B": torch.tensor([float(at)]),
                "trouble_B": torch.tensor([trouble]),
                "most_B": torch.tensor([asked["most_rows"]]),
            }
            for at in range(asked["passes"])
        ]

    def predict(self, rows: Mapping[str, Tensor]) -> Tensor:
        _plant(rows["trouble_B"], rows["most_B"])
        x_BHW = rows["x_BHW"]
        if (rows["trouble_B"] == NAN).any():
            x_BHW = x_BHW * torch.where(rows["trouble_B"] == NAN, torch.nan, 1.0)[:, None, None]
        return self.net(x_BHW, rows["sigma_B"])

    def advance(self, state: RowState, result: Tensor) -> None:
        state.x_1HW = state.x_1HW - result / state.total
        state.step += 1

    def finalize(self, state: RowState) -> dict[str, Any]:
        return {"x_1HW": state.x_1HW}


def _plant(trouble_B: Tensor, most_B: Tensor) -> None:
    if (trouble_B == ERROR).any():
        raise ArithmeticError("planted")
    if (trouble_B == MEMORY).any() or len(most_B) > int(most_B.min()):
        raise torch.OutOfMemoryError(f"planted: {len(trouble_B)} rows are too many")
    if (trouble_B == HOST_MEMORY).any():
        torch.empty(2**60, dtype=torch.uint8)  # what torch raises on a host is no OutOfMemoryError


def _mean(predicted: Sequence[Tensor]) -> Tensor:
    total = predicted[0]
    for each in predicted[1:]:
        total = total + each
    return total / len(predicted)


def row_instance(
    net: Net | None = None,
    *,
    most: int = 1,
    encode: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    weights: Mapping[str, str] | None = None,
) -> Instance:
    """An instance whose calls take up to `most` rows; 1: every row has its own."""
    net = net or Net()
    batcher = Batcher() if most == 1 else Batcher(Mode.TOLERANCE, most=most)
    program = Program(
        nodes=(
            ComponentNode(
                "encode",
                "text_encode",
                encode or _encode,
                uses=("net",),
                content=lambda slots: slots["request"].parameters["prompt"],
            ),
            LoopNode(
                RowLoop(net), lambda slots: slots["request"].parameters["num_inference_steps"], ("net",)
            ),
        ),
        outputs=lambda slots: {"latent": Output("latent", {"x": slots["x_1HW"].numpy()})},
        extent=lambda request: request.parameters["height"] * request.parameters["width"],
    )
    return Instance(
        CARD, program, RECIPE, torch.device("cpu"), components={"net": net}, weights=weights or {},
        batcher=batcher,
    )  # fmt: skip


def row_request(name: str, seed: int = 0, group: str = "", priority: float = 1.0, **asked: Any) -> Request:
    return Request(name, CARD.id, {}, asked, seed, group=group, priority=priority)


def latent(result: Any) -> bytes:
    """The bytes a request came to."""
    value: np.ndarray[Any, Any] = result.outputs["latent"].value["x"]
    return value.tobytes()


def _encode(slots: Mapping[str, Any]) -> dict[str, Any]:
    return {"cond": torch.tensor(float(len(slots["request"].parameters["prompt"])))}
