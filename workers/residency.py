"""Which cards are resident on the device, at which weight versions.

An instance is keyed by its card and the digest of every component: a run gets exactly the weights it pinned,
and two versions of a card may be resident side by side. Instances in use stay; of the others the least
recently used ones make way when the budget is reached or the device runs out of memory while loading.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from mutoscope.platform.artifacts.manifest import ComponentManifest
from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.engine.card import RECIPE, Card, Recipe
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.errors import InvalidFolder
from mutoscope.workers.device import Device, is_out_of_memory
from mutoscope.workers.weight_cache import WeightCache

log = logging.getLogger(__name__)

Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class _Resident:
    instance: Instance
    size: int
    users: int = 0


class Residency:
    """Loaded instances, least recently used first. Used by the worker's main thread only."""

    def __init__(
        self, cards: Mapping[str, Card], store: ArtifactStore, cache: WeightCache, device: Device
    ) -> None:
        self._cards = cards
        self._store = store
        self._cache = cache
        self._device = device
        self._resident: OrderedDict[Key, _Resident] = OrderedDict()

    def acquire(self, card_id: str, weights: Mapping[str, str]) -> Instance:
        """The instance of a card at the pinned weights, loaded if need be, and kept until `release`.

        Args:
            weights: artifact digest per component, with the recipe's under ``recipe``.

        Raises:
            ArtifactMissing, ArtifactCorrupt: a pinned component is not in the store, or damaged.
            InvalidFolder: the components do not make up the card.
        """
        key = _key(card_id, weights)
        resident = self._resident.get(key)
        if resident is None:
            resident = self._resident[key] = self._load(self._cards[card_id], weights)
        resident.users += 1
        self._resident.move_to_end(key)
        return resident.instance

    def release(self, card_id: str, weights: Mapping[str, str]) -> None:
        """Undo one `acquire`; the instance stays resident until its memory is wanted."""
        self._resident[_key(card_id, weights)].users -= 1

    def weights(self) -> dict[str, dict[str, str]]:
        """For each card, the weights of its most recently used instance."""
        return {card_id: dict(pinned) for card_id, pinned in self._resident}

    def _load(self, card: Card, weights: Mapping[str, str]) -> _Resident:
        started = time.perf_counter()
        recipe = self._recipe(card, weights)
        pinned = {name: digest for name, digest in weights.items() if name != RECIPE}
        size = sum(self._complete(name, digest).total_size for name, digest in pinned.items())

        def load() -> Instance:
            return load_instance(
                card,
                folders,
                recipe=recipe,
                device=self._device.torch_device,
                dtype=self._device.dtype,
                weights=dict(weights),
            )

        with ExitStack() as holding:
            folders = {name: holding.enter_context(self._cache.hold(d)) for name, d in pinned.items()}
            self._make_room(size)
            instance = self._retry_without_idle(load)
        log.info("loaded card=%s bytes=%d seconds=%.2f", card.id, size, time.perf_counter() - started)
        return _Resident(instance, size)

    def _complete(self, component: str, digest: str) -> ComponentManifest:
        """The manifest of a component that can be loaded by itself."""
        manifest = self._cache.manifest(digest)
        if manifest.base is not None:
            raise InvalidFolder(
                f"{component} {digest[:12]} is an adapter for {manifest.base[:12]}, which cards do not load: "
                "merge it into its base and import that"
            )
        return manifest

    def _recipe(self, card: Card, weights: Mapping[str, str]) -> Recipe:
        if not card.components:
            return card.recipe.model_validate({})
        if RECIPE not in weights:
            raise InvalidFolder(f"the run pins no recipe for {card.id}: import the card's weights again")
        return card.recipe.model_validate_json(self._store.get(weights[RECIPE]))

    def _make_room(self, size: int) -> None:
        """Drop idle instances, oldest first, until `size` more bytes fit the budget."""
        held = sum(resident.size for resident in self._resident.values())
        for key in [key for key, resident in self._resident.items() if not resident.users]:
            if held + size <= self._device.memory_budget:
                break
            held -= self._drop(key)
            self._device.free_unused()

    def _retry_without_idle(self, load: Callable[[], Instance]) -> Instance:
        """The budget counts stored bytes. If the device needs more, everything idle makes way, once."""
        try:
            return load()
        except Exception as error:
            idle = [key for key, resident in self._resident.items() if not resident.users]
            if not (idle and is_out_of_memory(error)):
                raise
        for key in idle:
            self._drop(key)
        self._device.free_unused()
        return load()

    def _drop(self, key: Key) -> int:
        resident = self._resident.pop(key)
        log.info("evicted card=%s bytes=%d", key[0], resident.size)
        return resident.size


def _key(card_id: str, weights: Mapping[str, str]) -> Key:
    return card_id, tuple(sorted(weights.items()))
