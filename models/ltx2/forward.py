"""One call of the transformer for many rows.

A row is what one sample asks in one pass of a step: its guided pair (negative prompt, prompt), or the prompt
alone. The pair is one row because that is the batch in which diffusers' pipeline computes it, which CPU
kernels round otherwise than two batches of one.

Shape suffixes
    B  rows             P  passes of a row, 1 or 2       L, C  video tokens and their channels
    S  prompt tokens    D, E  text widths                M, K  moments of sound and their features
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import LTX2VideoTransformer3DModel
from torch import Tensor

from mutoscope.models.ltx2.text import Conditioning

Row = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Forward:
    """A way of asking the transformer, which rows of many requests share.

    Attributes:
        isolate: video and sound do not attend to each other. Rows without sound are always asked like this,
            with a single silent moment in its place, of which the video sees nothing.
        skip: transformer blocks whose self-attention is left out.
    """

    transformer: LTX2VideoTransformer3DModel
    isolate: bool = False
    skip: tuple[int, ...] = ()

    def predict(self, rows: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The velocities of stacked rows, float32: (B, P, L, C) and, of rows with sound, (B, P, M, K)."""
        inputs = {name: tensor.flatten(0, 1) for name, tensor in rows.items()}
        sounds = "audio" in rows
        answers = self.transformer(
            **self._video(inputs),
            **(self._audio(inputs) if sounds else self._silence(inputs)),
            isolate_modalities=self.isolate or not sounds,
            spatio_temporal_guidance_blocks=list(self.skip) or None,
            use_cross_timestep=True,
            return_dict=False,
        )
        sizes = rows["video"].shape[:2]
        return tuple(velocity.float().unflatten(0, sizes) for velocity in answers[: 2 if sounds else 1])

    @staticmethod
    def _video(inputs: Mapping[str, Tensor]) -> dict[str, Any]:
        return {
            "hidden_states": inputs["video"],
            "encoder_hidden_states": inputs["video_text"],
            "encoder_attention_mask": inputs["mask"],
            "video_coords": inputs["video_coords"],
            "timestep": inputs["timestep"],
            "sigma": inputs["timestep"],
        }

    @staticmethod
    def _audio(inputs: Mapping[str, Tensor]) -> dict[str, Any]:
        return {
            "audio_hidden_states": inputs["audio"],
            "audio_encoder_hidden_states": inputs["audio_text"],
            "audio_encoder_attention_mask": inputs["mask"],
            "audio_coords": inputs["audio_coords"],
        }

    def _silence(self, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
        """A moment of sound for the layers that run whatever is asked; it costs next to nothing."""
        config, video = self.transformer.config, inputs["video"]
        count = video.shape[0]
        width = config.caption_channels if config.use_prompt_embeddings else config.audio_cross_attention_dim
        return {
            "audio_hidden_states": video.new_zeros(count, 1, config.audio_in_channels),
            "audio_encoder_hidden_states": video.new_zeros(count, 1, width),
            "audio_coords": self.transformer.audio_rope.prepare_audio_coords(count, 1, video.device),
        }


def row(
    texts: tuple[Conditioning, ...],
    video_BLC: Tensor,
    audio_BMK: Tensor | None,
    coords: tuple[Tensor, Tensor | None],
    timestep: Tensor,
) -> Row:
    """The row of one sample, B = 1: the same tokens for each of its `texts`, at `timestep` (0-dim).

    `coords` are the positions of video and sound. They depend on the frame rate, so they are part of the row.
    """

    def same(tensor: Tensor) -> Tensor:
        return torch.stack([tensor] * len(texts), dim=1)

    dtype = texts[0].video_BSD.dtype
    made = {
        "video": same(video_BLC.to(dtype)),
        "video_text": torch.stack([text.video_BSD for text in texts], dim=1),
        "mask": torch.stack([text.mask_BS for text in texts], dim=1),
        "video_coords": same(coords[0]),
        "timestep": same(timestep.expand(1)),
    }
    if audio_BMK is not None:
        assert coords[1] is not None
        made |= {
            "audio": same(audio_BMK.to(dtype)),
            "audio_text": torch.stack([text.audio_BSE for text in texts], dim=1),
            "audio_coords": same(coords[1]),
        }
    return made
