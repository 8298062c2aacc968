"""Video: uint8 frames (T, H, W, 3), sRGB, as H.264 in MP4 that any browser plays; a `Clip` with its sound.

Byte-repeatable: colour conversion is our own arithmetic (swscale's differs with the CPU's vector units), x264
runs on one thread with its CPU-dependent choices off, and the muxer writes neither dates nor versions. Lossy
all the same, so the digest of the raw frames travels in the meta as ``frames_sha256``: it tells whether two
runs made equal frames, whatever encoder wrote the file.

Browsers play 4:2:0 only: one colour sample for four pixels. In a frame of 64x64 that smears every outline (25
dB PSNR on saturated shapes, however good the encoder), so frames below 256 pixels are enlarged by an even
factor, each pixel a square of equal pixels with colour samples of its own. The factor is noted in the file's
comment, and `decode` gives back frames of the original size.

Shape suffixes: T frames, H height, W width, C channels (R, G, B).
"""

from __future__ import annotations

import hashlib
import io
import re
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.codec.context import Flags
from av.container import InputContainer
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc
from av.video.stream import VideoStream

from mutoscope.platform.artifacts.codecs import soundtrack
from mutoscope.platform.artifacts.codecs.encoded import Encoded
from mutoscope.platform.artifacts.codecs.image import describe
from mutoscope.platform.artifacts.codecs.soundtrack import Soundtrack
from mutoscope.platform.clip import Clip
from mutoscope.platform.errors import InvalidParameter

MEDIA_TYPE = "video/mp4"

SHARP_PIXELS = 256
"""Frames with a side below this are enlarged until both sides reach it."""

_COMMENT = "mutoscope: each pixel enlarged to {0}x{0}"
_ENLARGED = re.compile(re.escape(_COMMENT).replace(r"\{0\}x\{0\}", r"(\d{1,3})x\1"))

