"""Loaded components, each once: what instances share, and what an adapter adds to its base.

A part is one component at one version. Instances of two versions of a card have all parts in common that
they pin alike, and so have different cards that declare a component equally and pin the same bytes. An
adapter is a part of its own, a view over the part of its base, and takes only the memory of the layers it
changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from mutoscope.platform.artifacts.manifest import ComponentManifest, ManifestFile, StoredTensor
from mutoscope.platform.engine.adapters import adapt, read_adapter
from mutoscope.platform.engine.card import RECIPE, Card, ComponentSpec
from mutoscope.platform.engine.instance import load_components
from mutoscope.platform.errors import InvalidAdapter, InvalidFolder
from mutoscope.platform.refs import SHOWN_DIGITS
from mutoscope.platform.tensorfile import ITEM_BYTES
from mutoscope.workers.device import Device
from mutoscope.workers.weight_cache import WeightCache

_FLOATING = frozenset({"F16", "BF16", "F32", "F64"})


@dataclass(frozen=True, slots=True)
class PartKey:
    """A component as its card declares it, and the digest of its weights."""

    spec: ComponentSpec
    digest: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A part that an instance needs. `base`: of an adapter, the part it changes. `size`: bytes resident."""

    key: PartKey
    base: PartKey | None
    size: int


@dataclass(slots=True)
class _Part:
    value: Any
    size: int
    users: int = 0


class Parts:
    """The parts of resident instances, counted by them; one that nobody counts on goes with `sweep`."""

    def __init__(self, cache: WeightCache, device: Device) -> None:
        self._cache = cache
        self._device = device
        self._parts: dict[PartKey, _Part] = {}

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def size(self) -> int:
        """Bytes of all parts, those that are shared once."""
        return sum(part.size for part in self._parts.values())

    def size_of(self, keys: Iterable[PartKey]) -> int:
        """Bytes of these parts, each once."""
        return sum(self._parts[key].size for key in set(keys))

    def wanted(self, card: Card, weights: Mapping[str, str]) -> list[Wanted]:
        """The parts of an instance, a base before its adapter.

        Raises:
            ArtifactMissing, ArtifactCorrupt: a manifest is not in the store, or damaged.
        """
        specs = {spec.name: spec for spec in card.components}
        return [
            one
            for name, digest in weights.items()
            if name != RECIPE and name in specs
            for one in self._layers(specs[name], digest)
        ]

    def missing(self, wanted: Iterable[Wanted]) -> int:
        """Bytes that loading the rest of these parts takes."""
        return sum(
            one.size for one in {one.key: one for one in wanted}.values() if one.key not in self._parts
        )

    def load(self, card: Card, wanted: Iterable[Wanted]) -> None:
        """Load those of the parts that are not there. All of them are, or none is added.

        Raises:
            ArtifactMissing, ArtifactCorrupt: a file is not in the store, or damaged.
            InvalidFolder, InvalidAdapter: files that are not the component, or no adapter of its base.
        """
        absent = [one for one in wanted if one.key not in self._parts]
        whole = {one.key.spec.name: one for one in absent if one.base is None}
        with ExitStack() as holding:
            folders = {one.key: holding.enter_context(self._cache.hold(one.key.digest)) for one in absent}
            loaded = load_components(
                card,
                {name: folders[one.key] for name, one in whole.items()},
                device=self._device.torch_device,
                dtype=self._device.precision,
            )
            fresh = {one.key: _Part(_found(card, loaded, name), one.size) for name, one in whole.items()}
            for one in absent:
                if one.base is not None:
                    below = fresh.get(one.base) or self._parts[one.base]
                    fresh[one.key] = _Part(self._adapted(one, below.value, folders[one.key]), one.size)
        self._parts.update(fresh)

    def components(self, weights: Mapping[str, str], wanted: Iterable[Wanted]) -> dict[str, Any]:
        """What an instance over these parts is assembled of, by component."""
        return {
            one.key.spec.name: self._parts[one.key].value
            for one in wanted
            if weights[one.key.spec.name] == one.key.digest
        }

    def retain(self, keys: Iterable[PartKey]) -> None:
        """An instance counts on these parts."""
        for key in keys:
            self._parts[key].users += 1

    def release(self, keys: Iterable[PartKey]) -> None:
        """It does no more."""
        for key in keys:
            self._parts[key].users -= 1

    def sweep(self, keep: Iterable[PartKey] = ()) -> int:
        """Forget the parts that no instance counts on, apart from these; returns their bytes."""
        kept = set(keep)
        gone = [key for key, part in self._parts.items() if not part.users and key not in kept]
        return sum(self._parts.pop(key).size for key in gone)

    def _layers(self, spec: ComponentSpec, digest: str) -> list[Wanted]:
        manifest = self._cache.manifest(digest)
        key = PartKey(spec, digest)
        if manifest.base is None:
            return [Wanted(key, None, self._resident_size(manifest))]
        below = self._layers(spec, manifest.base)
        return [*below, Wanted(key, below[-1].key, self._changed_size(manifest, below[-1].key.digest))]

    def _adapted(self, one: Wanted, base: Any, folder: Path) -> Any:
        name, digest = one.key.spec.name, one.key.digest
        assert one.base is not None
        if not isinstance(base, nn.Module):
            raise InvalidAdapter(f"{name} {digest[:SHOWN_DIGITS]} is an adapter, but {name} has no weights")
        try:
            adapter = read_adapter(sorted(folder.glob("*.safetensors")), name)
            return adapt(base, adapter, digest=one.base.digest)
        except InvalidAdapter as error:
            raise InvalidAdapter(
                f"{name} {digest[:SHOWN_DIGITS]} over {one.base.digest[:SHOWN_DIGITS]}: {error}"
            ) from None

    def _resident_size(self, manifest: ComponentManifest) -> int:
        """Bytes in the device's precision; a file whose tensors are not listed counts as it is stored."""
        return sum(self._file_size(file) for file in manifest.files)

    def _file_size(self, file: ManifestFile) -> int:
        return file.size if file.split is None else sum(map(self._tensor_size, file.split.tensors))

    def _tensor_size(self, tensor: StoredTensor) -> int:
        """Floating numbers take the device's precision, whatever they are stored in."""
        width = ITEM_BYTES.get(tensor.dtype, 0)
        if tensor.dtype in _FLOATING:
            width = self._device.precision.itemsize
        return math.prod(tensor.shape) * width

    def _changed_size(self, manifest: ComponentManifest, base: str) -> int:
        """Bytes of the weights that an adapter replaces: as many as those of the same names in its base."""
        changed = {
            tensor.name.partition(".")[2].rpartition(".lora_A.")[0] + ".weight"
            for tensor in _tensors(manifest)
        }
        below = _tensors(self._cache.manifest(base))
        return sum(self._tensor_size(tensor) for tensor in below if tensor.name in changed)


def _tensors(manifest: ComponentManifest) -> list[StoredTensor]:
    return [tensor for file in manifest.files if file.split for tensor in file.split.tensors]


def _found(card: Card, loaded: Mapping[str, Any], name: str) -> Any:
    if name not in loaded:
        raise InvalidFolder(f"the loader of {card.id} does not load {name}: fix the card's loader")
    return loaded[name]
