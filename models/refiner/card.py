"""The card of a language model that rewrites prompts, from the starter to Qwen2.5-Instruct. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from mutoscope.models.common.recipes import TextRecipe
from mutoscope.platform.engine.card import Card, ComponentSpec, Slot
from mutoscope.platform.engine.request import Profile
from mutoscope.platform.errors import InvalidParameter

CLASSES = ("Qwen2ForCausalLM", "LlamaForCausalLM")
TOKENIZERS = (
    "TokenizersBackend",
    "PreTrainedTokenizerFast",
    "Qwen2Tokenizer",
    "Qwen2TokenizerFast",
    "LlamaTokenizer",
    "LlamaTokenizerFast",
)

PLACEHOLDER = "{prompt}"
"""Where a template takes the prompt. Nothing else in a template is special: braces stay braces."""

INSTRUCTION = (
    "Rewrite the user's short description of a picture as one precise and complete caption. "
    "Keep everything that was said. Answer with the caption alone."
)

Temperature = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]
TopP = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Penalty = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]


class RefinerRecipe(TextRecipe):
    """How one folder's model is asked, and what it does unless a request says otherwise.

    Sampling defaults and stop tokens come from `generation_config.json`, the context from `config.json`, the
    rest from `recipe.json`.
    """

    template: str | None = Field(
        None, description="The text the model continues, with {prompt} in it; None: its chat template."
    )
    instruction: str = Field(
        INSTRUCTION, description="System message of the chat template; empty: none. Unused with a template."
    )
    max_new_tokens: int = Field(128, ge=1, description="Length of the answer, tokens.")
    do_sample: bool = Field(False, description="Draw tokens; otherwise the likeliest is taken.")
    temperature: Temperature = 1.0
    top_k: int = Field(0, ge=0)
    top_p: TopP = 1.0
    repetition_penalty: Penalty = 1.0
    stop_tokens: tuple[int, ...] = Field((), description="Token ids that end an answer.")
    context: int = Field(ge=2, description="Tokens of prompt and answer together.")

    def check(self, values: Mapping[str, Any]) -> None:
        """The answer must leave room for a prompt."""
        super().check(values)
        limit = values["max_new_tokens"]
        if limit >= self.context:
            raise InvalidParameter(
                "max_new_tokens", limit, f"use less than {self.context}, the context of these weights"
            )


class RefinerParameters(BaseModel):
    """What a request may set. A field left out takes the recipe's value."""

    model_config = ConfigDict(extra="forbid")

    prompt: str = Field(
        min_length=1, description="The text to rewrite.", examples=["red circle, blue square left"]
    )
    max_new_tokens: Annotated[int, Field(ge=1, le=32_768)] | None = Field(
        None, description="Length of the answer, tokens; a longer one is cut."
    )
    do_sample: bool | None = Field(None, description="Draw tokens; otherwise the likeliest is taken.")
    temperature: Temperature | None = Field(None, description="Divides the logits of a draw.")
    top_k: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Draw from so many of the likeliest tokens; 0: from all."
    )
    top_p: TopP | None = Field(
        None, description="Draw from the likeliest tokens that have this probability together."
    )
    repetition_penalty: Penalty | None = Field(
        None, description="Makes tokens that have occurred less likely; 1: leaves them alone."
    )


CARD = Card(
    id="refiner-lm",
    title="Prompt refiner (causal language model)",
    components=(
        ComponentSpec("llm", "transformers", CLASSES),
        ComponentSpec("tokenizer", "transformers", TOKENIZERS, weighted=False),
    ),
    inputs=(),
    outputs=(
        Slot("text", "text", "The rewritten prompt."),
        Slot(
            "tokens",
            "json",
            "Ids of prompt and answer, and the log-probability of each of the answer's.",
            profiles=(Profile.ROLLOUT,),
        ),
    ),
    parameters=RefinerParameters,
    recipe=RefinerRecipe,
    inspector="mutoscope.models.refiner.folder:inspect",
    loader="mutoscope.models.refiner.components:load",
    builder="mutoscope.models.refiner.program:build",
    sources=("mutoscope.models.refiner", "mutoscope.models.common"),
    profiles=(Profile.SERVE, Profile.ROLLOUT),
    rollout_parameters=None,
)
