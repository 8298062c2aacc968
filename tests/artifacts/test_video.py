"""MP4: plays in a browser, says its colours, keeps them, and is the same file every time."""

from __future__ import annotations

import io
import struct
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc

from mutoscope.platform.artifacts import codecs
from mutoscope.platform.artifacts.codecs import video
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.ids import sha256

RED, YELLOW, BLUE = (230, 40, 30), (250, 230, 40), (30, 60, 200)


def scene(frames: int, height: int, width: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A red square that drifts right a pixel a frame (odd offsets every other time); a yellow one stays."""
    value = np.full((frames, height, width, 3), BLUE, np.uint8)
    for t in range(frames):
        value[t, height // 6 : height // 2, 5 + t : 5 + t + width // 3] = RED
        value[t, 2 * height // 3 : -3, width // 2 : -5] = YELLOW
    return value


def psnr(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    return float(10 * np.log10(255**2 / np.mean((a.astype(np.float64) - b) ** 2)))


def boxes(data: bytes) -> list[str]:
    """The names of an MP4's top-level boxes, in file order."""
    names, at = [], 0
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at : at + 8])
        names.append(name.decode())
        at += size
    return names


def test_a_browser_plays_it() -> None:
    encoded = codecs.encode("video", scene(17, 64, 64), {"fps": 8})
    assert encoded.media_type == "video/mp4"
    # The index before the data: playback starts before the download ends.
    assert boxes(encoded.data)[:2] == ["ftyp", "moov"]
    with av.open(io.BytesIO(encoded.data)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.profile, stream.pix_fmt) == (
            "h264",
            "High",
            "yuv420p",
        )
        assert (stream.frames, stream.average_rate) == (17, 8)
        assert stream.duration is not None
        assert stream.duration * stream.time_base == Fraction(17, 8)


def test_the_stream_says_bt709() -> None:
    encoded = codecs.encode("video", scene(3, 64, 64), {"fps": 8})
    with av.open(io.BytesIO(encoded.data)) as container:
        context = container.streams.video[0].codec_context
        next(container.decode(video=0))
        tags = (context.color_primaries, context.color_trc, context.colorspace, context.color_range)
    assert tags == (ColorPrimaries.BT709, ColorTrc.BT709, Colorspace.ITU709, ColorRange.MPEG)
    # Twice: in the H.264 stream, read above, and in the container, which some players believe instead.
    assert b"colrnclx" + struct.pack(">HHH", 1, 1, 1) in encoded.data


def test_meta_describes_the_frames_not_the_file() -> None:
    frames = scene(5, 64, 48)
    meta = codecs.encode("video", frames, {"fps": 12.5, "prompt": "x"}).meta
    assert (meta["frames"], meta["height"], meta["width"], meta["fps"]) == (5, 64, 48, 12.5)
    assert meta["frames_sha256"] == sha256(frames.tobytes())
    assert meta["prompt"] == "x"
    assert meta["encoder"].startswith("libx264 crf=")


def test_equal_frames_are_equal_files() -> None:
    frames = scene(9, 64, 64)
    first = codecs.encode("video", frames, {"fps": 8})
    again = codecs.encode("video", np.asfortranarray(frames), {"fps": 8})
    assert first.data == again.data
    assert first.meta == again.meta
    other = frames.copy()
    other[4, 0, 0, 0] ^= 1
    changed = codecs.encode("video", other, {"fps": 8})
    assert changed.meta["frames_sha256"] != first.meta["frames_sha256"]


def test_small_frames_keep_every_outline() -> None:
    frames = scene(17, 64, 64)
    encoded = codecs.encode("video", frames, {"fps": 8})
    decoded = codecs.decode("video", encoded.data, encoded.media_type)
    assert (decoded.shape, decoded.dtype) == (frames.shape, np.uint8)
    # Plain 4:2:0 at this size would end near 25 dB, see the module.
    assert min(psnr(a, b) for a, b in zip(decoded, frames, strict=True)) > 45
    with av.open(io.BytesIO(encoded.data)) as container:
        assert (container.streams.video[0].width, container.streams.video[0].height) == (256, 256)
    assert np.array_equal(video.first_frame(encoded.data), decoded[0])


