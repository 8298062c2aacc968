"""A component's own copy that learns: all of its weights, or a LoRA over them. The resident module stays.

What is trained are *leaves*, tensors by name. A module holds what the leaves come to: for full weights the
leaves themselves, for a LoRA its layers' weights with B A merged in, by the arithmetic that serves adapters:
what was trained is what will be served, to the last bit. The gradient reaches A and B by the chain rule, from
that of the merged weight, which is dropped at once.

Shape suffixes: O and I, rows and columns of a layer's weight; R, the LoRA's rank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mutoscope.platform import ids
from mutoscope.platform.engine.adapters import Change, merged
from mutoscope.platform.engine.rollout import draw
from mutoscope.platform.engine.views import names_of, weights_of, with_tensors
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.lora import LoraLayer

ATTENTION = (
    "to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out",
    "q_proj", "k_proj", "v_proj", "o_proj",
)  # fmt: skip
"""Ends of the names of attention's projections, in diffusers and transformers."""

_INIT_DOMAIN = "mutoscope.lora-init/1"

Leaves = dict[str, Tensor]


@dataclass(slots=True, kw_only=True, eq=False)
class Trainable:
    """A module that learns, and its leaves.

    Attributes:
        module: of the resident's structure. leaves: what an optimiser moves, in place.
        gradients: of the leaves, accumulated since `forget`.
    """

    module: nn.Module
    leaves: Leaves
    gradients: Leaves = field(default_factory=dict)

    def forget(self) -> None:
        """Drop the gradients."""
        self.gradients.clear()

    def refresh(self) -> None:
        """Make the module hold what the leaves are by now."""

    def hold(self, leaves: Mapping[str, Tensor]) -> None:
        """Take other values for the leaves."""
        with torch.no_grad():
            for name, leaf in self.leaves.items():
                leaf.copy_(leaves[name])
        self.refresh()

    def _add(self, name: str, gradient: Tensor) -> None:
        known = self.gradients.get(name)
        if known is None:
            self.gradients[name] = gradient.clone()
        else:
            known.add_(gradient)


