"""The denoising loop of Wan image to video.

Shape legend
    B  batch, 1 here       L  prompt tokens, padded       D  width of the text encoder
    C  latent channels     S  image tokens                E  width of the image encoder
    T  latent frames       H, W  latent height, width     K  condition channels
    N  patches of the latents, T x H/p x W/p
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import WanTransformer3DModel

from mutoscope.models.common.noise import seeded_normal
from mutoscope.models.wan.card import WanRecipe
from mutoscope.models.wan.codec import LatentCodec
from mutoscope.models.wan.components import WanComponents
from mutoscope.models.wan.solver import Solver, make_solver, train_timesteps
from mutoscope.platform.engine.loop import Done, LoopState, WorkPlan
from mutoscope.platform.engine.request import Request
from mutoscope.platform.engine.sampling import cfg


@dataclass(slots=True, kw_only=True)
class DenoiseState(LoopState):
    """Everything one request's denoising needs and changes.

    Attributes:
        latents: the sample at the current noise level, float32 (1, C, T, H, W). condition: mask and image
        latent (1, K, T, H, W), or the latent of the held first frame (1, C, 1, H, W). prompt, negative:
        text states (1, L, D); no negative, no guidance. vision: image states (1, S, E) of transformers that
        read them. guidance: scale of the high-noise and of the low-noise transformer.
    """

    latents: torch.Tensor
    condition: torch.Tensor
    prompt: torch.Tensor
    negative: torch.Tensor | None
    vision: torch.Tensor | None
    solver: Solver
    guidance: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Denoise:
    """One plan per solver step, whose result is the velocity.

    With a `boundary_ratio`, steps at timesteps below that share of the training schedule go to the second,
    low-noise transformer and take its guidance.
    """

    parts: WanComponents
    codec: LatentCodec
    recipe: WanRecipe
    device: torch.device
    name: str = "denoise"

    def init(self, slots: Mapping[str, Any]) -> DenoiseState:
        request: Request = slots["request"]
        dtype = self.parts.transformer.dtype
        steps = request.parameters["num_inference_steps"]
        scale, scale_2 = request.parameters["guidance_scale"], request.parameters["guidance_scale_2"]
        negative, vision = slots["negative_BLD"], slots.get("vision_BSE")
        shape = self.codec.latent_shape(request.parameters)
        return DenoiseState(
            total=steps,
            latents=seeded_normal(shape, request.seed, device=self.device, dtype=torch.float32),
            condition=slots["condition_BKTHW"],
            prompt=slots["prompt_BLD"].to(dtype),
            negative=None if negative is None else negative.to(dtype),
            vision=None if vision is None else vision.to(dtype),
            solver=make_solver(self.parts.scheduler, steps, self.device),
            guidance=(scale, scale if scale_2 is None else scale_2),
        )

    def next(self, state: DenoiseState) -> WorkPlan | Done:
        if state.step == state.total:
            return Done()
        guided = state.negative is not None
        shape = (tuple(state.latents.shape), state.prompt.shape[1], guided)
        return WorkPlan("denoise", shape, lambda: self.velocity(state), cost=2.0 if guided else 1.0)

    def advance(self, state: DenoiseState, result: torch.Tensor) -> None:
        state.latents = state.solver.step(result.float(), state.step, state.latents)
        state.step += 1

    def finalize(self, state: DenoiseState) -> Mapping[str, Any]:
        latents_BCTHW = state.latents
        if self.recipe.expand_timesteps:
            latents_BCTHW = hold_first(latents_BCTHW, state.condition)
        return {"latents_BCTHW": latents_BCTHW}

    def velocity(self, state: DenoiseState) -> torch.Tensor:
        """The velocity at the state's step under its guidance, (1, C, T, H, W)."""
        timestep = state.solver.timesteps[state.step]
        model, guidance = self._expert(timestep, state.guidance)
        latents_BCTHW, timesteps = self._model_input(state, timestep)

        def predict(text_BLD: torch.Tensor) -> torch.Tensor:
            prediction: torch.Tensor = model(
                hidden_states=latents_BCTHW,
                timestep=timesteps,
                encoder_hidden_states=text_BLD,
                encoder_hidden_states_image=state.vision,
                return_dict=False,
            )[0]
            return prediction

        conditional = predict(state.prompt)
        if state.negative is None:
            return conditional
        return cfg(predict(state.negative), conditional, guidance)

    def _expert(
        self, timestep: torch.Tensor, guidance: tuple[float, float]
    ) -> tuple[WanTransformer3DModel, float]:
        """The transformer in charge at a timestep, and its guidance."""
        if self.recipe.boundary_ratio is None or self.parts.transformer_2 is None:
            return self.parts.transformer, guidance[0]
        boundary = self.recipe.boundary_ratio * train_timesteps(self.parts.scheduler)
        if timestep >= boundary:
            return self.parts.transformer, guidance[0]
        return self.parts.transformer_2, guidance[1]

    def _model_input(self, state: DenoiseState, timestep: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the transformer reads and its timesteps: (B,), or (B, N) where the first frame is clean."""
        dtype = self.parts.transformer.dtype
        if not self.recipe.expand_timesteps:
            joined_BCTHW = torch.cat([state.latents, state.condition], dim=1)
            return joined_BCTHW.to(dtype), timestep.expand(1)
        _, patch_height, patch_width = self.parts.transformer.config.patch_size
        mask_THW = first_frame_mask(state.latents)[0, 0]
        timesteps_N = (mask_THW[:, ::patch_height, ::patch_width] * timestep).flatten()
        return hold_first(state.latents, state.condition).to(dtype), timesteps_N.unsqueeze(0)


def is_guided(request: Request) -> bool:
    """Whether every step of the request takes a second, unconditional pass."""
    return bool(request.parameters["guidance_scale"] > 1)


def hold_first(latents_BCTHW: torch.Tensor, frame_BCTHW: torch.Tensor) -> torch.Tensor:
    """The latents with their first frame replaced by the given one (T = 1)."""
    mask = first_frame_mask(latents_BCTHW)
    return (1 - mask) * frame_BCTHW + mask * latents_BCTHW


def first_frame_mask(latents_BCTHW: torch.Tensor) -> torch.Tensor:
    """(1, 1, T, H, W): 0 in the first latent frame, which is given, 1 in those to be made."""
    mask = torch.ones_like(latents_BCTHW[:, :1])
    mask[:, :, 0] = 0
    return mask
