"""A component's weights as the input of a request. No torch: whoever opens them decides what a tensor is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class GivenWeights:
    """An artifact of kind ``weights``, opened.

    Attributes:
        digest: of its manifest. component: what it is of.
        tensors: by name, those of its base included; a look-up reads and verifies that tensor.
        files: its other small files by path, such as ``config.json``.
        base: digest of the weights that an adapter was made over; None for weights that stand alone.
    """

    digest: str
    component: str
    tensors: Mapping[str, Any]
    files: Mapping[str, bytes]
    base: str | None = None
