"""Which cards are resident on the device, at which weight versions.

An instance is keyed by its card and the digest of every component: a run gets exactly the weights it pinned,
and versions of a card may be resident side by side, sharing every component they have in common. A new
version is loaded beside one in use: runs in flight end on the weights they began on. Instances in use stay;
of the others the least recently used ones make way when the budget is reached or the device runs out of
memory, and with them the components that nobody else counts on. An operator may unload what is not wanted
here any more.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.engine.card import RECIPE, Card, Recipe
from mutoscope.platform.engine.execution import is_out_of_memory
from mutoscope.platform.engine.instance import Instance, assemble
from mutoscope.platform.errors import InvalidFolder
from mutoscope.workers.device import Device
from mutoscope.workers.parts import PartKey, Parts, Wanted
from mutoscope.workers.weight_cache import WeightCache

log = logging.getLogger(__name__)

Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class Resident:
    """An instance in memory.

    Attributes:
        parts: what it counts on. users: who has acquired it. unwanted: it goes with the last of them.
    """

    instance: Instance
    parts: tuple[PartKey, ...]
    users: int = 0
    unwanted: bool = False


class Residency:
    """Loaded instances, least recently used first. Used by the worker's main thread only.

    Args:
        prepare: what makes a loaded instance ready to be served.
    """

    def __init__(
        self,
        cards: Mapping[str, Card],
        store: ArtifactStore,
        cache: WeightCache,
        device: Device,
        prepare: Callable[[Instance], Instance] = lambda instance: instance,
    ) -> None:
        self._cards = cards
        self._store = store
        self._device = device
        self._prepare = prepare
        self._parts = Parts(cache, device)
        self._resident: OrderedDict[Key, Resident] = OrderedDict()

    def acquire(self, card_id: str, weights: Mapping[str, str]) -> Instance:
        """The instance of a card at the pinned weights, loaded if need be, and kept until `release`.

        Args:
            weights: artifact digest per component, with the recipe's under ``recipe``. An adapter's digest
                stands for its base with the adapter on it.

        Raises:
            ArtifactMissing, ArtifactCorrupt: a pinned component is not in the store, or damaged.
            InvalidFolder, InvalidAdapter: the components do not make up the card.
        """
        key = _key(card_id, weights)
        resident = self._resident.get(key)
        if resident is None:
            resident = self._resident[key] = self._load(self._cards[card_id], weights)
        resident.users += 1
        resident.unwanted = False
        self._resident.move_to_end(key)
        return resident.instance

    def release(self, card_id: str, weights: Mapping[str, str]) -> None:
        """Undo one `acquire`; the instance stays resident until its memory is wanted."""
        key = _key(card_id, weights)
        resident = self._resident[key]
        resident.users -= 1
        if resident.unwanted and not resident.users:
            self._drop(key)
            self._device.free_unused()

    def unload(self, card_id: str, chosen: Mapping[str, str] = MappingProxyType({})) -> int:
        """Let a card's instances go, those in use when they are released; returns how many.

        Args:
            chosen: only those with these weights, digest by component; others stay.
        """
        keys = [key for key in self._resident if key[0] == card_id and chosen.items() <= dict(key[1]).items()]
        for key in keys:
            if self._resident[key].users:
                self._resident[key].unwanted = True
            else:
                self._drop(key)
        self._device.free_unused()
        return len(keys)

    def weights(self) -> dict[str, dict[str, str]]:
        """For each card, the weights of its most recently used instance."""
        return {card_id: dict(pinned) for card_id, pinned in self._resident}

    def sets(self, card_id: str) -> list[dict[str, str]]:
        """The weights of each of a card's instances, the one used last at the end."""
        return [dict(pinned) for card, pinned in self._resident if card == card_id]

    def size_of(self, card_id: str) -> int:
        """Bytes of a card's instances, what they share once; other cards may share it too."""
        mine = [resident for key, resident in self._resident.items() if key[0] == card_id]
        return self._parts.size_of(part for resident in mine for part in resident.parts)

    @property
    def size(self) -> int:
        """Bytes of all resident components, those that instances share once."""
        return self._parts.size

    def free(self, size: int) -> int:
        """Let idle instances go, oldest first, until that many bytes are free; returns how many are."""
        freed = 0
        for key in self._idle():
            if freed >= size:
                break
            freed += self._drop(key)
        self._device.free_unused()
        return freed

    def _load(self, card: Card, weights: Mapping[str, str]) -> Resident:
        started = time.perf_counter()
        recipe = self._recipe(card, weights)
        wanted = self._parts.wanted(card, weights)
        keys = tuple(one.key for one in wanted)
        size = self._parts.missing(wanted)
        try:
            self._make_room(size, keys)
            self._load_parts(card, wanted)
            instance = self._prepare(
                assemble(
                    card,
                    self._parts.components(weights, wanted),
                    recipe,
                    device=self._device.torch_device,
                    dtype=self._device.precision,
                    weights=weights,
                )
            )
            self._parts.retain(keys)
        finally:
            self._parts.sweep()
        log.info(
            "loaded card=%s bytes=%d of=%d seconds=%.2f",
            card.id,
            size,
            self._parts.size,
            time.perf_counter() - started,
        )
        return Resident(instance, keys)

    def _load_parts(self, card: Card, wanted: Collection[Wanted]) -> None:
        """The budget counts weights alone. If the device needs more, everything idle makes way, once."""
        try:
            self._parts.load(card, wanted)
        except Exception as error:
            if not (self._idle() and is_out_of_memory(error)):
                raise
        else:
            return
        for key in self._idle():
            self._drop(key, [one.key for one in wanted])
        self._device.free_unused()
        self._parts.load(card, wanted)

    def _recipe(self, card: Card, weights: Mapping[str, str]) -> Recipe:
        if not card.components:
            return card.recipe.model_validate({})
        if RECIPE not in weights:
            raise InvalidFolder(f"the run pins no recipe for {card.id}: import the card's weights again")
        return card.recipe.model_validate_json(self._store.get(weights[RECIPE]))

    def _make_room(self, size: int, keep: Collection[PartKey]) -> None:
        """Drop idle instances, oldest first, until `size` more bytes fit the budget; their parts among `keep`
        stay for the instance that is about to be loaded."""
        for key in self._idle():
            if self._parts.size + size <= self._device.memory_budget:
                break
            self._drop(key, keep)
            self._device.free_unused()

    def _idle(self) -> list[Key]:
        return [key for key, resident in self._resident.items() if not resident.users]

    def _drop(self, key: Key, keep: Collection[PartKey] = ()) -> int:
        """Let an instance go, and with it what no other counts on; returns the bytes set free."""
        self._parts.release(self._resident.pop(key).parts)
        freed = self._parts.sweep(keep)
        log.info("evicted card=%s bytes=%d", key[0], freed)
        return freed


def _key(card_id: str, weights: Mapping[str, str]) -> Key:
    return card_id, tuple(sorted(weights.items()))
