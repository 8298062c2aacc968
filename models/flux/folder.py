"""Inspection of a FLUX folder, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mutoscope.models.common.folder import Contents, inspect_folder, read_recipe, require_equal
from mutoscope.models.common.tiling import OVERLAP
from mutoscope.models.flux.card import CARD, FluxRecipe
from mutoscope.platform.engine.card import FolderSummary
from mutoscope.platform.engine.sampling import FlowSchedule
from mutoscope.platform.errors import InvalidFolder

PIPELINES = ("FluxPipeline",)

PATCH = 2
"""A FLUX token is a 2x2 patch of latents."""


def inspect(folder: Path) -> FolderSummary:
    """Check a FLUX folder and read its recipe. Raises InvalidFolder."""
    contents = inspect_folder(folder, CARD.components, PIPELINES)
    _check_fit(contents)
    _check_prompt_length(contents)
    FlowSchedule.from_config(contents.configs["scheduler"])
    recipe = read_recipe(folder, FluxRecipe, _defaults(contents))
    return FolderSummary(folder=folder, components=contents.files, recipe=recipe, classes=contents.classes)


def _check_fit(contents: Contents) -> None:
    """The widths at which components meet."""
    transformer, vae = contents.configs["transformer"], contents.configs["vae"]
    clip, t5 = contents.configs["text_encoder"], contents.configs["text_encoder_2"]
    require_equal(
        contents,
        ("transformer", "in_channels", transformer.get("in_channels", 64)),
        ("vae", f"latent_channels x {PATCH**2}", vae.get("latent_channels", 4) * PATCH**2),
    )
    require_equal(
        contents,
        ("transformer", "pooled_projection_dim", transformer.get("pooled_projection_dim", 768)),
        ("text_encoder", "hidden_size", clip.get("hidden_size", 512)),
    )
    require_equal(
        contents,
        ("transformer", "joint_attention_dim", transformer.get("joint_attention_dim", 4096)),
        ("text_encoder_2", "d_model", t5.get("d_model", 512)),
    )


def _check_prompt_length(contents: Contents) -> None:
    """CLIP has a position for so many tokens, and the pipeline pads prompts to what the tokenizer names."""
    limit = contents.configs["text_encoder"].get("max_position_embeddings", 77)
    length = contents.configs["tokenizer"].get("model_max_length")
    if not isinstance(length, int) or not 0 < length <= limit:
        path = contents.folder / "tokenizer" / "tokenizer_config.json"
        raise InvalidFolder(
            f"{path} sets model_max_length={length} where text_encoder takes {limit}: set it to {limit}"
        )


def _defaults(contents: Contents) -> dict[str, Any]:
    """What FluxPipeline would use, with this VAE's size limits: it halves once per level but one."""
    factor = 2 ** (len(contents.configs["vae"].get("block_out_channels", (64,))) - 1)
    distilled = bool(contents.configs["transformer"].get("guidance_embeds", False))
    return {
        "height": 128 * factor,
        "width": 128 * factor,
        "size_multiple": PATCH * factor,
        "vae_tile_multiple": OVERLAP * factor,
        "num_inference_steps": 28 if distilled else 4,
        "guidance_scale": 1.0,
        "embedded_guidance": 3.5,
        "max_sequence_length": 512 if distilled else 256,
    }
