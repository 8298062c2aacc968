"""Rollouts as a script makes them: diffusers' modules in a plain loop, one sample after the other, then its
score. Nothing is kept but what a trainer needs, in memory.

The steps are FluxPipeline's own, with the law of the window's steps in place of Euler's and its
log-probability beside it; the numbers are those of the system's rollouts of the same seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import FluxPipeline
from numpy.typing import NDArray
from torch import Tensor

from mutoscope.models.registry import get_card
from mutoscope.models.reward.scene.program import SceneReward
from mutoscope.platform.engine import sde
from mutoscope.platform.engine.instance import load_instance
from mutoscope.platform.engine.request import Request
from mutoscope.platform.engine.rollout import RolloutPlan, noise_seed
from tests.models.flux.oracle import load_pipeline

SCENE = "reward-scene"


@dataclass(frozen=True, slots=True)
class Rolled:
    """A sample: its picture, score, log-probabilities, and latents by level."""

    image: NDArray[np.uint8]
    score: float
    log_probs: list[float]
    latents: Mapping[int, Tensor] = field(default_factory=dict)


class Loop:
    """FLUX and the scene scorer, resident in this process."""

    def __init__(self, flux: Path, scene: Path) -> None:
        self.pipeline: FluxPipeline = load_pipeline(flux, aligned=True)
        net = load_instance(get_card(SCENE), scene).components["scorer"]
        self.scorer = SceneReward(net, torch.device("cpu"), torch.float32)

    def rollout(self, parameters: Mapping[str, Any], target: str, seed: int) -> Rolled:
        """One sample.

        Args:
            parameters: resolved, of a rollout.
        """
        with torch.inference_mode():
            latents, log_probs, kept = self._sampled(parameters, seed)
            image = self._decoded(latents, parameters)
            return Rolled(image, self._score(image, target), log_probs, kept)

    def _sampled(
        self, parameters: Mapping[str, Any], seed: int
    ) -> tuple[Tensor, list[float], dict[int, Tensor]]:
        pipeline, steps = self.pipeline, parameters["num_inference_steps"]
        text, pooled, text_ids = pipeline.encode_prompt(
            prompt=parameters["prompt"], prompt_2=None, max_sequence_length=parameters["max_sequence_length"]
        )
        channels = pipeline.transformer.config.in_channels // 4
        generator = torch.Generator("cpu").manual_seed(seed)
        size = (parameters["height"], parameters["width"])
        latents, image_ids = pipeline.prepare_latents(
            1, channels, *size, text.dtype, torch.device("cpu"), generator
        )
        pipeline.scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps))
        levels = tuple(pipeline.scheduler.sigmas.tolist())
        plan = RolloutPlan.of(parameters, steps)
        log_probs: list[float] = []
        kept: dict[int, Tensor] = {}
        for index, timestep in enumerate(pipeline.scheduler.timesteps):
            velocity = pipeline.transformer(
                hidden_states=latents,
                timestep=timestep.expand(1).to(latents.dtype) / 1000,
                guidance=None,
                pooled_projections=pooled,
                encoder_hidden_states=text,
                txt_ids=text_ids,
                img_ids=image_ids,
                return_dict=False,
            )[0]
            if plan.stochastic(index):
                law = sde.transition(plan.law, levels, index, plan.noise_scale)
                noise = sde.step_noise(latents.shape, noise_seed(seed, index), device=latents.device)
                moved = law.sample(latents, velocity, noise)
                log_probs.append(law.log_prob(latents, velocity, moved).item())
                kept |= {index: latents, index + 1: moved}
            else:
                moved = latents + (levels[index + 1] - levels[index]) * velocity
            latents = moved
        return latents, log_probs, {**kept, steps: latents}

    def _decoded(self, latents: Tensor, parameters: Mapping[str, Any]) -> NDArray[np.uint8]:
        pipeline, config = self.pipeline, self.pipeline.vae.config
        size = (parameters["height"], parameters["width"])
        unpacked = pipeline._unpack_latents(latents, *size, pipeline.vae_scale_factor)
        decoded = pipeline.vae.decode(
            unpacked / config.scaling_factor + config.shift_factor, return_dict=False
        )[0]
        (picture,) = pipeline.image_processor.postprocess(decoded, output_type="pil")
        return np.array(picture)

    def _score(self, image: NDArray[np.uint8], target: str) -> float:
        request = Request("r", SCENE, {"image": image}, {"prompt": target}, 0)
        slots = {"request": request}
        results = [plan.run() for plan in self.scorer.steps(slots)]
        return float(self.scorer.conclude(slots, results).value)
