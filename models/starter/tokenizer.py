"""One closed vocabulary, two tokenizers: the CLIP-like one frames a caption, the T5-like one only ends it.

Words outside the vocabulary become ``[UNK]``; case is folded and commas are tokens of their own.
"""

from __future__ import annotations

from typing import Final

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from mutoscope.models.starter.grammar import WORDS

PAD, UNK, BOS, EOS = SPECIALS = ("[PAD]", "[UNK]", "[BOS]", "[EOS]")
PAD_ID, UNK_ID, BOS_ID, EOS_ID = range(4)
VOCABULARY: Final = {word: index for index, word in enumerate((*SPECIALS, *WORDS))}

MAX_TOKENS: Final = 20
"""The longest caption of the grammar, framed, has 19 tokens."""


def _words() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token=UNK))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def _wrap(tokenizer: Tokenizer, template: str) -> PreTrainedTokenizerFast:
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[(BOS, BOS_ID), (EOS, EOS_ID)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNK,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=MAX_TOKENS,
        padding_side="right",
    )


def clip_tokenizer() -> PreTrainedTokenizerFast:
    """``[BOS] caption [EOS]``: the pooled CLIP vector is read at the first ``[EOS]``."""
    return _wrap(_words(), f"{BOS} $A {EOS}")


def t5_tokenizer() -> PreTrainedTokenizerFast:
    """``caption [EOS]``, as T5 does."""
    return _wrap(_words(), f"$A {EOS}")
