"""LTX-2 as a program: encode the prompt, generate latents of video and sound, decode both.

The operations and their order are those of diffusers' `LTX2Pipeline` and `LTX2LatentUpsamplePipeline`, so
that in float32 an unbatched request equals them bit for bit.

A request without sound never asks the sound's half of anything: its video is that of isolated modalities, and
depends on no weight, seed or parameter of the sound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from mutoscope.models.ltx2.card import UPSAMPLER, Ltx2Recipe
from mutoscope.models.ltx2.components import Ltx2Components
from mutoscope.models.ltx2.decode import Decode
from mutoscope.models.ltx2.generate import Generate
from mutoscope.models.ltx2.latents import Latents
from mutoscope.models.ltx2.text import USES, TextEncode
from mutoscope.platform.clip import Clip
from mutoscope.platform.engine.loop import BuildContext, ComponentNode, LoopNode, Program
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.errors import InvalidParameter

LAYOUT = "ltx2-vae"
"""Latents as the VAEs take them: not normalised, not packed."""


def build(context: BuildContext) -> Program:
    """The program over one folder's loaded components."""
    parts, device = Ltx2Components.of(context.components), torch.device(context.device)
    recipe = context.recipe
    assert isinstance(recipe, Ltx2Recipe)
    latents = Latents(parts.vae, parts.audio_vae)
    text, generate, decode = (
        TextEncode(parts, device),
        Generate(parts, latents, recipe, device),
        Decode(parts, latents),
    )

    def check(request: Request) -> None:
        """A sound has a moment at least."""
        parameters = request.parameters
        if parameters["audio"] and not latents.grid(parameters).moments:
            seconds = parameters["num_frames"] / parameters["fps"]
            raise InvalidParameter(
                "num_frames",
                parameters["num_frames"],
                f"use more, or audio=false: {seconds:.3g} s hold no sound",
            )

    def outputs(slots: Mapping[str, Any]) -> dict[str, Output]:
        fps, rate = slots["request"].parameters["fps"], int(parts.vocoder.config.output_sampling_rate)
        frames, audio = slots["frames_FYXC"], slots["audio_CN"]
        silent = {
            "video": Output("video", frames, {"fps": fps}),
            "latent": _latent(slots["latents_BCTHW"]),
        }
        if audio is None:
            return silent
        return {
            "video": Output("video", Clip(frames, audio, rate), {"fps": fps}),
            "audio": Output("audio", audio, {"sample_rate": rate}),
            "latent": silent["latent"],
            "audio_latent": _latent(slots["audio_latents_BAMF"]),
        }

    return Program(
        nodes=(
            ComponentNode("text_encode", "text_encode", text, uses=USES, content=text.content),
            LoopNode(generate, total=generate.total, uses=("transformer", UPSAMPLER.name)),
            LoopNode(decode, total=decode.total, uses=("vae", "audio_vae", "vocoder")),
        ),
        outputs=outputs,
        check=check,
        extent=lambda request: float(latents.grid(request.parameters).tokens),
    )


def _latent(latents: torch.Tensor) -> Output:
    return Output("latent", {"latents": latents.float().contiguous().cpu().numpy()}, {"layout": LAYOUT})
