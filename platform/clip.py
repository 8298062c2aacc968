"""A clip: frames and the sound that belongs to them, as one value that an MP4 holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

SAMPLE_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000, 64000, 88200, 96000)
"""Samples per second that sound in an MP4 may have: those of AAC."""

CHANNELS = (1, 2)
"""Mono and stereo."""


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """What an output of kind ``video`` holds where the video has sound; without, it is the frames alone.

    Attributes:
        frames_THWC: uint8 (T, H, W, 3), sRGB.
        audio_CN: float32 (channels, samples), from -1 to 1.
        sample_rate: samples per second and channel, one of `SAMPLE_RATES`.
    """

    frames_THWC: np.ndarray[Any, np.dtype[np.uint8]]
    audio_CN: np.ndarray[Any, np.dtype[np.float32]]
    sample_rate: int
