"""Views of a module: the same computation with some tensors of its own, and all others shared.

A view has the module's whole structure, so that it can be called and inspected like the module itself, but no
copy of a tensor that it does not replace: a LoRA over a base of 24 GB costs what its targeted layers take, a
new version that differs in the attention shares the rest.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Origin:
    """What a view was made of.

    Attributes:
        base: the module whose tensors it shares. digest: the weights that module held then, if known.
    """

    base: nn.Module
    digest: str | None


_origins: WeakKeyDictionary[nn.Module, Origin] = WeakKeyDictionary()


def view_of(module: nn.Module, tensors: Mapping[str, Tensor], *, digest: str | None = None) -> nn.Module:
    """A module that shares every tensor of another but those of these names, and is on record as its view.

    Args:
        digest: of the weights that `module` holds.

    Raises:
        KeyError, ValueError: as `with_tensors`.
    """
    view = with_tensors(module, tensors)
    _origins[view] = Origin(module, digest)
    return view


def with_tensors(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A copy of a module's structure around its own tensors, those of these names, as `named_parameters` and
    `named_buffers` tell them, replaced.

    Raises:
        KeyError: the module has no tensor of that name.
        ValueError: a tensor is of another shape, type or device than the one it replaces.
    """
    shared = {id(tensor): tensor for part in module.modules() for tensor in _tensors(part)}
    replaced = dict(tensors)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if (own := replaced.pop(name, None)) is not None:
            _require_alike(name, own, tensor)
            shared[id(tensor)] = nn.Parameter(own, False) if isinstance(tensor, nn.Parameter) else own
    if replaced:
        raise KeyError(next(iter(replaced)))
    # What is in the memo counts as copied: the structure is copied around the tensors, and modules that share
    # a tensor or a child go on sharing it.
    around: nn.Module = copy.deepcopy(module, dict(shared))
    return around


def origin_of(module: Any) -> Origin | None:
    """What a view was made of; None for anything else."""
    return _origins.get(module) if isinstance(module, nn.Module) else None


def _tensors(part: nn.Module) -> list[Tensor]:
    """A module's own tensors, those kept as plain attributes included."""
    plain = [value for value in vars(part).values() if isinstance(value, Tensor)]
    return [*part.parameters(recurse=False), *part.buffers(recurse=False), *plain]


def _require_alike(name: str, own: Tensor, replaced: Tensor) -> None:
    for what in ("shape", "dtype", "device"):
        if getattr(own, what) != getattr(replaced, what):
            raise ValueError(f"{name} has {what} {getattr(own, what)} where {getattr(replaced, what)} is due")
