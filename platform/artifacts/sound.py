"""Sound as a picture: the waveform of each channel, and below it the spectrogram of them all.

Scales are fixed, -1 to 1 and -90 to 0 dBFS, so that two pictures can be compared; the time axis is shared.
Equal sounds give equal pictures under one version of Pillow and NumPy.

Shape suffixes: C channels, N samples, T columns of pixels or windows of the spectrogram, F frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mutoscope.platform.artifacts.codecs import audio
from mutoscope.platform.artifacts.codecs.audio import Samples

Floats = np.ndarray[Any, np.dtype[np.float64]]
Pixels = np.ndarray[Any, np.dtype[np.uint8]]

WIDTH = 960
_LEFT, _RIGHT, _TOP, _BOTTOM, _GAP = 44, 12, 10, 24, 10
_LANE, _BINS = 72, 256
"""Height of a channel's waveform, and of the spectrogram: a row of pixels for each of its frequencies."""

_COLUMNS = WIDTH - _LEFT - _RIGHT
_FLOOR_DB = -90.0
_MOST_WINDOWS = 40_000
"""Of a spectrogram; longer sounds are looked at with gaps between windows."""

_PAPER, _PANEL, _GRID, _WORDS = (24, 22, 20), (14, 12, 16), (52, 47, 42), (176, 166, 150)
_PEAK, _BODY = (150, 104, 48), (240, 188, 110)

# Dark to bright through purple and orange, evenly in lightness.
_HEAT = (
    (0, 0, 4),
    (40, 11, 84),
    (101, 21, 110),
    (159, 42, 99),
    (212, 72, 66),
    (245, 125, 21),
    (252, 255, 164),
)


def picture(data: bytes) -> Pixels:
    """The picture of a sound file, or of the sound of an MP4, uint8 (height, WIDTH, 3).

    Raises:
        InvalidParameter: no codec finds a sound in it.
    """
    return draw(*audio.read(data))


