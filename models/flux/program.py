"""The FLUX program: encode text, denoise, decode. Operation for operation what `FluxPipeline` computes.

Shape suffixes
    B  batch, always 1           S  text tokens             D  text width (T5)
    L  image tokens              K  channels of a token     P  pooled text width (CLIP)
    C  latent channels, K / 4    H, W  latent height and width; a token is a 2x2 patch, so L = H/2 x W/2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mutoscope.models.common.noise import seeded_normal
from mutoscope.models.flux.components import FluxComponents
from mutoscope.models.flux.folder import PATCH
from mutoscope.platform.engine.loop import (
    BuildContext,
    ComponentNode,
    Done,
    LoopNode,
    LoopState,
    Program,
    Rows,
    WorkPlan,
)
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.engine.sampling import cfg, ode_step


def build(context: BuildContext) -> Program:
    """The card's program over its loaded components."""
    parts = FluxComponents.of(context.components)
    return Program(
        nodes=(
            ComponentNode("text_encode", "text_encode", TextEncode(parts, context.device)),
            LoopNode(
                Denoise(parts, context),
                total=lambda slots: slots["request"].parameters["num_inference_steps"],
            ),
            ComponentNode("vae_decode", "vae_decode", Decode(parts)),
        ),
        outputs=outputs,
    )


@dataclass(frozen=True, slots=True)
class Conditioning:
    """A prompt as the transformer takes it."""

    text_BSD: Tensor
    pooled_BP: Tensor


def guided(request: Request) -> bool:
    """Whether the request uses classifier-free guidance, which doubles the work of a step."""
    return bool(request.parameters["guidance_scale"] > 1)


class TextEncode:
    """CLIP's pooled vector and T5's token states, of the prompt and, if guided, of the negative prompt."""

    def __init__(self, parts: FluxComponents, device: torch.device) -> None:
        self.parts, self.device = parts, device

    def __call__(self, slots: Mapping[str, Any]) -> dict[str, Any]:
        request: Request = slots["request"]
        length = request.parameters["max_sequence_length"]
        negative = request.parameters["negative_prompt"] if guided(request) else None
        return {
            "cond": self.encode(request.parameters["prompt"], length),
            "uncond": None if negative is None else self.encode(negative, length),
        }

    def encode(self, prompt: str, length: int) -> Conditioning:
        """Text longer than the encoders take is cut, as they require."""
        parts = self.parts
        clip_ids_BS = self._tokens(parts.tokenizer, prompt, parts.tokenizer.model_max_length)
        t5_ids_BS = self._tokens(parts.tokenizer_2, prompt, length)
        return Conditioning(
            text_BSD=parts.text_encoder_2(t5_ids_BS, output_hidden_states=False)[0],
            pooled_BP=parts.text_encoder(clip_ids_BS, output_hidden_states=False).pooler_output,
        )

    def _tokens(self, tokenizer: Any, prompt: str, length: int) -> Tensor:
        batch = tokenizer(
            [prompt], padding="max_length", max_length=length, truncation=True, return_tensors="pt"
        )
        ids_BS: Tensor = batch.input_ids.to(self.device)
        return ids_BS


@dataclass(slots=True, kw_only=True)
class DenoiseState(LoopState):
    """Everything one request changes or needs while it is denoised."""

    latents_BLK: Tensor
    sigmas: Tensor
    """(steps + 1,), float32: noise level before each step and after the last."""
    timesteps: Tensor
    cond: Conditioning
    uncond: Conditioning | None
    scale: float
    guidance_B: Tensor | None
    image_ids_BL3: Tensor
    grid: tuple[int, int]
    """Rows and columns of image tokens."""


