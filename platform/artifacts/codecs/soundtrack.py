"""The sound of a video's MP4: AAC-LC, which every browser plays there.

Lossy, so a sound worth keeping is an artifact of its own beside the video (see `audio`), and the digest of
its raw samples travels in the meta of both. Byte-repeatable for one build of the encoder and one kind of CPU:
it runs on one thread and writes no version; unlike the picture's, its arithmetic is floating point in vector
units.

An AAC frame looks back at the one before, so the encoder begins with 1024 samples of silence. They have
negative times, from which the muxer makes an edit list: players leave them out, and the sound's duration is
that of its samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import av
from av.audio.stream import AudioStream
from av.codec.context import Flags
from av.container import OutputContainer
from av.packet import Packet

from mutoscope.platform.artifacts.codecs.audio import checked_samples, samples_digest
from mutoscope.platform.clip import SAMPLE_RATES, Clip
from mutoscope.platform.errors import InvalidParameter

_BITS_PER_SAMPLE = 4
"""384 kbit/s for stereo at 48 kHz. A chirp comes back with an error of 0.1 %; given half the bits, FFmpeg's
encoder makes 4 to 25 % of it."""

ENCODER = f"aac {_BITS_PER_SAMPLE} bit/sample"

_LAYOUTS = {1: "mono", 2: "stereo"}


class Soundtrack:
    """The encoded sound of one clip, handed out as the video goes on."""

    def __init__(self, container: OutputContainer, clip: Clip) -> None:
        channels = clip.audio_CN.shape[0]
        stream: AudioStream = container.add_stream(
            "aac", rate=clip.sample_rate, layout=_LAYOUTS[channels], options={}
        )
        context = stream.codec_context
        context.bit_rate = _BITS_PER_SAMPLE * clip.sample_rate * channels
        context.time_base = Fraction(1, clip.sample_rate)
        context.thread_count = 1
        context.flags |= Flags.bitexact
        frame = av.AudioFrame.from_ndarray(clip.audio_CN, format="fltp", layout=_LAYOUTS[channels])
        frame.sample_rate, frame.pts, frame.time_base = clip.sample_rate, 0, context.time_base
        self._rate = clip.sample_rate
        self._packets = deque([*stream.encode(frame), *stream.encode(None)])

    def until(self, seconds: Fraction) -> Iterator[Packet[AudioStream]]:
        """The packets that begin before then, but for those already given."""
        while self._packets and Fraction(self._packets[0].pts or 0, self._rate) < seconds:
            yield self._packets.popleft()

    def rest(self) -> Iterator[Packet[AudioStream]]:
        """What is left."""
        while self._packets:
            yield self._packets.popleft()


def check(clip: Clip) -> None:
    """Raises InvalidParameter: AAC does not hold the clip's sound."""
    checked_samples(clip.audio_CN)
    if clip.sample_rate not in SAMPLE_RATES:
        rates = ", ".join(str(rate) for rate in SAMPLE_RATES)
        raise InvalidParameter("sample_rate", clip.sample_rate, f"an MP4 takes one of {rates}")


def describe(clip: Clip) -> dict[str, Any]:
    """The sound's part of a video's meta."""
    channels, count = clip.audio_CN.shape
    return {
        "sample_rate": clip.sample_rate,
        "channels": channels,
        "audio_seconds": count / clip.sample_rate,
        "samples_sha256": samples_digest(clip.audio_CN),
    }
