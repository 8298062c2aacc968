"""The device a worker computes on, and the numeric contract it keeps there.

The contract is part of every memo key: a worker takes only runs that were queued for exactly its contract, so
bytes never depend on which machine happened to be free.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil
import torch

from mutoscope.platform.engine import numerics
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.settings import Settings

_USABLE_SHARE = 0.8
"""Share of the device's memory that resident weights may take; the rest is for activations."""

_ENGINE_SHARE = 0.95
"""Share that weights and requests may take together; the rest is the libraries' own."""


@dataclass(frozen=True, slots=True)
class Device:
    """Where modules live and in which precision.

    Attributes:
        dtype: name of a torch dtype, such as ``float32``.
        contract: what decides the bits of a result on this device; see `mutoscope.platform.engine.numerics`.
        memory_budget: bytes that resident weights may take.
        engine_budget: bytes that weights and requests may take together.
    """

    torch_device: torch.device
    dtype: str
    contract: Mapping[str, Any]
    memory_budget: int
    engine_budget: int | None = None

    @property
    def precision(self) -> torch.dtype:
        """The torch dtype of that name."""
        precision: torch.dtype = getattr(torch, self.dtype)
        return precision

    @property
    def contract_digest(self) -> str:
        return numerics.contract_digest(self.contract)

    def __str__(self) -> str:
        return str(self.contract["device"])

    def free_unused(self) -> None:
        """Give back memory that dropped tensors held: one run's failure must not cost the next one."""
        gc.collect()
        if self.torch_device.type == "cuda":
            torch.cuda.empty_cache()


def open_device(settings: Settings, index: int = 0) -> Device:
    """Choose the device, and bind this process to its contract. Call once, before the first kernel.

    Args:
        index: which of the machine's CUDA devices.

    Raises:
        InvalidParameter: CUDA is asked for and there is none.
    """
    has_cuda = torch.cuda.is_available()
    if settings.device == "cuda" and not has_cuda:
        raise InvalidParameter("device", "cuda", "no CUDA device is visible to torch here; use cpu or auto")
    use_cuda = has_cuda and settings.device != "cpu"
    contract = numerics.cuda_contract(index) if use_cuda else numerics.cpu_contract(settings.threads)
    numerics.configure_torch(contract)
    dtype = str(contract["dtype"])
    device = torch.device("cuda", index) if use_cuda else torch.device("cpu")
    memory = _memory(device) if settings.memory_bytes is None else settings.memory_bytes
    return Device(device, dtype, contract, int(memory * _USABLE_SHARE), int(memory * _ENGINE_SHARE))


def _memory(device: torch.device) -> int:
    """Bytes that the device has."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return int(psutil.virtual_memory().total)
