"""A rehearsal: one short request on fresh weights, before anybody waits for an answer.

It shows the engine what a request of the card takes in memory and time. From then on a request that is too
large for the device is refused at once, instead of bringing down the process that tries it.
"""

from __future__ import annotations

import logging
from typing import Any

from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.example import example_request
from mutoscope.platform.engine.instance import Instance

SHORT = {"num_inference_steps": 1, "max_new_tokens": 1}
"""Parameters that make a request short without making its steps smaller."""

log = logging.getLogger(__name__)


def rehearse(engine: Engine, instance: Instance) -> None:
    """Serve a short example. A card that has none, or fails at it, shows what it takes when it first runs."""
    card = instance.card
    short: dict[str, Any] = {name: n for name, n in SHORT.items() if name in card.parameters.model_fields}
    try:
        engine.run(instance, example_request(card, instance.recipe, name=f"rehearsal {card.id}", **short))
    except Exception as error:
        log.warning("no rehearsal of card=%s: %s", card.id, error)