def test_large_frames_are_encoded_as_they_are() -> None:
    frames = scene(3, 256, 320)
    encoded = codecs.encode("video", frames, {"fps": 8})
    with av.open(io.BytesIO(encoded.data)) as container:
        assert (container.streams.video[0].width, container.streams.video[0].height) == (320, 256)
    decoded = codecs.decode("video", encoded.data, encoded.media_type)
    # 4:2:0 blurs colour along outlines; luma and the insides of shapes stay.
    assert min(psnr(a, b) for a, b in zip(decoded, frames, strict=True)) > 30
    for y, x, colour in ((5, 5, BLUE), (80, 60, RED), (220, 240, YELLOW)):
        assert np.abs(decoded[0, y, x].astype(int) - colour).max() <= 3


@pytest.mark.parametrize(("height", "width"), [(2, 2), (64, 48), (100, 300), (258, 256)])
def test_every_even_size_comes_back_as_it_was(height: int, width: int) -> None:
    frames = np.full((2, height, width, 3), 128, np.uint8)
    encoded = codecs.encode("video", frames, {"fps": 24})
    decoded = codecs.decode("video", encoded.data, encoded.media_type)
    assert decoded.shape == frames.shape
    assert np.abs(decoded.astype(int) - 128).max() <= 1


def test_another_player_sees_the_same_colours() -> None:
    # FFmpeg's own conversion, told BT.709 by the file's tags alone.
    encoded = codecs.encode("video", scene(2, 64, 64), {"fps": 8})
    with av.open(io.BytesIO(encoded.data)) as container:
        frame = next(container.decode(video=0))
        seen = frame.reformat(format="rgb24", src_colorspace=Colorspace(frame.colorspace)).to_ndarray()
    for y, x, colour in ((8, 8, BLUE), (80, 60, RED), (200, 180, YELLOW)):
        assert np.abs(seen[y, x].astype(int) - colour).max() <= 3


def test_files_from_elsewhere_are_read() -> None:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 32, "yuv444p"
        for _ in range(3):
            frame = av.VideoFrame.from_ndarray(np.full((32, 64, 3), 90, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    decoded = codecs.decode("video", buffer.getvalue(), "video/mp4")
    assert decoded.shape == (3, 32, 64, 3)
    assert np.abs(decoded.astype(int) - 90).max() <= 2


@pytest.mark.parametrize("fps", [24000 / 1001, 29.97, 0.5, 60])
def test_frame_rates(fps: float) -> None:
    encoded = codecs.encode("video", scene(2, 64, 64), {"fps": fps})
    with av.open(io.BytesIO(encoded.data)) as container:
        rate = container.streams.video[0].average_rate
    assert rate is not None
    assert abs(float(rate) - fps) < 1e-4


@pytest.mark.parametrize(
    ("value", "meta", "message"),
    [
        (
            np.zeros((2, 63, 64, 3), np.uint8),
            {"fps": 8},
            "video='2 frames of 64x63' is not valid: .* even size",
        ),
        (np.zeros((2, 64, 63, 3), np.uint8), {"fps": 8}, "even size"),
        (np.zeros((0, 64, 64, 3), np.uint8), {"fps": 8}, "one frame or more"),
        (np.zeros((64, 64, 3), np.uint8), {"fps": 8}, "shape .frames, height, width, 3."),
        (np.zeros((2, 64, 64, 3), np.float32), {"fps": 8}, "uint8"),
        (np.zeros((2, 64, 64, 3), np.uint8), {}, "fps=None"),
        (np.zeros((2, 64, 64, 3), np.uint8), {"fps": 0}, "fps=0"),
        (np.zeros((2, 64, 64, 3), np.uint8), {"fps": float("nan")}, "fps=nan"),
        (np.zeros((2, 64, 64, 3), np.uint8), {"fps": True}, "fps=True"),
    ],
)
def test_what_cannot_be_encoded_is_refused(value: Any, meta: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        codecs.encode("video", value, meta)
