"""Inspection of a Wan image-to-video folder, without torch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from mutoscope.models.common.folder import INDEX, Contents, inspect_folder, read_recipe, require_equal
from mutoscope.models.wan.card import CARD, WanRecipe
from mutoscope.platform.engine.card import FolderSummary
from mutoscope.platform.engine.sampling import FlowSchedule
from mutoscope.platform.errors import InvalidFolder

PIPELINES = ("WanImageToVideoPipeline", "WanPipeline")

LATENT_FRAMES = 4
"""Frames per latent frame: AutoencoderKLWan walks a video in fours, whatever its configuration says."""

PIPELINE_MULTIPLE = 16
"""Height and width are multiples of this in every layout; layouts with coarser latents ask for more."""


def inspect(folder: Path) -> FolderSummary:
    """Check a Wan folder and read its recipe. Raises InvalidFolder."""
    contents = inspect_folder(folder, CARD.components, PIPELINES)
    expand, boundary = bool(contents.index.get("expand_timesteps")), contents.index.get("boundary_ratio")
    if contents.index["_class_name"] == "WanPipeline" and not expand:
        raise InvalidFolder(
            f"{folder} holds a text-to-video Wan: {CARD.id} needs a WanImageToVideoPipeline folder"
        )
    _check_schedule(contents)
    _check_scale(contents)
    _check_latents(contents, expand)
    _check_text(contents)
    _check_vision(contents)
    _check_experts(contents, boundary)
    facts = {"boundary_ratio": boundary, "expand_timesteps": expand}
    recipe = read_recipe(folder, WanRecipe, _defaults(contents, expand) | facts)
    # A recipe sets what to ask of the weights; what they are is not its to say.
    recipe = recipe.model_copy(update=facts)
    return FolderSummary(folder=folder, components=contents.files, recipe=recipe, classes=contents.classes)


def _check_schedule(contents: Contents) -> None:
    config, path = contents.configs["scheduler"], contents.folder / "scheduler"
    if contents.classes["scheduler"] == "FlowMatchEulerDiscreteScheduler":
        FlowSchedule.from_config(config)
    elif not config.get("use_flow_sigmas") or config.get("prediction_type") != "flow_prediction":
        raise InvalidFolder(f"{path} is no flow-matching schedule: set use_flow_sigmas and flow_prediction")
    if config.get("use_dynamic_shifting"):
        raise InvalidFolder(f"{path} asks for dynamic shifting, which Wan does not define: set a fixed shift")


def _transformers(contents: Contents) -> list[tuple[str, dict[str, Any]]]:
    return [
        (name, contents.configs[name])
        for name in ("transformer", "transformer_2")
        if name in contents.configs
    ]


def _check_latents(contents: Contents, expand: bool) -> None:
    """Channels in and out: noise, mask and image latent side by side; noise alone if the image is held."""
    vae = contents.configs["vae"]
    channels = vae.get("z_dim", 16)
    for name in ("latents_mean", "latents_std"):
        count = len(vae.get(name) or ()) or 16
        require_equal(contents, ("vae", "z_dim", channels), ("vae", f"length of {name}", count))
    layout, wanted = (
        ("z_dim", channels) if expand else (f"2 x z_dim + {LATENT_FRAMES}", 2 * channels + LATENT_FRAMES)
    )
    for name, config in _transformers(contents):
        require_equal(contents, (name, "in_channels", config.get("in_channels", 16)), ("vae", layout, wanted))
        require_equal(
            contents, (name, "out_channels", config.get("out_channels", 16)), ("vae", "z_dim", channels)
        )


def _check_scale(contents: Contents) -> None:
    """The VAE's stated factors, from which latent sizes are computed, are those of its layers."""
    vae, path = contents.configs["vae"], contents.folder / "vae" / "config.json"
    levels, halved = (
        vae.get("dim_mult") or [1, 2, 4, 4],
        vae.get("temperal_downsample") or [False, True, True],
    )
    made = {
        "scale_factor_spatial": 2 ** (len(levels) - 1) * (vae.get("patch_size") or 1),
        "scale_factor_temporal": 2 ** sum(map(bool, halved)),
    }
    for name, factor in made.items():
        if (stated := vae.get(name, 8 if name == "scale_factor_spatial" else LATENT_FRAMES)) != factor:
            raise InvalidFolder(
                f"{path} states {name} {stated} where its layers make {factor}: set it to {factor}"
            )
    if made["scale_factor_temporal"] != LATENT_FRAMES:
        frames = made["scale_factor_temporal"]
        raise InvalidFolder(
            f"{path} packs {frames} frames into one: the class encodes them by {LATENT_FRAMES}"
        )


def _check_text(contents: Contents) -> None:
    width = contents.configs["text_encoder"].get("d_model", 512)
    for name, config in _transformers(contents):
        require_equal(
            contents, (name, "text_dim", config.get("text_dim", 4096)), ("text_encoder", "d_model", width)
        )


def _check_vision(contents: Contents) -> None:
    """A transformer with an image width reads CLIP's image tokens; one without would silently ignore them."""
    present = {name for name in ("image_encoder", "image_processor") if name in contents.configs}
    width = contents.configs["transformer"].get("image_dim")
    if width is None:
        if "image_encoder" in present:
            raise InvalidFolder(
                f"{contents.folder} has an image_encoder its transformer cannot read (image_dim is null): "
                f"set image_encoder to [null, null] in {INDEX}"
            )
        return
    for name in ("image_encoder", "image_processor"):
        if name not in present:
            raise InvalidFolder(
                f"{contents.folder} names no {name}, but its transformer reads images: add {name}"
            )
    encoder = contents.configs["image_encoder"]
    hidden = encoder.get("hidden_size", encoder.get("vision_config", {}).get("hidden_size", 768))
    require_equal(contents, ("transformer", "image_dim", width), ("image_encoder", "hidden_size", hidden))


def _check_experts(contents: Contents, boundary: Any) -> None:
    """Two transformers share the schedule at a boundary; either without the other is half a model."""
    second = "transformer_2" in contents.configs
    if second and boundary is None:
        raise InvalidFolder(f"{contents.folder} has transformer_2 but no boundary_ratio: set it in {INDEX}")
    if not second and boundary is not None:
        raise InvalidFolder(
            f"{contents.folder} has boundary_ratio {boundary} but no transformer_2: add the component"
        )


def _defaults(contents: Contents, expand: bool) -> dict[str, Any]:
    """What the released models are run with, and the size steps of this VAE and transformer."""
    spatial = contents.configs["vae"].get("scale_factor_spatial", 8)
    _, *patch = contents.configs["transformer"].get("patch_size", (1, 2, 2))
    size = {"height": 704, "width": 1280, "num_frames": 121, "fps": 24} if expand else {}
    return {**size, "size_multiple": math.lcm(PIPELINE_MULTIPLE, *(spatial * side for side in patch))}