Frames = np.ndarray[Any, np.dtype[np.uint8]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

# ITU-R BT.709-6: weights of red, green and blue in luma, and the spans of the colour differences.
_KR, _KG, _KB = 0.2126, 0.7152, 0.0722
_CB, _CR = 1.8556, 1.5748

_CRF = 14
"""Visually lossless for the flat colours of synthetic scenes; about a third of the size of CRF 8."""

_X264 = "threads=1:lookahead-threads=1:sliced-threads=0:cpu-independent=1"


def encode(value: Any, meta: dict[str, Any]) -> Encoded:
    """MP4 with its index first (faststart), yuv420p, limited range, tagged BT.709; small frames enlarged
    (above).

    Args:
        value: uint8 (T, H, W, 3), T >= 1; H and W even, as 4:2:0 chroma needs; or a Clip of such frames.
        meta: must hold ``fps``, frames per second (> 0, whole or fractional).

    Meta gains ``frames``, ``height``, ``width`` (of the value, not of the enlarged picture),
    ``frames_sha256`` (SHA-256 of the raw bytes, THWC order) and ``encoder``; that of a clip what `soundtrack`
    says of its sound, too.
    """
    clip = value if isinstance(value, Clip) else None
    frames_THWC = _checked_frames(clip.frames_THWC if clip else value)
    if clip:
        soundtrack.check(clip)
    rate = _checked_rate(meta.get("fps"))
    total, height, width, _ = frames_THWC.shape
    # A real file: to move the index to the front the muxer opens its own output a second time.
    with tempfile.TemporaryDirectory(prefix="mutoscope-") as folder:
        path = Path(folder) / "video.mp4"
        _write(path, frames_THWC, rate, clip)
        data = path.read_bytes()
    facts = {
        "fps": meta["fps"],
        "frames": total,
        "height": height,
        "width": width,
        "frames_sha256": frames_digest(frames_THWC),
        "encoder": _encoder(clip),
        **(soundtrack.describe(clip) if clip else {}),
    }
    return Encoded(data, MEDIA_TYPE, {**meta, **facts})


def decode(data: bytes) -> Frames:
    """uint8 (T, H, W, 3): every frame, in presentation order. The sound, if any, is for `audio.read`."""
    return np.stack(_read(data, None))


def first_frame(data: bytes) -> Frames:
    """uint8 (H, W, 3): the first frame; the others are not decoded. Raises InvalidParameter."""
    return _read(data, 1)[0]


def frames_digest(frames_THWC: Frames) -> str:
    """SHA-256 of the raw frames, hex."""
    return hashlib.sha256(np.ascontiguousarray(frames_THWC).data).hexdigest()


def _encoder(clip: Clip | None) -> str:
    """What wrote the file, as far as it decides the bytes."""
    sound = f" {soundtrack.ENCODER}" if clip else ""
    return f"libx264 crf={_CRF}{sound} libavcodec={'.'.join(map(str, av.library_versions['libavcodec']))}"


def _write(path: Path, frames_THWC: Frames, rate: Fraction, clip: Clip | None) -> None:
    _, height, width, _ = frames_THWC.shape
    factor = _enlargement(height, width)
    options = {"movflags": "+faststart", "fflags": "+bitexact"}
    with av.open(str(path), "w", format="mp4", options=options) as container:
        if factor > 1:
            container.metadata["comment"] = _COMMENT.format(factor)
        stream = container.add_stream("libx264", rate=rate)
        _configure(stream, height * factor, width * factor, rate)
        sound = Soundtrack(container, clip) if clip else None
        for index, frame_HWC in enumerate(frames_THWC):
            planes = _to_yuv420p(frame_HWC, factor)
            frame = av.VideoFrame.from_ndarray(planes, format="yuv420p")
            frame.pts, frame.time_base = index, 1 / rate
            container.mux([*stream.encode(frame), *(sound.until((index + 1) / rate) if sound else ())])
        container.mux([*stream.encode(None), *(sound.rest() if sound else ())])


def _configure(stream: VideoStream, height: int, width: int, rate: Fraction) -> None:
    context = stream.codec_context
    context.height, context.width, context.pix_fmt = height, width, "yuv420p"
    context.time_base = 1 / rate
    context.thread_count = 1
    context.flags |= Flags.bitexact
    context.color_primaries = ColorPrimaries.BT709
    context.color_trc = ColorTrc.BT709
    context.colorspace = Colorspace.ITU709
    context.color_range = ColorRange.MPEG
    context.options = {"crf": str(_CRF), "preset": "medium", "x264-params": _X264}


def _to_yuv420p(frame_HWC: Frames, factor: int) -> Frames:
    """BT.709 limited range, planes Y', Cb, Cr one after the other as an array (3H/2, W) of the enlarged size.

    Y' = Kr R + Kg G + Kb B; Cb = (B - Y') / 1.8556; Cr = (R - Y') / 1.5748 (ITU-R BT.709-6, items 3.2 to
    3.4), in float64, elementwise: the same on every machine.
    """
    height, width = (side * factor for side in frame_HWC.shape[:2])
    rgb = frame_HWC.astype(np.float64) / 255
    luma = _KR * rgb[..., 0] + _KG * rgb[..., 1] + _KB * rgb[..., 2]
    planes = [_repeat(_quantise(16 + 219 * luma), factor)]
    for channel, span in ((2, _CB), (0, _CR)):
        chroma = _quantise(128 + 224 * (rgb[..., channel] - luma) / span)
        planes.append(_halve(chroma) if factor == 1 else _repeat(chroma, factor // 2))
    return np.concatenate([plane.reshape(-1) for plane in planes]).reshape(height * 3 // 2, width)


def _to_rgb(planes: Frames, height: int, width: int, factor: int) -> Frames:
    """The inverse of `_to_yuv420p`: uint8 (H, W, 3) of the size before enlargement; squares are averaged."""
    flat, size = planes.reshape(-1).astype(np.float64), height * width
    luma = (_average(flat[:size].reshape(height, width), factor) - 16) / 219
    blue, red = (
        (flat[start : start + size // 4].reshape(height // 2, width // 2) - 128) / 224
        for start in (size, size + size // 4)
    )
    blue, red = (_double(c) if factor == 1 else _average(c, factor // 2) for c in (blue, red))
    r, b = luma + _CR * red, luma + _CB * blue
    return _quantise(255 * np.stack([r, (luma - _KR * r - _KB * b) / _KG, b], axis=-1))


def _halve(chroma: Frames) -> Frames:
    """(H, W) to (H/2, W/2) where H.264 takes chroma to sit, on even columns between two rows: 1-2-1 across,
    mean down."""
    wide = chroma.astype(np.float64)
    rows = (wide[0::2] + wide[1::2]) / 2
    left = np.concatenate([rows[:, :1], rows[:, 1:-1:2]], axis=1)
    return _quantise((left + 2 * rows[:, 0::2] + rows[:, 1::2]) / 4)


def _double(chroma: Floats) -> Floats:
    """(H/2, W/2) to (H, W), linear between the places `_halve` names."""
    height, width = chroma.shape
    padded = np.pad(chroma, ((1, 1), (0, 1)), mode="edge")
    rows = np.empty((2 * height, width + 1))
    rows[0::2] = (padded[:-2] + 3 * padded[1:-1]) / 4
    rows[1::2] = (3 * padded[1:-1] + padded[2:]) / 4
    columns = np.empty((2 * height, 2 * width))
    columns[:, 0::2] = rows[:, :-1]
    columns[:, 1::2] = (rows[:, :-1] + rows[:, 1:]) / 2
    return columns


def _repeat(plane: Frames, times: int) -> Frames:
    return plane.repeat(times, axis=0).repeat(times, axis=1)


def _average(plane: Floats, side: int) -> Floats:
    height, width = plane.shape
    averaged: Floats = plane.reshape(height // side, side, width // side, side).mean(axis=(1, 3))
    return averaged


def _quantise(plane: Floats) -> Frames:
    rounded: Frames = np.rint(plane.clip(0, 255)).astype(np.uint8)
    return rounded


def _enlargement(height: int, width: int) -> int:
    """The smallest even factor that brings both sides to `SHARP_PIXELS`; 1 if they are there already."""
    short = min(height, width)
    return 1 if short >= SHARP_PIXELS else 2 * -(-SHARP_PIXELS // (2 * short))


def _read(data: bytes, most: int | None) -> list[Frames]:
    """The first frames, all of them for None; one at least, or InvalidParameter."""
    try:
        with av.open(io.BytesIO(data), "r") as container:
            frames = list(islice(_rgb_frames(container), most))
    except av.FFmpegError as error:
        raise InvalidParameter(
            "video", f"{len(data)} bytes", f"use a readable MP4 ({error.strerror})"
        ) from None
    if not frames:
        raise InvalidParameter("video", f"{len(data)} bytes", "use an MP4 with at least one frame")
    return frames


def _rgb_frames(container: InputContainer) -> Iterator[Frames]:
    if not container.streams.video:
        return
    noted = _ENLARGED.fullmatch(container.metadata.get("comment", ""))
    factor = int(noted[1]) if noted else 1
    stream = container.streams.video[0]
    stream.codec_context.thread_count = 1
    for frame in container.decode(stream):
        # A no-op on our own files; it brings what others made to the one layout understood below.
        planar = frame.reformat(format="yuv420p", dst_color_range=ColorRange.MPEG)
        planes = planar.to_ndarray().astype(np.uint8, copy=False)
        yield _to_rgb(planes, frame.height, frame.width, factor)


def _checked_frames(value: Any) -> Frames:
    if not (
        isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 4 and value.shape[3] == 3
    ):
        raise InvalidParameter(
            "video", describe(value), "use a uint8 array of shape (frames, height, width, 3)"
        )
    frames, height, width, _ = value.shape
    if not value.size or height % 2 or width % 2:
        raise InvalidParameter(
            "video", f"{frames} frames of {width}x{height}", "use one frame or more, of even size"
        )
    return value


def _checked_rate(fps: Any) -> Fraction:
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps <= 1000:
        raise InvalidParameter("fps", fps, "use frames per second, above 0 and up to 1000, in meta")
    # 1001 reaches the broadcast rates (24000/1001) exactly.
    return Fraction(fps).limit_denominator(1001)
