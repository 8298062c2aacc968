"""The `ltx2-av` card: a prompt becomes a video with sound (LTX-2), in one stage or two. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from mutoscope.models.common.parameters import GenerationParameters, Guidance
from mutoscope.models.common.tiling import OVERLAP, TiledRecipe, TileParameters
from mutoscope.platform.engine.card import Card, ComponentSpec, Slot
from mutoscope.platform.errors import InvalidParameter

TOKENIZERS = ("TokenizersBackend", "PreTrainedTokenizerFast", "GemmaTokenizer", "GemmaTokenizerFast")

UPSAMPLER = ComponentSpec(
    "latent_upsampler", "diffusers.pipelines.ltx2", ("LTX2LatentUpsamplerModel",), optional=True
)
"""It lies in the folder of a pipeline that does not know it: `model_index.json` leaves it out."""

_CONCERN_SOUND = (
    "modality_scale",
    "audio_guidance_scale",
    "audio_modality_scale",
    "audio_guidance_rescale",
    "audio_stg_scale",
    "stage_2_audio_guidance_scale",
)

Level = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]


class Ltx2Recipe(TiledRecipe):
    """Defaults and limits of one LTX-2 folder.

    What follows from its configurations (`frame_multiple`, `upsamples` and the like) is set by inspection;
    the rest is `recipe.json`'s or, without one, the released model's practice.
    """

    height: int = 512
    width: int = 768
    size_multiple: int = Field(32, ge=1)
    num_inference_steps: int = Field(40, ge=1)
    guidance_scale: float = Field(4.0, ge=0)
    max_sequence_length: int = Field(1024, ge=1)
    num_frames: int = Field(121, ge=1)
    fps: float = Field(24, gt=0, description="Frames per second.")
    audio_guidance_scale: float = Field(4.0, ge=0, description="Guidance of the sound.")
    modality_scale: float = Field(1.0, ge=0, description="Modality guidance of the video; 1 turns it off.")
    audio_modality_scale: float = Field(1.0, ge=0, description="Modality guidance of the sound.")
    guidance_rescale: float = Field(
        0.0, ge=0, le=1, description="Share of a guided prediction that is rescaled to the unguided spread."
    )
    audio_guidance_rescale: float = Field(0.0, ge=0, le=1, description="The same for the sound.")
    stg_scale: float = Field(0.0, ge=0, description="Spatio-temporal guidance of the video; 0 turns it off.")
    audio_stg_scale: float = Field(0.0, ge=0, description="Spatio-temporal guidance of the sound.")
    stg_blocks: tuple[int, ...] = Field(
        (), description="Transformer blocks whose self-attention spatio-temporal guidance skips."
    )
    sigmas: tuple[Level, ...] = Field(
        (), description="Noise levels of the first stage of a distilled model; empty: the scheduler's."
    )
    two_stages: bool = Field(False, description="Generate at half the size, upsample the latents, refine.")
    stage_2_sigmas: tuple[Level, ...] = Field(
        (0.909375, 0.725, 0.421875),
        min_length=1,
        description="Noise levels of the second stage, the first being what the latents are noised to.",
    )
    stage_2_guidance_scale: float = Field(1.0, ge=0, description="Guidance of the video when refining.")
    stage_2_audio_guidance_scale: float = Field(1.0, ge=0, description="Guidance of the sound when refining.")
    upsamples: bool = Field(False, description="Whether the folder has a latent upsampler.")
    frame_multiple: int = Field(8, ge=1, description="num_frames - 1 is a multiple of it.")
    smallest_size: int = Field(32, ge=1, description="Least height and width that the VAE decodes, pixels.")
    sequence_multiple: int = Field(1, ge=1, description="max_sequence_length is a multiple of it.")

    def check(self, values: Mapping[str, Any]) -> None:
        """What needs sound, then frames, then sizes, then what only some folders can do."""
        super().check(values)
        self._check_sound(values)
        self._check_frames(values["num_frames"])
        self._check_stages(values)
        self._check_tiles(values)
        length = values["max_sequence_length"]
        if length % self.sequence_multiple:
            raise InvalidParameter(
                "max_sequence_length", length, f"use a multiple of {self.sequence_multiple}"
            )
        steps = values["num_inference_steps"]
        if self.sigmas and steps != len(self.sigmas):
            raise InvalidParameter(
                "num_inference_steps", steps, f"use {len(self.sigmas)}: these weights are distilled to that"
            )
        for name in ("stg_scale", "audio_stg_scale"):
            if values[name] and not self.stg_blocks:
                raise InvalidParameter(
                    name, values[name], "use 0: the recipe names no stg_blocks of these weights"
                )

    def _check_sound(self, values: Mapping[str, Any]) -> None:
        """Without sound, what concerns it stays at its default: it would change the memo key and nothing
        else."""
        if values["audio"]:
            return
        if values["isolate_modalities"]:
            raise InvalidParameter("isolate_modalities", True, "leave it out: audio is false")
        for name in _CONCERN_SOUND:
            if values[name] != getattr(self, name):
                raise InvalidParameter(name, values[name], "leave it out: audio is false")

    def _check_frames(self, frames: int) -> None:
        if (frames - 1) % self.frame_multiple:
            below = frames - (frames - 1) % self.frame_multiple
            raise InvalidParameter(
                "num_frames",
                frames,
                f"use {below} or {below + self.frame_multiple} (a multiple of {self.frame_multiple}, plus 1)",
            )

    def _check_stages(self, values: Mapping[str, Any]) -> None:
        two = values["two_stages"]
        if two and not self.upsamples:
            raise InvalidParameter("two_stages", two, "use false: this folder has no latent_upsampler")
        stages = 2 if two else 1
        for name in ("height", "width"):
            value, unit = values[name], self.size_multiple * stages
            if value % unit:
                raise InvalidParameter(
                    name, value, f"use a multiple of {unit}: the first of two stages makes half of it"
                )
            if value < (least := self.smallest_size * stages):
                raise InvalidParameter(name, value, f"use {least} or more")

    def _check_tiles(self, values: Mapping[str, Any]) -> None:
        """The last tile of a row or column is what is left, which may be less than the VAE decodes."""
        side = values["vae_tile"]
        if not side or max(values["height"], values["width"]) <= side:
            return
        stride = side - side // OVERLAP
        for name in ("height", "width"):
            left = (values[name] - 1) % stride + 1
            if left < self.smallest_size:
                remedy = (
                    f"use another: tiles would leave {left} pixels of the {name}, and the VAE decodes "
                    f"{self.smallest_size} or more"
                )
                raise InvalidParameter("vae_tile", side, remedy)


class Ltx2Parameters(TileParameters, GenerationParameters):
    """What a request may set."""

    prompt: str = Field(min_length=1, description="What is to be seen and heard.")
    num_frames: Annotated[int, Field(ge=1)] | None = Field(None, description="Frames of the video.")
    fps: Annotated[float, Field(gt=0, le=240, allow_inf_nan=False)] | None = Field(
        None, description="Frames per second; with num_frames it says how long the sound is."
    )
    audio: bool = Field(True, description="Make the sound, too. Without it the video is made by itself.")
    isolate_modalities: bool = Field(
        False,
        description="Video and sound do not attend to each other: the video is the one made without sound.",
    )
    modality_scale: Guidance | None = Field(
        None, description="How far to lead the video from what it is without its sound; 1 and below: not."
    )
    guidance_rescale: Share | None = Field(
        None, description="Share of the guided video that is rescaled to the spread of the unguided one."
    )
    stg_scale: Guidance | None = Field(
        None, description="How far to lead the video from a weaker answer, of some blocks left out."
    )
    audio_guidance_scale: Guidance | None = Field(None, description="guidance_scale of the sound.")
    audio_modality_scale: Guidance | None = Field(None, description="modality_scale of the sound.")
    audio_guidance_rescale: Share | None = Field(None, description="guidance_rescale of the sound.")
    audio_stg_scale: Guidance | None = Field(None, description="stg_scale of the sound.")
    two_stages: bool | None = Field(
        None, description="Generate at half the size, upsample the latents and refine them."
    )
    stage_2_guidance_scale: Guidance | None = Field(None, description="guidance_scale when refining.")
    stage_2_audio_guidance_scale: Guidance | None = Field(
        None, description="audio_guidance_scale when refining."
    )
    max_sequence_length: Annotated[int, Field(ge=1, le=4096)] | None = Field(
        None, description="Prompt length in tokens; longer prompts are cut."
    )


CARD = Card(
    id="ltx2-av",
    title="LTX-2 text to video with sound",
    components=(
        ComponentSpec("transformer", "diffusers", ("LTX2VideoTransformer3DModel",)),
        ComponentSpec("vae", "diffusers", ("AutoencoderKLLTX2Video",)),
        ComponentSpec("audio_vae", "diffusers", ("AutoencoderKLLTX2Audio",)),
        ComponentSpec("vocoder", "diffusers.pipelines.ltx2", ("LTX2Vocoder", "LTX2VocoderWithBWE")),
        ComponentSpec("text_encoder", "transformers", ("Gemma3ForConditionalGeneration",)),
        ComponentSpec("connectors", "diffusers.pipelines.ltx2", ("LTX2TextConnectors",)),
        UPSAMPLER,
        ComponentSpec("tokenizer", "transformers", TOKENIZERS, weighted=False),
        ComponentSpec("scheduler", "diffusers", ("FlowMatchEulerDiscreteScheduler",), weighted=False),
    ),
    inputs=(),
    outputs=(
        Slot("video", "video", "The frames, 8-bit RGB, with their sound if there is one."),
        Slot("audio", "audio", "The sound, float32 (channels, samples).", required=False),
        Slot("latent", "latent", "The video's latents as its VAE takes them, float32 (1, C, T, H, W)."),
        Slot(
            "audio_latent",
            "latent",
            "The sound's latents as its VAE takes them, float32 (1, C, L, bins).",
            required=False,
        ),
    ),
    parameters=Ltx2Parameters,
    recipe=Ltx2Recipe,
    inspector="mutoscope.models.ltx2.folder:inspect",
    loader="mutoscope.models.ltx2.components:load",
    builder="mutoscope.models.ltx2.program:build",
    sources=("mutoscope.models.ltx2", "mutoscope.models.common"),
)
