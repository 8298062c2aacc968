"""Wan as a program: encode the prompt, encode an image if there is one, denoise, decode.

The operations and their order are those of diffusers' `WanPipeline` and `WanImageToVideoPipeline`, so that in
float32 latents and frames are equal to the pipelines' bit for bit.

Shape legend
    B  batch, 1 here      L  prompt tokens, padded      D  width of the text encoder
    F  frames             Y, X  frame height, width     C  channels
    T  latent frames      H, W  latent height, width    K  condition channels: mask and image latent
    S  image tokens       E  width of the image encoder
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from diffusers.pipelines.wan.pipeline_wan_i2v import prompt_clean
from PIL import Image
from transformers import CLIPImageProcessorPil, CLIPVisionModel, PreTrainedTokenizerBase, UMT5EncoderModel

from mutoscope.models.common.flow import is_guided, trajectory
from mutoscope.models.common.prompt import cut_warning
from mutoscope.models.common.tiles import decode_node
from mutoscope.models.common.video_codec import LatentCodec
from mutoscope.models.wan.card import WanRecipe
from mutoscope.models.wan.components import WanComponents
from mutoscope.models.wan.denoise import Denoise
from mutoscope.platform import ids
from mutoscope.platform.engine.loop import WARNINGS, BuildContext, ComponentNode, LoopNode, Program
from mutoscope.platform.engine.request import Output, Request

_IMAGE_DOMAIN = "mutoscope.image-input/1"

TEXT = ("tokenizer", "text_encoder")
"""The components that a prompt goes through."""


def build(context: BuildContext) -> Program:
    """Image to video over one folder's loaded components."""
    parts, codec, recipe, device = opened(context)
    denoise = LoopNode(Denoise(parts, codec, recipe, device), total=steps, uses=transformers(parts))
    return Program(
        nodes=(*conditions(parts, codec, recipe, device), denoise, decode(codec)),
        outputs=outputs,
        extent=partial(latent_tokens, codec, parts),
    )


def build_text(context: BuildContext) -> Program:
    """Text to video over one folder's loaded components."""
    parts, codec, recipe, device = opened(context)
    denoise = LoopNode(Denoise(parts, codec, recipe, device), total=steps, uses=transformers(parts))
    return Program(
        nodes=(text_node(parts, device), denoise, decode(codec)),
        outputs=outputs,
        extent=partial(latent_tokens, codec, parts),
    )


def opened(context: BuildContext) -> tuple[WanComponents, LatentCodec, WanRecipe, torch.device]:
    """What the nodes of every Wan program are made of."""
    parts, device, recipe = WanComponents.of(context.components), torch.device(context.device), context.recipe
    assert isinstance(recipe, WanRecipe)
    return parts, LatentCodec(parts.vae, device), recipe, device


def transformers(parts: WanComponents) -> tuple[str, ...]:
    """The components that denoise."""
    return ("transformer",) if parts.transformer_2 is None else ("transformer", "transformer_2")


def text_node(parts: WanComponents, device: torch.device) -> ComponentNode:
    encode = TextEncode(parts.tokenizer, parts.text_encoder, device)
    return ComponentNode("text_encode", "text_encode", encode, uses=TEXT, content=encode.content)


def conditions(
    parts: WanComponents, codec: LatentCodec, recipe: WanRecipe, device: torch.device
) -> list[ComponentNode]:
    """The nodes that encode prompt and image."""
    nodes = [text_node(parts, device)]
    if parts.image_encoder is not None:
        vision = VisionEncode(parts.image_processor, parts.image_encoder, device)
        uses = ("image_processor", "image_encoder")
        nodes.append(ComponentNode("vision_encode", "vision_encode", vision, uses=uses, content=image_digest))
    image = ImageEncode(codec, recipe.expand_timesteps)
    nodes.append(
        ComponentNode("image_encode", "vae_encode", image, video_shape, uses=("vae",), content=image.content)
    )
    return nodes


def decode(codec: LatentCodec) -> LoopNode:
    """The node that turns latents into frames."""
    return decode_node("decode", codec.decoding("latents", "frames_FYXC"))


def steps(slots: Mapping[str, Any]) -> int:
    """Denoising steps of the request."""
    return int(slots["request"].parameters["num_inference_steps"])


def latent_tokens(codec: LatentCodec, parts: WanComponents, request: Request) -> float:
    """Tokens the transformer reads of the video."""
    _, _, frames, height, width = codec.latent_shape(request.parameters)
    patch_frames, patch_height, patch_width = parts.transformer.config.patch_size
    return float((frames // patch_frames) * (height // patch_height) * (width // patch_width))


def video_shape(slots: Mapping[str, Any]) -> tuple[int, ...]:
    """Frames, height and width of the request."""
    parameters = slots["request"].parameters
    return (parameters["num_frames"], parameters["height"], parameters["width"])


def outputs(slots: Mapping[str, Any]) -> Mapping[str, Output]:
    """The card's output slots: `video` uint8 (F, Y, X, 3), `latent` float32 (1, C, T, H, W), and a rollout's
    steps."""
    request: Request = slots["request"]
    latents = slots["latents"].float().cpu().numpy()
    given = {name: slots[name] for name in ("condition_BKTHW", "vision_BSE") if slots.get(name) is not None}
    return {
        "video": Output("video", slots["frames_FYXC"], {"fps": request.parameters["fps"]}),
        "latent": Output("latent", {"latents": latents}, {"layout": "wan-normalised"}),
        **trajectory(slots, text_BLD=slots["texts"][0], **given),
    }


def given_image(slots: Mapping[str, Any]) -> Image.Image:
    """The image input as PIL, whose resizing is the pipeline's."""
    return Image.fromarray(np.ascontiguousarray(slots["image"]))


def image_digest(slots: Mapping[str, Any]) -> str:
    """Hex digest of the image input: its shape and its pixels."""
    image = slots["image"]
    return ids.digest(_IMAGE_DOMAIN, {"shape": list(image.shape), "pixels": image.tobytes()})


@dataclass(frozen=True, slots=True)
class TextEncode:
    """Prompt and, under guidance, negative prompt through UMT5, one pass each."""

    tokenizer: PreTrainedTokenizerBase
    encoder: UMT5EncoderModel
    device: torch.device

    def __call__(self, slots: Mapping[str, Any]) -> Mapping[str, Any]:
        texts, length = self.content(slots)
        warnings = [
            line
            for name, text in texts
            for line in cut_warning(
                self.tokenizer, prompt_clean(text), length, name=name, reader="the text encoder"
            )
        ]
        return {
            "texts": tuple(self.encode(text, length) for _, text in texts),
            WARNINGS: tuple(warnings),
        }

    def content(self, slots: Mapping[str, Any]) -> tuple[tuple[tuple[str, str], ...], int]:
        """The texts to encode by the parameter they come from, and their length in tokens."""
        parameters = slots["request"].parameters
        names = ("prompt", "negative_prompt") if is_guided(slots["request"]) else ("prompt",)
        return tuple((name, parameters[name]) for name in names), parameters["max_sequence_length"]

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

    def content(self, slots: Mapping[str, Any]) -> tuple[str, tuple[int, ...]] | None:
        """The image, and the size of the video that it is laid out for."""
        return (image_digest(slots), video_shape(slots)) if "image" in slots else None

    def __call__(self, slots: Mapping[str, Any]) -> Mapping[str, Any]:
        if "image" not in slots:
            return {"condition_BKTHW": None}
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
