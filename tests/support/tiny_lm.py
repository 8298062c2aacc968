"""Tiny language models with random weights, in folders as `save_pretrained` of a model and its tokenizer
writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

Family = Literal["qwen2", "llama"]

WORDS = ["<pad>", "</s>", "<unk>", "<s>", "=>", ",", "a", "red", "blue", "green", "circle", "square", "cross"]
WORDS += ["left", "right", "of", "above", "below", "on", "white", "black", "background", "and", "big"]
CONTEXT = 48
RECIPE = {"template": "{prompt} =>", "max_new_tokens": 8}
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }} : {{ message['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}=>{% endif %}"
)

_CLASSES: dict[Family, tuple[type[Any], type[Any]]] = {
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
}


def save_tiny_lm(
    folder: Path,
    *,
    seed: int = 0,
    family: Family = "qwen2",
    recipe: dict[str, Any] | None = None,
    chat: bool = False,
    **generation: Any,
) -> Path:
    """Write a language model of two layers: 4 query and 2 key-value heads of 8, 48 positions.

    Args:
        seed: of the random weights.
        recipe: written as `recipe.json`; `RECIPE` if None, no file if empty.
        chat: the tokenizer brings a chat template.
        generation: fields of `generation_config.json`.
    """
    config_class, model_class = _CLASSES[family]
    torch.manual_seed(seed)
    model = model_class(
        config_class(
            vocab_size=len(WORDS),
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=CONTEXT,
            # Far enough from zero that answers vary.
            initializer_range=0.25,
            bos_token_id=3,
            eos_token_id=1,
            pad_token_id=0,
        )
    )
    model.generation_config = GenerationConfig(
        bos_token_id=3, pad_token_id=0, **{"eos_token_id": 1, "do_sample": False, **generation}
    )
    model.save_pretrained(folder)
    tokenizer = lm_tokenizer()
    if chat:
        tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    recipe = RECIPE if recipe is None else recipe
    if recipe:
        (folder / "recipe.json").write_text(json.dumps(recipe))
    return folder


def lm_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word, opened by <s>."""
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 3)])
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=CONTEXT,
    )


def make(folder: Path, card_id: str, seed: int = 0) -> Path:
    """A complete folder of `refiner-lm`."""
    return save_tiny_lm(folder, seed=seed)


def variants(card_id: str) -> list[dict[str, Any]]:
    """Parameter sets worth mixing: greedy and drawn answers of several lengths."""
    return [{}, {"do_sample": True, "temperature": 1.3}, {"max_new_tokens": 3}, {"prompt": "blue cross"}]
