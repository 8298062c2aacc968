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


def view_of(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    *,
    digest: str | None = None,
    structure: nn.Module | None = None,
) -> nn.Module:
    """A module that shares every tensor of another but those of these names, and is on record as its view.

    Args:
        digest: of the weights that `module` holds.
        structure: that of `module`, if it may be at work meanwhile.

    Raises:
        KeyError, ValueError: as `with_tensors`.
    """
    if structure is None:
        view = with_tensors(module, tensors)
    else:
        view = with_tensors(structure, {**weights_of(module), **tensors})
    _origins[view] = Origin(module, digest)
    return view


def structure_of(module: nn.Module) -> nn.Module:
    """A module without its weights, for `with_tensors` to fill.

    It can be filled while the module is at work in another thread, when its attributes may change under the
    hands of whoever copies them.
    """
    hollow = {id(t): _as(t, t.detach().to("meta")) for t in weights_of(module).values()}
    return _around(module, hollow)


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """The tensors that make up a module's state, each once and under the first of its names."""
    state = module.state_dict(keep_vars=True)
    return {names[0]: state[names[0]] for names in names_of(module).values()}


def names_of(module: nn.Module) -> dict[str, list[str]]:
    """All names of each tensor of a module's state, by the first of them."""
    names: dict[int, list[str]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        names.setdefault(id(tensor), []).append(name)
    return {tied[0]: tied for tied in names.values()}


def with_tensors(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A copy of a module's structure around its own tensors, those of these names, as `named_parameters` and
    `named_buffers` tell them, replaced.

    Raises:
        KeyError: the module has no tensor of that name.
        ValueError: a tensor is of another shape, type or device than the one it replaces.
    """
    left, own = dict(tensors), {}
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if (given := left.pop(name, None)) is not None:
            _require_alike(name, given, tensor)
            own[id(tensor)] = _as(tensor, given)
    if left:
        raise KeyError(next(iter(left)))
    return _around(module, own)


def _around(module: nn.Module, own: Mapping[int, Tensor]) -> nn.Module:
    """A module's structure, copied around its tensors; `own` stand for those of the same identity.

    What is in the memo counts as copied, so modules that share a tensor or a child go on sharing it.
    """
    shared = {id(tensor): tensor for part in module.modules() for tensor in _tensors(part)}
    around: nn.Module = copy.deepcopy(module, {**shared, **own})
    return around


def _as(replaced: Tensor, own: Tensor) -> Tensor:
    """A tensor that can take the place of another: a parameter where that is one."""
    return nn.Parameter(own, False) if isinstance(replaced, nn.Parameter) and type(own) is Tensor else own


def origin_of(module: Any) -> Origin | None:
    """What a view was made of; None for anything else."""
    return _origins.get(module) if isinstance(module, nn.Module) else None


def _tensors(part: nn.Module) -> list[Tensor]:
    """A module's own tensors, those kept as plain attributes included."""
    plain = [value for value in vars(part).values() if isinstance(value, Tensor)]
    return [*part.parameters(recurse=False), *part.buffers(recurse=False), *plain]


def _require_alike(name: str, own: Tensor, replaced: Tensor) -> None:
    for what in ("shape", "dtype") if replaced.is_meta else ("shape", "dtype", "device"):
        if getattr(own, what) != getattr(replaced, what):
            raise ValueError(f"{name} has {what} {getattr(own, what)} where {getattr(replaced, what)} is due")
