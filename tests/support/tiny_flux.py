"""Tiny FLUX folders with random weights: every real class, small enough to run in milliseconds."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
    T5Tokenizer,
)
from transformers.utils.logging import disable_progress_bar, enable_progress_bar

NOUNS = ["circle", "square", "cross"]
WORDS = [
    "<pad>",
    "</s>",
    "<unk>",
    "a",
    "red",
    "blue",
    "green",
    *NOUNS,
    "left",
    "right",
    "of",
    "above",
    "below",
]
PROMPT_TOKENS = 12
VOCABULARY = 64
"""Rows of the text encoders' embeddings; every tokenizer here has fewer tokens."""
RECIPE = {
    "height": 16,
    "width": 24,
    "num_inference_steps": 2,
    "guidance_scale": 3.0,
    "max_sequence_length": PROMPT_TOKENS,
}


def make(folder: Path, card_id: str, seed: int = 0) -> Path:
    """A folder of the card, for the template suite."""
    return save_tiny_flux(folder, seed=seed)


def variants(card_id: str) -> list[dict[str, Any]]:
    """Guided or not, one whose steps lie elsewhere on the schedule, and one that keeps latents on the way."""
    return [{}, {"guidance_scale": 1.0}, {"num_inference_steps": 3}, {"keep_step": 1}]


def save_tiny_flux(
    folder: Path,
    *,
    seed: int = 0,
    scheduler: dict[str, Any] | None = None,
    guidance_embeds: bool = False,
    recipe: dict[str, Any] | None = None,
    published_tokenizers: bool = False,
) -> Path:
    """Write a FLUX folder: 16 x 24 pixels by default, VAE factor 2, 24 image tokens of 16 channels.

    Args:
        seed: of every constructor's random weights.
        scheduler: fields of the FlowMatchEulerDiscreteScheduler's configuration.
        recipe: written as `recipe.json`; `RECIPE` if None, no file if empty.
        published_tokenizers: CLIP's and T5's own classes, in the files FLUX.1 is published with, instead of a
            word tokenizer for both.
    """
    tokenizer = word_tokenizer()
    pipeline = FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(**(scheduler or {})),
        transformer=_transformer(seed, guidance_embeds),
        vae=_vae(seed),
        text_encoder=_clip(seed),
        text_encoder_2=_t5(seed),
        tokenizer=tokenizer,
        tokenizer_2=tokenizer,
    )
    disable_progress_bar()
    pipeline.save_pretrained(folder)
    enable_progress_bar()
    if published_tokenizers:
        _publish_tokenizers(folder)
    recipe = RECIPE if recipe is None else recipe
    if recipe:
        (folder / "recipe.json").write_text(json.dumps(recipe))
    return folder


def word_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word, closed by </s>."""
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=PROMPT_TOKENS,
    )


def _publish_tokenizers(folder: Path) -> None:
    index = json.loads((folder / "model_index.json").read_text())
    index |= {
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "tokenizer_2": ["transformers", "T5TokenizerFast"],
    }
    (folder / "model_index.json").write_text(json.dumps(index))
    for name in ("tokenizer", "tokenizer_2"):
        for path in (folder / name).iterdir():
            path.unlink()
    _write_clip_tokenizer(folder / "tokenizer")
    pieces = ["<pad>", "</s>", "<unk>", "▁a", "▁red", "▁circle", "▁", *string.ascii_lowercase]
    scored = [(piece, -1.0 - at) for at, piece in enumerate(pieces)]
    T5Tokenizer(vocab=scored, extra_ids=0).save_pretrained(folder / "tokenizer_2")


def _write_clip_tokenizer(folder: Path) -> None:
    """Byte-pair files as OpenAI published them: characters, two merges and the two marks."""
    merges = [("r", "e"), ("re", "d</w>")]
    tokens = [*string.ascii_lowercase, *(f"{letter}</w>" for letter in string.ascii_lowercase)]
    tokens += ["".join(pair) for pair in merges] + ["<|startoftext|>", "<|endoftext|>"]
    marks = {
        "bos_token": tokens[-2],
        "eos_token": tokens[-1],
        "unk_token": tokens[-1],
        "pad_token": tokens[-1],
    }
    config = {
        **marks,
        "model_max_length": PROMPT_TOKENS,
        "tokenizer_class": "CLIPTokenizer",
        "do_lower_case": True,
    }
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (folder / "vocab.json").write_text(json.dumps({token: at for at, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("\n".join(lines) + "\n")
    (folder / "special_tokens_map.json").write_text(json.dumps(marks))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def _transformer(seed: int, guidance_embeds: bool) -> FluxTransformer2DModel:
    torch.manual_seed(seed)
    return FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=guidance_embeds,
    )


def _vae(seed: int) -> AutoencoderKL:
    torch.manual_seed(seed)
    return AutoencoderKL(
        sample_size=32,
        block_out_channels=(4, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=2,
        use_quant_conv=False,
        use_post_quant_conv=False,
        shift_factor=0.06,
        scaling_factor=1.5,
    )


def _clip(seed: int) -> CLIPTextModel:
    torch.manual_seed(seed)
    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=37,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=PROMPT_TOKENS,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=0,
            projection_dim=32,
        )
    )


def _t5(seed: int) -> T5EncoderModel:
    torch.manual_seed(seed)
    return T5EncoderModel(
        T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4)
    )
