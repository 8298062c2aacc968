"""Cut prompts are said, with what was cut."""

from __future__ import annotations

import logging

import pytest

from mutoscope.models.common.prompt import cut_warning
from tests.support.tiny_flux import word_tokenizer

TOKENIZER = word_tokenizer()


def line(text: str, limit: int = 6) -> tuple[str, ...]:
    return cut_warning(TOKENIZER, text, limit, name="prompt", reader="the text encoder")


def test_a_prompt_that_fits_is_not_mentioned() -> None:
    assert line("a red circle left of") == ()  # 5 words and the closing mark
    assert line("") == ()


def test_the_line_counts_and_quotes_what_was_cut() -> None:
    assert line("a red circle left of a blue square") == (
        "prompt has 9 tokens; the text encoder reads 6: the last 3 were cut: 'a blue square'",
    )


def test_a_long_quote_is_shortened() -> None:
    (told,) = line("a red circle left of " + "a blue square above " * 20)
    assert told.startswith(
        "prompt has 86 tokens; the text encoder reads 6: the last 80 were cut: 'a blue square"
    )
    assert told.endswith(" …'")
    assert len(told) < 150


def test_what_is_said_is_what_the_tokenizer_keeps() -> None:
    text = "a red circle left of a blue square above a green cross"
    kept = TOKENIZER([text], max_length=6, truncation=True).input_ids[0]
    assert TOKENIZER.decode(kept[:-1]) == "a red circle left of"
    assert "'a blue square above a green cross'" in line(text)[0]


def test_counting_makes_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    """transformers warns of sequences longer than the model's; ours is the one warning there should be."""
    with caplog.at_level(logging.WARNING):
        line("red " * 200)
    assert caplog.records == []
