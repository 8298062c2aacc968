"""Video: uint8 frames (T, H, W, 3), sRGB, as H.264 in MP4 that any browser plays.

Byte-repeatable: colour conversion is our own arithmetic (swscale's differs with the CPU's vector units), x264 runs on
one thread with its CPU-dependent choices off, and the muxer writes neither dates nor versions. Lossy all the same, so
the digest of the raw frames travels in the meta as ``frames_sha256``: it tells whether two runs made equal frames,
whatever encoder wrote the file.

Shape suffixes: T frames, H height, W width, C channels (R, G, B).
"""

from __future__ import annotations

import hashlib
import io
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.codec.context import Flags
from av.container import InputContainer
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc
from av.video.stream import VideoStream

from mutoscope.platform.artifacts.codecs.encoded import Encoded
from mutoscope.platform.artifacts.codecs.image import describe
from mutoscope.platform.errors import InvalidParameter

MEDIA_TYPE = "video/mp4"

Frames = np.ndarray[Any, np.dtype[np.uint8]]

_CRF = 14
"""Visually lossless for the flat colours of synthetic scenes; about a third of the size of CRF 8."""

_X264 = "threads=1:lookahead-threads=1:sliced-threads=0:cpu-independent=1"


def encode(value: Any, meta: dict[str, Any]) -> Encoded:
    """MP4 with its index first (faststart), yuv420p, limited range, tagged BT.709.

    Args:
        value: uint8 (T, H, W, 3), T >= 1; H and W even, as 4:2:0 chroma needs.
        meta: must hold ``fps``, frames per second (> 0, whole or fractional).

    Meta gains ``frames``, ``height``, ``width``, ``frames_sha256`` (SHA-256 of the raw bytes, THWC order) and
    ``encoder``.
    """
    frames_THWC = _checked_frames(value)
    rate = _checked_rate(meta.get("fps"))
    total, height, width, _ = frames_THWC.shape
    # A real file: to move the index to the front the muxer opens its own output a second time.
    with tempfile.TemporaryDirectory(prefix="mutoscope-") as folder:
        path = Path(folder) / "video.mp4"
        _write(path, frames_THWC, rate)
        data = path.read_bytes()
    facts = {
        "fps": meta["fps"],
        "frames": total,
        "height": height,
        "width": width,
        "frames_sha256": frames_digest(frames_THWC),
        "encoder": f"libx264 crf={_CRF} libavcodec={'.'.join(map(str, av.library_versions['libavcodec']))}",
    }
    return Encoded(data, MEDIA_TYPE, {**meta, **facts})


def decode(data: bytes) -> Frames:
    """uint8 (T, H, W, 3): every frame, in presentation order."""
    try:
        with av.open(io.BytesIO(data), "r") as container:
            frames = list(_rgb_frames(container))
    except av.FFmpegError as error:
        raise InvalidParameter(
            "video", f"{len(data)} bytes", f"use a readable MP4 ({error.strerror})"
        ) from None
    if not frames:
        raise InvalidParameter("video", f"{len(data)} bytes", "use an MP4 with at least one frame")
    return np.stack(frames)


def first_frame(data: bytes) -> Frames:
    """uint8 (H, W, 3): the first frame; the others are not decoded. Raises InvalidParameter."""
    try:
        with av.open(io.BytesIO(data), "r") as container:
            frame = next(_rgb_frames(container), None)
    except av.FFmpegError as error:
        raise InvalidParameter(
            "video", f"{len(data)} bytes", f"use a readable MP4 ({error.strerror})"
        ) from None
    if frame is None:
        raise InvalidParameter("video", f"{len(data)} bytes", "use an MP4 with at least one frame")
    return frame


def frames_digest(frames_THWC: Frames) -> str:
    """SHA-256 of the raw frames, hex."""
    return hashlib.sha256(memoryview(np.ascontiguousarray(frames_THWC))).hexdigest()


def _write(path: Path, frames_THWC: Frames, rate: Fraction) -> None:
    _, height, width, _ = frames_THWC.shape
    options = {"movflags": "+faststart", "fflags": "+bitexact"}
    with av.open(str(path), "w", format="mp4", options=options) as container:
        stream = container.add_stream("libx264", rate=rate)
        _configure(stream, height, width, rate)
        for index, frame_HWC in enumerate(frames_THWC):
            frame = av.VideoFrame.from_ndarray(_to_yuv420p(frame_HWC), format="yuv420p")
            frame.pts, frame.time_base = index, 1 / rate
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


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


def _to_yuv420p(frame_HWC: Frames) -> Frames:
    """BT.709 limited range, planes Y, U, V stacked as (3H/2, W).

    Y' = Kr R + Kg G + Kb B; Cb = (B - Y') / 1.8556; Cr = (R - Y') / 1.5748 with Kr = 0.2126, Kb = 0.0722
    (ITU-R BT.709-6, items 3.2-3.4). Chroma sits, as H.264 assumes, on even columns between two rows: weights 1-2-1
    across, the mean down. Float64, elementwise: the same on every machine.
    """
    height, width, _ = frame_HWC.shape
    rgb = frame_HWC.astype(np.float64) / 255
    luma = 0.2126 * rgb[..., 0] + 0.7152 * rgb[..., 1] + 0.0722 * rgb[..., 2]
    planes = [_quantise(16 + 219 * luma)]
    for channel, scale in ((2, 1.8556), (0, 1.5748)):
        chroma = (rgb[..., channel] - luma) / scale
        rows = (chroma[0::2] + chroma[1::2]) / 2
        left = np.concatenate([rows[:, :1], rows[:, 1:-1:2]], axis=1)
        halved = (left + 2 * rows[:, 0::2] + rows[:, 1::2]) / 4
        planes.append(_quantise(128 + 224 * halved))
    return np.concatenate([plane.reshape(-1) for plane in planes]).reshape(height * 3 // 2, width)


def _quantise(plane: np.ndarray[Any, np.dtype[np.float64]]) -> Frames:
    return np.rint(plane).astype(np.uint8)


def _rgb_frames(container: InputContainer) -> Iterator[Frames]:
    if not container.streams.video:
        return
    stream = container.streams.video[0]
    stream.codec_context.thread_count = 1
    for frame in container.decode(stream):
        # Untagged files come from outside: BT.709 is what HD encoders mean when they say nothing.
        tagged = frame.colorspace in Colorspace._value2member_map_
        source = Colorspace(frame.colorspace) if tagged else Colorspace.ITU709
        yield frame.reformat(format="rgb24", src_colorspace=source).to_ndarray()


def _checked_frames(value: Any) -> Frames:
    if not (
        isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 4 and value.shape[3] == 3
    ):
        raise InvalidParameter(
            "video", describe(value), "use a uint8 array of shape (frames, height, width, 3)"
        )
    frames, height, width, _ = value.shape
    if not frames or height % 2 or width % 2 or not height or not width:
        raise InvalidParameter(
            "video", f"{frames} frames of {width}x{height}", "use one frame or more, of even size"
        )
    return value


def _checked_rate(fps: Any) -> Fraction:
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps <= 1000:
        raise InvalidParameter("fps", fps, "use frames per second, above 0 and up to 1000, in meta")
    # 1001 reaches the broadcast rates (24000/1001) exactly.
    return Fraction(fps).limit_denominator(1001)
