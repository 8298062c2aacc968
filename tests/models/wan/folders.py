"""Tiny Wan folders with random weights, written by the real classes' own `save_pretrained`.

Each constructor is seeded, so a folder's bytes are the same in every session. The layouts are the released
ones, only narrower: Wan2.1 (CLIP vision for images), Wan2.2 A14B (two transformers and a boundary) and Wan2.2
TI2V-5B (per-token timesteps, no channel concatenation).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from diffusers import (
    AutoencoderKLWan,
    FlowMatchEulerDiscreteScheduler,
    UniPCMultistepScheduler,
    WanImageToVideoPipeline,
    WanPipeline,
    WanTransformer3DModel,
)
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import (
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    CLIPVisionModel,
    PreTrainedTokenizerFast,
    UMT5Config,
    UMT5EncoderModel,
)

WORDS = [
    "a",
    "red",
    "green",
    "blue",
    "circle",
    "square",
    "triangle",
    "drifting",
    "left",
    "right",
    "up",
    "down",
    "grows",
    "still",
    "&",
    "blurry",
]
RECIPE = {
    "height": 32,
    "width": 32,
    "num_frames": 5,
    "num_inference_steps": 3,
    "guidance_scale": 3.0,
    "max_sequence_length": 16,
    "negative_prompt": "blurry",
    "fps": 8,
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Which of the released layouts a folder has."""

    name: str
    scheduler: Literal["euler", "unipc"] = "euler"
    vision: bool = False
    second: bool = False
    expand: bool = False
    shift: float = 3.0
    text: bool = False
    """Text to video: a WanPipeline, whose transformers read noise alone."""

    @property
    def channels(self) -> tuple[int, int]:
        """What a transformer reads and what it predicts."""
        predicted = 48 if self.expand else 16
        return (predicted, predicted) if self.text or self.expand else (2 * predicted + 4, predicted)


PLAIN = Layout("plain")
VISION_UNIPC = Layout("vision_unipc", scheduler="unipc", vision=True)
SECOND_UNIPC = Layout("second_unipc", scheduler="unipc", second=True)
SECOND = Layout("second", second=True, shift=5.0)
EXPAND = Layout("expand", scheduler="unipc", expand=True)
LAYOUTS = (PLAIN, VISION_UNIPC, SECOND_UNIPC, SECOND, EXPAND)

TEXT = Layout("text", text=True)
TEXT_UNIPC = Layout("text_unipc", scheduler="unipc", text=True)
TEXT_SECOND = Layout("text_second", second=True, shift=5.0, text=True)
TEXT_SECOND_UNIPC = Layout("text_second_unipc", scheduler="unipc", second=True, text=True)
TEXT_EXPAND = Layout("text_expand", scheduler="unipc", expand=True, text=True)
TEXT_LAYOUTS = (TEXT, TEXT_UNIPC, TEXT_SECOND, TEXT_SECOND_UNIPC, TEXT_EXPAND)


def tokenizer() -> PreTrainedTokenizerFast:
    """A word-level tokenizer that closes every prompt with </s>, as UMT5's does."""
    vocabulary = {word: index for index, word in enumerate(["<pad>", "</s>", "<unk>", *WORDS])}
    words = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = Whitespace()
    words.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", vocabulary["</s>"])])
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=512
    )


def scheduler(layout: Layout) -> Any:
    if layout.scheduler == "euler":
        return FlowMatchEulerDiscreteScheduler(shift=layout.shift)
    return UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=layout.shift
    )


def text_encoder(seed: int) -> UMT5EncoderModel:
    torch.manual_seed(seed)
    config = UMT5Config(
        vocab_size=len(WORDS) + 3, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4, dropout_rate=0.0
    )
    return UMT5EncoderModel(config).eval()


def vae(seed: int, expand: bool) -> AutoencoderKLWan:
    torch.manual_seed(seed)
    if not expand:
        return AutoencoderKLWan(base_dim=3, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1).eval()
    return AutoencoderKLWan(
        base_dim=4,
        decoder_base_dim=4,
        z_dim=48,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        is_residual=True,
        patch_size=2,
        in_channels=12,
        out_channels=12,
        scale_factor_spatial=16,
        latents_mean=[0.1 * (i % 7) - 0.3 for i in range(48)],
        latents_std=[0.5 + 0.1 * (i % 5) for i in range(48)],
    ).eval()


def transformer(seed: int, layout: Layout) -> WanTransformer3DModel:
    reads, predicts = layout.channels
    torch.manual_seed(seed)
    return WanTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=reads,
        out_channels=predicts,
        text_dim=32,
        freq_dim=32,
        ffn_dim=32,
        num_layers=2,
        rope_max_seq_len=32,
        image_dim=32 if layout.vision else None,
        added_kv_proj_dim=24 if layout.vision else None,
    ).eval()


def image_encoder(seed: int) -> CLIPVisionModel:
    torch.manual_seed(seed)
    config = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=37,
        num_hidden_layers=3,
        num_attention_heads=4,
        image_size=32,
        patch_size=16,
    )
    return CLIPVisionModel(config).eval()


def write_folder(
    folder: Path, layout: Layout, recipe: dict[str, Any] | None = RECIPE, *, seed: int = 0
) -> Path:
    """Write a folder of `layout` and return it; `recipe=None` leaves `recipe.json` out.

    Args:
        seed: of the random weights; folders of different seeds differ in every component that has any.
    """
    parts = {
        "tokenizer": tokenizer(),
        "text_encoder": text_encoder(seed),
        "vae": vae(seed + 1, layout.expand),
        "scheduler": scheduler(layout),
        "transformer": transformer(seed + 2, layout),
        "transformer_2": transformer(seed + 3, layout) if layout.second else None,
        "boundary_ratio": 0.9 if layout.second else None,
        "expand_timesteps": layout.expand,
    }
    pipeline = (
        WanPipeline(**parts) if layout.text else WanImageToVideoPipeline(**parts, **vision(seed, layout))
    )
    pipeline.save_pretrained(folder)
    if recipe is not None:
        (folder / "recipe.json").write_text(json.dumps(recipe))
    return folder


def vision(seed: int, layout: Layout) -> dict[str, Any]:
    """The parts that only an image-to-video pipeline has."""
    if not layout.vision:
        return {"image_encoder": None, "image_processor": None}
    return {
        "image_encoder": image_encoder(seed + 4),
        "image_processor": CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=32),
    }
