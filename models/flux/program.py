"""The FLUX program: encode text, denoise, decode. Operation for operation what `FluxPipeline` computes.

Shape suffixes
    B  batch, always 1           S  text tokens             D  text width (T5)
    L  image tokens              K  channels of a token     P  pooled text width (CLIP)
    C  latent channels, K / 4    H, W  latent height and width; a token is a 2x2 patch, so L = H/2 x W/2
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKL
from numpy.typing import NDArray
from torch import Tensor

from mutoscope.models.common.branching import kept
from mutoscope.models.common.flow import is_guided, trajectory
from mutoscope.models.common.prompt import cut_warning
from mutoscope.models.common.tile_decoders import PictureTiles
from mutoscope.models.common.tiles import Decoding, decode_node
from mutoscope.models.flux.components import FluxComponents
from mutoscope.models.flux.denoise import Denoise
from mutoscope.models.flux.folder import PATCH
from mutoscope.models.flux.layout import latent_size, unpack, vae_factor
from mutoscope.platform.engine.finite import require_finite
from mutoscope.platform.engine.loop import WARNINGS, BuildContext, ComponentNode, LoopNode, Program
from mutoscope.platform.engine.request import Output, Request

LAYOUT = "flux-packed"
"""How the latents among the outputs lie, for whoever reads them."""

TEXT = ("tokenizer", "tokenizer_2", "text_encoder", "text_encoder_2")
"""The components that a prompt goes through."""


def build(context: BuildContext) -> Program:
    """The card's program over its loaded components."""
    parts = FluxComponents.of(context.components)
    encode, denoise = TextEncode(parts, context.device), Denoise(parts, context)
    return Program(
        nodes=(
            ComponentNode("text_encode", "text_encode", encode, uses=TEXT, content=encode.content),
            LoopNode(denoise, total=denoise.steps, uses=("transformer",)),
            decode_node("vae_decode", decoding(parts.vae)),
        ),
        outputs=outputs,
        check=denoise.check,
        extent=partial(image_tokens, vae_factor(parts.vae)),
    )


def image_tokens(factor: int, request: Request) -> float:
    """Tokens the transformer reads of the picture."""
    height, width = latent_size(request, factor)
    return float((height // PATCH) * (width // PATCH))


class TextEncode:
    """CLIP's pooled vector and T5's token states, of the prompt and, if guided, of the negative prompt."""

    def __init__(self, parts: FluxComponents, device: torch.device) -> None:
        self.parts, self.device = parts, device

    def __call__(self, slots: Mapping[str, Any]) -> dict[str, Any]:
        texts, length = self.content(slots)
        warnings = [line for name, text in texts for line in self.warnings(name, text, length)]
        return {
            "conditionings": tuple(self.encode(text, length) for _, text in texts),
            WARNINGS: tuple(warnings),
        }

    def content(self, slots: Mapping[str, Any]) -> tuple[tuple[tuple[str, str], ...], int]:
        """The texts to encode by the parameter they come from, and their length in T5 tokens."""
        parameters = slots["request"].parameters
        names = ("prompt", "negative_prompt") if is_guided(slots["request"]) else ("prompt",)
        return tuple((name, parameters[name]) for name in names), parameters["max_sequence_length"]

    def encode(self, text: str, length: int) -> dict[str, Tensor]:
        """A text as the transformer takes it. What is longer than the encoders take is cut."""
        parts = self.parts
        clip_ids_BS = self._tokens(parts.tokenizer, text, parts.tokenizer.model_max_length)
        t5_ids_BS = self._tokens(parts.tokenizer_2, text, length)
        return {
            "text_BSD": parts.text_encoder_2(t5_ids_BS, output_hidden_states=False)[0],
            "pooled_BP": parts.text_encoder(clip_ids_BS, output_hidden_states=False).pooler_output,
        }

    def warnings(self, name: str, text: str, length: int) -> tuple[str, ...]:
        """A line for each encoder that reads less than the whole text."""
        clip, t5 = self.parts.tokenizer, self.parts.tokenizer_2
        return (
            *cut_warning(clip, text, clip.model_max_length, name=name, reader="the CLIP text encoder"),
            *cut_warning(t5, text, length, name=name, reader="the T5 text encoder"),
        )

    def _tokens(self, tokenizer: Any, text: str, length: int) -> Tensor:
        batch = tokenizer(
            [text], padding="max_length", max_length=length, truncation=True, return_tensors="pt"
        )
        ids_BS: Tensor = batch.input_ids.to(self.device)
        return ids_BS


def decoding(vae: AutoencoderKL) -> Decoding:
    """From packed latents to the picture, whole or in tiles."""
    factor = vae_factor(vae)
    return Decoding(
        slot="image",
        size=lambda slots: (1, *latent_size(slots["request"], factor)),
        latents=partial(scaled, vae, factor),
        decoder=PictureTiles(vae),
        whole=lambda latents_BCHW: vae.decode(latents_BCHW, return_dict=False)[0],
        pixels=lambda signal_B3HW: to_pixels(signal_B3HW)[0],
    )


def scaled(vae: AutoencoderKL, factor: int, slots: Mapping[str, Any]) -> Tensor:
    """The latents as the VAE decodes them, (1, C, H, W)."""
    latents_BCHW = unpack(slots["latents"].to(vae.dtype), *latent_size(slots["request"], factor))
    return (latents_BCHW / vae.config.scaling_factor) + (vae.config.shift_factor or 0.0)


def outputs(slots: Mapping[str, Any]) -> dict[str, Output]:
    """The card's output slots: the picture, the packed latents it was decoded from, and a rollout's steps."""
    return {
        "image": Output("image", slots["image"]),
        "latent": Output("latent", {"latents": slots["latents"].float().cpu().numpy()}, {"layout": LAYOUT}),
        **kept(slots, layout=LAYOUT),
        **trajectory(slots, **slots["conditionings"][0]),
    }


def to_pixels(signal_B3HW: Tensor) -> NDArray[np.uint8]:
    """A signal in [-1, 1] as uint8 (B, H, W, 3), rounded as diffusers' image processor does. Raises
    RunFailed if it is not finite.
    """
    require_finite(signal_B3HW, "vae")
    unit = (signal_B3HW * 0.5 + 0.5).clamp(0, 1)
    pixels = unit.permute(0, 2, 3, 1).float().cpu().numpy()
    return (pixels * 255).round().astype(np.uint8)
