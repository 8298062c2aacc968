"""The denoising loop of FLUX: what its transformer reads at a step.

Shape suffixes
    B  batch, always 1           S  text tokens             D  text width (T5)
    L  image tokens              K  channels of a token     P  pooled text width (CLIP)
    C  latent channels, K / 4    H, W  latent height and width
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mutoscope.models.common.branches import START
from mutoscope.models.common.branching import check_start, started, step_of
from mutoscope.models.common.flow import FlowLoop, FlowState, latents_dtype, solving
from mutoscope.models.common.noise import seeded_normal
from mutoscope.models.common.solver import euler
from mutoscope.models.flux.components import FluxComponents
from mutoscope.models.flux.folder import PATCH
from mutoscope.models.flux.layout import image_ids, latent_size, pack, vae_factor
from mutoscope.platform.engine.loop import BuildContext
from mutoscope.platform.engine.request import Request


@dataclass(slots=True, kw_only=True)
class DenoiseState(FlowState):
    """A request's state.

    Attributes:
        latents: packed, (1, L, K). conditionings: each {text_BSD, pooled_BP}.
        scale: of classifier-free guidance. guidance_B: what guidance-distilled transformers are told.
        grid: rows and columns of image tokens.
    """

    scale: float
    guidance_B: Tensor | None
    image_ids_BL3: Tensor
    grid: tuple[int, int]


class Denoise(FlowLoop[DenoiseState]):
    """Euler steps along the velocity the transformer predicts."""

    def __init__(self, parts: FluxComponents, context: BuildContext) -> None:
        self.transformer, self.schedule = parts.transformer, parts.scheduler
        self.factor = vae_factor(parts.vae)
        self.device, self.dtype = context.device, context.dtype

    def check(self, request: Request) -> None:
        """Refuse latents that the request cannot begin from. Raises InvalidParameter."""
        tokens = math.prod(self._grid(request))
        check_start(request, (1, tokens, self.transformer.config.in_channels), self._sigmas(request))

    def steps(self, slots: Mapping[str, Any]) -> int:
        """How many steps a request takes."""
        request: Request = slots["request"]
        stored = slots.get(START.name)
        begun = 0 if stored is None else step_of(stored, self._sigmas(request))
        return int(request.parameters["num_inference_steps"]) - begun

    def init(self, slots: Mapping[str, Any]) -> DenoiseState:
        request: Request = slots["request"]
        height, width = latent_size(request, self.factor)
        channels = self.transformer.config.in_channels // PATCH**2
        dtype = latents_dtype(request, self.dtype)
        noise_BCHW = seeded_normal(
            (1, channels, height, width), request.seed, device=self.device, dtype=dtype
        )
        sampler = solving(slots, euler(self.schedule, self._sigmas(request), self.device))
        grid = self._grid(request)
        return DenoiseState(
            total=request.parameters["num_inference_steps"],
            conditionings=slots["conditionings"],
            scale=request.parameters["guidance_scale"],
            guidance_B=self._embedded_guidance(request),
            image_ids_BL3=image_ids(*grid).to(self.device, self.dtype).unsqueeze(0),
            grid=grid,
            **sampler,
            **started(slots, pack(noise_BCHW), sampler["solver"].sigmas),
        )

    def predictor(self, state: DenoiseState) -> tuple[Callable[[Mapping[str, Tensor]], Tensor], float]:
        return self.predict, state.scale

    def shape(self, state: DenoiseState) -> tuple[int, ...]:
        return (*state.latents.shape[1:], state.conditionings[0]["text_BSD"].shape[1], *state.grid)

    def inputs(self, state: DenoiseState) -> dict[str, Tensor]:
        timestep_B = state.solver.timesteps[state.step].expand(1).to(self.dtype)
        return {
            "latents_BLK": state.latents.to(self.dtype),
            "timestep_B": timestep_B / 1000,
            "image_ids_BL3": state.image_ids_BL3,
            **({} if state.guidance_B is None else {"guidance_B": state.guidance_B}),
        }

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

    def _grid(self, request: Request) -> tuple[int, int]:
        height, width = latent_size(request, self.factor)
        return height // PATCH, width // PATCH

    def _sigmas(self, request: Request) -> NDArray[np.float32]:
        steps = request.parameters["num_inference_steps"]
        return self.schedule.sigmas(steps, tokens=math.prod(self._grid(request)))

    def _embedded_guidance(self, request: Request) -> Tensor | None:
        if not self.transformer.config.guidance_embeds:
            return None
        return torch.full(
            [1], request.parameters["embedded_guidance"], device=self.device, dtype=torch.float32
        )
