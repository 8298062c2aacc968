"""What other people's code makes of the same weights: diffusers' pipeline, and the module's own forward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import Cosmos3OmniPipeline, Cosmos3OmniTransformer
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor


def load_pipeline(folder: Path, *, aligned: bool = True) -> Cosmos3OmniPipeline:
    """The pipeline of a folder.

    `aligned` moves its weights out of the memory-mapped files, as the engine does: in a map a tensor lies at
    any address, and CPU kernels round differently at some of them.
    """
    pipeline = Cosmos3OmniPipeline.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    for module in (pipeline.transformer, pipeline.vae) if aligned else ():
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.data = tensor.data.clone()
    return pipeline


@dataclass(frozen=True, slots=True)
class Expected:
    """What the pipeline makes of a request: latents (1, C, T, H, W) and uint8 frames (F, Y, X, 3)."""

    latents: NDArray[np.float32]
    frames: NDArray[np.uint8]


_ASKED = ("negative_prompt", "num_frames", "height", "width", "num_inference_steps", "guidance_scale")


def expect(
    pipeline: Cosmos3OmniPipeline,
    prompt: str,
    parameters: Mapping[str, Any],
    seed: int,
    image: NDArray[np.uint8] | None = None,
) -> Expected:
    """Run the pipeline on resolved parameters; once for latents and once for frames, as it returns either."""
    arguments = {name: parameters[name] for name in _ASKED} | {"fps": float(parameters["fps"])}
    arguments["image"] = None if image is None else Image.fromarray(image)

    def run(output_type: str) -> Any:
        generator = torch.Generator("cpu").manual_seed(seed)
        return pipeline(prompt, generator=generator, output_type=output_type, **arguments).video

    return Expected(run("latent").numpy(), np.stack([np.asarray(frame) for frame in run("pil")]))


def logits_by_forward(module: Cosmos3OmniTransformer, tokens: list[int]) -> Tensor:
    """Logits (S, V) after every token, from the module's own layers, both towers at once and no cache.

    The generation tower is given a token too, since the layers insist on one; the text does not see it.
    """
    ids = torch.tensor(tokens)
    positions = torch.arange(len(ids) + 1).expand(3, -1)
    text, latent = module.embed_tokens(ids), torch.ones(1, module.config.hidden_size)
    cos, sin = module.rotary_emb(position_ids=positions.unsqueeze(1), device=text.device, dtype=text.dtype)
    cos, sin = cos.squeeze(0), sin.squeeze(0)
    rotary = (cos[: len(ids)], sin[: len(ids)], cos[len(ids) :], sin[len(ids) :])
    states, _ = module._run_decoder_stack(text, latent, rotary)
    logits: Tensor = module.lm_head(states)
    return logits
