"""A prompt in the words its model expects, and within its context. No torch at import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mutoscope.models.refiner.card import PLACEHOLDER, RefinerRecipe
from mutoscope.platform.errors import InvalidParameter

_SHOWN = 48
"""Characters of cut text that a warning quotes."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Token ids of the text that the model continues; `warnings` tell what of the prompt was cut."""

    tokens: tuple[int, ...]
    warnings: tuple[str, ...] = ()


class Wording:
    """Puts prompts into a template: the recipe's own, or the tokenizer's chat template."""

    def __init__(self, tokenizer: Any, recipe: RefinerRecipe) -> None:
        self.tokenizer, self.recipe = tokenizer, recipe

    def ask(self, prompt: str, limit: int) -> Asked:
        """The prompt, with the end of it cut off if an answer of `limit` tokens would leave the context.

        Raises:
            InvalidParameter: the template alone leaves no room for such an answer.
        """
        room = self.recipe.context - limit
        tokens = self.tokens(prompt)
        if len(tokens) <= room:
            return Asked(tokens)
        starts = self._word_starts(prompt)
        # Leaving out n tokens shortens the whole by n, or by less where the cut divides what merges.
        for kept in range(max(len(starts) - (len(tokens) - room), 0), -1, -1):
            shorter = prompt[: starts[kept]].rstrip() if kept < len(starts) else prompt
            tokens = self.tokens(shorter)
            if len(tokens) <= room:
                lost = prompt[len(shorter) :]
                return Asked(tokens, (self._warning(lost, len(starts) - kept, len(starts), limit),))
        remedy = f"use {limit - (len(tokens) - room)} or less: the template takes the rest of the context"
        raise InvalidParameter("max_new_tokens", limit, remedy)

    def tokens(self, prompt: str) -> tuple[int, ...]:
        """Token ids of the whole text, opening marks included."""
        if self.recipe.template is not None:
            text, marks = self.recipe.template.replace(PLACEHOLDER, prompt), True
        else:
            text, marks = self._chat(prompt), False  # a chat template writes its own marks
        return tuple(self.tokenizer(text, add_special_tokens=marks, verbose=False).input_ids)

    def _chat(self, prompt: str) -> str:
        system = [{"role": "system", "content": self.recipe.instruction}] if self.recipe.instruction else []
        messages = [*system, {"role": "user", "content": prompt}]
        text: str = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return text

    def _word_starts(self, prompt: str) -> list[int]:
        """Where each token of the prompt begins in it."""
        encoded = self.tokenizer(prompt, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return [start for start, _ in encoded.offset_mapping]

    def _warning(self, lost: str, cut: int, count: int, limit: int) -> str:
        lost = " ".join(lost.split())
        shown = lost if len(lost) <= _SHOWN else f"{lost[:_SHOWN].rstrip()} …"
        return (
            f"prompt has {count} tokens; the refiner reads {self.recipe.context} with its template and "
            f"{limit} of answer: the last {cut} were cut: '{shown}'"
        )
