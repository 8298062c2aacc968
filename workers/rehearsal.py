"""A rehearsal: one short request on fresh weights, before anybody waits for an answer.

It shows the engine what a request of the card takes in memory. From then on a request that is too large for
the device is refused at once, instead of bringing down the process that tries it. What an earlier start
learnt on this machine need not be shown again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mutoscope.platform.engine.calibration import example_of
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.workers.measurements import Conditions, Measurements

SHORT = {"num_inference_steps": 1, "max_new_tokens": 1}
"""Parameters that make a request short without making its steps smaller."""

log = logging.getLogger(__name__)


class Rehearsals:
    """Rehearses cards on one engine."""

    def __init__(self, engine: Engine, conditions: Conditions, kept: Measurements) -> None:
        self._engine = engine
        self._conditions = conditions
        self._kept = kept

    def of(self, instance: Instance) -> None:
        """Let the engine know what the card's requests take. A card that has no example, or fails at it,
        shows that when it first runs."""
        card = instance.card.id
        if self._engine.learnt(card) is not None:
            return
        parts = {**self._conditions.parts(instance), "what": "memory"}
        content = self._kept.find(parts)
        if content is not None and self._is_taught(card, content):
            return
        try:
            request = replace(example_of(instance, **SHORT), id=f"rehearsal {card}")
            self._engine.run(instance, request)
        except Exception as error:
            log.warning("no rehearsal of card=%s: %s", card, error)
        learnt = self._engine.learnt(card)
        if learnt is not None:
            self._kept.keep(parts, learnt)

    def _is_taught(self, card: str, learnt: Mapping[str, Any]) -> bool:
        try:
            self._engine.teach(card, learnt)
        except (KeyError, TypeError, ValueError) as error:
            log.warning("what card=%s takes is not believed, it is rehearsed: %s", card, error)
            return False
        return True
