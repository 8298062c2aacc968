"""Inspection of a Cosmos3 folder, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mutoscope.models.common.folder import Contents, inspect_folder, read_recipe, require_equal
from mutoscope.models.common.tiling import OVERLAP
from mutoscope.models.cosmos3.card import CARD, LATENT_FRAMES, CosmosRecipe
from mutoscope.platform.engine.card import FolderSummary
from mutoscope.platform.errors import InvalidFolder

PIPELINES = ("Cosmos3OmniPipeline",)


def inspect(folder: Path) -> FolderSummary:
    """Check a Cosmos3 folder and read its recipe. Raises InvalidFolder."""
    contents = inspect_folder(folder, CARD.components, PIPELINES)
    _check_schedule(contents)
    _check_latents(contents)
    _check_heads(contents)
    _check_tokenizer(contents)
    facts = {
        "system_prompt": _flag(contents, "default_use_system_prompt", default=True),
        "native_schedule": _flag(contents, "use_native_flow_schedule", default=False),
    }
    recipe = read_recipe(folder, CosmosRecipe, _sizes(contents) | facts)
    # A recipe sets what to ask of the weights; what they are is not its to say.
    recipe = recipe.model_copy(update=facts)
    return FolderSummary(folder=folder, components=contents.files, recipe=recipe, classes=contents.classes)


def _flag(contents: Contents, name: str, *, default: bool) -> bool:
    value = contents.index.get(name)
    return default if value is None else bool(value)


def _sizes(contents: Contents) -> dict[str, Any]:
    factor = _factor(contents.configs["vae"])
    return {"size_multiple": factor, "vae_tile_multiple": OVERLAP * factor}


def _factor(vae: dict[str, Any]) -> int:
    """Pixels per latent, from the VAE's layers."""
    levels = vae.get("dim_mult") or [1, 2, 4, 4]
    return int(2 ** (len(levels) - 1) * (vae.get("patch_size") or 1))


def _check_schedule(contents: Contents) -> None:
    config, path = contents.configs["scheduler"], contents.folder / "scheduler"
    if config.get("prediction_type") != "flow_prediction":
        raise InvalidFolder(f"{path} predicts no velocity: set prediction_type to flow_prediction")
    if config.get("use_dynamic_shifting"):
        raise InvalidFolder(
            f"{path} asks for dynamic shifting, which Cosmos3 does not define: set a fixed shift"
        )


def _check_latents(contents: Contents) -> None:
    """Latent channels and factors: as stated, and as the layers make them."""
    vae, transformer = contents.configs["vae"], contents.configs["transformer"]
    path = contents.folder / "vae" / "config.json"
    channels, patch = vae.get("z_dim", 16), transformer.get("latent_patch_size", 2)
    require_equal(
        contents,
        ("transformer", "latent_channel", transformer.get("latent_channel", 48)),
        ("vae", "z_dim", channels),
    )
    require_equal(
        contents,
        ("transformer", "patch_latent_dim", transformer.get("patch_latent_dim", 192)),
        ("vae", f"z_dim x {patch**2}", channels * patch**2),
    )
    for name in ("latents_mean", "latents_std"):
        count = len(vae.get(name) or ()) or 16
        require_equal(contents, ("vae", "z_dim", channels), ("vae", f"length of {name}", count))
    stated = vae.get("scale_factor_spatial", 8)
    if stated != _factor(vae):
        raise InvalidFolder(
            f"{path} states scale_factor_spatial {stated} where its layers make {_factor(vae)}: "
            f"set it to {_factor(vae)}"
        )
    frames = 2 ** sum(map(bool, vae.get("temperal_downsample") or [False, True, True]))
    if frames != LATENT_FRAMES:
        raise InvalidFolder(
            f"{path} packs {frames} frames into one: the class encodes them by {LATENT_FRAMES}"
        )


def _check_heads(contents: Contents) -> None:
    """Every rotary frequency belongs to one of three axes; the class would leave others to the first."""
    config, path = contents.configs["transformer"], contents.folder / "transformer" / "config.json"
    axes = config.get("rope_axes_dim") or (config.get("rope_scaling") or {}).get(
        "mrope_section", [24, 20, 20]
    )
    head = config.get("head_dim", 128)
    if len(axes) != 3 or sum(axes) != head // 2:
        raise InvalidFolder(
            f"{path} divides {head // 2} frequencies as {axes}: time, height and width share them all"
        )
    heads, shared = config.get("num_attention_heads", 32), config.get("num_key_value_heads", 8)
    if heads % shared:
        raise InvalidFolder(
            f"{path} has {heads} heads over {shared} keys: take a configuration where these divide those"
        )


def _check_tokenizer(contents: Contents) -> None:
    """A prompt is a chat, so the tokenizer needs a template, in its configuration or a file of its own."""
    folder = contents.folder / "text_tokenizer"
    if not contents.configs["text_tokenizer"].get("chat_template") and not any(
        (folder / name).is_file() for name in ("chat_template.jinja", "chat_template.json")
    ):
        raise InvalidFolder(
            f"{folder} has no chat template: copy chat_template.jinja from the model's source"
        )
