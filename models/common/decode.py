"""Autoregressive decoding as a loop: the prompt in one step, then a step for every token.

The loop knows tokens and the rules to choose and to stop; the model it drives is a `Causal`. What is known of
the past, its keys and values, is a value that the model returns and the state keeps: a step changes nothing,
so it may be run again or left undone, and requests never meet in a cache.

Shape suffixes
    S  tokens            V  vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from mutoscope.models.common.sampling import Sampling, choose, log_prob
from mutoscope.platform.engine.loop import Done, LoopState, Rows, WorkPlan


class Causal(Protocol):
    """A model that continues a sequence of tokens."""

    def extend(self, tokens_S: Tensor, cache: Any | None) -> tuple[Tensor, Any]:
        """The logits (V,) of what follows `tokens_S`, which follow those that `cache` stands for (None: they
        are the first), and the cache that includes them. The given cache stays what it is.
        """
        ...

    def rows(self, tokens_S: Tensor, cache: Any | None) -> Rows | None:
        """`extend` as one row that may share a call with others of an equal number of tokens and of past
        ones, combined to the same pair; None if it runs by itself only.
        """
        ...


@dataclass(frozen=True, slots=True)
class Start:
    """What one request asks of the loop.

    Attributes:
        tokens_S: the prompt, int64 on the CPU, at least one token.
        stop_tokens: any of them ends the answer.
        limit: tokens of the answer at most, at least one.
        seed: of the generator that tokens are drawn with.
        capture: whether each token's log-probability is kept.
        warnings: what is known of the request already that its user should know too.
    """

    tokens_S: Tensor
    sampling: Sampling
    stop_tokens: frozenset[int]
    limit: int
    seed: int
    capture: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class DecodeState(LoopState):
    """Everything one request changes while it is decoded.

    `total` is its limit, `step` the tokens chosen, `capture` their log-probabilities.
    """

    start: Start
    tokens_S: Tensor
    """Prompt and answer so far."""
    generator: torch.Generator
    cache: Any = None
    stopped: bool = False
    """The last token is a stop token."""
    capture: list[float] | None = None

    @property
    def answer(self) -> list[int]:
        """The tokens chosen, a stop token at the end included."""
        tokens: list[int] = self.tokens_S[len(self.start.tokens_S) :].tolist()
        return tokens

    @property
    def said(self) -> list[int]:
        """The answer without the stop token."""
        return self.answer[:-1] if self.stopped else self.answer


class Decode:
    """The loop. Its first plan reads the prompt and gives the first token."""

    def __init__(
        self,
        name: str,
        model: Causal,
        start: Callable[[Mapping[str, Any]], Start],
        fill: Callable[[DecodeState], Mapping[str, Any]],
    ) -> None:
        """
        Args:
            start: the request's slots to what is asked.
            fill: the state after the last token to the slots the node fills.
        """
        self.name, self.model = name, model
        self._start, self._fill = start, fill

    def init(self, slots: Mapping[str, Any]) -> DecodeState:
        start = self._start(slots)
        return DecodeState(
            total=start.limit,
            start=start,
            tokens_S=start.tokens_S,
            generator=torch.Generator("cpu").manual_seed(start.seed),
            capture=[] if start.capture else None,
        )

    def next(self, state: DecodeState) -> WorkPlan | Done:
        if state.stopped or state.step == state.total:
            return Done()
        tokens_S = state.tokens_S if state.step == 0 else state.tokens_S[-1:]
        kind, past = "decode" if state.step else "prefill", len(state.tokens_S) - len(tokens_S)
        shape = (len(tokens_S), past)
        rows = self.model.rows(tokens_S, state.cache)
        if rows is None:
            return WorkPlan(kind, shape, partial(self.model.extend, tokens_S, state.cache))
        return WorkPlan.of_rows(kind, shape, rows)

    def advance(self, state: DecodeState, result: tuple[Tensor, Any]) -> None:
        logits_V, state.cache = result
        logits_V = logits_V.float().cpu()
        token = choose(logits_V, state.tokens_S, state.start.sampling, state.generator)
        if state.capture is not None:
            state.capture.append(log_prob(logits_V, token, state.start.sampling))
        state.tokens_S = torch.cat([state.tokens_S, torch.tensor([token])])
        state.stopped = token in state.start.stop_tokens
        state.step += 1

    def finalize(self, state: DecodeState) -> Mapping[str, Any]:
        return self._fill(state)
