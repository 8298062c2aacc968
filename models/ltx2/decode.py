"""Latents to frames and to a waveform, as a loop: a plan for each network that runs.

Shape suffixes
    B  batch, 1 here    F  frames    Y, X  frame height, width    C  channels    N  samples of sound
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from diffusers.video_processor import VideoProcessor
from numpy.typing import NDArray
from torch import Tensor

from mutoscope.models.ltx2.components import Ltx2Components
from mutoscope.platform.engine.loop import Done, LoopState, WorkPlan

VIDEO, MEL, WAVEFORM = "vae_decode", "audio_decode", "vocode"
"""The kinds of plans, in their order."""


@dataclass(slots=True, kw_only=True)
class DecodeState(LoopState):
    """What comes in, and what the plans have made of it: by kind."""

    latents_BCTHW: Tensor
    audio_latents_BAMF: Tensor | None
    made: dict[str, Any]


class Decode:
    """The video VAE; with sound, then the audio VAE and the vocoder."""

    name = "decode"

    def __init__(self, parts: Ltx2Components) -> None:
        self.parts = parts
        self.pixels = VideoProcessor(vae_scale_factor=int(parts.vae.spatial_compression_ratio))

    def total(self, slots: Mapping[str, Any]) -> int:
        return len(kinds(slots["request"].parameters["audio"]))

    def init(self, slots: Mapping[str, Any]) -> DecodeState:
        return DecodeState(
            total=self.total(slots),
            latents_BCTHW=slots["latents_BCTHW"],
            audio_latents_BAMF=slots["audio_latents_BAMF"],
            made={},
        )

    def next(self, state: DecodeState) -> WorkPlan | Done:
        if state.step == state.total:
            return Done()
        kind = kinds(state.audio_latents_BAMF is not None)[state.step]
        shape = tuple(state.latents_BCTHW.shape[2:])
        if kind != VIDEO:
            assert state.audio_latents_BAMF is not None
            shape = tuple(state.audio_latents_BAMF.shape[2:])
        work = {VIDEO: self.frames, MEL: self.mel, WAVEFORM: self.waveform}[kind]
        return WorkPlan(kind, shape, partial(work, state))

    def advance(self, state: DecodeState, result: Any) -> None:
        state.made[kinds(sound=True)[state.step]] = result
        state.step += 1

    def finalize(self, state: DecodeState) -> Mapping[str, Any]:
        """`frames_FYXC` uint8 and `audio_CN` float32, None without sound."""
        return {"frames_FYXC": state.made[VIDEO], "audio_CN": state.made.get(WAVEFORM)}

    def frames(self, state: DecodeState) -> NDArray[np.uint8]:
        """uint8 (F, Y, X, 3)."""
        vae = self.parts.vae
        video_BCFYX = vae.decode(state.latents_BCTHW.to(vae.dtype), None, return_dict=False)[0]
        frames_FYXC = self.pixels.postprocess_video(video_BCFYX, output_type="np")[0]
        rounded: NDArray[np.uint8] = (frames_FYXC * 255).round().astype(np.uint8)
        return rounded

    def mel(self, state: DecodeState) -> Tensor:
        """The mel spectrogram, (1, channels, time, bins)."""
        vae, latents = self.parts.audio_vae, state.audio_latents_BAMF
        assert latents is not None
        mel: Tensor = vae.decode(latents.to(vae.dtype), return_dict=False)[0]
        return mel

    def waveform(self, state: DecodeState) -> NDArray[np.float32]:
        """float32 (C, N), from -1 to 1."""
        audio_BCN: Tensor = self.parts.vocoder(state.made[MEL])
        waveform: NDArray[np.float32] = audio_BCN[0].to(torch.float32).clamp(-1, 1).cpu().numpy()
        return waveform


def kinds(sound: bool) -> tuple[str, ...]:
    """The plans of a request."""
    return (VIDEO, MEL, WAVEFORM) if sound else (VIDEO,)
