"""Inspection of Wan folders, without torch.

Three layouts are told apart by their pipeline and by what the transformer reads. Text to video: noise alone.
Image to video: noise, a mask and the image's latent side by side. TI2V: noise alone with a timestep for each
token, so that an image may be held as a clean first frame; it serves either card.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, TypeVar

from mutoscope.models.common.folder import INDEX, Contents, inspect_folder, read_recipe, require_equal
from mutoscope.models.common.tiling import OVERLAP
from mutoscope.models.wan.adaptive_card import AdaptiveRecipe
from mutoscope.models.wan.card import CARD, COMPONENTS, T2V, WanRecipe
from mutoscope.platform.engine.card import FolderSummary
from mutoscope.platform.engine.sampling import FlowSchedule
from mutoscope.platform.errors import InvalidFolder

RecipeT = TypeVar("RecipeT", bound=WanRecipe)

TEXT, IMAGE = "WanPipeline", "WanImageToVideoPipeline"

LATENT_FRAMES = 4
"""Frames per latent frame: AutoencoderKLWan walks a video in fours, whatever its configuration says."""

PIPELINE_MULTIPLE = 16
"""Height and width are multiples of this in every layout; layouts with coarser latents ask for more."""


def inspect(folder: Path) -> FolderSummary:
    """Check a folder for `wan-i2v` and read its recipe. Raises InvalidFolder."""
    contents = inspect_folder(folder, CARD.components, (IMAGE, TEXT))
    if contents.index["_class_name"] == TEXT and not expands(contents):
        raise InvalidFolder(f"{folder} holds a text-to-video Wan: use card {T2V.id} for it")
    check(contents, takes_image=True)
    return summary(contents, WanRecipe)


def inspect_text(folder: Path) -> FolderSummary:
    """Check a folder for `wan-t2v` and read its recipe. Raises InvalidFolder."""
    contents = inspect_folder(folder, T2V.components, (TEXT, IMAGE))
    if contents.index["_class_name"] == IMAGE and not expands(contents):
        raise InvalidFolder(f"{folder} holds an image-to-video Wan: use card {CARD.id} for it")
    check(contents, takes_image=False)
    return summary(contents, WanRecipe)


def inspect_adaptive(folder: Path) -> FolderSummary:
    """Check a folder of any layout for `wan-adaptive` and read its recipe. Raises InvalidFolder."""
    contents = inspect_folder(folder, COMPONENTS, (IMAGE, TEXT))
    joined = contents.index["_class_name"] == IMAGE and not expands(contents)
    check(contents, takes_image=joined or expands(contents))
    image = "optional" if expands(contents) else "required" if joined else "none"
    return summary(contents, AdaptiveRecipe, image=image)


def expands(contents: Contents) -> bool:
    """Whether the folder is of the TI2V layout."""
    return bool(contents.index.get("expand_timesteps"))


def check(contents: Contents, *, takes_image: bool) -> None:
    """That the components fit each other, and an image if they are to read one. Raises InvalidFolder."""
    _check_schedule(contents)
    _check_scale(contents)
    _check_latents(contents, joined=takes_image and not expands(contents))
    _check_text(contents)
    if takes_image:
        _check_vision(contents)
    _check_experts(contents, contents.index.get("boundary_ratio"))


def summary(contents: Contents, kind: type[RecipeT], **facts: Any) -> FolderSummary:
    """What was found, with the recipe of the given class; `facts` are further fields that weights decide."""
    facts |= {
        "boundary_ratio": contents.index.get("boundary_ratio"),
        "expand_timesteps": expands(contents),
    }
    recipe = read_recipe(contents.folder, kind, _defaults(contents) | facts)
    # A recipe sets what to ask of the weights; what they are is not its to say.
    recipe = recipe.model_copy(update=facts)
    return FolderSummary(contents.folder, contents.files, recipe, contents.classes)


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


def _check_latents(contents: Contents, *, joined: bool) -> None:
    """Channels in and out: noise, mask and image latent side by side if joined, else noise alone."""
    vae = contents.configs["vae"]
    channels = vae.get("z_dim", 16)
    for name in ("latents_mean", "latents_std"):
        count = len(vae.get(name) or ()) or 16
        require_equal(contents, ("vae", "z_dim", channels), ("vae", f"length of {name}", count))
    layout, wanted = (
        (f"2 x z_dim + {LATENT_FRAMES}", 2 * channels + LATENT_FRAMES) if joined else ("z_dim", channels)
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


def _defaults(contents: Contents) -> dict[str, Any]:
    """What the released models are run with, and the size steps of this VAE and transformer."""
    spatial = contents.configs["vae"].get("scale_factor_spatial", 8)
    _, *patch = contents.configs["transformer"].get("patch_size", (1, 2, 2))
    size = {"height": 704, "width": 1280, "num_frames": 121, "fps": 24} if expands(contents) else {}
    multiple = math.lcm(PIPELINE_MULTIPLE, *(spatial * side for side in patch))
    return {**size, "size_multiple": multiple, "vae_tile_multiple": OVERLAP * spatial}
