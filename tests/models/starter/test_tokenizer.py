"""Both tokenizers share one vocabulary, know every word of the grammar, and say so when they do not know."""

from __future__ import annotations

import numpy as np

from mutoscope.models.starter.grammar import WORDS, paraphrase, sample_scene
from mutoscope.models.starter.tokenizer import (
    BOS_ID,
    EOS_ID,
    MAX_TOKENS,
    PAD_ID,
    UNK_ID,
    VOCABULARY,
    clip_tokenizer,
    t5_tokenizer,
)


def test_commas_stand_alone_and_case_is_folded() -> None:
    ids = t5_tokenizer()("A red circle, drifting right").input_ids
    assert ids == [VOCABULARY[w] for w in ("a", "red", "circle", ",", "drifting", "right")] + [EOS_ID]


def test_unknown_words_are_unknown_not_dropped() -> None:
    assert t5_tokenizer()("a zebra").input_ids == [VOCABULARY["a"], UNK_ID, EOS_ID]


def test_clip_frames_the_caption_and_pads_to_the_model_length() -> None:
    ids = clip_tokenizer()("", padding="max_length").input_ids
    assert ids == [BOS_ID, EOS_ID] + [PAD_ID] * (MAX_TOKENS - 2)


def test_every_caption_fits_without_unknown_words() -> None:
    rng = np.random.default_rng(0)
    captions = [paraphrase(sample_scene(rng), rng) for _ in range(2000)]
    for tokenizer in (clip_tokenizer(), t5_tokenizer()):
        encoded = tokenizer(captions).input_ids
        assert max(map(len, encoded)) <= MAX_TOKENS
        assert not any(UNK_ID in ids for ids in encoded)
    assert len(VOCABULARY) == 4 + len(WORDS)
