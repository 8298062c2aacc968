"""Tiny LTX-2 folders with random weights: every real class, in the layout of the released models.

The autoencoders have the released ratios, 8 frames and 32 x 32 pixels a latent, and the vocoder the released
timing, so that picture and sound of a clip end together. Each constructor is seeded: a folder's bytes are the
same in every session.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKLLTX2Audio,
    AutoencoderKLLTX2Video,
    FlowMatchEulerDiscreteScheduler,
    LTX2Pipeline,
    LTX2VideoTransformer3DModel,
)
from diffusers.pipelines.ltx2 import (
    LTX2LatentUpsamplerModel,
    LTX2TextConnectors,
    LTX2Vocoder,
    LTX2VocoderWithBWE,
)
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar, enable_progress_bar

WORDS = [
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    "a",
    "red",
    "blue",
    "circle",
    "square",
    "hums",
    "softly",
    "noise",
]
PROMPT_TOKENS = 16
LATENT_CHANNELS = 8
AUDIO_CHANNELS, MEL_BINS = 4, 16
"""Latent channels of sound, and mel bins, of which a latent holds a quarter."""
SAMPLE_RATE = 16_000
RECIPE = {
    "height": 128,
    "width": 128,
    "num_frames": 9,
    "fps": 24,
    "num_inference_steps": 3,
    "guidance_scale": 3.0,
    "audio_guidance_scale": 5.0,
    "max_sequence_length": PROMPT_TOKENS,
    "negative_prompt": "noise",
}
SCHEDULER = {
    "use_dynamic_shifting": True,
    "base_image_seq_len": 1024,
    "max_image_seq_len": 4096,
    "base_shift": 0.95,
    "max_shift": 2.05,
    "shift_terminal": 0.1,
}
"""That of the released model: shifted by the number of tokens and stretched to end at 0.1."""


def make(folder: Path, card_id: str, seed: int = 0) -> Path:
    """The smallest: two guided steps, one stage of 64 x 64 pixels; see `variants` for more."""
    assert card_id == "ltx2-av"
    smallest = {"height": 64, "width": 64, "two_stages": False, "num_inference_steps": 2, "stg_blocks": [1]}
    return save_tiny_ltx2(folder, seed=seed, recipe=smallest)


def variants(card_id: str) -> list[dict[str, Any]]:
    """Requests that go different ways through the program."""
    assert card_id == "ltx2-av"
    return [
        {},
        {"audio": False},
        {"isolate_modalities": True},
        {"guidance_scale": 1.0, "audio_guidance_scale": 1.0},
        {"modality_scale": 2.0, "stg_scale": 1.0},
        {"height": 128, "width": 128, "two_stages": True},
    ]


def save_tiny_ltx2(
    folder: Path,
    *,
    seed: int = 0,
    upsampler: bool = True,
    newer: bool = False,
    recipe: dict[str, Any] | None = None,
) -> Path:
    """Write a folder that `LTX2Pipeline.from_pretrained` opens.

    Args:
        seed: of every constructor's random weights.
        upsampler: whether `latent_upsampler/` lies in it, as in the released folders outside of the index.
        newer: the layout of LTX-2.3, gated, with projections of the text per modality and a vocoder that
            extends the bandwidth, instead of that of LTX-2.0.
        recipe: fields of `recipe.json` that replace those of `RECIPE`.
    """
    pipeline = LTX2Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(**SCHEDULER),
        vae=_vae(seed),
        audio_vae=_audio_vae(seed),
        text_encoder=_text_encoder(seed),
        tokenizer=word_tokenizer(),
        connectors=_connectors(seed, newer),
        transformer=_transformer(seed, newer),
        vocoder=_newer_vocoder(seed) if newer else _vocoder(seed),
    )
    disable_progress_bar()
    pipeline.save_pretrained(folder)
    if upsampler:
        _upsampler(seed).save_pretrained(folder / "latent_upsampler")
    enable_progress_bar()
    (folder / "recipe.json").write_text(json.dumps({**RECIPE, **(recipe or {})}))
    return folder


def word_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word behind <bos>, as Gemma's tokenizer has it."""
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>",
        unk_token="<unk>",
        model_max_length=1024,
    )


def _text_encoder(seed: int) -> Gemma3ForConditionalGeneration:
    torch.manual_seed(seed)
    text = {
        "vocab_size": 32,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"],
        "query_pre_attn_scalar": 8,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": 2,
    }
    vision = {
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "image_size": 8,
        "patch_size": 4,
    }
    return Gemma3ForConditionalGeneration(
        Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_index=31)
    )


