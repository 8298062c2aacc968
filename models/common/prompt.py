"""Prompts longer than a text encoder reads: they are cut, as the encoder requires, and it is said."""

from __future__ import annotations

from typing import Any

_SHOWN = 48
"""Characters of cut text that a warning quotes."""


def cut_warning(tokenizer: Any, text: str, limit: int, *, name: str, reader: str) -> tuple[str, ...]:
    """A line if `text` has more tokens than `limit`, nothing otherwise.

    Args:
        tokenizer: of transformers, with truncation on the right; closing marks count as tokens and are kept.
        name: the parameter, such as "prompt".
        reader: who reads no more, such as "the text encoder".
    """
    count = len(tokenizer(text, verbose=False).input_ids)
    excess = count - limit
    if excess <= 0:
        return ()
    words = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    lost = " ".join(tokenizer.decode(words[-excess:]).split())
    shown = lost if len(lost) <= _SHOWN else f"{lost[:_SHOWN].rstrip()} …"
    were = "was" if excess == 1 else "were"
    return (f"{name} has {count} tokens; {reader} reads {limit}: the last {excess} {were} cut: '{shown}'",)
