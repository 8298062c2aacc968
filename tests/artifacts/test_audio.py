"""Sound as artifacts: exact in a file of its own, and playing along in a video's MP4."""

from __future__ import annotations

import io
import subprocess
import sys
import wave
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest

from mutoscope.platform.artifacts import codecs
from mutoscope.platform.artifacts.codecs import audio, video
from mutoscope.platform.clip import SAMPLE_RATES, Clip
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.ids import sha256

RATE = 24_000


def chirp(seconds: float = 0.5, rate: int = RATE, channels: int = 2) -> audio.Samples:
    """Rising from 300 Hz to 3 kHz, the second channel softer than the first."""
    t = np.arange(round(seconds * rate)) / rate
    swept = np.sin(2 * np.pi * (300 * t + (3000 - 300) * t**2 / (2 * seconds)))
    return np.stack([swept * level for level in (0.8, 0.3)[:channels]]).astype(np.float32)


def moving(frames: int = 12, size: int = 64) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A bright bar that goes down."""
    made = np.full((frames, size, size, 3), 40, np.uint8)
    for at in range(frames):
        made[at, at * 4 : at * 4 + 8] = (250, 190, 60)
    return made


def encoded(samples: audio.Samples, rate: int = RATE) -> codecs.Encoded:
    return codecs.encode("audio", samples, {"sample_rate": rate})


@pytest.mark.parametrize("channels", [1, 2])
def test_every_sample_comes_back_bit_for_bit(channels: int) -> None:
    samples = chirp(channels=channels)
    # Values that integers, or another rounding, would not keep.
    samples[0, :6] = [-0.0, 1.0, -1.0, np.float32(1e-42), np.float32(1) / 3, np.finfo(np.float32).tiny]
    stored = encoded(samples)
    assert stored.media_type == "audio/wav"
    back = codecs.decode("audio", stored.data, stored.media_type)
    assert back.dtype == np.float32
    assert back.shape == samples.shape
    assert back.tobytes() == samples.tobytes()
    assert audio.read(stored.data)[1] == RATE


def test_meta_says_what_it_is() -> None:
    samples = chirp(0.25)
    meta = codecs.encode("audio", samples, {"sample_rate": RATE, "prompt": "x"}).meta
    assert meta == {
        "sample_rate": RATE,
        "channels": 2,
        "seconds": 0.25,
        "samples_sha256": sha256(samples.tobytes()),
        "prompt": "x",
    }


def test_equal_samples_are_equal_files() -> None:
    samples = chirp()
    assert encoded(samples).data == encoded(np.asfortranarray(samples)).data
    other = samples.copy()
    other[1, 7] = np.nextafter(other[1, 7], np.float32(1))
    assert encoded(other).data != encoded(samples).data
    assert encoded(other).meta["samples_sha256"] != encoded(samples).meta["samples_sha256"]


def test_the_file_is_a_wav_of_floats_to_others_too() -> None:
    """FFmpeg, which is what browsers decode with or agree with, finds the same samples."""
    samples = chirp()
    with av.open(io.BytesIO(encoded(samples).data)) as container:
        stream = container.streams.audio[0]
        facts = (container.format.name, stream.codec_context.name, stream.sample_rate, stream.channels)
        assert facts == ("wav", "pcm_f32le", RATE, 2)
        assert stream.duration * stream.time_base == Fraction(1, 2)
        heard = np.concatenate([frame.to_ndarray() for frame in container.decode(stream)], axis=1)
    np.testing.assert_array_equal(heard.reshape(-1, 2).T, samples)


def test_sounds_from_elsewhere_are_read() -> None:
    samples = chirp()
    steps = np.rint(samples * 32767).astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(steps.T.tobytes())
    found, rate = audio.read(buffer.getvalue())
    assert rate == RATE
    np.testing.assert_array_equal(found, steps.astype(np.float32) / 32768)
    flac = io.BytesIO()
    with av.open(flac, "w", format="flac") as container:
        stream = container.add_stream("flac", rate=RATE, layout="stereo")
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(steps), format="s16p", layout="stereo")
        frame.sample_rate = RATE
        container.mux([*stream.encode(frame), *stream.encode(None)])
    np.testing.assert_array_equal(codecs.decode("audio", flac.getvalue(), "audio/flac"), found)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (
            chirp().T,
            r"float32\[12000, 2\].*use a float32 array of shape \(channels, samples\), 1 or 2 channels",
        ),
        (chirp().astype(np.float64), r"float64\[2, 12000\].*use a float32 array"),
        (chirp()[0], r"float32\[12000\].*use a float32 array"),
        (chirp()[:, :0], r"float32\[2, 0\].*use a float32 array"),
        ([0.0, 1.0], "list.*use a float32 array"),
        (np.array([[0.5, 0.25, 1.5]], np.float32), "1.5 at sample 2 of channel 0.*from -1 to 1"),
        (np.array([[0, 0], [np.nan, 0]], np.float32), "nan at sample 0 of channel 1.*use finite samples"),
        (np.array([[np.inf]], np.float32), "inf at sample 0 of channel 0.*use finite samples"),
    ],
    ids=["samples-first", "float64", "flat", "empty", "list", "too-loud", "nan", "inf"],
)
def test_what_is_no_sound_is_refused(value: Any, line: str) -> None:
    with pytest.raises(InvalidParameter, match=line):
        codecs.encode("audio", value, {"sample_rate": RATE})


@pytest.mark.parametrize("rate", [None, 0, -1, 24000.0, True, "24000"])
def test_a_sound_has_a_sample_rate(rate: Any) -> None:
    with pytest.raises(InvalidParameter, match=r"sample_rate=.*use samples per second, from 1 to 768000, in"):
        codecs.encode("audio", chirp(), {"sample_rate": rate})


@pytest.mark.parametrize("data", [b"", b"RIFF", b"not a sound at all", encoded(chirp()).data[:-4]])
def test_damaged_files_are_one_line(data: bytes) -> None:
    with pytest.raises(InvalidParameter, match=r"audio='\d+ bytes' is not valid: use a"):
        audio.read(data)


def clip(seconds: float = 0.5, rate: int = RATE, channels: int = 2) -> Clip:
    return Clip(moving(), chirp(seconds, rate, channels), rate)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", [16_000, 24_000, 48_000])
def test_both_streams_of_a_clip_play_to_the_end_together(rate: int, channels: int) -> None:
    film = codecs.encode("video", clip(rate=rate, channels=channels), {"fps": 24})
    with av.open(io.BytesIO(film.data)) as container:
        picture, sound = container.streams.video[0], container.streams.audio[0]
        assert (picture.codec_context.name, sound.codec_context.name) == ("h264", "aac")
        assert (sound.sample_rate, sound.channels) == (rate, channels)
        assert picture.duration * picture.time_base == Fraction(1, 2)
        assert sound.duration * sound.time_base == Fraction(1, 2)
        assert container.duration == 500_000
    with av.open(io.BytesIO(film.data)) as container:
        frames = list(container.decode(video=0))
    assert len(frames) == 12
    heard, found = audio.read(film.data)
    assert found == rate
    # AAC is lossy, and ends with its last frame of 1024 samples; what there is begins with the first sample.
    original = chirp(rate=rate, channels=channels)
    count = original.shape[1]
    assert 0 <= heard.shape[1] - count < 1024
    error = np.sqrt(np.mean((heard[:, :count] - original) ** 2) / np.mean(original**2))
    assert error < 0.04
    shifted = np.sqrt(np.mean((heard[:, 3:count] - original[:, : count - 3]) ** 2) / np.mean(original**2))
    assert shifted > 0.2


def test_the_pictures_are_those_of_the_silent_video() -> None:
    film, silent = clip(), codecs.encode("video", moving(), {"fps": 24})
    sounding = codecs.encode("video", film, {"fps": 24})
    np.testing.assert_array_equal(video.decode(sounding.data), video.decode(silent.data))
    assert sounding.meta["frames_sha256"] == silent.meta["frames_sha256"]
    assert set(sounding.meta) - set(silent.meta) == {
        "sample_rate",
        "channels",
        "audio_seconds",
        "samples_sha256",
    }
    assert sounding.meta["samples_sha256"] == encoded(film.audio_CN).meta["samples_sha256"]
    assert sounding.meta["audio_seconds"] == 0.5
    assert silent.meta["encoder"].startswith("libx264 crf=14 libavcodec=")
    assert sounding.meta["encoder"].startswith("libx264 crf=14 aac 4 bit/sample libavcodec=")


def test_equal_clips_are_equal_files_in_other_processes_too() -> None:
    code = (
        "from mutoscope.platform.artifacts import codecs; from mutoscope.platform.ids import sha256; "
        "from tests.artifacts.test_audio import clip; "
        "print(sha256(codecs.encode('video', clip(), {'fps': 24}).data))"
    )
    command = [sys.executable, "-c", code]
    elsewhere = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    ours = codecs.encode("video", clip(), {"fps": 24}).data
    assert sha256(ours) == elsewhere
    assert codecs.encode("video", clip(), {"fps": 24}).data == ours
    louder = Clip(moving(), chirp() * np.float32(0.5), RATE)
    assert codecs.encode("video", louder, {"fps": 24}).data != ours


def test_a_long_clip_is_interleaved() -> None:
    """A player that reads on needs the sound of a moment near its picture."""
    frames = np.zeros((96, 64, 64, 3), np.uint8)
    film = codecs.encode("video", Clip(frames, chirp(12.0, 8000, 1), 8000), {"fps": 8})
    ahead = {"video": 0.0, "audio": 0.0}
    with av.open(io.BytesIO(film.data)) as container:
        for packet in container.demux():
            if packet.dts is not None:
                ahead[packet.stream.type] = float(packet.dts * packet.time_base)
                assert abs(ahead["video"] - ahead["audio"]) < 1.0
    assert min(ahead.values()) > 11


@pytest.mark.parametrize("seconds", [0.001, 0.1, 1.5])
def test_picture_and_sound_need_not_end_together(seconds: float) -> None:
    film = codecs.encode("video", clip(seconds), {"fps": 24})
    with av.open(io.BytesIO(film.data)) as container:
        sound = container.streams.audio[0]
        # The edit list counts milliseconds.
        assert abs(float(sound.duration * sound.time_base) - seconds) <= 0.001
    assert len(video.decode(film.data)) == 12


def test_rates_beyond_aac_are_refused() -> None:
    assert RATE in SAMPLE_RATES
    with pytest.raises(InvalidParameter, match=r"sample_rate=20000 .*an MP4 takes one of 8000, 11025"):
        codecs.encode("video", clip(rate=20_000), {"fps": 24})
    broken = chirp()
    broken[0, 0] = np.nan
    with pytest.raises(InvalidParameter, match="nan at sample 0"):
        codecs.encode("video", Clip(moving(), broken, RATE), {"fps": 24})
