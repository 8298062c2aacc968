"""How much memory things take: modules, what a request keeps between steps, a step at its peak.

On CUDA the allocator counts. Elsewhere a step is watched operation by operation, which costs some
microseconds each; so each kind of step is watched once, not always.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from mutoscope.platform.engine.finite import tensors_of


def module_storages(module: nn.Module) -> dict[int, int]:
    """The memory under a module's parameters and buffers: address to bytes. Tied tensors, and those that a
    view of a module shares with it, have one address."""
    return {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in (*module.parameters(), *module.buffers())
        if tensor.device.type != "meta"
    }


def weights_bytes(components: Mapping[str, Any]) -> int:
    """Bytes of the modules among components; what they share once."""
    modules = [part for part in components.values() if isinstance(part, nn.Module)]
    return sum({at: size for part in modules for at, size in module_storages(part).items()}.values())


def held_bytes(*values: Any) -> int:
    """Bytes of the tensors and arrays that values hold on to, however nested; shared memory once. Modules are
    left out: they belong to the instance."""
    found: dict[int, int] = {}
    _collect(values, found, set())
    return sum(found.values())


def _collect(value: Any, found: dict[int, int], seen: set[int]) -> None:
    if id(value) in seen or isinstance(value, nn.Module | type | str | bytes | int | float):
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        storage = value.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
    elif isinstance(value, np.ndarray):
        owner = value if value.base is None else value.base
        found[id(owner)] = getattr(owner, "nbytes", value.nbytes)
    else:
        for part in _parts(value):
            _collect(part, found, seen)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, tuple | list | set | frozenset):
        return value
    if callable(value):
        return ()
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return vars(value).values() if hasattr(value, "__dict__") else ()


class LiveBytes(TorchDispatchMode):
    """Bytes of the memory that came to life under it: now, and at most. What operators use inside does not
    show."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.most = 0
        self._watched: dict[int, weakref.ref[Any]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled under it, and the guard against that imports the compiler: seconds."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        given = {tensor.untyped_storage()._cdata for tensor in tensors_of((args, kwargs))}
        result = func(*args, **kwargs)
        for tensor in tensors_of(result):
            # A view, or a tensor changed in place, lives in memory that was there.
            if tensor.untyped_storage()._cdata not in given:
                self._watch(tensor.untyped_storage())
        return result

    def _watch(self, storage: torch.UntypedStorage) -> None:
        name, size = storage._cdata, storage.nbytes()
        if name in self._watched:
            return
        self._watched[name] = weakref.ref(storage, lambda _: self._forget(name, size))
        self.now += size
        self.most = max(self.most, self.now)

    def _forget(self, name: int, size: int) -> None:
        del self._watched[name]
        self.now -= size


@dataclasses.dataclass(slots=True)
class Peak:
    """Bytes a step needed beyond what was there when it began."""

    bytes: int = 0


@contextmanager
def watching(device: torch.device) -> Iterator[Peak]:
    """Measure the peak of what runs in it."""
    peak = Peak()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        try:
            yield peak
        finally:
            peak.bytes = max(0, torch.cuda.max_memory_allocated(device) - before)
        return
    live = LiveBytes()
    try:
        with live:
            yield peak
    finally:
        peak.bytes = live.most
