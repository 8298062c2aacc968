"""Inspection of an LTX-2 folder, without torch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from mutoscope.models.common.folder import (
    RECIPE,
    Contents,
    inspect_beside,
    inspect_folder,
    read_recipe,
    require_equal,
)
from mutoscope.models.common.tiling import OVERLAP
from mutoscope.models.ltx2.card import CARD, UPSAMPLER, Ltx2Recipe
from mutoscope.platform.clip import CHANNELS, SAMPLE_RATES
from mutoscope.platform.engine.card import FolderSummary
from mutoscope.platform.engine.sampling import FlowSchedule
from mutoscope.platform.errors import InvalidFolder

PIPELINES = ("LTX2Pipeline",)

PIPELINE_MULTIPLE = 32
"""Height and width are multiples of this, whatever the VAE."""

MEL_RATIO = 4
"""Mel frames and mel bins per latent of sound: fixed in AutoencoderKLLTX2Audio."""


def inspect(folder: Path) -> FolderSummary:
    """Check an LTX-2 folder and read its recipe. Raises InvalidFolder."""
    pipeline = [spec for spec in CARD.components if spec is not UPSAMPLER]
    contents = inspect_folder(folder, pipeline, PIPELINES)
    inspect_beside(contents, UPSAMPLER)
    FlowSchedule.from_config(contents.configs["scheduler"])
    _check_decoder(contents)
    _check_video(contents)
    _check_audio(contents)
    _check_vocoder(contents)
    _check_text(contents)
    _check_upsampler(contents)
    facts = _facts(contents)
    recipe = read_recipe(folder, Ltx2Recipe, _defaults(contents) | facts)
    # A recipe sets what to ask of the weights; what they are is not its to say.
    recipe = recipe.model_copy(update=facts)
    _check_recipe(contents, recipe)
    return FolderSummary(folder=folder, components=contents.files, recipe=recipe, classes=contents.classes)


def _check_decoder(contents: Contents) -> None:
    """A decoder that draws noise of its own would make another video each time."""
    vae, path = contents.configs["vae"], contents.folder / "vae" / "config.json"
    noisy = vae.get("decoder_inject_noise") or False
    if any(noisy) if isinstance(noisy, list) else noisy:
        raise InvalidFolder(f"{path} sets decoder_inject_noise: use a VAE whose decoder draws no noise")
    if vae.get("timestep_conditioning"):
        raise InvalidFolder(f"{path} sets timestep_conditioning: use a VAE that decodes clean latents")
    patch, kinds = vae.get("patch_size", 4), vae.get("upsample_type") or ["spatiotemporal"] * 3
    scaled = vae.get("decoder_spatio_temporal_scaling", True)
    scaled = scaled if isinstance(scaled, list) else [scaled] * len(kinds)
    used = [kind for kind, is_used in zip(kinds, scaled, strict=False) if is_used]
    spatial, temporal = _ratios(vae)
    made = (
        patch * 2 ** sum(kind != "temporal" for kind in used),
        vae.get("patch_size_t", 1) * 2 ** sum(kind != "spatial" for kind in used),
    )
    if made != (spatial, temporal):
        raise InvalidFolder(
            f"{path} states {spatial} pixels and {temporal} frames a latent where its decoder makes "
            f"{made[0]} and {made[1]}: set spatial_compression_ratio and temporal_compression_ratio to that"
        )


def _check_video(contents: Contents) -> None:
    transformer, vae = contents.configs["transformer"], contents.configs["vae"]
    channels = vae.get("latent_channels", 128)
    for name in ("in_channels", "out_channels"):
        ours = ("transformer", name, transformer.get(name) or 128)
        require_equal(contents, ours, ("vae", "latent_channels", channels))
    for name in ("patch_size", "patch_size_t", "audio_patch_size", "audio_patch_size_t"):
        if transformer.get(name, 1) != 1:
            raise InvalidFolder(
                f"{contents.folder / 'transformer' / 'config.json'} sets {name} to {transformer[name]}: "
                "LTX-2 makes every latent a token of its own, set it to 1"
            )
    spatial, temporal = _ratios(vae)
    scales = list(transformer.get("vae_scale_factors", (8, 32, 32)))
    require_equal(
        contents,
        ("transformer", "vae_scale_factors", scales),
        ("vae", "compression ratio", [temporal, spatial, spatial]),
    )


def _check_audio(contents: Contents) -> None:
    transformer, vae = contents.configs["transformer"], contents.configs["audio_vae"]
    features = vae.get("latent_channels", 8) * (_mel_bins(vae) // MEL_RATIO)
    for name in ("audio_in_channels", "audio_out_channels"):
        found = ("transformer", name, transformer.get(name) or 128)
        require_equal(contents, found, ("audio_vae", f"latent_channels x mel_bins / {MEL_RATIO}", features))
    require_equal(
        contents,
        ("audio_vae", "base_channels", vae.get("base_channels", 128)),
        ("audio_vae", f"latent_channels x mel_bins / {MEL_RATIO}", features),
    )
    for ours, theirs, default in (
        ("audio_sampling_rate", "sample_rate", 16000),
        ("audio_hop_length", "mel_hop_length", 160),
    ):
        require_equal(
            contents,
            ("transformer", ours, transformer.get(ours, default)),
            ("audio_vae", theirs, vae.get(theirs, default)),
        )


def _check_vocoder(contents: Contents) -> None:
    """Its input, and that it plays mel frames as fast as the audio VAE means them."""
    vae, vocoder = contents.configs["audio_vae"], contents.configs["vocoder"]
    path = contents.folder / "vocoder" / "config.json"
    extends = contents.classes["vocoder"] == "LTX2VocoderWithBWE"
    require_equal(
        contents,
        ("vocoder", "in_channels", vocoder.get("in_channels", 128)),
        ("audio_vae", "output_channels x mel_bins", vae.get("output_channels", 2) * _mel_bins(vae)),
    )
    rate = vocoder.get("output_sampling_rate", 48000 if extends else 24000)
    first = vocoder.get("input_sampling_rate", 16000) if extends else rate
    factors = vocoder.get("upsample_factors", [5, 2, 2, 2, 2, 2] if extends else [6, 5, 2, 2, 2])
    made = vae.get("sample_rate", 16000) / vae.get("mel_hop_length", 160) * math.prod(factors)
    if made != first:
        raise InvalidFolder(
            f"{path} names {first} samples per second where its upsample_factors make {made:g}: "
            "take vocoder and audio_vae from one model"
        )
    if rate not in SAMPLE_RATES:
        rates = ", ".join(str(known) for known in SAMPLE_RATES)
        raise InvalidFolder(f"{path} sets output_sampling_rate to {rate}: an MP4 plays {rates}")
    if (channels := vocoder.get("out_channels", 2)) not in CHANNELS:
        raise InvalidFolder(f"{path} sets out_channels to {channels}: use mono or stereo")


def _check_text(contents: Contents) -> None:
    """All states of the text encoder, layer by layer, go into the connectors; theirs into the transformer."""
    text = contents.configs["text_encoder"].get("text_config", {})
    connectors, transformer = contents.configs["connectors"], contents.configs["transformer"]
    require_equal(
        contents,
        ("connectors", "caption_channels", connectors.get("caption_channels", 3840)),
        ("text_encoder", "hidden_size", text.get("hidden_size", 2304)),
    )
    require_equal(
        contents,
        ("connectors", "text_proj_in_factor", connectors.get("text_proj_in_factor", 49)),
        ("text_encoder", "num_hidden_layers + 1", text.get("num_hidden_layers", 26) + 1),
    )
    projected = transformer.get("use_prompt_embeddings", True)
    for modality, name, width in (
        ("video", "cross_attention_dim", 4096),
        ("audio", "audio_cross_attention_dim", 2048),
    ):
        taken, default = ("caption_channels", 3840) if projected else (name, width)
        heads = connectors.get(f"{modality}_connector_num_attention_heads", 30)
        made = heads * connectors.get(f"{modality}_connector_attention_head_dim", 128)
        require_equal(
            contents,
            ("transformer", taken, transformer.get(taken, default)),
            ("connectors", f"width of the {modality} connector", made),
        )


def _check_upsampler(contents: Contents) -> None:
    config = contents.configs.get(UPSAMPLER.name)
    if config is None:
        return
    require_equal(
        contents,
        (UPSAMPLER.name, "in_channels", config.get("in_channels", 128)),
        ("vae", "latent_channels", contents.configs["vae"].get("latent_channels", 128)),
    )
    rational = config.get("use_rational_resampler", True)
    scale = config.get("rational_spatial_scale", 2.0) if rational else 2.0
    if config.get("temporal_upsample") or not config.get("spatial_upsample", True) or scale != 2:
        raise InvalidFolder(
            f"{contents.folder / UPSAMPLER.name} does not double height and width alone: "
            "use the spatial upsampler of factor 2"
        )


def _check_recipe(contents: Contents, recipe: Ltx2Recipe) -> None:
    path, layers = contents.folder / RECIPE, contents.configs["transformer"].get("num_layers", 48)
    if recipe.two_stages and not recipe.upsamples:
        raise InvalidFolder(f"{path}: two_stages needs a latent_upsampler folder beside it: add it")
    if beyond := [block for block in recipe.stg_blocks if not 0 <= block < layers]:
        raise InvalidFolder(f"{path}: stg_blocks names block {beyond[0]} of {layers}: use 0 to {layers - 1}")
    if list(recipe.stage_2_sigmas) != sorted(set(recipe.stage_2_sigmas), reverse=True):
        raise InvalidFolder(f"{path}: stage_2_sigmas do not fall: list noise levels from high to low")
    if list(recipe.sigmas) != sorted(set(recipe.sigmas), reverse=True):
        raise InvalidFolder(f"{path}: sigmas do not fall: list noise levels from high to low")


def _facts(contents: Contents) -> dict[str, Any]:
    vae, connectors = contents.configs["vae"], contents.configs["connectors"]
    spatial, temporal = _ratios(vae)
    # Reflection needs a second latent to look at.
    reflects = vae.get("decoder_spatial_padding_mode", "reflect") == "reflect"
    registers = (connectors.get(f"{m}_connector_num_learnable_registers", 128) for m in ("video", "audio"))
    return {
        "upsamples": UPSAMPLER.name in contents.configs,
        "size_multiple": math.lcm(PIPELINE_MULTIPLE, spatial),
        "smallest_size": math.lcm(PIPELINE_MULTIPLE, spatial * 2 if reflects else spatial),
        "vae_tile_multiple": OVERLAP * spatial,
        "frame_multiple": temporal,
        "sequence_multiple": math.lcm(*(count or 1 for count in registers)),
    }


def _defaults(contents: Contents) -> dict[str, Any]:
    """With an upsampler, what the released model is recommended for: two stages, twice the size."""
    if UPSAMPLER.name not in contents.configs:
        return {}
    return {"two_stages": True, "height": 1024, "width": 1536}


def _ratios(vae: dict[str, Any]) -> tuple[int, int]:
    """Pixels and frames per latent, as the class derives them where they are not stated."""
    scaled = vae.get("spatio_temporal_scaling", [True] * 4)
    halvings = sum(map(bool, scaled)) if isinstance(scaled, list) else 4 * scaled
    spatial = vae.get("spatial_compression_ratio") or vae.get("patch_size", 4) * 2**halvings
    temporal = vae.get("temporal_compression_ratio") or vae.get("patch_size_t", 1) * 2**halvings
    return spatial, temporal


def _mel_bins(vae: dict[str, Any]) -> int:
    return int(vae.get("mel_bins") or 64)
