"""The denoising loop of Wan image to video.

Shape legend
    B  batch, 1 here       L  prompt tokens, padded       D  width of the text encoder
    C  latent channels     S  image tokens                E  width of the image encoder
    T  latent frames       H, W  latent height, width     K  condition channels
    N  patches of the latents, T x H/p x W/p
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from diffusers import WanTransformer3DModel

from mutoscope.models.common.noise import seeded_normal
from mutoscope.models.wan.card import WanRecipe
from mutoscope.models.wan.codec import LatentCodec
from mutoscope.models.wan.components import WanComponents
from mutoscope.models.wan.solver import Solver, make_solver, train_timesteps
from mutoscope.platform.engine.loop import Done, LoopState, Rows, WorkPlan
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


@dataclass(frozen=True, slots=True, eq=False)
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


class Denoise:
    """One plan per solver step, whose result is the velocity.

    With a `boundary_ratio`, steps at timesteps below that share of the training schedule go to the second,
    low-noise transformer and take its guidance.
    """

    name = "denoise"

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
        expert, scale = self._expert(state)
        passes = 1 if state.negative is None else 2
        shape = (tuple(state.latents.shape[1:]), state.prompt.shape[1])
        rows = Rows(expert.predict, passes, partial(self.rows, state), partial(_guided, scale))
        return WorkPlan.of_rows("denoise", shape, rows, cost=float(passes))

    def advance(self, state: DenoiseState, result: torch.Tensor) -> None:
        state.latents = state.solver.step(result.float(), state.step, state.latents)
        state.step += 1

    def finalize(self, state: DenoiseState) -> Mapping[str, Any]:
        latents_BCTHW = state.latents
        if self.recipe.expand_timesteps:
            latents_BCTHW = hold_first(latents_BCTHW, state.condition)
        return {"latents_BCTHW": latents_BCTHW}

    def rows(self, state: DenoiseState) -> list[dict[str, torch.Tensor]]:
        """The passes of the current step: the prompt's and, if guided, the negative prompt's."""
        latents_BCTHW, timesteps = self._model_input(state, state.solver.timesteps[state.step])
        shared = {
            "latents_BCTHW": latents_BCTHW,
            "timesteps": timesteps,
            **({} if state.vision is None else {"vision_BSE": state.vision}),
        }
        texts = [state.prompt] if state.negative is None else [state.prompt, state.negative]
        return [{**shared, "text_BLD": text} for text in texts]

    def _expert(self, state: DenoiseState) -> tuple[Expert, float]:
        """The transformer in charge at the state's step, and its guidance."""
        if self.low is None or self.recipe.boundary_ratio is None:
            return self.high, state.guidance[0]
        boundary = self.recipe.boundary_ratio * train_timesteps(self.parts.scheduler)
        if state.solver.timesteps[state.step] >= boundary:
            return self.high, state.guidance[0]
        return self.low, state.guidance[1]

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


def _guided(scale: float, predicted: Sequence[torch.Tensor]) -> torch.Tensor:
    """The velocity that a step's passes come to: the prompt's, or both under guidance."""
    cond, *uncond = predicted
    return cfg(uncond[0], cond, scale) if uncond else cond


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
