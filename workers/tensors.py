"""A component's tensors as torch tensors, each read only when it is asked for. Imports torch."""

from __future__ import annotations

import torch

from mutoscope.platform.artifacts.manifest import ComponentManifest
from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.artifacts.tensors import RawTensor, Tensors, readers
from mutoscope.platform.errors import InvalidParameter

_TORCH_TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "U16": torch.uint16,
    "I16": torch.int16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "F32": torch.float32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
    "C64": torch.complex64,
}


def open_tensors(store: ArtifactStore, manifest: ComponentManifest) -> Tensors[torch.Tensor]:
    """As `artifacts.tensors.open_tensors`, on the CPU and with memory of their own."""
    return Tensors(readers(store, manifest), _to_torch)


def _to_torch(raw: RawTensor) -> torch.Tensor:
    if raw.dtype not in _TORCH_TYPES:
        raise InvalidParameter("dtype", raw.dtype, f"use one of {', '.join(_TORCH_TYPES)}")
    if not raw.data:  # frombuffer refuses an empty buffer
        return torch.empty(raw.shape, dtype=_TORCH_TYPES[raw.dtype])
    return torch.frombuffer(bytearray(raw.data), dtype=_TORCH_TYPES[raw.dtype]).reshape(raw.shape)
