"""Pictures of sound show what is heard: how loud when, and which frequencies."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mutoscope.platform.artifacts import codecs, sound
from mutoscope.platform.artifacts.codecs.audio import Samples
from mutoscope.platform.clip import Clip
from mutoscope.platform.errors import InvalidParameter


def tone(hertz: float, level: float, *, rate: int = 16_000, seconds: float = 1.0) -> Samples:
    t = np.arange(round(rate * seconds)) / rate
    return (level * np.sin(2 * np.pi * hertz * t)).astype(np.float32)[None]


@pytest.mark.parametrize("rate", [16_000, 24_000, 48_000])
@pytest.mark.parametrize(("hertz", "level"), [(1000, 1.0), (3000, 0.1)])
def test_a_tone_is_a_line_at_its_frequency_and_level(hertz: int, level: float, rate: int) -> None:
    decibels_FT = sound.spectrogram(tone(hertz, level, rate=rate), rate)
    middle_F = decibels_FT[:, decibels_FT.shape[1] // 2]
    row = rate / 2 / 256
    assert abs(int(middle_F.argmax()) * row - hertz) <= row
    # The window spreads a tone between two bins over both: up to 1.4 dB below its level.
    assert -1.5 < middle_F.max() - 20 * math.log10(level) < 0.1
    away = np.abs(np.arange(256) * row - hertz) > 8 * row
    assert middle_F[away].max() < middle_F.max() - 60


def test_silence_is_the_floor_and_its_neighbour_is_not() -> None:
    """A tone in the second half alone."""
    samples = tone(1000, 0.5)
    samples[:, :8000] = 0
    decibels_FT = sound.spectrogram(samples, 16_000)
    columns = decibels_FT.shape[1]
    assert (decibels_FT[:, : columns // 2 - 20] == -90).all()
    # Half of the last window lies behind the end.
    assert decibels_FT[:, columns // 2 + 20 :].max(axis=0).min() > -13


def test_the_envelope_is_what_the_samples_reach() -> None:
    samples_N = np.array([0, 0.5, -0.25, 1, -1, 0, 0, 0.125], np.float32)
    least, greatest, body = sound.envelope(samples_N, 4)
    # (0 .5) (-.25 1) (-1 0) (0 .125), each with the first sample of the next
    assert least.tolist() == [-0.25, -1, -1, 0]
    assert greatest.tolist() == [0.5, 1, 0, 0.125]
    np.testing.assert_allclose(body**2, [0.125, 0.53125, 0.5, 0.0078125])


@pytest.mark.parametrize("count", [1, 7, 903, 905, 40_000])
def test_sounds_of_any_length_are_drawn(count: int) -> None:
    samples = tone(440, 0.8, seconds=1.0 if count < 16_000 else 3.0)[:, :count]
    pixels = sound.draw(samples, 16_000)
    assert pixels.dtype == np.uint8
    assert pixels.shape[1:] == (sound.WIDTH, 3)


def test_each_channel_has_its_lane_and_louder_is_larger() -> None:
    loud, soft = tone(440, 0.9), tone(440, 0.2)
    mono = sound.draw(loud, 16_000)
    stereo = sound.draw(np.concatenate([loud, soft]), 16_000)
    assert stereo.shape[0] - mono.shape[0] == 82
    amber = (stereo == (240, 188, 110)).all(axis=2)
    first, second = amber[10:82].sum(), amber[92:164].sum()
    assert first > 3 * second > 0
    assert np.array_equal(stereo, sound.draw(np.concatenate([loud, soft]), 16_000))
    assert not np.array_equal(stereo, sound.draw(np.concatenate([loud, loud]), 16_000))


def test_the_picture_of_a_file_and_of_a_clip() -> None:
    samples = tone(440, 0.5)
    stored = codecs.encode("audio", samples, {"sample_rate": 16_000})
    assert np.array_equal(sound.picture(stored.data), sound.draw(samples, 16_000))
    film = Clip(np.zeros((8, 16, 16, 3), np.uint8), samples, 16_000)
    assert sound.picture(codecs.encode("video", film, {"fps": 8}).data).shape[1] == sound.WIDTH
    silent = codecs.encode("video", film.frames_THWC, {"fps": 8})
    with pytest.raises(InvalidParameter, match="use a file with sound"):
        sound.picture(silent.data)
