"""What the shipped weights make of fixed requests: `python -m tests.support.starter_digests` prints it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from mutoscope.models.registry import get_card
from mutoscope.models.starter.folders import starter_folder
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Request
from tests.support.interleaving import content

STEPS = 4
PROMPT = "a red circle left of a blue square, drifting right"


def starter_instance(card_id: str) -> Instance:
    """The card on the weights that ship with it, under the contract of a CPU worker."""
    folder = starter_folder(card_id)
    assert folder is not None, f"the package ships starter weights for {card_id}"
    numerics.configure_torch(numerics.cpu_contract(threads=1))
    return load_instance(get_card(card_id), folder)


def starter_request(instance: Instance, name: str = "r", *, seed: int = 7, flip: bool = False) -> Request:
    """A fixed request; `flip` gives a card that takes an image another one."""
    inputs: dict[str, Any] = {}
    if any(slot.name == "image" for slot in instance.card.inputs):
        recipe = instance.recipe
        rows, columns = np.mgrid[0 : recipe.height, 0 : recipe.width]
        image = np.stack([rows * 3, columns * 3, rows + columns], axis=-1).astype(np.uint8)
        inputs["image"] = image[::-1].copy() if flip else image
    parameters = {"prompt": PROMPT, "num_inference_steps": STEPS, "guidance_scale": 2.0}
    return Request(name, instance.card.id, inputs, parameters, seed)


def digests(instance: Instance, request: Request) -> dict[str, str]:
    """SHA-256 of every output."""
    made = content(Engine().run(instance, request))
    return {name: hashlib.sha256(data).hexdigest() for name, data in made.items()}


def all_digests() -> dict[str, dict[str, str]]:
    """Digests by card, images before the videos they lead to."""
    instances = [starter_instance(card_id) for card_id in ("flux-t2i", "wan-i2v")]
    return {instance.card.id: digests(instance, starter_request(instance)) for instance in instances}


if __name__ == "__main__":
    print(json.dumps(all_digests()))
