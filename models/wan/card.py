"""The cards of Wan 2.1 and 2.2: `wan-i2v` makes a video of an image and a prompt, `wan-t2v` of a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from mutoscope.models.common.parameters import GenerationParameters, Guidance
from mutoscope.models.common.tiling import TiledRecipe, TileParameters
from mutoscope.platform.engine.card import TRAJECTORY, Card, ComponentSpec, Slot
from mutoscope.platform.engine.request import Profile
from mutoscope.platform.errors import InvalidParameter

TOKENIZERS = ("TokenizersBackend", "PreTrainedTokenizerFast", "T5Tokenizer", "T5TokenizerFast")


class WanRecipe(TiledRecipe):
    """Defaults and limits of one Wan folder.

    `boundary_ratio` and `expand_timesteps` come from `model_index.json`, the multiples from the VAE's and the
    transformer's configs; the rest from `recipe.json` or, without one, from the released models' practice.
    """

    height: int = 480
    width: int = 832
    num_inference_steps: int = Field(50, ge=1)
    guidance_scale: float = Field(5.0, ge=0)
    max_sequence_length: int = Field(512, ge=1)
    num_frames: int = Field(81, ge=1)
    frame_counts: tuple[int, ...] = Field((), description="Allowed numbers of frames; empty: any that fits.")
    frame_multiple: int = Field(
        4, ge=1, description="Frames per latent frame: num_frames - 1 is a multiple of it."
    )
    fps: int = Field(16, ge=1, description="Frames per second the video is meant to be shown at.")
    guidance_scale_2: float | None = Field(None, ge=0, description="Guidance of the low-noise transformer.")
    boundary_ratio: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Share of the schedule below which transformer_2 takes over; None: it never does.",
    )
    expand_timesteps: bool = Field(
        False, description="The image is held as a clean first latent frame (TI2V)."
    )

    def check(self, values: Mapping[str, Any]) -> None:
        """Sizes, then frame counts, then the second guidance, which needs a second transformer."""
        super().check(values)
        frames = values["num_frames"]
        if self.frame_counts and frames not in self.frame_counts:
            allowed = ", ".join(str(count) for count in self.frame_counts)
            raise InvalidParameter("num_frames", frames, f"these weights make {allowed}")
        if (frames - 1) % self.frame_multiple:
            below = frames - (frames - 1) % self.frame_multiple
            remedy = (
                f"use {below} or {below + self.frame_multiple} (a multiple of {self.frame_multiple}, plus 1)"
            )
            raise InvalidParameter("num_frames", frames, remedy)
        if self.boundary_ratio is None and values["guidance_scale_2"] is not None:
            remedy = "leave it out: these weights have a single transformer"
            raise InvalidParameter("guidance_scale_2", values["guidance_scale_2"], remedy)


class WanParameters(TileParameters, GenerationParameters):
    """What a request may set."""

    prompt: str = Field(min_length=1, description="What happens in the video.")
    num_frames: Annotated[int, Field(ge=1)] | None = Field(None, description="Frames of the video.")
    fps: Annotated[int, Field(ge=1, le=240)] | None = Field(
        None, description="Frames per second it is shown at."
    )
    guidance_scale_2: Guidance | None = Field(
        None, description="Guidance of the low-noise transformer; left out, it is guidance_scale."
    )
    max_sequence_length: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        None, description="Prompt length in tokens; longer prompts are cut, as the text encoder requires."
    )


WITHOUT_IMAGE = (
    ComponentSpec("transformer", "diffusers", ("WanTransformer3DModel",)),
    ComponentSpec("transformer_2", "diffusers", ("WanTransformer3DModel",), optional=True),
    ComponentSpec("vae", "diffusers", ("AutoencoderKLWan",)),
    ComponentSpec("text_encoder", "transformers", ("UMT5EncoderModel",)),
    ComponentSpec("tokenizer", "transformers", TOKENIZERS, weighted=False),
    ComponentSpec(
        "scheduler",
        "diffusers",
        ("FlowMatchEulerDiscreteScheduler", "UniPCMultistepScheduler"),
        weighted=False,
    ),
)

COMPONENTS = (
    *WITHOUT_IMAGE,
    ComponentSpec("image_encoder", "transformers", ("CLIPVisionModel",), optional=True),
    ComponentSpec(
        "image_processor",
        "transformers",
        ("CLIPImageProcessor", "CLIPImageProcessorFast", "CLIPImageProcessorPil"),
        weighted=False,
        optional=True,
    ),
)
"""All that a Wan folder may have."""

OUTPUTS = (
    Slot("video", "video", "The frames, 8-bit RGB."),
    Slot("latent", "latent", "The denoised latents, float32, before decoding."),
)
IMAGE = Slot("image", "image", "The first frame; resized to the video's size.")
SOURCES = ("mutoscope.models.wan", "mutoscope.models.common")

CARD = Card(
    id="wan-i2v",
    title="Wan image to video",
    components=COMPONENTS,
    inputs=(IMAGE,),
    outputs=(*OUTPUTS, TRAJECTORY),
    parameters=WanParameters,
    recipe=WanRecipe,
    inspector="mutoscope.models.wan.folder:inspect",
    loader="mutoscope.models.wan.components:load",
    builder="mutoscope.models.wan.program:build",
    sources=SOURCES,
    profiles=(Profile.SERVE, Profile.ROLLOUT),
)

T2V = Card(
    id="wan-t2v",
    title="Wan text to video",
    components=WITHOUT_IMAGE,
    inputs=(),
    outputs=(*OUTPUTS, TRAJECTORY),
    parameters=WanParameters,
    recipe=WanRecipe,
    inspector="mutoscope.models.wan.folder:inspect_text",
    loader="mutoscope.models.wan.components:load",
    builder="mutoscope.models.wan.program:build_text",
    sources=SOURCES,
    profiles=(Profile.SERVE, Profile.ROLLOUT),
)
