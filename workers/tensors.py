"""A component's tensors as torch tensors, each read only when it is asked for, and as bytes again.

Needs torch.
"""

from __future__ import annotations

import torch

from mutoscope.platform.artifacts.manifest import ComponentManifest
from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.artifacts.tensors import RawTensor, Tensors, readers
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.weights import GivenWeights

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

_NAMES = {dtype: name for name, dtype in _TORCH_TYPES.items()}


def open_tensors(store: ArtifactStore, manifest: ComponentManifest) -> Tensors[torch.Tensor]:
    """As `artifacts.tensors.open_tensors`, on the CPU and with memory of their own."""
    return Tensors(readers(store, manifest), _to_torch)


def open_weights(store: ArtifactStore, digest: str) -> GivenWeights:
    """An artifact of kind ``weights`` as a request's input.

    Raises:
        ArtifactMissing, ArtifactCorrupt: its manifest, its base's or a file beside the tensors is gone or
            damaged.
    """
    manifest = ComponentManifest.parse(store.get(digest))
    files = {file.path: store.get(file.digest) for file in manifest.files if file.path.endswith(".json")}
    tensors = open_tensors(store, manifest)
    return GivenWeights(digest, manifest.component, tensors, files, manifest.base)


def to_raw(tensor: torch.Tensor) -> RawTensor:
    """A tensor's bytes, as a file holds them."""
    flat = tensor.detach().to("cpu").contiguous()
    data = flat.reshape(-1).view(torch.uint8).numpy().tobytes()
    return RawTensor(_NAMES[flat.dtype], tuple(flat.shape), data)


def _to_torch(raw: RawTensor) -> torch.Tensor:
    if raw.dtype not in _TORCH_TYPES:
        raise InvalidParameter("dtype", raw.dtype, f"use one of {', '.join(_TORCH_TYPES)}")
    if not raw.data:  # frombuffer refuses an empty buffer
        return torch.empty(raw.shape, dtype=_TORCH_TYPES[raw.dtype])
    return torch.frombuffer(bytearray(raw.data), dtype=_TORCH_TYPES[raw.dtype]).reshape(raw.shape)
