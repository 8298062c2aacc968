"""How a LoRA file names its tensors: which layers of which component it changes, and by how much.

The convention is that of diffusers and PEFT. A layer of weight W (out, in) gets two matrices and an optional
scaling:

    transformer.blocks.0.attn.to_q.lora_A.weight     A, (rank, in)
    transformer.blocks.0.attn.to_q.lora_B.weight     B, (out, rank)
    transformer.blocks.0.attn.to_q.alpha             a number

    W' = W + alpha / rank · B A

Without an alpha it equals the rank, so the scale is 1. The file's metadata may give it too, in the JSON that
diffusers writes there: ``<component>.lora_alpha``, with ``alpha_pattern`` for layers of their own and
``use_rslora`` for alpha / sqrt(rank).

Names and shapes only, so that a file can be judged by its header, where it is imported.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mutoscope.platform.errors import InvalidAdapter

METADATA_KEY = "lora_adapter_metadata"
"""Under which diffusers keeps the adapter's configuration in a file's metadata."""

_FOREIGN = re.compile(r"^lora_(unet|te\d?|transformer)_|\.lora_(down|up)\.|\.lora\.(down|up)\.")
_MATRIX = re.compile(r"^(?P<layer>.+)\.(lora_(?P<matrix>[AB])\.weight|(?P<alpha>alpha))$")

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LoraLayer:
    """One changed layer: the names of its tensors in the file, and what scales their product.

    Attributes:
        name: of the module within the component, such as ``blocks.0.attn.to_q``.
        down, up: names of A and B. alpha: name of the tensor that holds alpha, if the file has one.
        configured: alpha as the metadata gives it; the rank where nothing does.
        rooted: divide by the square root of the rank instead of the rank.
    """

    name: str
    down: str
    up: str
    alpha: str | None
    rank: int
    configured: float
    rooted: bool

    def scale(self, alpha: float | None = None) -> float:
        """What B A is multiplied with; `alpha` is the value of the tensor of that name."""
        numerator = self.configured if alpha is None else alpha
        return numerator / (math.sqrt(self.rank) if self.rooted else self.rank)


def components_of(names: Mapping[str, Any]) -> tuple[str, ...]:
    """The components that a file's tensors are for, as their names begin, sorted.

    Raises:
        InvalidAdapter: a name is in another convention.
    """
    for name in names:
        if _FOREIGN.search(name):
            raise InvalidAdapter(
                f"adapter tensor {name} is named as other trainers do: load it with diffusers' "
                "load_lora_weights and save it with save_lora_weights, which writes lora_A and lora_B"
            )
    return tuple(sorted({name.partition(".")[0] for name in names}))


def layers_of(shapes: Mapping[str, Shape], metadata: Mapping[str, str], component: str) -> list[LoraLayer]:
    """The layers of one component that a file changes, sorted by name.

    Args:
        shapes: of every tensor of the file. metadata: the file's.

    Raises:
        InvalidAdapter: a tensor of the component is no part of a layer, a layer lacks a matrix, or nothing is
            for the component.
    """
    components_of(shapes)
    prefix = f"{component}."
    config = _config(metadata, prefix)
    found: dict[str, dict[str, str]] = {}
    for name in shapes:
        if not name.startswith(prefix):
            continue
        match = _MATRIX.match(name.removeprefix(prefix))
        if match is None:
            raise InvalidAdapter(
                f"adapter tensor {name} is neither lora_A, lora_B nor alpha: only plain LoRA is served"
            )
        found.setdefault(match["layer"], {})[match["matrix"] or "alpha"] = name
    if not found:
        others = ", ".join(components_of(shapes)) or "nothing"
        raise InvalidAdapter(f"the adapter changes {others}, not {component}: name the component it is for")
    return [_layer(name, parts, shapes, config) for name, parts in sorted(found.items())]


def require_fit(layers: list[LoraLayer], shapes: Mapping[str, Shape], base: Mapping[str, Shape]) -> None:
    """Refuse layers that the base does not have, or has in other shapes.

    Args:
        shapes: of the adapter's tensors. base: of the component's tensors, by name.

    Raises:
        InvalidAdapter: names the first tensor at fault.
    """
    for layer in layers:
        weight = base.get(f"{layer.name}.weight")
        if weight is None:
            raise InvalidAdapter(
                f"adapter tensor {layer.down} has no counterpart {layer.name}.weight in its base: "
                "use the base that it was trained on"
            )
        down, up = shapes[layer.down], shapes[layer.up]
        if len(weight) != 2 or (up[0], down[1]) != weight:
            raise InvalidAdapter(
                f"adapter layer {layer.name} changes a weight {[up[0], down[1]]} where its base has "
                f"{list(weight)}: use the base that it was trained on"
            )


def _layer(
    name: str, parts: Mapping[str, str], shapes: Mapping[str, Shape], config: Mapping[str, Any]
) -> LoraLayer:
    for matrix in "AB":
        if matrix not in parts:
            other = next(iter(parts.values()))
            raise InvalidAdapter(f"adapter layer {name} has {other} but no lora_{matrix}: save it again")
    down, up = shapes[parts["A"]], shapes[parts["B"]]
    if len(down) != 2 or len(up) != 2 or down[0] != up[1] or not down[0]:
        raise InvalidAdapter(
            f"adapter layer {name} multiplies {list(up)} with {list(down)}: use matrices (out, rank) and "
            "(rank, in) of a linear layer"
        )
    alpha = (config.get("alpha_pattern") or {}).get(name, config.get("lora_alpha"))
    rank = down[0]
    configured = float(rank if alpha is None else alpha)
    return LoraLayer(
        name, parts["A"], parts["B"], parts.get("alpha"), rank, configured, bool(config.get("use_rslora"))
    )


def _config(metadata: Mapping[str, str], prefix: str) -> Mapping[str, Any]:
    """The part of the file's configuration that is for one component."""
    try:
        config = json.loads(metadata.get(METADATA_KEY) or "{}")
        own = {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}
    except (ValueError, AttributeError):
        raise InvalidAdapter(
            f"the adapter's {METADATA_KEY} is not readable: save the adapter again"
        ) from None
    for option in ("use_dora", "lora_bias"):
        if own.get(option):
            raise InvalidAdapter(f"the adapter sets {option}={own[option]}: only plain LoRA is served")
    return own
