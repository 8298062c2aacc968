"""The program: noise (4, 4) times the matrix, step by step, squashed and shown as a picture."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from mutoscope.platform.engine.loop import BuildContext, Done, LoopNode, LoopState, Program, WorkPlan
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.errors import InvalidParameter

_GATE_DEADLINE_S = 600.0

JOURNAL = "TINYCARD_JOURNAL"
"""Variable that names a file: each computed request adds a line to it, whatever becomes of its result. A
witness of how often something was computed that asks no catalog.
"""
PACE = "TINYCARD_STEP_SECONDS"
"""Variable that says how long each step keeps the device busy, as a model's step would."""


def load(paths: Mapping[str, Path], *, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """The matrix."""
    return {"net": load_file(paths["net"] / "weights.safetensors")["matrix"].to(device, dtype)}


def build(context: BuildContext) -> Program:
    """The card's program over its one component."""
    loop = TinyLoop(context.components["net"])
    return Program(nodes=(LoopNode(loop, total=_steps),), outputs=_outputs)


@dataclass(slots=True)
class TinyState(LoopState):
    """The latent (4, 4) and the request's wishes."""

    latent: torch.Tensor | None = None
    parameters: Mapping[str, Any] | None = None
    seed: int = 0


class TinyLoop:
    """latent <- tanh(latent @ matrix)."""

    name = "denoise"

    def __init__(self, matrix: torch.Tensor) -> None:
        self.matrix = matrix

    def init(self, slots: Mapping[str, Any]) -> TinyState:
        request: Request = slots["request"]
        generator = torch.Generator("cpu").manual_seed(request.seed)
        latent = torch.randn(4, 4, generator=generator)
        if slots.get("image") is not None:
            latent = latent + float(slots["image"].mean()) / 255
        return TinyState(total=_steps(slots), latent=latent, parameters=request.parameters, seed=request.seed)

    def next(self, state: TinyState) -> WorkPlan | Done:
        if state.step == state.total:
            return Done()
        return WorkPlan("denoise", (4, 4), lambda: self._step(state))

    def advance(self, state: TinyState, result: torch.Tensor) -> None:
        state.latent = result
        state.step += 1

    def finalize(self, state: TinyState) -> Mapping[str, Any]:
        _note(state.seed)
        return {"latent": state.latent}

    def _step(self, state: TinyState) -> torch.Tensor:
        assert state.parameters is not None
        assert state.latent is not None
        _misbehave(state.parameters, state.step)
        time.sleep(float(os.environ.get(PACE, "0")))
        return torch.tanh(state.latent @ self.matrix)


def _steps(slots: Mapping[str, Any]) -> int:
    return int(slots["request"].parameters["num_inference_steps"])


def _misbehave(parameters: Mapping[str, Any], step: int) -> None:
    if parameters.get("gate") and step == parameters["gate_step"]:
        _wait_at(Path(parameters["gate"]))
    if step != parameters.get("trouble_step", 0):
        return
    match parameters.get("trouble"):
        case "error":
            raise RuntimeError("the matrix\nis singular")
        case "invalid":
            raise InvalidParameter("trouble", "invalid", "use none")
        case "memory":
            raise torch.OutOfMemoryError("tried to allocate 1.00 PiB")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)


def _note(seed: int) -> None:
    if path := os.environ.get(JOURNAL):
        with open(path, "a") as journal:  # one short line in append mode: written whole
            journal.write(f"{seed} {os.getpid()}\n")


def _wait_at(gate: Path) -> None:
    gate.with_name(f"{gate.name}.reached").touch()
    deadline = time.monotonic() + _GATE_DEADLINE_S
    while not gate.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"gate {gate} stayed shut")
        time.sleep(0.005)


def _outputs(slots: Mapping[str, Any]) -> Mapping[str, Output]:
    latent = slots["latent"]
    picture = ((latent + 1) * 127.5).round().to(torch.uint8)[:, :, None].expand(4, 4, 3)
    return {
        "image": Output("image", picture.cpu().contiguous().numpy(), {"height": 4, "width": 4}),
        "latent": Output("latent", latent.cpu().numpy()),
    }
