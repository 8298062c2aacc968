"""Which cards a worker serves now, and the weights that it holds ready for them.

Cards are prepared one by one: loaded, calibrated, rehearsed. Each is served from the moment it is prepared,
while the others still wait. Afterwards operators load and unload: a card that is unloaded leaves memory and
is not served until it is loaded again; weights that were asked for by an alias are replaced when it moves.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from mutoscope.platform.catalog import Catalog, weights_key
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.card import Card
from mutoscope.platform.engine.features import FeatureCache
from mutoscope.platform.errors import GroupLost, MutoscopeError
from mutoscope.workers.calibrations import Calibrations
from mutoscope.workers.rehearsal import Rehearsals
from mutoscope.workers.reports import AWAY, RETRY_S
from mutoscope.workers.residency import Residency
from mutoscope.workers.selection import Selection, select

FOLLOW_EVERY_S = 1.0
"""Seconds between two looks at aliases that are followed."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Service:
    """The cards of one worker. Used by its main thread.

    Attributes:
        cards: all that it may serve, by id. card_digests: of their code.
        running, finished: runs by card, now and since it started.
    """

    catalog: Catalog
    cards: Mapping[str, Card]
    residency: Residency
    calibrations: Calibrations
    rehearsals: Rehearsals
    features: FeatureCache
    clock: Callable[[], float] = time.monotonic
    card_digests: dict[str, str] = field(init=False)
    running: Counter[str] = field(default_factory=Counter)
    finished: Counter[str] = field(default_factory=Counter)
    _todo: deque[str] = field(default_factory=deque)
    _asked: set[str] = field(default_factory=set)
    _unloaded: set[str] = field(default_factory=set)
    _followed: dict[str, Selection] = field(default_factory=dict)
    _trouble: dict[str, str] = field(default_factory=dict)
    _look_at: float = 0.0
    _not_before: float = 0.0

    def __post_init__(self) -> None:
        # A trainer's weights are a served card's: it is loaded, sharing them, when its first run is claimed.
        self._todo.extend(
            card.id for card in self.cards.values() if card.components and card.run_kind != "train_step"
        )
        self.card_digests = {name: numerics.card_digest(card) for name, card in self.cards.items()}

    @property
    def preparing(self) -> bool:
        """Whether something is to be prepared."""
        return bool(self._todo)

    @property
    def may_prepare(self) -> bool:
        """Whether it can be tried now."""
        return self.preparing and self.clock() >= self._not_before

    def prepare_next(self) -> None:
        """Prepare the next card, or weights of one, in line. What nobody answers about stays in line."""
        text = self._todo.popleft()
        try:
            self._hold(select(self.catalog, self.cards, text))
        except AWAY as error:
            log.warning("%s not prepared, trying again in %.0f s: %s", text, RETRY_S, error)
            self._todo.appendleft(text)
            self._not_before = self.clock() + RETRY_S
        except GroupLost:
            raise
        except MutoscopeError as error:
            # A card without weights is served from the moment it has some.
            log.warning("card=%s not prepared: %s", _card_of(text), error)
            if text in self._asked:
                self._note(text, error)

    def served(self) -> list[str]:
        """Cards that are prepared, or that need not be."""
        return [card for card in self.cards if card not in self._unloaded and card not in self._todo]

    def contracts(self) -> dict[str, str]:
        """Digest of the numeric contract by card, of those that are served."""
        return {card: self.calibrations.digest(card) for card in self.served()}

    def resident(self) -> list[str]:
        """`weights_key` of each set of weights in memory."""
        return [key for card in self.cards for key in self._sets(card)]

    def load(self, texts: Sequence[str]) -> None:
        """Prepare these between the next steps, and serve their cards if they were unloaded."""
        for text in texts:
            self._asked.add(text)
            self._unloaded.discard(_card_of(text))
            if text not in self._todo:
                self._todo.append(text)

    def unload(self, text: str) -> None:
        """Drop a card and stop serving it, or drop those of its instances that hold a version. What is in use
        goes when it is not any more."""
        card = _card_of(text)
        self._followed = {name: one for name, one in self._followed.items() if not _is_under(name, text)}
        self._todo = deque(name for name in self._todo if not _is_under(name, text))
        try:
            chosen = {} if text == card else select(self.catalog, self.cards, text).chosen
        except MutoscopeError as error:
            log.error("not unloaded: %s", error)
            self._note(text, error)
            return
        if text == card:
            self._unloaded.add(card)
        count = self.residency.unload(card, chosen)
        log.info("unloaded %s instances=%d", text, count)

    def follow(self) -> None:
        """Have weights prepared that a followed alias names by now; those before make way when need be."""
        now = self.clock()
        if not self._followed or now < self._look_at:
            return
        self._look_at = now + FOLLOW_EVERY_S
        for text, before in self._followed.items():
            try:
                selection = select(self.catalog, self.cards, text)
            except MutoscopeError as error:
                log.warning("%s is followed: %s", text, error)
                continue
            if selection.weights != before.weights and text not in self._todo:
                log.info("%s moved", text)
                self._todo.append(text)

    def facts(self, *, complete: bool) -> dict[str, dict[str, Any]]:
        """What the worker's row says of each card.

        Args:
            complete: the contract of a card is told even if it is not calibrated; otherwise not, so that no
                run is planned for less than will be had in a moment.
        """
        features = self.features.stats.to_dict()
        weights = self.residency.weights()
        return {
            card: {
                "card_digest": self.card_digests[card],
                **(self._contract(card) if complete or self.calibrations.knows(card) else {}),
                "weights": weights.get(card, {}),
                "resident": self._sets(card),
                "bytes": self.residency.size_of(card),
                "running": self.running[card],
                "finished": self.finished[card],
                "features": features,
                **({"trouble": self._trouble[card]} if card in self._trouble else {}),
            }
            for card in self.cards
            if card not in self._unloaded
        }

    def _hold(self, selection: Selection) -> None:
        """Bring weights into memory and get to know what they take. A damaged card must not keep the others
        from being served; its runs fail with the same line."""
        card = selection.card
        if selection.follows:
            self._followed[selection.text] = selection
        try:
            instance = self.residency.acquire(card, selection.weights)
        except (*AWAY, GroupLost):
            raise
        except MutoscopeError as error:
            log.error("card=%s not loaded: %s", card, error)
            self._note(card, error)
            return
        self._trouble.pop(card, None)
        if instance.card.run_kind != "train_step":
            self.rehearsals.of(instance)
        self.residency.release(card, selection.weights)

    def _note(self, text: str, error: Exception) -> None:
        self._trouble[_card_of(text)] = str(error)

    def _sets(self, card: str) -> dict[str, dict[str, str]]:
        """The weights of each of a card's instances, by their key."""
        found = {_key(card, tuple(pinned.items())): pinned for pinned in self.residency.sets(card)}
        return {key: pinned for key, pinned in found.items() if key is not None}

    def _contract(self, card: str) -> dict[str, Any]:
        return {
            "contract": self.calibrations.contract(card),
            "contract_digest": self.calibrations.digest(card),
            "also_kept": [digest for _, digest in self.calibrations.alone([card])],
        }


@lru_cache(maxsize=1024)
def _key(card: str, weights: tuple[tuple[str, str], ...]) -> str | None:
    """Asked of every set in memory each time the worker claims."""
    return weights_key(card, dict(weights))


def _card_of(text: str) -> str:
    return text.partition("@")[0].partition("/")[0]


def _is_under(text: str, whole: str) -> bool:
    """Whether a selection is another, or of the card that the other is as a whole."""
    return text == whole or _card_of(text) == whole
