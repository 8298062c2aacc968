"""Wan image to video as a program: encode the prompt, encode the image, denoise, decode.

The operations and their order are those of diffusers' `WanImageToVideoPipeline`, so that in float32 latents
and frames are equal to the pipeline's bit for bit.

Shape legend
    B  batch, 1 here      L  prompt tokens, padded      D  width of the text encoder
    F  frames             Y, X  frame height, width     C  channels
    T  latent frames      H, W  latent height, width    K  condition channels: mask and image latent
    S  image tokens       E  width of the image encoder
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from diffusers.pipelines.wan.pipeline_wan_i2v import prompt_clean
from PIL import Image
from transformers import CLIPImageProcessorPil, CLIPVisionModel, PreTrainedTokenizerBase, UMT5EncoderModel

from mutoscope.models.wan.card import WanRecipe
from mutoscope.models.wan.codec import LatentCodec
from mutoscope.models.wan.components import WanComponents
from mutoscope.models.wan.denoise import Denoise, is_guided
from mutoscope.platform.engine.loop import BuildContext, ComponentNode, LoopNode, Program
from mutoscope.platform.engine.request import Output, Request


def build(context: BuildContext) -> Program:
    """The program over one folder's loaded components."""
    parts, device = WanComponents.of(context.components), torch.device(context.device)
    recipe = context.recipe
    assert isinstance(recipe, WanRecipe)
    codec = LatentCodec(parts.vae, device)
    text = TextEncode(parts.tokenizer, parts.text_encoder, device)
    nodes: list[ComponentNode | LoopNode] = [ComponentNode("text_encode", "text_encode", text)]
    if parts.image_encoder is not None:
        vision = VisionEncode(parts.image_processor, parts.image_encoder, device)
        nodes.append(ComponentNode("vision_encode", "vision_encode", vision))
    image = ImageEncode(codec, recipe.expand_timesteps)
    nodes += [
        ComponentNode("image_encode", "vae_encode", image, shape=video_shape),
        LoopNode(Denoise(parts, codec, recipe, device), total=steps),
        ComponentNode("decode", "vae_decode", Decode(codec), shape=video_shape),
    ]
    return Program(nodes=tuple(nodes), outputs=outputs)


def steps(slots: Mapping[str, Any]) -> int:
    """Denoising steps of the request."""
    return int(slots["request"].parameters["num_inference_steps"])


def video_shape(slots: Mapping[str, Any]) -> tuple[int, ...]:
    """Frames, height and width of the request."""
    parameters = slots["request"].parameters
    return (parameters["num_frames"], parameters["height"], parameters["width"])


def outputs(slots: Mapping[str, Any]) -> Mapping[str, Output]:
    """The card's output slots: `video` uint8 (F, Y, X, 3) and `latent` float32 (1, C, T, H, W)."""
    request: Request = slots["request"]
    latents = slots["latents_BCTHW"].float().cpu().numpy()
    return {
        "video": Output("video", slots["frames_FYXC"], {"fps": request.parameters["fps"]}),
        "latent": Output("latent", {"latents": latents}, {"layout": "wan-normalised"}),
    }


def given_image(slots: Mapping[str, Any]) -> Image.Image:
    """The image input as PIL, whose resizing is the pipeline's."""
    return Image.fromarray(np.ascontiguousarray(slots["image"]))


@dataclass(frozen=True, slots=True)
class TextEncode:
    """Prompt and, under guidance, negative prompt through UMT5, one pass each."""

    tokenizer: PreTrainedTokenizerBase
    encoder: UMT5EncoderModel
    device: torch.device

    def __call__(self, slots: Mapping[str, Any]) -> Mapping[str, Any]:
        request: Request = slots["request"]
        length = request.parameters["max_sequence_length"]
        prompt, negative = request.parameters["prompt"], request.parameters["negative_prompt"]
        return {
            "prompt_BLD": self.encode(prompt, length),
            "negative_BLD": self.encode(negative, length) if is_guided(request) else None,
        }

    def encode(self, text: str, length: int) -> torch.Tensor:
        """Text states (1, L, D), zero behind the prompt, as the transformer was trained to see them."""
        tokens = self.tokenizer(
            [prompt_clean(text)],
            padding="max_length",
            max_length=length,
            truncation=True,
            add_special_tokens=True,
            return_attention_mask=True,
            return_tensors="pt",
        )
        ids_BL, mask_BL = tokens.input_ids.to(self.device), tokens.attention_mask.to(self.device)
        states_BLD = self.encoder(ids_BL, mask_BL).last_hidden_state
        count = int(mask_BL.gt(0).sum())
        padded_BLD = torch.zeros_like(states_BLD)
        padded_BLD[:, :count] = states_BLD[:, :count]
        return padded_BLD


@dataclass(frozen=True, slots=True)
class VisionEncode:
    """The image as given, not resized to the video, through CLIP (Wan2.1): states before its last layer."""

    processor: CLIPImageProcessorPil
    encoder: CLIPVisionModel
    device: torch.device

    def __call__(self, slots: Mapping[str, Any]) -> Mapping[str, Any]:
        pixels = self.processor(images=given_image(slots), return_tensors="pt").to(self.device)
        return {"vision_BSE": self.encoder(**pixels, output_hidden_states=True).hidden_states[-2]}


@dataclass(frozen=True, slots=True)
class ImageEncode:
    """The image as the condition of every step.

    Most layouts concatenate channels: the latents of a video whose first frame is the image and whose
    others are blank, and a mask that says which frames are given. The TI2V layout holds the image's latent
    as a first frame that is never noisy.
    """

    codec: LatentCodec
    held: bool

    def __call__(self, slots: Mapping[str, Any]) -> Mapping[str, Any]:
        frames, height, width = video_shape(slots)
        first_BCFYX = self.codec.preprocess(given_image(slots), height, width)
        if self.held:
            return {"condition_BKTHW": self.codec.encode(first_BCFYX)}
        blank_BCFYX = first_BCFYX.new_zeros(1, 3, frames - 1, height, width)
        latents_BCTHW = self.codec.encode(torch.cat([first_BCFYX, blank_BCFYX], dim=2))
        # A mask channel per frame of a latent frame; the single frame of the first one fills them all.
        mask_BKTHW = latents_BCTHW.new_zeros(1, self.codec.temporal, *latents_BCTHW.shape[2:])
        mask_BKTHW[:, :, 0] = 1
        return {"condition_BKTHW": torch.cat([mask_BKTHW, latents_BCTHW], dim=1)}


@dataclass(frozen=True, slots=True)
class Decode:
    """Latents to frames."""

    codec: LatentCodec

    def __call__(self, slots: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"frames_FYXC": self.codec.decode(slots["latents_BCTHW"])}
