"""LoRA adapters: views of a resident base whose targeted layers have merged weights of their own.

A request pins an adapter as the version of a component. Requests of several adapters and of the bare base
interleave over one resident base: each has an instance of its own, all of them share every tensor that an
adapter leaves alone, and nobody's weights are switched back and forth. What a view computes equals, bit for
bit, what a module computes that was loaded from weights merged beforehand, because it holds the same numbers.

Shape suffixes: O and I, rows and columns of a layer's weight; R, the adapter's rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from mutoscope.platform.engine.instance import Instance, with_components
from mutoscope.platform.engine.views import view_of
from mutoscope.platform.errors import InvalidAdapter
from mutoscope.platform.lora import LoraLayer, Shape, layers_of, require_fit


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What an adapter adds to one layer: scale · up_OR down_RI."""

    layer: LoraLayer
    down_RI: Tensor
    up_OR: Tensor
    scale: float


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """A component's changes, by layer."""

    component: str
    changes: Mapping[str, Change]


def read_adapter(files: Sequence[Path], component: str) -> Adapter:
    """The changes that safetensors files in diffusers' naming hold for a component; see `platform.lora`.

    Raises:
        InvalidAdapter: another naming, nothing for the component, or a layer without one of its matrices.
    """
    changes: dict[str, Change] = {}
    for file in files:
        with safe_open(file, framework="pt") as opened:
            shapes: dict[str, Shape] = {
                name: tuple(opened.get_slice(name).get_shape())
                for name in opened.keys()  # noqa: SIM118
            }
            for layer in layers_of(shapes, opened.metadata() or {}, component):
                alpha = None if layer.alpha is None else float(opened.get_tensor(layer.alpha))
                down_RI, up_OR = opened.get_tensor(layer.down), opened.get_tensor(layer.up)
                changes[layer.name] = Change(layer, down_RI, up_OR, layer.scale(alpha))
    return Adapter(component, changes)


def merged(weight_OI: Tensor, change: Change) -> Tensor:
    """The layer's weight with the change in it: computed in float32, on the weight's device, and rounded to
    its type once."""
    up_OR = change.up_OR.to(weight_OI.device, torch.float32)
    down_RI = change.down_RI.to(weight_OI.device, torch.float32)
    return (weight_OI.float() + change.scale * (up_OR @ down_RI)).to(weight_OI.dtype)


@torch.no_grad()
def adapt(
    module: nn.Module, adapter: Adapter, *, digest: str | None = None, structure: nn.Module | None = None
) -> nn.Module:
    """A view of a module with an adapter's changes in it; the module itself stays as it is.

    Args:
        digest: of the weights that `module` holds.
        structure: that of `module`, if it may be at work meanwhile.

    Raises:
        InvalidAdapter: the module has no such layer, or one of another shape or kind.
    """
    weights = dict(module.named_parameters(remove_duplicate=False))
    base: dict[str, Shape] = {name: tuple(weight.shape) for name, weight in weights.items()}
    layers = [change.layer for change in adapter.changes.values()]
    shapes: dict[str, Shape] = {}
    for change in adapter.changes.values():
        shapes[change.layer.down] = tuple(change.down_RI.shape)
        shapes[change.layer.up] = tuple(change.up_OR.shape)
    require_fit(layers, shapes, base)
    own = {}
    for name, change in adapter.changes.items():
        _require_linear(module, name)
        _require_untied(weights, f"{name}.weight")
        own[f"{name}.weight"] = merged(weights[f"{name}.weight"], change)
    return view_of(module, own, digest=digest, structure=structure)


def with_adapter(instance: Instance, adapter: Adapter, digest: str) -> Instance:
    """An instance that serves a component of another through an adapter, and shares everything else.

    Args:
        digest: of the adapter's weights, which the new instance's runs are recorded under.

    Raises:
        InvalidAdapter: as `adapt`.
    """
    name = adapter.component
    view = adapt(instance.components[name], adapter, digest=instance.weights.get(name))
    return with_components(instance, {name: view}, {name: digest})


def _require_untied(weights: Mapping[str, Tensor], name: str) -> None:
    tied = [other for other, tensor in weights.items() if tensor is weights[name] and other != name]
    if tied:
        raise InvalidAdapter(
            f"adapter changes {name}, which is also {tied[0]}: adapt a layer with weights of its own"
        )


def _require_linear(module: nn.Module, name: str) -> None:
    layer = module.get_submodule(name)
    if not isinstance(layer, nn.Linear):
        kind = type(layer).__name__
        raise InvalidAdapter(
            f"adapter layer {name} is a {kind} in its base: only linear layers can be adapted"
        )
