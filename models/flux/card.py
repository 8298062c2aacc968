"""The card of FLUX.1 text to image, from the starter model to FLUX.1-dev. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from mutoscope.models.common.branches import KEPT, START, BranchParameters, check_keep_step
from mutoscope.models.common.parameters import GenerationParameters, Guidance
from mutoscope.models.common.tiling import TiledRecipe, TileParameters
from mutoscope.platform.engine.card import TRAJECTORY, Card, ComponentSpec, Slot
from mutoscope.platform.engine.request import Profile

TOKENIZERS = (
    "TokenizersBackend",
    "PreTrainedTokenizerFast",
    "CLIPTokenizer",
    "CLIPTokenizerFast",
    "T5Tokenizer",
    "T5TokenizerFast",
)


class FluxRecipe(TiledRecipe):
    """Defaults and limits of one folder of FLUX weights."""

    embedded_guidance: float = Field(
        3.5,
        ge=0,
        description="Guidance scale told to guidance-distilled transformers (FLUX.1-dev); others ignore it.",
    )

    def check(self, values: Mapping[str, Any]) -> None:
        """Sizes and guidance, then the step after which latents are kept."""
        super().check(values)
        check_keep_step(values)


class FluxParameters(BranchParameters, TileParameters, GenerationParameters):
    """What a request may set."""

    prompt: str = Field(min_length=1, description="What the picture shows.")
    embedded_guidance: Guidance | None = Field(
        None, description="Guidance scale told to guidance-distilled transformers; others ignore it."
    )
    max_sequence_length: Annotated[int, Field(ge=1, le=512)] | None = Field(
        None, description="Prompt length in T5 tokens; longer prompts are cut, as the text encoders require."
    )


CARD = Card(
    id="flux-t2i",
    title="FLUX.1 text to image",
    components=(
        ComponentSpec("transformer", "diffusers", ("FluxTransformer2DModel",)),
        ComponentSpec("vae", "diffusers", ("AutoencoderKL",)),
        ComponentSpec("text_encoder", "transformers", ("CLIPTextModel",)),
        ComponentSpec("text_encoder_2", "transformers", ("T5EncoderModel",)),
        ComponentSpec("tokenizer", "transformers", TOKENIZERS, weighted=False),
        ComponentSpec("tokenizer_2", "transformers", TOKENIZERS, weighted=False),
        ComponentSpec("scheduler", "diffusers", ("FlowMatchEulerDiscreteScheduler",), weighted=False),
    ),
    inputs=(START,),
    outputs=(
        Slot("image", "image", "The picture, uint8 (H, W, 3)."),
        Slot("latent", "latent", "Final packed latents, float32 (1, tokens, channels)."),
        KEPT,
        TRAJECTORY,
    ),
    parameters=FluxParameters,
    recipe=FluxRecipe,
    inspector="mutoscope.models.flux.folder:inspect",
    loader="mutoscope.models.flux.components:load",
    builder="mutoscope.models.flux.program:build",
    sources=("mutoscope.models.flux", "mutoscope.models.common"),
    profiles=(Profile.SERVE, Profile.ROLLOUT),
)
