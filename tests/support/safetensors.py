"""Safetensors files of known content, written without the library that reads them in production code."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
from safetensors.numpy import save

Arrays = Mapping[str, np.ndarray]


def checkpoint(seed: int, *, large: int = 4, small: int = 20, **changed: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays like a small model's: `large` matrices of 256 KiB, `small` vectors of 1 KiB; `changed` replace
    some of them."""
    generator = np.random.default_rng(seed)
    arrays = {
        f"blocks.{index}.weight": generator.standard_normal((256, 256)).astype(np.float32)
        for index in range(large)
    }
    arrays |= {
        f"blocks.{index}.bias": generator.standard_normal(256).astype(np.float32) for index in range(small)
    }
    return arrays | changed


def saved(arrays: Arrays, metadata: dict[str, str] | None = None) -> bytes:
    """As `save_pretrained` writes it."""
    return save(dict(arrays), metadata=metadata or {"format": "pt"})


def by_hand(entries: Mapping[str, object], body: bytes, *, padding: int = 0) -> bytes:
    """A file with exactly that header, however wrong."""
    header = json.dumps(entries).encode() + b" " * padding
    return len(header).to_bytes(8, "little") + header + body


def entry(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, object]:
    """One tensor of a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
