"""How likely a refiner is to write a prompt out as the scene that is wanted: computed, not sampled.

All answers are followed token by token, those of one length in one pass, and the probabilities of the right
ones are added up. Prefixes that are hardly likely are given up; what they had is told beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from mutoscope.flows.rl.asks import Ask
from mutoscope.models.refiner.card import RefinerRecipe
from mutoscope.models.refiner.components import load
from mutoscope.models.refiner.prompt import Wording
from mutoscope.models.registry import get_card
from mutoscope.models.starter.folders import starter_folder
from mutoscope.models.starter.grammar import CaptionError, parse
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.workers.weight_cache import WeightCache

CARD = "refiner-lm"

LEAST = 1e-5
"""Prefixes of a lower probability are given up."""

HOW: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float32}


def told(runtime: Runtime, digest: str, asks: Iterable[Ask]) -> dict[str, Any]:
    """The probability of the wanted scene, by prompt and in the mean, of a refiner's weights in the store.

    Of the starter's words: any version of `refiner-lm` that was trained from it.
    """
    model = model_of(runtime, digest)
    wording = _wording()
    recipe, tokenizer = wording.recipe, wording.tokenizer
    found: dict[str, float] = {}
    lost = 0.0
    for ask in asks:

        def wanted(answer: Sequence[int], target: str = ask.against) -> bool:
            return means(tokenizer.decode(answer, skip_special_tokens=True), target)

        asked, limit = wording.tokens(ask.prompt), recipe.max_new_tokens
        right, given_up = probability(model, asked, recipe.stop_tokens, limit, wanted)
        found[ask.prompt] = round(right, 5)
        lost = max(lost, given_up)
    mean = sum(found.values()) / len(found)
    return {"mean": round(mean, 5), "by_prompt": found, "given_up": round(lost, 6)}


def model_of(runtime: Runtime, digest: str) -> Any:
    """A refiner's model by the digest of its weights in the store."""
    weights = WeightCache(runtime.store, runtime.settings.home / "cache" / "learning")
    return load({"llm": weights.folder(digest)}, **HOW)["llm"].eval()


@cache
def _wording() -> Wording:
    """How the starter is asked."""
    folder = starter_folder(CARD)
    assert folder is not None
    recipe = get_card(CARD).inspect(folder).recipe
    assert isinstance(recipe, RefinerRecipe)
    return Wording(load({"tokenizer": folder}, **HOW)["tokenizer"], recipe)


def probability(
    model: Any,
    prompt: Sequence[int],
    stop_tokens: Collection[int],
    longest: int,
    is_wanted: Callable[[Sequence[int]], bool],
) -> tuple[float, float]:
    """The probability of an answer that is wanted, at temperature 1, and that of all that were given up.

    Args:
        is_wanted: of an answer's token ids, the stop token left out. The others: as in `answers`.
    """
    found = answers(model, prompt, stop_tokens, longest)
    right = sum((p for answer, p in found if is_wanted(answer)), 0.0)
    return right, max(0.0, 1.0 - sum(p for _, p in found))


@torch.no_grad()
def answers(
    model: Any, prompt: Sequence[int], stop_tokens: Collection[int], longest: int, least: float = LEAST
) -> list[tuple[list[int], float]]:
    """What a model may answer, as token ids without the stop token, and how likely each is at temperature 1.

    Args:
        prompt: token ids that the answers continue.
        longest: tokens at which an answer is cut.
        least: prefixes of a lower probability are given up.
    """
    found: list[tuple[list[int], float]] = []
    prefixes: list[list[int]] = [[]]
    log_p_N = torch.zeros(1, dtype=torch.float64)
    for left in range(longest, 0, -1):
        ids_NS = torch.tensor([[*prompt, *prefix] for prefix in prefixes])
        log_p_NV = log_p_N[:, None] + _next(model, ids_NS).double()
        longer: list[list[int]] = []
        known: list[Tensor] = []
        for row, token in (log_p_NV.exp() > least).nonzero().tolist():
            stops = token in stop_tokens
            answer = prefixes[row] if stops else [*prefixes[row], token]
            if stops or left == 1:
                found.append((answer, float(log_p_NV[row, token].exp())))
            else:
                longer.append(answer)
                known.append(log_p_NV[row, token])
        if not longer:
            break
        prefixes, log_p_N = longer, torch.stack(known)
    return found


def _next(model: Any, ids_NS: Tensor) -> Tensor:
    """log p of the token after each row."""
    logits_NV: Tensor = model(ids_NS, use_cache=False, logits_to_keep=1).logits[:, -1]
    return logits_NV.float().log_softmax(dim=-1)


def means(text: str, target: str) -> bool:
    """Whether a text is a caption of the target's picture, from either side."""
    try:
        return parse(text).canonical() == parse(target).canonical()
    except CaptionError:
        return False
