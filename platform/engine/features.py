"""What nodes have filled, kept by content: a prompt is encoded once for everybody who asks for it.

What a text node fills depends on the weights of the components it runs, on its code and on the text, and on
nothing else of the request: not on the seed, the size or the number of steps. The samples of a group
therefore share one encoding, and so do the versions of a card that differ in the transformer alone.

Nothing is kept for a component whose digest the instance does not know: without a name for the weights there
is no telling whether they are still the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.loop import ComponentNode

DEFAULT_LIMIT = 256 * 2**20
"""Bytes kept unless told otherwise: a few hundred prompts of the largest text encoders in use."""

Slots = Mapping[str, Any]
_Key = tuple[Hashable, ...]
_Used = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class FeatureStats:
    """What a cache has done so far. `size` and `limit` in bytes."""

    hits: int
    misses: int
    evicted: int
    entries: int
    size: int
    limit: int

    @property
    def hit_rate(self) -> float | None:
        """Share of the asked that was there; None before anybody has asked."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else None

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form, the hit rate included."""
        return {
            "hits": self.hits,
            "misses": self.misses,
            "evicted": self.evicted,
            "entries": self.entries,
            "bytes": self.size,
            "limit": self.limit,
            "hit_rate": None if self.hit_rate is None else round(self.hit_rate, 4),
        }


@dataclass(frozen=True, slots=True)
class _Entry:
    filled: Mapping[str, Any]
    used: _Used
    size: int


class FeatureCache:
    """Results of nodes that declare their `content`, least recently used first.

    Values are handed out as they are, to any number of requests: nobody may change a tensor that a node has
    filled. Used by the thread that steps the engine only.

    Args:
        limit: bytes of tensors kept; 0 keeps nothing.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._size = self._hits = self._misses = self._evicted = 0

    def get(self, instance: Instance, node: ComponentNode, slots: Slots) -> Mapping[str, Any] | None:
        """What the node filled on equal content, if that is still here; counted as a hit or a miss."""
        used = self._used(instance, node)
        if used is None:
            return None
        key = _key(instance, node, slots, used)
        entry = self._entries.get(key)
        if entry is None:
            self._misses += 1
            return None
        self._entries.move_to_end(key)
        self._hits += 1
        return entry.filled

    def put(self, instance: Instance, node: ComponentNode, slots: Slots, filled: Mapping[str, Any]) -> None:
        """Keep what the node filled, if it may be kept and there is room for it."""
        used = self._used(instance, node)
        if used is not None:
            self._keep(_key(instance, node, slots, used), _Entry(filled, used, size_of(filled)))

    def forget(self, component: str, digest: str) -> int:
        """Drop what was computed with that version of a component; returns the bytes set free."""
        gone = [key for key, entry in self._entries.items() if (component, digest) in entry.used]
        return sum(self._drop(key) for key in gone)

    def clear(self) -> int:
        """Drop everything; returns the bytes set free."""
        return sum(self._drop(key) for key in list(self._entries))

    @property
    def stats(self) -> FeatureStats:
        """Counted since the cache was made."""
        return FeatureStats(
            self._hits, self._misses, self._evicted, len(self._entries), self._size, self._limit
        )

    def _used(self, instance: Instance, node: ComponentNode) -> _Used | None:
        """The component versions a node runs; None if its result cannot be kept."""
        if not self._limit or node.content is None or not node.uses:
            return None
        known = tuple((name, instance.weights[name]) for name in node.uses if name in instance.weights)
        # A component that the card has, but of which nobody knows the digest. One it does not have is fine.
        unknown = any(name in instance.components and name not in instance.weights for name in node.uses)
        return None if unknown or not known else known

    def _keep(self, key: _Key, entry: _Entry) -> None:
        if entry.size > self._limit:
            return
        if key in self._entries:
            self._drop(key)
        self._entries[key] = entry
        self._size += entry.size
        while self._size > self._limit:
            self._drop(next(iter(self._entries)))
            self._evicted += 1

    def _drop(self, key: _Key) -> int:
        size = self._entries.pop(key).size
        self._size -= size
        return size


def _key(instance: Instance, node: ComponentNode, slots: Slots, used: _Used) -> _Key:
    """Everything that decides what the node fills. Its code counts by name: cards of one family share what
    one class computes, and two cards may call different nodes the same."""
    assert node.content is not None
    return (*_code(node.run), node.name, used, instance.dtype, str(instance.device), node.content(slots))


def _code(run: Any) -> tuple[str, str]:
    """Where the code of a callable is: a function, a method, or the class of an object that is called."""
    while isinstance(run, partial):
        run = run.func
    code = run if hasattr(run, "__qualname__") else type(run)
    return code.__module__, code.__qualname__


def size_of(value: Any) -> int:
    """Bytes that a filled value holds on to, a tensor's whole memory included when it is only a view of it.

    Raises:
        TypeError: something that is neither a tensor, an array, plain data nor made of these. A node that
            fills such a thing must not declare its content, for nobody could bound what is kept.
    """
    return _size_of(value, set())


def _size_of(value: Any, counted: set[int]) -> int:
    match value:
        case torch.Tensor():
            storage = value.untyped_storage()
            return _once(storage.data_ptr(), storage.nbytes(), counted)
        case np.ndarray():
            owner = value if value.base is None else value.base
            return _once(id(owner), getattr(owner, "nbytes", value.nbytes), counted)
        case str() | bytes():
            return len(value)
        case None | bool() | int() | float():
            return 0
        case Mapping():
            return sum(_size_of(part, counted) for part in value.values())
        case Sequence():
            return sum(_size_of(part, counted) for part in value)
    if is_dataclass(value):
        return sum(_size_of(getattr(value, part.name), counted) for part in fields(value))
    raise TypeError(f"a {type(value).__name__} cannot be weighed: a node that fills one declares no content")


def _once(name: int, size: int, counted: set[int]) -> int:
    """A size, the first time its owner is met."""
    if name in counted:
        return 0
    counted.add(name)
    return size
