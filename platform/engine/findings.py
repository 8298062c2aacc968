"""What calibrations on one machine have in common, so that it is found out once.

How far a kind of leaf has to fill up is a matter of its kernel, and which sizes of a call agree one of the
code and the architecture it runs: neither of the card that asks. A card made of another's components, or one
that is calibrated after it, takes over what is known and measures the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from torch import Tensor, nn

from mutoscope.platform import ids
from mutoscope.platform.engine.stable import LeafKind, leaves

LeafInput = tuple[LeafKind, tuple[int, ...]]
"""A kind of leaf, and the shape of its input behind the first axis."""

_CALL_DOMAIN = "mutoscope.calibrated-call/1"
_STRUCTURE_DOMAIN = "mutoscope.component-structure/1"


@dataclass(slots=True)
class Findings:
    """Facts of one process's device and numeric contract, under one largest number of rows.

    Attributes:
        units: rows that a leaf fills its input up to; 1 where it need not.
        sizes: numbers of rows under which a call's results agree, by `call_digest`.
    """

    units: dict[LeafInput, int] = field(default_factory=dict)
    sizes: dict[str, frozenset[int]] = field(default_factory=dict)

    def add(self, other: Findings) -> None:
        """Take over what another calibration found; what is known stays."""
        self.units = {**other.units, **self.units}
        self.sizes = {**other.sizes, **self.sizes}


def structure_digest(component: Any) -> str:
    """Digest of what a component is, whatever the values of its weights: class, configuration, leaves. Of
    something that is no module, its class."""
    kinds = {LeafKind.of(leaf) for leaf in leaves([component]).values()}
    return ids.digest(
        _STRUCTURE_DOMAIN,
        {
            "class": f"{type(component).__module__}.{type(component).__qualname__}",
            "config": _config(component),
            "leaves": [[kind.name, kind.options, kind.tensors] for kind in sorted(kinds)],
        },
    )


def call_digest(
    call: Callable[..., Any], name: tuple[Any, ...], row: Mapping[str, Tensor], used: Iterable[Any]
) -> str | None:
    """Digest of a call by its function, the kind and shape of its steps, the tensors of a row, and the
    components that it runs. None for what is neither function nor method, or runs no component: nothing tells
    it from another."""
    function, parts = getattr(call, "__func__", call), list(used)
    if not parts or not isinstance(function, FunctionType):
        return None
    return ids.digest(
        _CALL_DOMAIN,
        {
            "function": f"{function.__module__}.{function.__qualname__}",
            "name": repr(name),
            "row": [[key, str(tensor.dtype), tuple(tensor.shape)] for key, tensor in sorted(row.items())],
            "used": sorted(structure_digest(component) for component in parts),
        },
    )


def _config(component: Any) -> str:
    """A module's own account of its architecture: the number of heads, say, which no leaf shows."""
    if not isinstance(component, nn.Module):
        return ""
    config = getattr(component, "config", None)
    if config is None:
        return repr(component)
    options = config.to_dict() if hasattr(config, "to_dict") else dict(config)
    # Names with an underscore tell where it was loaded from, and by which release.
    return json.dumps(
        {name: value for name, value in options.items() if not name.startswith("_")},
        sort_keys=True,
        default=str,
    )
