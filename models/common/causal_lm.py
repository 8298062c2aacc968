"""Language models of transformers as a `Causal`: Qwen2ForCausalLM, LlamaForCausalLM and others that attend
their whole past in every layer.

Shape suffixes
    B  batch             S  new tokens          P  past tokens         V  vocabulary
    L  layers            H  key-value heads     D  width of a head
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from mutoscope.models.common.sampling import Sampling, policy_log_probs
from mutoscope.platform.engine.loop import Rows


@dataclass(frozen=True, slots=True)
class Past:
    """Keys and values of the tokens read so far, of every layer."""

    keys_BLHPD: Tensor
    values_BLHPD: Tensor


class CausalLM:
    """Drives a language model token by token.

    Bit for bit the forward passes of `generate`. Those of equal lengths can share a call: the samples of a
    group, which start from one prompt, do so until the first of them ends.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    def extend(self, tokens_S: Tensor, cache: Past | None) -> tuple[Tensor, Past]:
        """See `Causal`."""
        extended: tuple[Tensor, Past] = self.rows(tokens_S, cache).alone()
        return extended

    def rows(self, tokens_S: Tensor, cache: Past | None) -> Rows:
        """See `Causal`."""
        return Rows(self.forward, 1, partial(self._row, tokens_S, cache), partial(_grown, cache))

    def forward(self, rows: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (B, V) after the last token of stacked rows, and the keys and values (B, L, H, S, D) of the
        new tokens.
        """
        tokens_BS = rows["tokens_BS"]
        past = rows["keys_BLHPD"].shape[3] if "keys_BLHPD" in rows else 0
        cache = DynamicCache()
        if past:
            cache.layers = [_layer(*pair) for pair in _by_layer(rows)]
        positions_S = torch.arange(past, past + tokens_BS.shape[1], device=tokens_BS.device)
        # No mask, since no row is padded, and the cache by position, since releases name it differently.
        output = self.model(tokens_BS, None, positions_S[None], cache, use_cache=True, logits_to_keep=1)
        keys = torch.stack([layer.keys[:, :, past:] for layer in cache.layers], dim=1)
        values = torch.stack([layer.values[:, :, past:] for layer in cache.layers], dim=1)
        return output.logits[:, -1], keys, values

    def _row(self, tokens_S: Tensor, cache: Past | None) -> list[dict[str, Tensor]]:
        row = {"tokens_BS": tokens_S[None].to(self.model.device)}
        if cache is not None:
            row |= {"keys_BLHPD": cache.keys_BLHPD, "values_BLHPD": cache.values_BLHPD}
        return [row]


def _by_layer(rows: Mapping[str, Tensor]) -> zip[tuple[Tensor, Tensor]]:
    """Keys and values (B, H, P, D), layer by layer."""
    return zip(rows["keys_BLHPD"].unbind(1), rows["values_BLHPD"].unbind(1), strict=True)


def _layer(keys_BHPD: Tensor, values_BHPD: Tensor) -> DynamicLayer:
    """A cache's layer that holds these tensors; filled by `update` it would hold copies."""
    layer = DynamicLayer()
    layer.lazy_initialization(keys_BHPD, values_BHPD)
    layer.keys, layer.values = keys_BHPD, values_BHPD
    return layer


def _grown(cache: Past | None, results: Sequence[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Past]:
    [(logits_BV, keys, values)] = results
    if cache is not None:
        keys = torch.cat([cache.keys_BLHPD, keys], dim=3)
        values = torch.cat([cache.values_BLHPD, values], dim=3)
    return logits_BV[0], Past(keys, values)


def token_log_probs(
    model: PreTrainedModel, prompt: Sequence[int], answer: Sequence[int], sampling: Sampling
) -> Tensor:
    """log p of each token of an answer, float32 (answer tokens,), in one pass through the model.

    What a rollout captured, recomputed: equal under the same weights up to the rounding of a batch's shape,
    and differentiable.
    """
    tokens: Any = torch.tensor([*prompt, *answer], device=model.device)
    logits_SV = model(tokens[None, :-1], logits_to_keep=len(answer)).logits[0]
    return policy_log_probs(logits_SV, sampling).gather(1, tokens[len(prompt) :, None])[:, 0]


def stacked_log_probs(
    model: PreTrainedModel,
    asked: Sequence[tuple[Sequence[int], Sequence[int]]],
    temperatures: Sequence[float],
) -> list[Tensor]:
    """`token_log_probs` of several answers in one pass, each (answer tokens,), float32.

    Shorter rows are filled up behind their end, which no earlier token sees.

    Args:
        asked: prompt and answer of each. temperatures: that each was drawn at.
    """
    rows = [[*prompt, *answer] for prompt, answer in asked]
    width = max(len(row) for row in rows)
    tokens_BS = torch.tensor([row + [row[-1]] * (width - len(row)) for row in rows], device=model.device)
    inputs: Any = tokens_BS[:, :-1]
    logits_BSV = model(inputs, use_cache=False).logits
    found = []
    for at, ((prompt, answer), temperature) in enumerate(zip(asked, temperatures, strict=True)):
        begin, end = len(prompt) - 1, len(prompt) + len(answer) - 1
        log_p_TV = (logits_BSV[at, begin:end].float() / temperature).log_softmax(dim=-1)
        found.append(log_p_TV.gather(1, tokens_BS[at, begin + 1 : end + 1, None])[:, 0])
    return found
