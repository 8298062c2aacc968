"""The card of Cosmos3: a prompt is reasoned about in words, then becomes a video or a picture. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from mutoscope.models.common.parameters import GenerationParameters
from mutoscope.models.common.tiling import TiledRecipe, TileParameters
from mutoscope.platform.engine.card import TRAJECTORY, Card, ComponentSpec, Slot
from mutoscope.platform.engine.request import Profile
from mutoscope.platform.errors import InvalidParameter

TOKENIZERS = ("TokenizersBackend", "PreTrainedTokenizerFast", "Qwen2Tokenizer", "Qwen2TokenizerFast")

LATENT_FRAMES = 4
"""Frames per latent frame: AutoencoderKLWan walks a video in fours, whatever its configuration says."""

INSTRUCTION = (
    "Rewrite the user's prompt as one detailed description of the scene to be drawn: subjects, setting, "
    "light, camera and motion. Keep every fact of the prompt. Answer with the description only."
)


class CosmosRecipe(TiledRecipe):
    """Defaults and limits of one Cosmos3 folder.

    `system_prompt` and `native_schedule` come from `model_index.json`, the multiples from the VAE's
    configuration; the rest from `recipe.json` or, without one, from the released models' practice.
    """

    height: int = 720
    width: int = 1280
    size_multiple: int = Field(16, ge=1)
    num_inference_steps: int = Field(35, ge=1)
    guidance_scale: float = Field(6.0, ge=0)
    max_sequence_length: int = Field(4096, ge=1)
    num_frames: int = Field(189, ge=1)
    fps: int = Field(24, ge=1, description="Frames per second; the model is told, and moves accordingly.")
    reasoning_tokens: int = Field(512, ge=0, description="Tokens the prompt is rewritten in; 0 keeps it.")
    reasoning_instruction: str = Field(
        INSTRUCTION, min_length=1, description="What the understanding tower is asked to do with a prompt."
    )
    temperature: float = Field(0.0, ge=0, description="Of the rewriting; 0 takes the likeliest token.")
    top_p: float = Field(1.0, gt=0, le=1, description="Only the likeliest tokens of this mass are drawn.")
    system_prompt: bool = Field(True, description="The generator was trained with a system prompt.")
    native_schedule: bool = Field(False, description="Noise levels are evenly spaced before their shift.")

    def check(self, values: Mapping[str, Any]) -> None:
        """Sizes and tiles, then frame counts."""
        super().check(values)
        frames = values["num_frames"]
        if (frames - 1) % LATENT_FRAMES:
            below = frames - (frames - 1) % LATENT_FRAMES
            remedy = f"use {below} or {below + LATENT_FRAMES} (a multiple of {LATENT_FRAMES}, plus 1)"
            raise InvalidParameter("num_frames", frames, remedy)


class CosmosParameters(TileParameters, GenerationParameters):
    """What a request may set."""

    prompt: str = Field(min_length=1, description="What the video or picture shows.")
    num_frames: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Frames of the video; 1 makes a picture."
    )
    fps: Annotated[int, Field(ge=1, le=240)] | None = Field(
        None, description="Frames per second; the model is told, and moves accordingly."
    )
    reasoning_tokens: Annotated[int, Field(ge=0, le=8192)] | None = Field(
        None, description="Tokens the model may rewrite the prompt in before it draws; 0 draws it as it is."
    )
    reasoning_instruction: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="What the model is asked to do with the prompt."
    )
    temperature: Annotated[float, Field(ge=0, le=10)] | None = Field(
        None, description="Of the rewriting: 0 takes the likeliest token, greater values draw from more."
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="Only the likeliest tokens that together have this probability are drawn."
    )
    max_sequence_length: Annotated[int, Field(ge=1, le=32768)] | None = Field(
        None, description="Prompt length in tokens; longer prompts are cut."
    )


CARD = Card(
    id="cosmos3-omni",
    title="Cosmos3 text to video, with reasoning",
    components=(
        ComponentSpec("transformer", "diffusers", ("Cosmos3OmniTransformer",)),
        ComponentSpec("vae", "diffusers", ("AutoencoderKLWan",)),
        ComponentSpec("text_tokenizer", "transformers", TOKENIZERS, weighted=False),
        ComponentSpec("scheduler", "diffusers", ("UniPCMultistepScheduler",), weighted=False),
    ),
    inputs=(
        Slot(
            "image", "image", "The first frame; scaled to cover the video's size and cropped.", required=False
        ),
    ),
    outputs=(
        Slot("video", "video", "The frames, 8-bit RGB; of requests for more than one.", required=False),
        Slot("image", "image", "The picture, 8-bit RGB; of requests for one frame.", required=False),
        Slot("latent", "latent", "The denoised latents, float32, before decoding."),
        Slot("text", "text", "The prompt that was drawn: as rewritten, or as given."),
        TRAJECTORY,
    ),
    parameters=CosmosParameters,
    recipe=CosmosRecipe,
    inspector="mutoscope.models.cosmos3.folder:inspect",
    loader="mutoscope.models.cosmos3.components:load",
    builder="mutoscope.models.cosmos3.program:build",
    sources=("mutoscope.models.cosmos3", "mutoscope.models.common"),
    profiles=(Profile.SERVE, Profile.ROLLOUT),
)
