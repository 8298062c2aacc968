"""diffusers' own pipelines as the oracle of the engine: LTX2Pipeline, and the recipe for two stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, LTX2LatentUpsamplePipeline, LTX2Pipeline
from diffusers.pipelines.ltx2 import LTX2LatentUpsamplerModel
from numpy.typing import NDArray

from mutoscope.models.ltx2.latents import second_seed
from mutoscope.platform.engine.card import Recipe

NEUTRAL = {
    "stg_scale": 0.0,
    "audio_stg_scale": 0.0,
    "modality_scale": 1.0,
    "audio_modality_scale": 1.0,
    "guidance_rescale": 0.0,
    "audio_guidance_rescale": 0.0,
    "spatio_temporal_guidance_blocks": None,
}


@dataclass(frozen=True, slots=True)
class Expected:
    """What the pipelines make of a request: latents as the VAEs take them, uint8 frames, float32 waveform."""

    latents: NDArray[np.float32]
    audio_latents: NDArray[np.float32]
    frames: NDArray[np.uint8]
    audio: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Oracle:
    """The pipelines over one folder. `refining` differs from `pipeline` in its scheduler, which takes the
    noise levels of the second stage, and of distilled models, as they are."""

    pipeline: LTX2Pipeline
    refining: LTX2Pipeline
    upsampling: LTX2LatentUpsamplePipeline

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype = torch.float32) -> Oracle:
        """Weights are moved out of the memory-mapped files, as the engine's are; see `load_module`."""
        pipeline = LTX2Pipeline.from_pretrained(folder, dtype=dtype)
        upsampler = LTX2LatentUpsamplerModel.from_pretrained(folder / "latent_upsampler", torch_dtype=dtype)
        parts = {name: part for name, part in pipeline.components.items() if part is not None}
        for part in (*parts.values(), upsampler):
            if isinstance(part, torch.nn.Module):
                for tensor in (*part.parameters(), *part.buffers()):
                    tensor.data = tensor.data.clone()
        plain = FlowMatchEulerDiscreteScheduler.from_config(
            pipeline.scheduler.config, use_dynamic_shifting=False, shift_terminal=None
        )
        refining = LTX2Pipeline(**{**parts, "scheduler": plain})
        upsampling = LTX2LatentUpsamplePipeline(vae=pipeline.vae, latent_upsampler=upsampler)
        for each in (pipeline, refining, upsampling):
            each.set_progress_bar_config(disable=True)
        return cls(pipeline, refining, upsampling)

    def expect(self, parameters: Mapping[str, Any], recipe: Recipe, seed: int) -> Expected:
        """Run the pipelines on resolved parameters; once for latents and once for media."""
        two = parameters["two_stages"]
        made = [
            self._two_stages(parameters, recipe, seed, kind)
            if two
            else self._one(parameters, recipe, seed, kind)
            for kind in ("latent", "np")
        ]
        (latents, audio_latents), (frames, audio) = made
        return Expected(
            latents=latents.float().numpy(),
            audio_latents=audio_latents.float().numpy(),
            frames=(frames[0] * 255).round().astype(np.uint8),
            audio=audio[0].float().numpy(),
        )

    def isolated(self, parameters: Mapping[str, Any], recipe: Recipe, seed: int) -> Expected:
        """As `expect`, with every call of the transformer told to isolate the modalities."""
        forward = self.pipeline.transformer.forward

        def alone(**arguments: Any) -> Any:
            return forward(**{**arguments, "isolate_modalities": True})

        with mock.patch.object(self.pipeline.transformer, "forward", alone):
            return self.expect(parameters, recipe, seed)

    def _one(
        self, parameters: Mapping[str, Any], recipe: Any, seed: int, kind: str, *, halves: int = 1
    ) -> tuple[Any, Any]:
        guidance = {name: parameters[name] for name in NEUTRAL if name != "spatio_temporal_guidance_blocks"}
        return self._call(
            self.refining if recipe.sigmas else self.pipeline,
            parameters,
            height=parameters["height"] // halves,
            width=parameters["width"] // halves,
            num_inference_steps=parameters["num_inference_steps"],
            sigmas=list(recipe.sigmas) or None,
            guidance_scale=parameters["guidance_scale"],
            audio_guidance_scale=parameters["audio_guidance_scale"],
            spatio_temporal_guidance_blocks=list(recipe.stg_blocks),
            generator=torch.Generator("cpu").manual_seed(seed),
            output_type=kind,
            **guidance,
        )

    def _two_stages(
        self, parameters: Mapping[str, Any], recipe: Any, seed: int, kind: str
    ) -> tuple[Any, Any]:
        latents, audio_latents = self._one(parameters, recipe, seed, "latent", halves=2)
        larger = self.upsampling(
            latents=latents,
            height=parameters["height"] // 2,
            width=parameters["width"] // 2,
            num_frames=parameters["num_frames"],
            output_type="latent",
            return_dict=False,
        )[0]
        sigmas = list(recipe.stage_2_sigmas)
        return self._call(
            self.refining,
            parameters,
            latents=larger,
            audio_latents=audio_latents,
            num_inference_steps=len(sigmas),
            noise_scale=sigmas[0],
            sigmas=sigmas,
            guidance_scale=parameters["stage_2_guidance_scale"],
            audio_guidance_scale=parameters["stage_2_audio_guidance_scale"],
            generator=torch.Generator("cpu").manual_seed(second_seed(seed)),
            output_type=kind,
            **NEUTRAL,
        )

    @staticmethod
    def _call(pipeline: LTX2Pipeline, parameters: Mapping[str, Any], **arguments: Any) -> tuple[Any, Any]:
        call = partial(
            pipeline,
            prompt=parameters["prompt"],
            negative_prompt=parameters["negative_prompt"],
            num_frames=parameters["num_frames"],
            frame_rate=parameters["fps"],
            max_sequence_length=parameters["max_sequence_length"],
            return_dict=False,
        )
        made: tuple[Any, Any] = call(
            **{"height": parameters["height"], "width": parameters["width"], **arguments}
        )
        return made
