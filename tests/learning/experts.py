"""A chain of two refiners out of one, and what each of them learns by itself: computed, not sampled.

The starter's refiner writes captions out as they are. Twice in a chain, the second copies what the first has
written, whatever it is (probability 1.00): it decides nothing, and there is nothing that it could learn. So
in the chain that is trained, the second is asked from afar: `AFAR` commas stand between what it reads and the
sign to answer. It still sees which things there are and what is behind them, and that something is right of
or above something else; of *left of* and *below* hardly anything is left, and there it chooses among all
four. The weights are the starter's in both.
"""

from __future__ import annotations

import atexit
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mutoscope.flows.rl.asks import Ask
from mutoscope.models.common.folder import RECIPE
from mutoscope.models.refiner.components import load
from mutoscope.models.refiner.prompt import Wording
from mutoscope.models.registry import get_card
from mutoscope.models.starter.folders import WEIGHTS, starter_folder
from mutoscope.models.starter.refiner_lm import TEMPLATE
from mutoscope.models.unified.assembly import assemble
from mutoscope.models.unified.composition import REFINER, RefinedRecipe
from mutoscope.platform.orchestration.runtime import Runtime
from tests.learning import refinement

CARD = "multi-expert"

PARTS = ("refiner_1", "refiner_2")

AFAR = 28

LONGEST = 16
"""Tokens that are enough for a caption without a motion; more would not leave room for the commas."""

LEAST = 1e-3
"""Texts of a lower probability are not followed to the end of the chain."""

TOGETHER, ITSELF = "together", "itself"

TOLD: Mapping[str, str] = {
    PARTS[0]: "only refiner_1 trained",
    PARTS[1]: "only refiner_2 trained",
    TOGETHER: "the chain",
    ITSELF: "refiner_1's own text",
}
"""What `told` tells, in words."""

Texts = dict[str, float]


def folder(card_id: str) -> Path | None:
    """The starting weights of a card: the starter's, and of `CARD` the chain of this module."""
    return _chain() if card_id == CARD else starter_folder(card_id)


@cache
def _chain() -> Path:
    """The folder of the chain, which lasts as long as the process."""
    place = TemporaryDirectory(prefix="mutoscope-learning-")
    atexit.register(place.cleanup)
    templates = (TEMPLATE, TEMPLATE.replace("}", "}" + " ," * AFAR))
    parts = {}
    for part, template in zip(PARTS, templates, strict=True):
        parts[part] = Path(place.name, part)
        shutil.copytree(WEIGHTS / REFINER, parts[part])
        recipe = {"template": template, "max_new_tokens": LONGEST}
        (parts[part] / RECIPE).write_text(json.dumps(recipe, indent=2) + "\n")
    return assemble(Path(place.name, CARD), WEIGHTS / "flux-t2i", parts, copy=False)


def told(
    chain: Chain, base: Mapping[str, str], heads: Mapping[str, str], asks: Iterable[Ask]
) -> dict[str, Any]:
    """How likely the chain is to write what the target says: with everybody at the head (`together`), and
    with one refiner there while the other is as it began.

    Besides, by `itself`: that what the first one writes already says it.

    Args:
        base, heads: digests by part.
    """
    asks = list(asks)
    mixed = {part: {**base, part: heads[part]} for part in PARTS} | {TOGETHER: dict(heads)}
    found = {
        name: {ask.prompt: _wanted(chain.texts(digests, ask.prompt), ask) for ask in asks}
        for name, digests in mixed.items()
    }
    first = (PARTS[0],)
    itself = [_wanted(chain.texts(heads, ask.prompt, first), ask) for ask in asks]
    means = {name: round(sum(by.values()) / len(by), 4) for name, by in found.items()}
    return {**means, ITSELF: round(sum(itself) / len(itself), 4), "by_prompt": found}


def _wanted(texts: Texts, ask: Ask) -> float:
    return round(sum(p for text, p in texts.items() if refinement.means(text, ask.against)), 4)


class Chain:
    """Follows texts through refiners of any versions in the store."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        recipe = get_card(CARD).inspect(_chain()).recipe
        assert isinstance(recipe, RefinedRecipe)
        self._recipes = recipe.refiners
        self._known: dict[tuple[str, str, str], Texts] = {}
        self._models: dict[str, Any] = {}
        self._tokenizer = load({"tokenizer": WEIGHTS / REFINER}, **refinement.HOW)["tokenizer"]

    def texts(self, digests: Mapping[str, str], prompt: str, parts: Sequence[str] = PARTS) -> Texts:
        """What the chain may write, and how likely each is."""
        ended: Texts = {}
        open_: Texts = {prompt: 1.0}
        for part in parts:
            longer: Texts = {}
            for given, p in open_.items():
                for text, q in self._written(part, digests[part], given).items():
                    # As in the card's chain: who leaves a text as it was ends it.
                    into = ended if text == given else longer
                    into[text] = into.get(text, 0.0) + p * q
            open_ = {text: p for text, p in longer.items() if p >= LEAST}
        for text, p in open_.items():
            ended[text] = ended.get(text, 0.0) + p
        return ended

    def _written(self, part: str, digest: str, given: str) -> Texts:
        key = (part, digest, given)
        if key not in self._known:
            recipe = self._recipes[part]
            asked = Wording(self._tokenizer, recipe).ask(given, recipe.max_new_tokens).tokens
            texts: Texts = {}
            for answer, p in refinement.answers(
                self._model(digest), asked, recipe.stop_tokens, recipe.max_new_tokens, LEAST
            ):
                text = self._tokenizer.decode(answer, skip_special_tokens=True).strip() or given
                texts[text] = texts.get(text, 0.0) + p
            self._known[key] = texts
        return self._known[key]

    def _model(self, digest: str) -> Any:
        if digest not in self._models:
            self._models[digest] = refinement.model_of(self._runtime, digest)
        return self._models[digest]
