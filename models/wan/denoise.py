"""The denoising loop of Wan, text to video and image to video.

Shape legend
    B  batch, 1 here       L  prompt tokens, padded       D  width of the text encoder
    C  latent channels     S  image tokens                E  width of the image encoder
    T  latent frames       H, W  latent height, width     K  condition channels
    N  patches of the latents, T x H/p x W/p
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import WanTransformer3DModel

from mutoscope.models.common.flow import FlowLoop, FlowState, solving
from mutoscope.models.common.noise import seeded_normal
from mutoscope.models.common.solver import make_solver, train_timesteps
from mutoscope.models.common.video_codec import LatentCodec
from mutoscope.models.wan.card import WanRecipe
from mutoscope.models.wan.components import WanComponents
from mutoscope.platform.engine.request import Request


@dataclass(slots=True, kw_only=True)
class DenoiseState(FlowState):
    """A request's state.

    Attributes:
        latents: float32 (1, C, T, H, W). conditionings: each {text_BLD}.
        condition: of an image: mask and image latent (1, K, T, H, W), or the latent of the held first frame
            (1, C, 1, H, W); None for text to video.
        vision: image states (1, S, E) for transformers that read them.
        guidance: scale of the high-noise and of the low-noise transformer.
    """

    condition: torch.Tensor | None
    vision: torch.Tensor | None
    guidance: tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Expert:
    """One of the folder's transformers."""

    transformer: WanTransformer3DModel

    def predict(self, rows: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The velocity of stacked rows, (B, C, T, H, W)."""
        velocity_BCTHW: torch.Tensor = self.transformer(
            hidden_states=rows["latents_BCTHW"],
            timestep=rows["timesteps"],
            encoder_hidden_states=rows["text_BLD"],
            encoder_hidden_states_image=rows.get("vision_BSE"),
            return_dict=False,
        )[0]
        return velocity_BCTHW


class Denoise(FlowLoop[DenoiseState]):
    """Steps of the folder's solver along the velocity its transformers predict.

    With a `boundary_ratio`, steps at timesteps below that share of the training schedule go to the second,
    low-noise transformer and take its guidance.
    """

    def __init__(
        self, parts: WanComponents, codec: LatentCodec, recipe: WanRecipe, device: torch.device
    ) -> None:
        self.parts, self.codec, self.recipe, self.device = parts, codec, recipe, device
        self.high = Expert(parts.transformer)
        self.low = None if parts.transformer_2 is None else Expert(parts.transformer_2)

    def init(self, slots: Mapping[str, Any]) -> DenoiseState:
        request: Request = slots["request"]
        dtype = self.parts.transformer.dtype
        steps = request.parameters["num_inference_steps"]
        scale, scale_2 = request.parameters["guidance_scale"], request.parameters["guidance_scale_2"]
        condition, vision = slots.get("condition_BKTHW"), slots.get("vision_BSE")
        shape = self.codec.latent_shape(request.parameters)
        latents = seeded_normal(shape, request.seed, device=self.device, dtype=torch.float32)
        held = self.recipe.expand_timesteps and condition is not None
        solver = make_solver(self.parts.scheduler, steps, self.device)
        return DenoiseState(
            total=steps,
            latents=latents,
            conditionings=tuple({"text_BLD": text.to(dtype)} for text in slots["texts"]),
            condition=condition,
            vision=None if vision is None else vision.to(dtype),
            guidance=(scale, scale if scale_2 is None else scale_2),
            **solving(slots, solver, first_frame_mask(latents) if held else None),
        )

    def predictor(
        self, state: DenoiseState
    ) -> tuple[Callable[[Mapping[str, torch.Tensor]], torch.Tensor], float]:
        """The transformer in charge at the state's step, and its guidance."""
        if self.low is None or self.recipe.boundary_ratio is None:
            return self.high.predict, state.guidance[0]
        boundary = self.recipe.boundary_ratio * train_timesteps(self.parts.scheduler)
        if state.solver.timesteps[state.step] >= boundary:
            return self.high.predict, state.guidance[0]
        return self.low.predict, state.guidance[1]

    def shape(self, state: DenoiseState) -> tuple[Any, ...]:
        return (*state.latents.shape[1:], state.conditionings[0]["text_BLD"].shape[1])

    def inputs(self, state: DenoiseState) -> dict[str, torch.Tensor]:
        latents_BCTHW, timesteps = self._model_input(state, state.solver.timesteps[state.step])
        return {
            "latents_BCTHW": latents_BCTHW.to(self.parts.transformer.dtype),
            "timesteps": timesteps,
            **({} if state.vision is None else {"vision_BSE": state.vision}),
        }

    def advance(self, state: DenoiseState, result: torch.Tensor) -> None:
        super().advance(state, result.float())

    def finalize(self, state: DenoiseState) -> dict[str, Any]:
        finished = super().finalize(state)
        if self.recipe.expand_timesteps and state.condition is not None:
            finished["latents"] = hold_first(state.latents, state.condition)
        return finished

    def _model_input(self, state: DenoiseState, timestep: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the transformer reads and its timesteps: (B,), or (B, N) in the TI2V layout, where a given
        first frame is clean."""
        latents_BCTHW, condition = state.latents, state.condition
        if not self.recipe.expand_timesteps:
            joined = [latents_BCTHW] if condition is None else [latents_BCTHW, condition]
            return torch.cat(joined, dim=1), timestep.expand(1)
        mask_BCTHW = torch.ones_like(latents_BCTHW[:, :1])
        if condition is not None:
            mask_BCTHW = first_frame_mask(latents_BCTHW)
            latents_BCTHW = hold_first(latents_BCTHW, condition)
        _, patch_height, patch_width = self.parts.transformer.config.patch_size
        timesteps_N = (mask_BCTHW[0, 0, :, ::patch_height, ::patch_width] * timestep).flatten()
        return latents_BCTHW, timesteps_N.unsqueeze(0)


def hold_first(latents_BCTHW: torch.Tensor, frame_BCTHW: torch.Tensor) -> torch.Tensor:
    """The latents with their first frame replaced by the given one (T = 1)."""
    mask = first_frame_mask(latents_BCTHW)
    return (1 - mask) * frame_BCTHW + mask * latents_BCTHW


def first_frame_mask(latents_BCTHW: torch.Tensor) -> torch.Tensor:
    """(1, 1, T, H, W): 0 in the first latent frame, which is given, 1 in those to be made."""
    mask = torch.ones_like(latents_BCTHW[:, :1])
    mask[:, :, 0] = 0
    return mask