def _transformer(seed: int, newer: bool) -> LTX2VideoTransformer3DModel:
    torch.manual_seed(seed)
    gates = ("gated_attn", "cross_attn_mod", "audio_gated_attn", "audio_cross_attn_mod", "perturbed_attn")
    return LTX2VideoTransformer3DModel(
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        num_attention_heads=2,
        attention_head_dim=12,
        cross_attention_dim=24,
        audio_in_channels=AUDIO_CHANNELS * MEL_BINS // 4,
        audio_out_channels=AUDIO_CHANNELS * MEL_BINS // 4,
        audio_num_attention_heads=2,
        audio_attention_head_dim=8,
        audio_cross_attention_dim=16,
        num_layers=2,
        caption_channels=16,
        rope_double_precision=False,
        rope_type="split",
        use_prompt_embeddings=not newer,
        **dict.fromkeys(gates, newer),
    )


def _connectors(seed: int, newer: bool) -> LTX2TextConnectors:
    torch.manual_seed(seed)
    width, audio_width = (24, 16) if newer else (16, 16)
    return LTX2TextConnectors(
        caption_channels=16,
        text_proj_in_factor=3,
        video_connector_num_attention_heads=2,
        video_connector_attention_head_dim=width // 2,
        video_connector_num_layers=1,
        video_connector_num_learnable_registers=8,
        audio_connector_num_attention_heads=2,
        audio_connector_attention_head_dim=audio_width // 2,
        audio_connector_num_layers=1,
        audio_connector_num_learnable_registers=8,
        video_gated_attn=newer,
        audio_gated_attn=newer,
        connector_rope_base_seq_len=32,
        rope_double_precision=False,
        rope_type="split",
        per_modality_projections=newer,
        video_hidden_dim=width,
        audio_hidden_dim=audio_width,
    )


def _vae(seed: int) -> AutoencoderKLLTX2Video:
    torch.manual_seed(seed)
    vae = AutoencoderKLLTX2Video(
        latent_channels=LATENT_CHANNELS,
        block_out_channels=(8, 8, 8, 8),
        decoder_block_out_channels=(8, 16, 32),
        layers_per_block=(1, 1, 1, 1, 1),
        decoder_layers_per_block=(1, 1, 1, 1),
        scaling_factor=1.2,
        decoder_causal=False,
        spatial_compression_ratio=32,
        temporal_compression_ratio=8,
    )
    vae.latents_mean.copy_(torch.linspace(-0.2, 0.3, LATENT_CHANNELS))
    vae.latents_std.copy_(torch.linspace(0.7, 1.4, LATENT_CHANNELS))
    return vae


def _audio_vae(seed: int) -> AutoencoderKLLTX2Audio:
    torch.manual_seed(seed)
    features = AUDIO_CHANNELS * MEL_BINS // 4
    vae = AutoencoderKLLTX2Audio(
        base_channels=features,
        ch_mult=(1, 1, 1),
        num_res_blocks=1,
        resolution=32,
        latent_channels=AUDIO_CHANNELS,
        sample_rate=SAMPLE_RATE,
        mel_bins=MEL_BINS,
    )
    vae.latents_mean.copy_(torch.linspace(-0.4, 0.2, features))
    vae.latents_std.copy_(torch.linspace(0.8, 1.3, features))
    return vae


def _vocoder(seed: int) -> LTX2Vocoder:
    """160 samples for a mel frame, as many as lie between two at 16 kHz."""
    torch.manual_seed(seed)
    vocoder = LTX2Vocoder(
        in_channels=2 * MEL_BINS,
        hidden_channels=32,
        upsample_kernel_sizes=[16, 11, 8],
        upsample_factors=[8, 5, 4],
        resnet_kernel_sizes=[3],
        resnet_dilations=[[1, 3, 5]],
        output_sampling_rate=SAMPLE_RATE,
    )
    # As they are drawn, weights would fade away what comes in, and biases be heard as a constant.
    with torch.no_grad():
        for name, parameter in vocoder.named_parameters():
            parameter.mul_(0 if name.endswith("bias") else 2)
    return vocoder


def _newer_vocoder(seed: int) -> LTX2VocoderWithBWE:
    torch.manual_seed(seed)
    blocks = {"resnet_kernel_sizes": [3], "resnet_dilations": [[1, 3, 5]], "hidden_channels": 16}
    vocoder = LTX2VocoderWithBWE(
        in_channels=2 * MEL_BINS,
        upsample_kernel_sizes=[16, 11, 8],
        upsample_factors=[8, 5, 4],
        bwe_in_channels=2 * MEL_BINS,
        bwe_upsample_kernel_sizes=[16, 11, 6],
        bwe_upsample_factors=[8, 5, 6],
        num_mel_channels=MEL_BINS,
        filter_length=64,
        window_length=64,
        **blocks,
        **{f"bwe_{name}": value for name, value in blocks.items()},
    )
    for buffer in (vocoder.mel_stft.stft_fn.forward_basis, vocoder.mel_stft.mel_basis):
        buffer.copy_(torch.rand_like(buffer))
    return vocoder


def _upsampler(seed: int) -> LTX2LatentUpsamplerModel:
    torch.manual_seed(seed)
    return LTX2LatentUpsamplerModel(in_channels=LATENT_CHANNELS, mid_channels=32, num_blocks_per_stage=1)
