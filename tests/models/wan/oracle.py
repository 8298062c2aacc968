"""diffusers' own pipelines as the oracle of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import WanImageToVideoPipeline, WanPipeline
from numpy.typing import NDArray
from PIL import Image

MODULES = ("transformer", "transformer_2", "vae", "text_encoder", "image_encoder")


Pipeline = WanPipeline | WanImageToVideoPipeline


def load_pipeline(
    folder: Path, *, aligned: bool = True, kind: type[Pipeline] = WanImageToVideoPipeline
) -> Pipeline:
    """The pipeline of a folder.

    `aligned` moves its weights out of the memory-mapped files, as the engine does: in a map a tensor lies at
    any address, and CPU kernels round differently at some of them.
    """
    pipeline = kind.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    modules = [module for name in MODULES if (module := getattr(pipeline, name, None))]
    for module in modules if aligned else ():
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.data = tensor.data.clone()
    return pipeline


@dataclass(frozen=True, slots=True)
class Expected:
    """What the pipeline makes of a request: latents (1, C, T, H, W) and uint8 frames (F, Y, X, 3)."""

    latents: NDArray[np.float32]
    frames: NDArray[np.uint8]


def expect(
    pipeline: Pipeline,
    image: NDArray[np.uint8] | None,
    parameters: Mapping[str, Any],
    seed: int,
) -> Expected:
    """Run the pipeline on resolved parameters; once for latents and once for frames, as it returns either.

    Args:
        image: None for text to video.
    """
    ours = ("fps", "vae_tile")
    arguments = {name: value for name, value in parameters.items() if name not in ours}

    def run(output_type: str) -> Any:
        generator = torch.Generator("cpu").manual_seed(seed)
        given = {} if image is None else {"image": Image.fromarray(image)}
        return pipeline(**given, generator=generator, output_type=output_type, **arguments).frames

    return Expected(
        latents=run("latent").numpy(),
        frames=np.stack([np.asarray(frame) for frame in run("pil")[0]]),
    )