def draw(samples_CN: Samples, rate: int) -> Pixels:
    """The picture of samples, `rate` of which make a second: uint8 (height, WIDTH, 3)."""
    channels, count = samples_CN.shape
    seconds = count / rate
    below = _TOP + channels * (_LANE + _GAP)
    image = Image.new("RGB", (WIDTH, below + _BINS + _BOTTOM), _PAPER)
    canvas = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=11)
    for channel in range(channels):
        top = _TOP + channel * (_LANE + _GAP)
        image.paste(Image.fromarray(_lane(samples_CN[channel])), (_LEFT, top))
        _label(canvas, font, (_LEFT - 6, top + _LANE // 2), f"ch {channel + 1}", "rm")
    image.paste(Image.fromarray(_heat(spectrogram(samples_CN, rate))), (_LEFT, below))
    for hertz in _ticks(rate / 2, 6):
        row = below + _BINS - round(hertz / (rate / 2) * _BINS)
        canvas.line([(_LEFT - 4, row), (_LEFT, row)], fill=_WORDS)
        _label(canvas, font, (_LEFT - 6, row), f"{hertz / 1000:g} kHz" if hertz else "0", "rm")
    for second in _ticks(seconds, 8):
        column = _LEFT + round(second / seconds * _COLUMNS)
        canvas.line([(column, below + _BINS), (column, below + _BINS + 4)], fill=_WORDS)
        _label(canvas, font, (column, below + _BINS + 6), f"{second:g} s", "ma")
    return np.asarray(image, dtype=np.uint8).copy()


def envelope(samples_N: Samples, columns: int) -> tuple[Floats, Floats, Floats]:
    """Least and greatest sample, and root mean square, of each of `columns` equal stretches of a channel.

    Each of them reaches the first sample of the next, so that the stretches join.
    """
    edges = np.linspace(0, len(samples_N), columns + 1).astype(int)
    starts = np.minimum(edges[:-1], len(samples_N) - 1)
    lengths = np.maximum(1, edges[1:] - edges[:-1])
    values = samples_N.astype(np.float64)
    following = values[np.append(starts[1:], len(values) - 1)]
    # Where there are fewer samples than columns, a stretch is a sample that its neighbours show, too.
    least = np.minimum(np.minimum.reduceat(values, starts), following)
    greatest = np.maximum(np.maximum.reduceat(values, starts), following)
    power = np.add.reduceat(values**2, starts) / lengths
    return least, greatest, np.sqrt(power)


def spectrogram(samples_CN: Samples, rate: int) -> Floats:
    """dBFS, (256, _COLUMNS), the lowest frequency first: a full-scale sine is 0, anything below -90 is -90.

    Hann windows of about 20 ms, the power of all channels averaged; of higher rates the stronger of two bins
    is shown.
    """
    size = 2 * _BINS * (2 if rate > 32_000 else 1)
    powers_FT = _powers(samples_CN, size)
    if size > 2 * _BINS:
        powers_FT = powers_FT.reshape(_BINS, 2, -1).max(axis=1)
    windows = powers_FT.shape[1]
    edges = np.linspace(0, windows, _COLUMNS + 1).astype(int)
    starts = np.minimum(edges[:-1], windows - 1)
    lengths = np.maximum(1, edges[1:] - edges[:-1])
    shown_FT = np.add.reduceat(powers_FT, starts, axis=1) / lengths
    with np.errstate(divide="ignore"):
        decibels: Floats = np.maximum(10 * np.log10(shown_FT), _FLOOR_DB)
    return decibels


def _powers(samples_CN: Samples, size: int) -> Floats:
    """Power of each frequency in each window, (size / 2, T), in units of a full-scale sine's."""
    channels, count = samples_CN.shape
    hop = max(1, min(size // 4, count // _COLUMNS), count // _MOST_WINDOWS)
    window = np.hanning(size + 1)[:-1]
    padded = np.pad(samples_CN.astype(np.float64), ((0, 0), (size // 2, size)))
    starts = range(0, count, hop)
    powers = np.zeros((len(starts), size // 2))
    for channel in range(channels):
        every = np.lib.stride_tricks.sliding_window_view(padded[channel], size)
        for block in _blocks(len(starts)):
            pieces = every[starts[block.start] : starts[block.stop - 1] + 1 : hop] * window
            powers[block] += np.abs(np.fft.rfft(pieces, axis=1)[:, :-1]) ** 2
    scaled: Floats = powers.T / channels / (window.sum() / 2) ** 2
    return scaled


def _blocks(count: int, most: int = 2048) -> Iterator[slice]:
    """Bounded memory, however long the sound."""
    for start in range(0, count, most):
        yield slice(start, min(count, start + most))


def _lane(samples_N: Samples) -> Pixels:
    """A channel's waveform: what it reaches, and brighter what it is on average (its root mean square)."""
    least, greatest, body = envelope(samples_N, _COLUMNS)
    rows = np.linspace(1, -1, _LANE)[:, None]
    half = 1 / (_LANE - 1)
    pixels = np.full((_LANE, _COLUMNS, 3), _PANEL, np.uint8)
    pixels[_LANE // 2] = _GRID
    pixels[(rows >= least - half) & (rows <= greatest + half)] = _PEAK
    pixels[(np.abs(rows) <= body) & (rows >= least - half) & (rows <= greatest + half)] = _BODY
    return pixels


def _heat(decibels_FT: Floats) -> Pixels:
    """Colours, the highest frequency on top."""
    share = (decibels_FT[::-1] - _FLOOR_DB) / -_FLOOR_DB
    stops = np.linspace(0, 1, len(_HEAT))
    bands = [np.interp(share, stops, [colour[band] for colour in _HEAT]) for band in range(3)]
    return np.rint(np.stack(bands, axis=-1)).clip(0, 255).astype(np.uint8)


def _ticks(most: float, about: int) -> list[float]:
    """Round numbers from 0 up to `most`, some `about` of them, and never one at the very end that is cut."""
    rough = most / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [round(step * at, 9) for at in range(int(most / step * 0.98) + 1)]


def _label(canvas: ImageDraw.ImageDraw, font: Any, at: tuple[int, int], text: str, anchor: str) -> None:
    canvas.text(at, text, fill=_WORDS, font=font, anchor=anchor)
