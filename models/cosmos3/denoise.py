"""The denoising loop: the generation tower, reading what the understanding tower made of the prompt.

Shape suffixes
    B  batch, 1 here     C  latent channels     T, Y, X  latent frames, height, width
    N  latent patches    L, P, H, D  layers, text tokens, key-value heads and their width
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from diffusers.pipelines.cosmos.pipeline_cosmos3_omni import get_3d_mrope_ids_vae_tokens
from numpy.typing import NDArray
from torch import Tensor

from mutoscope.models.common.flow import FlowLoop, FlowState, solving
from mutoscope.models.common.noise import seeded_normal
from mutoscope.models.common.solver import make_solver, train_timesteps
from mutoscope.models.common.video_codec import LatentCodec
from mutoscope.models.cosmos3.card import CosmosRecipe
from mutoscope.models.cosmos3.components import CosmosComponents
from mutoscope.models.cosmos3.towers import Generation, Past
from mutoscope.platform.engine.loop import Done, WorkPlan
from mutoscope.platform.engine.request import Request


@dataclass(slots=True, kw_only=True)
class DenoiseState(FlowState):
    """Everything one request's denoising needs and changes.

    Attributes:
        latents: float32 (1, C, T, Y, X). conditionings: each {keys_BLPHD, values_BLPHD, positions_B3N}.
        scale: of classifier-free guidance. held: the first latent frame is given and stays as it is.
    """

    scale: float
    held: bool


class Denoise(FlowLoop[DenoiseState]):
    """UniPC steps along the velocity that the generation tower predicts."""

    def __init__(
        self, parts: CosmosComponents, codec: LatentCodec, recipe: CosmosRecipe, device: torch.device
    ) -> None:
        self.parts, self.codec, self.recipe, self.device = parts, codec, recipe, device
        self.tower = Generation(parts.transformer)

    def init(self, slots: Mapping[str, Any]) -> DenoiseState:
        request: Request = slots["request"]
        steps, shape = request.parameters["num_inference_steps"], self.codec.latent_shape(request.parameters)
        solver = make_solver(self.parts.scheduler, steps, self.device, levels=self._levels(steps))
        latents = seeded_normal(shape, request.seed, device=self.device, dtype=torch.float32)
        first, made = slots["first_BCTYX"], None
        if first is not None:
            latents, made = torch.cat([first, latents[:, :, 1:]], dim=2), torch.ones_like(latents[:, :1])
            made[:, :, 0] = 0
        return DenoiseState(
            total=steps,
            latents=latents,
            conditionings=tuple(self._conditioning(past, request) for past in slots["texts"]),
            scale=request.parameters["guidance_scale"],
            held=first is not None,
            **solving(slots, solver, made),
        )

    def next(self, state: DenoiseState) -> WorkPlan | Done:
        plan = super().next(state)
        lengths = {conditioning["keys_BLPHD"].shape[2] for conditioning in state.conditionings}
        if isinstance(plan, Done) or len(lengths) == 1:
            return plan
        # Prompt and negative prompt of unlike lengths share no call, and padding either would change bits.
        return WorkPlan(plan.kind, plan.shape, plan.run, plan.cost)

    def predictor(self, state: DenoiseState) -> tuple[Callable[[Mapping[str, Tensor]], Tensor], float]:
        return self.tower.predict_held if state.held else self.tower.predict, state.scale

    def shape(self, state: DenoiseState) -> tuple[Any, ...]:
        texts = tuple(conditioning["keys_BLPHD"].shape[2] for conditioning in state.conditionings)
        return (tuple(state.latents.shape[1:]), texts, state.held)

    def inputs(self, state: DenoiseState) -> dict[str, Tensor]:
        return {
            "latents_BCTYX": state.latents.to(self.parts.transformer.dtype),
            "timestep_B": state.solver.timesteps[state.step].expand(1),
        }

    def _conditioning(self, past: Past, request: Request) -> dict[str, Tensor]:
        return {
            "keys_BLPHD": past.keys,
            "values_BLPHD": past.values,
            "positions_B3N": self._positions(past.keys.shape[2], request)[None],
        }

    def _positions(self, text: int, request: Request) -> Tensor:
        """Where the patches lie in time, height and width, (3, N): behind the text, by a margin."""
        config = self.parts.transformer.config
        _, _, frames, height, width = self.codec.latent_shape(request.parameters)
        positions, _ = get_3d_mrope_ids_vae_tokens(
            grid_t=frames,
            grid_h=math.ceil(height / config.latent_patch_size),
            grid_w=math.ceil(width / config.latent_patch_size),
            temporal_offset=text + config.unified_3d_mrope_temporal_modality_margin,
            reset_spatial_indices=config.unified_3d_mrope_reset_spatial_ids,
            fps=float(request.parameters["fps"]) if config.enable_fps_modulation else None,
            base_fps=float(config.base_fps),
            temporal_compression_factor=self.codec.temporal,
        )
        return positions.float().to(self.device)

    def _levels(self, steps: int) -> NDArray[np.float64] | None:
        """Noise levels before the folder's shift; None leaves them to its scheduler."""
        if not self.recipe.native_schedule:
            return None
        return np.linspace(1.0 - 1.0 / train_timesteps(self.parts.scheduler), 0.0, steps + 1)[:-1]