class Denoise:
    """The sampling loop: Euler steps along the velocity the transformer predicts."""

    name = "denoise"

    def __init__(self, parts: FluxComponents, context: BuildContext) -> None:
        self.transformer, self.schedule = parts.transformer, parts.scheduler
        self.factor = vae_factor(parts)
        self.device, self.dtype = context.device, context.dtype

    def init(self, slots: Mapping[str, Any]) -> DenoiseState:
        request: Request = slots["request"]
        height, width = latent_size(request, self.factor)
        channels = self.transformer.config.in_channels // PATCH**2
        noise_BCHW = seeded_normal(
            (1, channels, height, width), request.seed, device=self.device, dtype=self.dtype
        )
        latents_BLK = pack(noise_BCHW)
        steps = request.parameters["num_inference_steps"]
        sigmas = self.schedule.sigmas(steps, tokens=latents_BLK.shape[1])
        cond: Conditioning = slots["cond"]
        grid = (height // PATCH, width // PATCH)
        return DenoiseState(
            total=steps,
            latents_BLK=latents_BLK,
            sigmas=torch.from_numpy(sigmas).to(self.device),
            timesteps=torch.from_numpy(self.schedule.timesteps(sigmas)).to(self.device),
            cond=cond,
            uncond=slots["uncond"],
            scale=request.parameters["guidance_scale"],
            guidance_B=self._embedded_guidance(request),
            image_ids_BL3=image_ids(*grid).to(self.device, self.dtype).unsqueeze(0),
            grid=grid,
        )

    def next(self, state: DenoiseState) -> WorkPlan | Done:
        if state.step == state.total:
            return Done()
        passes = 1 if state.uncond is None else 2
        shape = (*state.latents_BLK.shape[1:], state.cond.text_BSD.shape[1], *state.grid)
        rows = Rows(self.predict, passes, partial(self.rows, state), partial(_guided, state.scale))
        return WorkPlan.of_rows("denoise", shape, rows, cost=float(passes))

    def advance(self, state: DenoiseState, result: Tensor) -> None:
        sigma, sigma_next = state.sigmas[state.step], state.sigmas[state.step + 1]
        state.latents_BLK = ode_step(state.latents_BLK, result, sigma, sigma_next)
        state.step += 1

    def finalize(self, state: DenoiseState) -> dict[str, Any]:
        return {"latents_BLK": state.latents_BLK}

    def rows(self, state: DenoiseState) -> list[dict[str, Tensor]]:
        """The passes of the current step: the prompt's and, if guided, the negative prompt's."""
        timestep_B = state.timesteps[state.step].expand(1).to(state.latents_BLK.dtype)
        shared = {
            "latents_BLK": state.latents_BLK,
            "timestep_B": timestep_B / 1000,
            "image_ids_BL3": state.image_ids_BL3,
            **({} if state.guidance_B is None else {"guidance_B": state.guidance_B}),
        }
        conditionings = [state.cond] if state.uncond is None else [state.cond, state.uncond]
        return [{**shared, "text_BSD": c.text_BSD, "pooled_BP": c.pooled_BP} for c in conditionings]

    def predict(self, rows: Mapping[str, Tensor]) -> Tensor:
        """The velocity of stacked rows, (B, L, K). Their position ids are equal, as their shapes are."""
        text_BSD = rows["text_BSD"]
        velocity_BLK: Tensor = self.transformer(
            hidden_states=rows["latents_BLK"],
            timestep=rows["timestep_B"],
            guidance=rows.get("guidance_B"),
            pooled_projections=rows["pooled_BP"],
            encoder_hidden_states=text_BSD,
            txt_ids=text_BSD.new_zeros(text_BSD.shape[1], 3),
            img_ids=rows["image_ids_BL3"][0],
            return_dict=False,
        )[0]
        return velocity_BLK

    def _embedded_guidance(self, request: Request) -> Tensor | None:
        if not self.transformer.config.guidance_embeds:
            return None
        return torch.full(
            [1], request.parameters["embedded_guidance"], device=self.device, dtype=torch.float32
        )


def _guided(scale: float, predicted: Sequence[Tensor]) -> Tensor:
    """The velocity that a step's passes come to: the prompt's, or both under guidance."""
    cond_BLK, *uncond_BLK = predicted
    return cfg(uncond_BLK[0], cond_BLK, scale) if uncond_BLK else cond_BLK


class Decode:
    """Packed latents to pixels."""

    def __init__(self, parts: FluxComponents) -> None:
        self.vae, self.factor = parts.vae, vae_factor(parts)

    def __call__(self, slots: Mapping[str, Any]) -> dict[str, Any]:
        latents_BCHW = unpack(slots["latents_BLK"], *latent_size(slots["request"], self.factor))
        config = self.vae.config
        scaled_BCHW = (latents_BCHW / config.scaling_factor) + (config.shift_factor or 0.0)
        signal_B3HW = self.vae.decode(scaled_BCHW, return_dict=False)[0]
        return {"image": to_pixels(signal_B3HW)[0]}


def outputs(slots: Mapping[str, Any]) -> dict[str, Output]:
    """The card's output slots: the picture, and the packed latents it was decoded from."""
    return {
        "image": Output("image", slots["image"]),
        "latent": Output(
            "latent", {"latents": slots["latents_BLK"].float().cpu().numpy()}, {"layout": "flux-packed"}
        ),
    }


def vae_factor(parts: FluxComponents) -> int:
    """Pixels per latent, along each axis."""
    return int(2 ** (len(parts.vae.config.block_out_channels) - 1))


def latent_size(request: Request, factor: int) -> tuple[int, int]:
    """Latent height and width of the requested picture."""
    return request.parameters["height"] // factor, request.parameters["width"] // factor


def pack(latents_BCHW: Tensor) -> Tensor:
    """2x2 patches of latents as tokens: (B, C, H, W) to (B, H/2 x W/2, 4C)."""
    batch, channels, height, width = latents_BCHW.shape
    patches = latents_BCHW.view(batch, channels, height // PATCH, PATCH, width // PATCH, PATCH)
    return patches.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * PATCH**2)


def unpack(latents_BLK: Tensor, height: int, width: int) -> Tensor:
    """Inverse of `pack` for latents of `height` x `width`."""
    batch, _, width_K = latents_BLK.shape
    patches = latents_BLK.view(batch, height // PATCH, width // PATCH, width_K // PATCH**2, PATCH, PATCH)
    return patches.permute(0, 3, 1, 4, 2, 5).reshape(batch, -1, height, width)


def image_ids(rows: int, columns: int) -> Tensor:
    """Position of each image token, (rows x columns, 3): zero, row, column."""
    grid = torch.zeros(rows, columns, 3)
    grid[..., 1] = torch.arange(rows)[:, None]
    grid[..., 2] = torch.arange(columns)[None, :]
    return grid.reshape(-1, 3)


def to_pixels(signal_B3HW: Tensor) -> NDArray[np.uint8]:
    """A signal in [-1, 1] as uint8 (B, H, W, 3), rounded as diffusers' image processor does."""
    unit = (signal_B3HW * 0.5 + 0.5).clamp(0, 1)
    pixels = unit.permute(0, 2, 3, 1).float().cpu().numpy()
    return (pixels * 255).round().astype(np.uint8)
