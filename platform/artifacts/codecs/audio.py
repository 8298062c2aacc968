"""Audio: float32 samples (channels, samples) from -1 to 1, as WAV of 32-bit floats.

Bit-exact, which the integers of FLAC are not for floats; and every browser plays it. The file is the header
below and the samples as they are, so equal sounds are equal bytes on every machine.

    "RIFF" size "WAVE"
    "fmt " 18: format 3 (IEEE float), channels, sample rate, bytes a second, bytes a sample, 32 bits, 0
    "fact" 4: samples of a channel
    "data" size: samples, little-endian, channels interleaved
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

import av
import numpy as np
from av.audio.resampler import AudioResampler

from mutoscope.platform.artifacts.codecs.encoded import Encoded
from mutoscope.platform.artifacts.codecs.image import describe
from mutoscope.platform.clip import CHANNELS
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.ids import sha256

MEDIA_TYPE = "audio/wav"

Samples = np.ndarray[Any, np.dtype[np.float32]]

_IEEE_FLOAT, _ITEM_BYTES = 3, 4
_HEADER = struct.Struct("<4sI4s4sIHHIIHHH4sII4sI")
_MOST_BYTES = 2**32 - 1 - _HEADER.size
"""A RIFF file counts its bytes in 32 bits: 46 minutes of stereo at 96 kHz."""

_MOST_RATE = 768_000


def encode(value: Any, meta: dict[str, Any]) -> Encoded:
    """A WAV file.

    Args:
        value: float32 (channels, samples), one channel or two, finite, from -1 to 1.
        meta: must hold ``sample_rate``, samples per second and channel.

    Meta gains ``channels``, ``seconds`` and ``samples_sha256``, the SHA-256 of the raw samples.
    """
    samples_CN = checked_samples(value)
    rate = checked_rate(meta.get("sample_rate"))
    channels, count = samples_CN.shape
    facts = {
        "sample_rate": rate,
        "channels": channels,
        "seconds": count / rate,
        "samples_sha256": samples_digest(samples_CN),
    }
    return Encoded(_wav(samples_CN, rate), MEDIA_TYPE, {**meta, **facts})


def decode(data: bytes) -> Samples:
    """float32 (channels, samples). Also reads what FFmpeg reads, such as FLAC, MP3 and WAV of integers.

    Raises:
        InvalidParameter: the bytes are no sound.
    """
    return read(data)[0]


def read(data: bytes) -> tuple[Samples, int]:
    """The samples and how many make a second. Raises InvalidParameter."""
    if len(data) >= _HEADER.size:
        fields: Sequence[int] = _HEADER.unpack_from(data)
        channels, rate, count, size = fields[6], fields[7], fields[14], fields[16]
        if channels in CHANNELS and rate <= _MOST_RATE and data.startswith(_header(channels, rate, count)):
            if size != len(data) - _HEADER.size:
                raise InvalidParameter("audio", f"{len(data)} bytes", "use a whole WAV file (it was cut)")
            interleaved_NC = np.frombuffer(data, "<f4", offset=_HEADER.size).reshape(count, channels)
            return np.ascontiguousarray(interleaved_NC.T), rate
    return _read_any(data)


def samples_digest(samples_CN: Samples) -> str:
    """SHA-256 of the raw samples, one channel after the other, little-endian."""
    return sha256(np.ascontiguousarray(samples_CN, "<f4").tobytes())


def checked_samples(value: Any) -> Samples:
    """The samples, if they are some. Raises InvalidParameter."""
    shape: tuple[int, ...] = ()
    if isinstance(value, np.ndarray) and value.dtype == np.float32:
        shape = value.shape
    if len(shape) != 2 or shape[0] not in CHANNELS or not shape[1]:
        raise InvalidParameter(
            "audio", describe(value), "use a float32 array of shape (channels, samples), 1 or 2 channels"
        )
    outside = ~(np.abs(value) <= 1)
    if outside.any():
        channel, at = (int(index) for index in np.unravel_index(int(outside.argmax()), shape))
        raise InvalidParameter(
            "audio",
            f"{float(value[channel, at]):g} at sample {at} of channel {channel}",
            "use finite samples from -1 to 1",
        )
    return np.asarray(value)


def checked_rate(rate: Any) -> int:
    """Samples per second, if it is such a number. Raises InvalidParameter."""
    if isinstance(rate, bool) or not isinstance(rate, int) or not 0 < rate <= _MOST_RATE:
        raise InvalidParameter(
            "sample_rate", rate, f"use samples per second, from 1 to {_MOST_RATE}, in meta"
        )
    return rate


def _wav(samples_CN: Samples, rate: int) -> bytes:
    channels, count = samples_CN.shape
    most = _MOST_BYTES // (channels * _ITEM_BYTES)
    if count > most:
        raise InvalidParameter("audio", f"{count} samples", f"use {most} or fewer")
    return _header(channels, rate, count) + np.ascontiguousarray(samples_CN.T, "<f4").tobytes()


def _header(channels: int, rate: int, count: int) -> bytes:
    stride = channels * _ITEM_BYTES
    size = count * stride
    riff = (b"RIFF", (_HEADER.size - 8 + size) % 2**32, b"WAVE")
    layout = (_IEEE_FLOAT, channels, rate, rate * stride, stride, 8 * _ITEM_BYTES, 0)
    return _HEADER.pack(*riff, b"fmt ", 18, *layout, b"fact", 4, count, b"data", size % 2**32)


def _read_any(data: bytes) -> tuple[Samples, int]:
    """Whatever FFmpeg makes of it, as float32 in the file's own channels and rate."""
    try:
        with av.open(io.BytesIO(data), "r") as container:
            if not container.streams.audio:
                raise InvalidParameter("audio", f"{len(data)} bytes", "use a file with sound")
            stream = container.streams.audio[0]
            to_float = AudioResampler(format="fltp")
            pieces = [
                floats.to_ndarray()
                for frame in (*container.decode(stream), None)
                for floats in to_float.resample(frame)
            ]
            rate = stream.codec_context.sample_rate
    except av.FFmpegError as error:
        raise InvalidParameter(
            "audio", f"{len(data)} bytes", f"use a readable sound file ({error.strerror})"
        ) from None
    if not pieces:
        raise InvalidParameter("audio", f"{len(data)} bytes", "use a file with at least one sample")
    return np.concatenate(pieces, axis=1), rate
