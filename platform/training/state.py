"""What one training step leaves to the next, as files of an artifact of kind ``weights``.

    state.json           what it belongs to and where it is: component, method, LoRA, optimiser steps, epochs
    state.safetensors    adam.mean/X, adam.square/X   the optimiser's moments of leaf X
                         policy/X                     leaves of the weights that were published, of a LoRA
                         student/X                    leaves of the policy that learns, where another samples
                         ema/X                        the moving average

Full weights are not in it: the weights that the step made hold them, and `weights` in the JSON proves that
the next step was given those. Equal states are equal bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.tensorfile import build_header
from mutoscope.platform.weights import GivenWeights

FORMAT = "mutoscope.training-state/1"
JSON, TENSORS = "state.json", "state.safetensors"


@dataclass(slots=True, kw_only=True)
class TrainingState:
    """Where a training is between two steps.

    Attributes:
        component, method: what is trained, and how. lora: rank, alpha and digest of its base; None: full.
        steps: optimiser steps so far. epochs: passes so far. skipped: gradients that were not finite.
        weights: `fingerprint` of the published leaves.
        tensors: by the names above.
    """

    component: str
    method: str
    lora: Mapping[str, Any] | None
    steps: int
    epochs: int
    skipped: int
    weights: str
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors below a name, such as ``ema``, by leaf; empty if there are none."""
        prefix = f"{name}/"
        return {
            key.removeprefix(prefix): tensor for key, tensor in self.tensors.items() if key.startswith(prefix)
        }

    def files(self) -> dict[str, bytes]:
        """The artifact's files."""
        told = {
            "format": FORMAT,
            "component": self.component,
            "method": self.method,
            "lora": self.lora,
            "steps": self.steps,
            "epochs": self.epochs,
            "skipped": self.skipped,
            "weights": self.weights,
        }
        text = json.dumps(told, sort_keys=True, indent=1).encode()
        return {JSON: text, TENSORS: to_file(self.tensors)}

    @classmethod
    def opened(cls, given: GivenWeights) -> TrainingState:
        """The state that an artifact holds. Raises InvalidParameter if it is none."""
        try:
            told = json.loads(given.files[JSON])
            if told.pop("format") != FORMAT:
                raise ValueError("of another format")
            return cls(**told, tensors=given.tensors)
        except (KeyError, TypeError, ValueError) as error:
            remedy = f"pass the state that a training step made ({error})"
            raise InvalidParameter("state", given.digest[:12], remedy) from None


def to_file(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as a safetensors file, float32, in the order of their names. Equal tensors, equal bytes."""
    arrays = {name: tensors[name].detach().float().cpu().contiguous() for name in sorted(tensors)}
    data = {name: array.numpy().astype("<f4", copy=False).tobytes() for name, array in arrays.items()}
    listed = [(name, "F32", tuple(array.shape), len(data[name])) for name, array in arrays.items()]
    return b"".join([build_header(listed, {"format": "pt"}), *data.values()])


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of named tensors: their names, shapes and values."""
    hasher = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        hasher.update(json.dumps([name, list(tensor.shape), str(tensor.dtype)]).encode())
        hasher.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hasher.hexdigest()