class FullWeights(Trainable):
    """Every floating-point parameter of a module."""

    @classmethod
    def of(cls, resident: nn.Module) -> FullWeights:
        """A copy of a resident module that learns."""
        own = {name: tensor.detach().clone() for name, tensor in weights_of(resident).items()}
        known = dict(resident.named_parameters(remove_duplicate=False))
        module = with_tensors(resident, {name: own[name] for name in own if name in _own_names(resident)})
        module.requires_grad_(False)
        parameters = dict(module.named_parameters())
        leaves = {name: p for name, p in parameters.items() if p.is_floating_point() and name in known}
        trainable = cls(module=module, leaves={name: leaf.data for name, leaf in leaves.items()})
        for name, leaf in leaves.items():
            leaf.requires_grad_(True)
            leaf.register_post_accumulate_grad_hook(partial(trainable._collect, name))
        return trainable

    def _collect(self, name: str, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self._add(name, parameter.grad)
        parameter.grad = None

    def changed(self, resident: nn.Module, leaves: Mapping[str, Tensor]) -> Leaves:
        """Those of the leaves that are not what they are in a module."""
        before = weights_of(resident)
        return {name: leaf for name, leaf in leaves.items() if not _equal_bits(leaf, before[name])}

    def tied(self) -> dict[str, list[str]]:
        """Further names of leaves that have several."""
        names = names_of(self.module)
        return {name: names[name][1:] for name in self.leaves if len(names[name]) > 1}


def _own_names(module: nn.Module) -> set[str]:
    """Names that `with_tensors` takes: each tensor's first."""
    return {name for name, _ in [*module.named_parameters(), *module.named_buffers()]}


def _equal_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


@dataclass(slots=True, kw_only=True, eq=False)
class Lora(Trainable):
    """A LoRA over a module, of which the targeted layers have merged weights of their own.

    Attributes:
        base: weights (O, I) of the targeted layers without it.
        component: the name its tensors begin with. alpha: the scale is alpha / rank.
    """

    component: str
    base: Leaves
    rank: int
    alpha: float

    @classmethod
    def over(
        cls, base: nn.Module, component: str, *, rank: int, alpha: float, targets: tuple[str, ...], seed: int
    ) -> Lora:
        """A fresh LoRA, which changes nothing yet: B is zero, A drawn from the seed and the layer's name.

        Raises:
            InvalidParameter: no linear layer has such a name.
        """
        layers = {
            name: layer.weight.detach()
            for name, layer in base.named_modules()
            if isinstance(layer, nn.Linear) and _is_target(name, targets)
        }
        if not layers:
            raise InvalidParameter(
                "lora_targets", list(targets), f"no linear layer of {component} has a name that ends so"
            )
        leaves: Leaves = {}
        for name, weight_OI in layers.items():
            rows, columns = weight_OI.shape
            down_RI = _drawn((rank, columns), ids.digest(_INIT_DOMAIN, {"seed": seed, "layer": name}))
            leaves[f"{name}.lora_A.weight"] = down_RI.to(weight_OI.device)
            leaves[f"{name}.lora_B.weight"] = torch.zeros(rows, rank, device=weight_OI.device)
        module = with_tensors(base, {f"{name}.weight": w.clone() for name, w in layers.items()})
        module.requires_grad_(False)
        lora = cls(module=module, leaves=leaves, component=component, base=layers, rank=rank, alpha=alpha)
        for name in layers:
            weight = module.get_submodule(name).weight
            assert isinstance(weight, nn.Parameter)
            weight.requires_grad_(True)
            weight.register_post_accumulate_grad_hook(partial(lora._collect, name))
        return lora

    def refresh(self) -> None:
        with torch.no_grad():
            for name in self.base:
                weight = self.module.get_submodule(name).weight
                assert isinstance(weight, Tensor)
                weight.copy_(self.merged(name, self.leaves))

    def merged(self, name: str, leaves: Mapping[str, Tensor]) -> Tensor:
        """A layer's weight (O, I) as an adapter of these leaves is served."""
        down, up = f"{name}.lora_A.weight", f"{name}.lora_B.weight"
        layer = LoraLayer(name, down, up, f"{name}.alpha", self.rank, self.alpha, False)
        return merged(self.base[name], Change(layer, leaves[down], leaves[up], layer.scale(self.alpha)))

    def file(self, leaves: Mapping[str, Tensor]) -> Leaves:
        """The tensors of an adapter's file, in diffusers' naming."""
        named = {f"{self.component}.{name}": leaf for name, leaf in leaves.items()}
        alphas = {f"{self.component}.{name}.alpha": torch.tensor(self.alpha) for name in self.base}
        return named | alphas

    def serves(self, resident: nn.Module, leaves: Mapping[str, Tensor]) -> bool:
        """Whether a resident module holds what an adapter of these leaves comes to."""
        layers = ((name, resident.get_submodule(name).weight) for name in self.base)
        return all(
            isinstance(weight, Tensor) and _equal_bits(weight, self.merged(name, leaves))
            for name, weight in layers
        )

    def _collect(self, name: str, parameter: Tensor) -> None:
        assert parameter.grad is not None
        down, up = f"{name}.lora_A.weight", f"{name}.lora_B.weight"
        gradient_OI = parameter.grad.float() * (self.alpha / self.rank)
        self._add(down, self.leaves[up].T @ gradient_OI)
        self._add(up, gradient_OI @ self.leaves[down].T)
        parameter.grad = None


def _is_target(name: str, targets: tuple[str, ...]) -> bool:
    return any(name == target or name.endswith(f".{target}") for target in targets)


def _drawn(shape: tuple[int, int], digest: str) -> Tensor:
    """Uniform in ±√(3/columns), a variance of 1/columns, from a generator of its own."""
    generator = torch.Generator("cpu").manual_seed(draw(digest))
    bound = math.sqrt(3 / shape[1])
    return (2 * torch.rand(shape, generator=generator, dtype=torch.float32) - 1) * bound


def require_float32(component: str, module: Any) -> nn.Module:
    """Refuse what cannot be trained here: ratios of a policy to itself are 1 in float32 only."""
    if not isinstance(module, nn.Module):
        raise InvalidParameter("component", component, "it has no weights: name one that has")
    for name, parameter in module.named_parameters():
        if parameter.is_floating_point() and parameter.dtype is not torch.float32:
            kind = str(parameter.dtype).removeprefix("torch.")
            raise InvalidParameter(
                "component", component, f"{name} is resident in {kind}: train where it is float32"
            )
    return module
