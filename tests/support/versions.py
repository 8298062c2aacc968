"""Versions of a tiny FLUX model: instances whose weights have names, new weights for them, LoRA files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mutoscope.models.flux.card import CARD
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Request
from mutoscope.platform.engine.staging import Update
from mutoscope.platform.ids import sha256
from tests.support.interleaving import content

TARGETS = ("transformer_blocks.0.attn.to_q", "single_transformer_blocks.0.attn.to_v", "x_embedder")


def digest_of(name: str) -> str:
    """A digest for weights that lie in no store."""
    return sha256(name.encode())


def named(folder: Path) -> Instance:
    """The instance of a folder, every component at version "0"."""
    summary = CARD.inspect(folder)
    return load_instance(CARD, folder, weights={name: digest_of(f"{name} 0") for name in summary.components})


def request(name: str, seed: int = 0, prompt: str = "a red circle", **parameters: Any) -> Request:
    """A request of three steps unless told otherwise."""
    return Request(name, CARD.id, {}, {"prompt": prompt, "num_inference_steps": 3, **parameters}, seed)


def state(module: nn.Module, version: int) -> dict[str, Tensor]:
    """A module's weights, moved from what they are by an amount of the version's own; tied ones alike."""
    generator = torch.Generator().manual_seed(version)
    moved: dict[int, Tensor] = {}
    for tensor in module.state_dict(keep_vars=True).values():
        if id(tensor) not in moved:
            moved[id(tensor)] = tensor + 0.05 * torch.randn(tensor.shape, generator=generator)
    return {name: moved[id(tensor)] for name, tensor in module.state_dict(keep_vars=True).items()}


def update(instance: Instance, version: int, component: str = "transformer") -> Update:
    """The version's weights of a component, relative to those of the instance as it is now."""
    tensors = state(instance.components[component], version)
    return Update(component, digest_of(f"{component} {version}"), tensors)


def alone(instance: Instance, asked: Request) -> dict[str, bytes]:
    """What a quiet engine without any cache makes of a request."""
    return content(Engine().run(instance, asked))


def lora_tensors(
    instance: Instance, seed: int, *, component: str = "transformer", targets: tuple[str, ...] = TARGETS
) -> dict[str, Tensor]:
    """The tensors of a LoRA of rank 2, named as diffusers names them."""
    generator = torch.Generator().manual_seed(seed)
    weights: Mapping[str, Tensor] = instance.components[component].state_dict()
    tensors = {}
    for name in targets:
        rows, columns = weights[f"{name}.weight"].shape
        tensors[f"{component}.{name}.lora_A.weight"] = torch.randn(2, columns, generator=generator)
        tensors[f"{component}.{name}.lora_B.weight"] = torch.randn(rows, 2, generator=generator)
    return tensors


def write_lora(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> Path:
    """The tensors as a file."""
    save_file(dict(tensors), path, {"format": "pt", **(metadata or {})})
    return path
