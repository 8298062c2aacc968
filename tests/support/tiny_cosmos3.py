"""Tiny Cosmos3 folders with random weights: every real class, small enough to run in milliseconds.

The two text backbones that the released models have: Qwen3's (Nano, Super) and Nemotron's (Edge), which
normalises no text keys but those that the generation tower reads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import torch
from diffusers import (
    AutoencoderKLWan,
    Cosmos3OmniPipeline,
    Cosmos3OmniTransformer,
    UniPCMultistepScheduler,
)
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar, enable_progress_bar

Backbone = Literal["qwen3", "nemotron"]

MARKS = ["<pad>", "<unk>", "<|im_start|>", "<|im_end|>", "<|vision_start|>"]
TEXT = """
    system user assistant You are a helpful who will generate images videos from give prompt . , The This
    video image is not seconds long and of FPS resolution x 0 1 2 3 4 5 6 7 8 9 red green blue circle square
    triangle left right drifting blurry Describe the scene in detail
"""
"""Words of the tokenizer: of captions, and those that the pipeline puts around them."""
CHAT = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""
VOCABULARY = 96
"""Rows of the embedding; the tokenizer has fewer tokens."""
RECIPE = {
    "height": 32,
    "width": 32,
    "num_frames": 5,
    "fps": 8,
    "num_inference_steps": 2,
    "guidance_scale": 3.0,
    "max_sequence_length": 12,
    "negative_prompt": "blurry",
    "reasoning_tokens": 4,
    "reasoning_instruction": "Describe the scene in detail.",
}


def make(folder: Path, card_id: str = "cosmos3-omni", seed: int = 0) -> Path:
    """Write a folder with Qwen3's backbone and its recipe; returns it."""
    return save(folder, seed=seed)


def variants(card_id: str) -> list[dict[str, Any]]:
    """Requests worth mixing: without guidance, one frame, other lengths, the prompt as it is."""
    return [
        {"guidance_scale": 1.0},
        {"num_frames": 1, "reasoning_tokens": 2},
        {"num_inference_steps": 3, "reasoning_tokens": 0},
        {"temperature": 0.9, "reasoning_tokens": 6},
    ]


def save(
    folder: Path,
    *,
    seed: int = 0,
    backbone: Backbone = "qwen3",
    native_schedule: bool = False,
    system_prompt: bool = True,
    recipe: dict[str, Any] | None = None,
) -> Path:
    """Write a folder, 5 frames of 32 x 32 pixels by default; `recipe` changes fields of its recipe."""
    disable_progress_bar()
    try:
        pipeline = Cosmos3OmniPipeline(
            transformer=transformer(seed, backbone),
            text_tokenizer=tokenizer(),
            vae=vae(seed + 1),
            scheduler=UniPCMultistepScheduler(
                prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
            ),
            enable_safety_checker=False,
            default_use_system_prompt=system_prompt,
            use_native_flow_schedule=native_schedule,
        )
        pipeline.save_pretrained(folder)
    finally:
        enable_progress_bar()
    (folder / "recipe.json").write_text(json.dumps({**RECIPE, **(recipe or {})}))
    return folder


def tokenizer() -> PreTrainedTokenizerFast:
    """Words, single digits and the marks of a chat."""
    vocabulary = {word: index for index, word in enumerate([*MARKS, *dict.fromkeys(TEXT.split())])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>", "<|vision_start|>"],
        chat_template=CHAT,
        model_max_length=4096,
    )


def transformer(seed: int, backbone: Backbone = "qwen3") -> Cosmos3OmniTransformer:
    torch.manual_seed(seed)
    nemotron = {"hidden_act": "relu2", "qk_norm_for_text": False, "use_und_k_norm_for_gen": True}
    module = Cosmos3OmniTransformer(
        head_dim=12,
        hidden_size=24,
        intermediate_size=40,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_hidden_layers=2,
        latent_channel=16,
        latent_patch_size=2,
        patch_latent_dim=64,
        rope_axes_dim=[2, 2, 2],
        rope_theta=10_000.0,
        vocab_size=VOCABULARY,
        **(nemotron if backbone == "nemotron" else {}),
    )
    _unsettle(module)
    return module.eval()


def vae(seed: int) -> AutoencoderKLWan:
    torch.manual_seed(seed)
    return AutoencoderKLWan(base_dim=3, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1).eval()


def _unsettle(module: nn.Module) -> None:
    """Give norms weights other than one, so that a norm in the wrong place shows, and attention some say: as
    initialised it hardly moves what an embedding adds up to, and one past would do as well as another.
    """
    for name, parameter in module.named_parameters():
        if parameter.ndim == 1 and "norm" in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
        elif name.endswith(("to_v.weight", "to_out.weight", "lm_head.weight")):
            parameter.data *= 3
