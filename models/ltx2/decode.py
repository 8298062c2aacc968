"""Latents to frames and to a waveform, as a loop: a plan for each network that runs, or each of its tiles.

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
from diffusers import AutoencoderKLLTX2Video
from diffusers.video_processor import VideoProcessor
from numpy.typing import NDArray
from torch import Tensor

from mutoscope.models.common import tiles
from mutoscope.models.ltx2.components import Ltx2Components
from mutoscope.models.ltx2.latents import Latents
from mutoscope.platform.engine.loop import Done, LoopState, WorkPlan


@dataclass(frozen=True, slots=True)
class FilmTiles:
    """AutoencoderKLLTX2Video: a tile of all frames is one step."""

    vae: AutoencoderKLLTX2Video

    @property
    def factor(self) -> int:
        return int(self.vae.spatial_compression_ratio)

    def pieces(self, frames: int) -> int:
        return 1

    def decode(self, tile: Tensor, piece: int, carried: None) -> tuple[Tensor, None]:
        return self.vae.decoder(tile, None, causal=None), None

    def finish(self, signal: Tensor) -> Tensor:
        return signal


@dataclass(slots=True, kw_only=True)
class DecodeState(LoopState):
    """The frames' own state, and what comes in and out of the sound's two networks."""

    frames: tiles.DecodeState
    audio_latents_BAMF: Tensor | None
    mel: Tensor | None = None
    audio_CN: NDArray[np.float32] | None = None


class Decode:
    """The video VAE, whole or in tiles; with sound, then the audio VAE and the vocoder."""

    name = "decode"

    def __init__(self, parts: Ltx2Components, latents: Latents) -> None:
        self.parts, self.latents = parts, latents
        self.processor = VideoProcessor(vae_scale_factor=int(parts.vae.spatial_compression_ratio))
        self.node = tiles.decode_node(
            "frames",
            tiles.Decoding(
                slot="frames_FYXC",
                size=self._size,
                latents=lambda slots: slots["decoded_BCTHW"].to(parts.vae.dtype),
                decoder=FilmTiles(parts.vae),
                whole=lambda latents: parts.vae.decode(latents, None, return_dict=False)[0],
                pixels=self._pixels,
            ),
        )

    def total(self, slots: Mapping[str, Any]) -> int:
        return self.node.total(slots) + (2 if slots["request"].parameters["audio"] else 0)

    def init(self, slots: Mapping[str, Any]) -> DecodeState:
        return DecodeState(
            total=self.total(slots),
            frames=self.node.loop.init(slots),
            audio_latents_BAMF=slots["audio_latents_BAMF"],
        )

    def next(self, state: DecodeState) -> WorkPlan | Done:
        if state.frames.step < state.frames.total:
            return self.node.loop.next(state.frames)
        if state.step == state.total:
            return Done()
        assert state.audio_latents_BAMF is not None
        shape = tuple(state.audio_latents_BAMF.shape[2:])
        if state.mel is None:
            return WorkPlan("audio_decode", shape, partial(self.decode_mel, state.audio_latents_BAMF))
        return WorkPlan("vocode", shape, partial(self.vocode, state.mel))

    def advance(self, state: DecodeState, result: Any) -> None:
        if state.frames.step < state.frames.total:
            self.node.loop.advance(state.frames, result)
        elif state.mel is None:
            state.mel = result
        else:
            state.audio_CN = result
        state.step += 1

    def finalize(self, state: DecodeState) -> Mapping[str, Any]:
        """`frames_FYXC` uint8 and `audio_CN` float32, None without sound."""
        return {**self.node.loop.finalize(state.frames), "audio_CN": state.audio_CN}

    def decode_mel(self, latents_BAMF: Tensor) -> Tensor:
        """The mel spectrogram, (1, channels, time, bins)."""
        vae = self.parts.audio_vae
        mel: Tensor = vae.decode(latents_BAMF.to(vae.dtype), return_dict=False)[0]
        return mel

    def vocode(self, mel: Tensor) -> NDArray[np.float32]:
        """The waveform, float32 (C, N), from -1 to 1."""
        audio_BCN: Tensor = self.parts.vocoder(mel)
        waveform: NDArray[np.float32] = audio_BCN[0].to(torch.float32).clamp(-1, 1).cpu().numpy()
        return waveform

    def _size(self, slots: Mapping[str, Any]) -> tuple[int, int, int]:
        grid = self.latents.grid(slots["request"].parameters)
        return grid.frames, grid.height, grid.width

    def _pixels(self, video_BCFYX: Tensor) -> NDArray[np.uint8]:
        """uint8 (F, Y, X, 3), rounded as the pipeline's users do."""
        frames_FYXC = self.processor.postprocess_video(video_BCFYX, output_type="np")[0]
        rounded: NDArray[np.uint8] = (frames_FYXC * 255).round().astype(np.uint8)
        return rounded
