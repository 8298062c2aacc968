"""What FluxPipeline makes of the same folder, seed and parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import FluxPipeline
from diffusers.utils.logging import disable_progress_bar
from numpy.typing import NDArray
from transformers.utils.logging import disable_progress_bar as disable_transformers_progress_bar

from mutoscope.models.flux.card import CARD
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.request import Request

Pair = tuple[NDArray[np.float32], NDArray[np.uint8]]
"""Packed latents (1, tokens, channels) and the picture (H, W, 3)."""


def load_pipeline(folder: Path, *, aligned: bool) -> FluxPipeline:
    """The pipeline of a folder.

    Args:
        aligned: copy each weight into memory of its own. `from_pretrained` leaves weights in the
            memory-mapped file, at whatever address the file's header puts them, and matrix kernels round
            differently by alignment; an instance owns its weights. Only so can the two be compared bit for
            bit.
    """
    disable_progress_bar()
    disable_transformers_progress_bar()
    pipeline = FluxPipeline.from_pretrained(folder, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    if aligned:
        for module in (pipeline.transformer, pipeline.vae, pipeline.text_encoder, pipeline.text_encoder_2):
            for parameter in module.parameters():
                parameter.data = parameter.data.clone()
    return pipeline


def by_pipeline(pipeline: FluxPipeline, parameters: dict[str, Any], seed: int) -> Pair:
    """FluxPipeline's answer, latents and picture."""
    arguments = {
        "prompt": parameters["prompt"],
        "negative_prompt": parameters["negative_prompt"],
        "true_cfg_scale": parameters["guidance_scale"],
        "guidance_scale": parameters["embedded_guidance"],
        **{key: parameters[key] for key in ("height", "width", "num_inference_steps", "max_sequence_length")},
    }

    def run(output_type: str) -> Any:
        generator = torch.Generator("cpu").manual_seed(seed)
        return pipeline(**arguments, generator=generator, output_type=output_type).images

    return run("latent").numpy(), np.asarray(run("pil")[0])


def by_engine(instance: Instance, parameters: dict[str, Any], seed: int) -> Pair:
    """The engine's answer, latents and picture."""
    result = Engine().run(instance, Request("oracle", CARD.id, {}, parameters, seed))
    return result.outputs["latent"].value["latents"], result.outputs["image"].value
