"""The refiner's program: one loop, which reads the prompt and writes the answer token by token."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from mutoscope.models.common.causal_lm import CausalLM
from mutoscope.models.common.decode import Decode, DecodeState, Start
from mutoscope.models.common.sampling import Sampling
from mutoscope.models.refiner.card import RefinerRecipe
from mutoscope.models.refiner.prompt import Wording
from mutoscope.platform.engine.loop import WARNINGS, WEIGHTS, BuildContext, LoopNode, Program
from mutoscope.platform.engine.request import Output, Profile, Request


def build(context: BuildContext) -> Program:
    """The card's program over its loaded components."""
    recipe = context.recipe
    assert isinstance(recipe, RefinerRecipe)
    tokenizer = context.components["tokenizer"]
    wording = Wording(tokenizer, recipe)
    decode = Decode(
        "refine",
        CausalLM(context.components["llm"]),
        start=partial(_start, wording, frozenset(recipe.stop_tokens)),
        fill=partial(_fill, tokenizer),
    )

    def check(request: Request) -> None:
        wording.ask(request.parameters["prompt"], request.parameters["max_new_tokens"])

    def extent(request: Request) -> float:
        return float(len(wording.tokens(request.parameters["prompt"])) + _limit({"request": request}))

    return Program((LoopNode(decode, _limit, uses=("llm",)),), outputs, check, extent)


def _limit(slots: Mapping[str, Any]) -> int:
    limit: int = slots["request"].parameters["max_new_tokens"]
    return limit


def sampling_of(parameters: Mapping[str, Any]) -> Sampling:
    """How resolved parameters choose tokens."""
    return Sampling(
        do_sample=parameters["do_sample"],
        temperature=parameters["temperature"],
        top_k=parameters["top_k"],
        top_p=parameters["top_p"],
        repetition_penalty=parameters["repetition_penalty"],
    )


def _start(wording: Wording, stop_tokens: frozenset[int], slots: Mapping[str, Any]) -> Start:
    request: Request = slots["request"]
    asked = wording.ask(request.parameters["prompt"], _limit(slots))
    return Start(
        tokens_S=torch.tensor(asked.tokens),
        sampling=sampling_of(request.parameters),
        stop_tokens=stop_tokens,
        limit=_limit(slots),
        seed=request.seed,
        capture=request.profile is Profile.ROLLOUT,
        warnings=asked.warnings,
    )


def _fill(tokenizer: Any, state: DecodeState) -> dict[str, Any]:
    """The answer as text, and under a rollout as tokens."""
    text = tokenizer.decode(state.said, skip_special_tokens=True).strip()
    warnings = state.start.warnings
    if not text:
        warnings += ("the refiner wrote nothing",)
    if not state.stopped and state.start.stop_tokens:
        warnings += (f"the refiner was cut after {state.step} tokens: raise max_new_tokens",)
    return {"text": text, "tokens": None if state.capture is None else _record(state), WARNINGS: warnings}


def outputs(slots: Mapping[str, Any]) -> dict[str, Output]:
    """The card's output slots."""
    made = {"text": Output("text", slots["text"])}
    if slots["tokens"] is not None:
        made["tokens"] = Output("json", {**slots["tokens"], "weights": dict(slots[WEIGHTS])})
    return made


def _record(state: DecodeState) -> dict[str, Any]:
    """What a token policy gradient needs of a rollout; see `causal_lm.token_log_probs`.

    Log-probabilities are float32 values, which JSON's numbers hold exactly.
    """
    sampling = state.start.sampling
    return {
        "prompt": state.start.tokens_S.tolist(),
        "answer": state.answer,
        "log_probs": state.capture,
        "stopped": state.stopped,
        "temperature": sampling.temperature if sampling.do_sample else 1.0,
        "seed": state.start.seed,
    }
