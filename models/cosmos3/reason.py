"""The autoregressive loop: the understanding tower rewrites the prompt, token by token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from mutoscope.models.common.decode import Decode, DecodeState, Start
from mutoscope.models.common.prompt import cut_warning
from mutoscope.models.common.sampling import Sampling
from mutoscope.models.cosmos3.components import CosmosComponents
from mutoscope.models.cosmos3.prompt import chat_tokens, cut
from mutoscope.models.cosmos3.towers import Understanding
from mutoscope.platform.engine.loop import WARNINGS, Done, LoopState, WorkPlan
from mutoscope.platform.engine.request import Request


@dataclass(slots=True, kw_only=True)
class ReasonState(LoopState):
    """One request's rewriting.

    Attributes:
        prompt: as given, or what is left of it.
        decoding: None where the prompt is drawn as it is.
    """

    prompt: str
    warnings: tuple[str, ...]
    decoding: DecodeState | None


class Reason:
    """Fills `text`, the prompt to draw. With `reasoning_tokens` 0 a single plan hands the given one on."""

    name = "reason"

    def __init__(self, parts: CosmosComponents) -> None:
        self.tokenizer = parts.text_tokenizer
        self.tokens = Decode(self.name, Understanding(parts.transformer), self._start, _said)

    def init(self, slots: Mapping[str, Any]) -> ReasonState:
        parameters = slots["request"].parameters
        limit = parameters["max_sequence_length"]
        return ReasonState(
            prompt=cut(self.tokenizer, parameters["prompt"], limit),
            warnings=self._cuts(slots["request"]),
            decoding=self.tokens.init(slots) if parameters["reasoning_tokens"] else None,
        )

    def next(self, state: ReasonState) -> WorkPlan | Done:
        if state.decoding is not None:
            return self.tokens.next(state.decoding)
        return Done() if state.step else WorkPlan("prompt", (), lambda: None)

    def advance(self, state: ReasonState, result: Any) -> None:
        if state.decoding is not None:
            self.tokens.advance(state.decoding, result)
        state.step += 1

    def finalize(self, state: ReasonState) -> Mapping[str, Any]:
        if state.decoding is None:
            return {"text": state.prompt, WARNINGS: state.warnings}
        text = self.tokenizer.decode(state.decoding.said, skip_special_tokens=True).strip()
        warnings = list(state.warnings)
        if not text:
            warnings.append("the model rewrote the prompt as nothing: it was drawn as given")
        elif not state.decoding.stopped:
            limit = state.decoding.total
            warnings.append(f"the rewritten prompt was cut at {limit} tokens: raise reasoning_tokens")
        return {"text": text or state.prompt, WARNINGS: tuple(warnings)}

    def _start(self, slots: Mapping[str, Any]) -> Start:
        request: Request = slots["request"]
        parameters = request.parameters
        prompt = cut(self.tokenizer, parameters["prompt"], parameters["max_sequence_length"])
        chat = [
            {"role": "system", "content": parameters["reasoning_instruction"]},
            {"role": "user", "content": prompt},
        ]
        ends = {self.tokenizer.eos_token_id, self.tokenizer.pad_token_id} - {None}
        return Start(
            tokens_S=torch.tensor(chat_tokens(self.tokenizer, chat)),
            sampling=_sampling(parameters),
            stop_tokens=frozenset(ends),
            limit=parameters["reasoning_tokens"],
            seed=request.seed,
        )

    def _cuts(self, request: Request) -> tuple[str, ...]:
        """What of the request's texts is not read."""
        parameters = request.parameters
        limit = parameters["max_sequence_length"]
        return tuple(
            line
            for name in ("prompt", "negative_prompt")
            for line in cut_warning(self.tokenizer, parameters[name], limit, name=name, reader="the model")
        )


def reasoning_steps(slots: Mapping[str, Any]) -> int:
    """The most steps that the rewriting takes."""
    return max(1, int(slots["request"].parameters["reasoning_tokens"]))


def _sampling(parameters: Mapping[str, Any]) -> Sampling:
    temperature = parameters["temperature"]
    if temperature == 0:
        return Sampling()
    return Sampling(do_sample=True, temperature=temperature, top_p=parameters["top_p"])


def _said(state: DecodeState) -> Mapping[str, Any]:
    return {"said": state.said}
