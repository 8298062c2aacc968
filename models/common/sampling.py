"""Choosing the next token from a language model's logits.

The scores, their order and the draw are those of transformers' `generate`, so that a seed means the same
token by token: repetition penalty, then temperature, top-k and top-p, then one multinomial draw. All of it
runs in float32 on the CPU, with a CPU generator: a seed means the same on every device.

Shape suffixes
    V  vocabulary            S  tokens so far
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is chosen.

    Attributes:
        do_sample: draw it; otherwise the likeliest is taken, and of the rest only the penalty counts.
        temperature: divides the logits; greater than 0.
        top_k: only so many of the likeliest tokens may be drawn; 0 for all.
        top_p: only the likeliest tokens that together have this probability may be drawn; 1 for all.
        repetition_penalty: divides the positive logits of tokens that have occurred, the prompt's included,
            and multiplies the negative ones; 1 for none.
    """

    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0


def choose(logits_V: Tensor, tokens_S: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """The next token.

    Args:
        logits_V: float32, on the CPU.
        tokens_S: prompt and answer so far.
        generator: what a draw takes its randomness from; untouched if nothing is drawn.
    """
    scores_V = _penalised(logits_V, tokens_S, sampling.repetition_penalty)
    if not sampling.do_sample:
        return int(scores_V.argmax())
    scores_V = _top_p(_top_k(scores_V / sampling.temperature, sampling.top_k), sampling.top_p)
    return int(torch.multinomial(scores_V.softmax(dim=-1), num_samples=1, generator=generator))


def log_prob(logits_V: Tensor, token: int, sampling: Sampling) -> float:
    """log p of a token under the policy that a token policy gradient trains: the softmax of the logits over
    the temperature, whole. Penalty, top-k and top-p narrow what is drawn but are no part of the policy; a
    greedy choice counts at temperature 1.
    """
    return float(policy_log_probs(logits_V, sampling)[token])


def policy_log_probs(logits_V: Tensor, sampling: Sampling) -> Tensor:
    """log p of every token, float32; any leading axes."""
    temperature = sampling.temperature if sampling.do_sample else 1.0
    return (logits_V.float() / temperature).log_softmax(dim=-1)


def _penalised(logits_V: Tensor, tokens_S: Tensor, penalty: float) -> Tensor:
    if penalty == 1.0:
        return logits_V
    said = logits_V[tokens_S]
    return logits_V.index_put((tokens_S,), torch.where(said < 0, said * penalty, said / penalty))


def _top_k(scores_V: Tensor, count: int) -> Tensor:
    """Ties with the last one kept stay, as in `generate`."""
    if not 0 < count < scores_V.numel():
        return scores_V
    return scores_V.masked_fill(scores_V < scores_V.topk(count).values[-1], float("-inf"))


def _top_p(scores_V: Tensor, mass: float) -> Tensor:
    if mass >= 1.0:
        return scores_V
    ordered, order = scores_V.sort(descending=False)
    dropped = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - mass
    dropped[-1] = False
    return scores_V.masked_fill(dropped.scatter(0, order, dropped), float("-inf"))
