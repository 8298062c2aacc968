"""Guidance of video and sound, each by scales of its own, on predictions of clean latents.

With v the velocity, x0 = x - sigma v is what the transformer takes the clean latents to be. Every kind of
guidance leads x0 away from a weaker answer of the same transformer:

    x0 + (g - 1) (x0 - x0 of the negative prompt)       classifier-free
       + s (x0 - x0 with some self-attention skipped)   spatio-temporal (STG, arXiv 2411.18664)
       + (m - 1) (x0 - x0 of isolated modalities)       modality

and may be rescaled towards the spread of the unguided x0 (arXiv 2305.08891, section 3.4). The order of
operations is that of diffusers' `LTX2Pipeline`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Scales:
    """Of one modality; the neutral ones turn a kind of guidance off."""

    text: float = 1.0
    skip: float = 0.0
    modality: float = 1.0
    rescale: float = 0.0


@dataclass(frozen=True, slots=True)
class Answers:
    """The velocities of one step and one modality, float32 (1, tokens, channels); None for passes not
    made."""

    cond: Tensor
    uncond: Tensor | None = None
    skipped: Tensor | None = None
    isolated: Tensor | None = None

    def guided(self, scales: Scales, sample: Tensor, sigma: Tensor) -> Tensor:
        """The velocity that they come to for `sample`, which is at noise level `sigma` (0-dim)."""
        clean = sample - self.cond * sigma
        led = clean
        for weaker, weight in (
            (self.uncond, scales.text - 1),
            (self.skipped, scales.skip),
            (self.isolated, scales.modality - 1),
        ):
            if weaker is not None:
                led = led + weight * (clean - (sample - weaker * sigma))
        if scales.rescale > 0:
            led = rescale(led, clean, scales.rescale)
        return (sample - led) / sigma


def rescale(led: Tensor, clean: Tensor, share: float) -> Tensor:
    """`led`, a share of it brought to the standard deviation of `clean`."""
    axes = list(range(1, clean.ndim))
    spread = clean.std(dim=axes, keepdim=True) / led.std(dim=axes, keepdim=True)
    return share * (led * spread) + (1 - share) * led


@dataclass(frozen=True, slots=True)
class Guidance:
    """What a stage of a request is guided by. Without sound `audio` is None."""

    video: Scales
    audio: Scales | None

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Guidance:
        """That of the first stage, or the only one."""
        isolated = parameters["isolate_modalities"] or not parameters["audio"]
        return cls(
            Scales(
                _from_one(parameters["guidance_scale"]),
                parameters["stg_scale"],
                # What already is isolated has no weaker answer of that kind.
                1.0 if isolated else _from_one(parameters["modality_scale"]),
                parameters["guidance_rescale"],
            ),
            Scales(
                _from_one(parameters["audio_guidance_scale"]),
                parameters["audio_stg_scale"],
                1.0 if isolated else _from_one(parameters["audio_modality_scale"]),
                parameters["audio_guidance_rescale"],
            )
            if parameters["audio"]
            else None,
        )

    @classmethod
    def of_second_stage(cls, parameters: Mapping[str, Any]) -> Guidance:
        """Refining is guided by the text at most: its model is distilled from guidance."""
        audio = Scales(_from_one(parameters["stage_2_audio_guidance_scale"]))
        return cls(
            Scales(_from_one(parameters["stage_2_guidance_scale"])), audio if parameters["audio"] else None
        )

    @property
    def guided(self) -> bool:
        """Whether the negative prompt is asked."""
        return any(scales.text > 1 for scales in self._scales)

    @property
    def skips(self) -> bool:
        """Whether the transformer is asked without some of its self-attention."""
        return any(scales.skip > 0 for scales in self._scales)

    @property
    def isolates(self) -> bool:
        """Whether the modalities are asked without each other."""
        return any(scales.modality > 1 for scales in self._scales)

    @property
    def _scales(self) -> tuple[Scales, ...]:
        return (self.video,) if self.audio is None else (self.video, self.audio)


def _from_one(scale: float) -> float:
    """1 and below turn guidance off, also where the other modality needs the passes."""
    return max(1.0, scale)
