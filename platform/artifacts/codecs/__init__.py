"""One module per medium: a value to bytes and back. NumPy in, NumPy out; no torch.

    kind                                  value                                        encoding
    image                                 uint8 (H, W, 3)                              PNG
    video                                 uint8 (T, H, W, 3), or a Clip with sound     MP4, H.264, BT.709, AAC
    audio                                 float32 (channels, samples)                  WAV of 32-bit floats
    latent, embedding                     array, or mapping of arrays                  safetensors
    trajectory                            TrajectoryGroup                              safetensors
    text                                  str                                          UTF-8
    json, reward, weights (a manifest)    plain JSON data                              JSON, keys sorted
    blob                                  bytes                                        as they are

Encoding the same value twice gives the same bytes, so equal results share one artifact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mutoscope.platform.artifacts.codecs import audio, image, json, tensors, text, trajectory, video
from mutoscope.platform.artifacts.codecs.encoded import Encoded
from mutoscope.platform.errors import InvalidParameter

__all__ = ["Encoded", "decode", "encode"]

_ENCODERS = {
    "image": image.encode,
    "video": video.encode,
    "audio": audio.encode,
    "latent": tensors.encode,
    "embedding": tensors.encode,
    "trajectory": trajectory.encode,
    "text": text.encode,
    "json": json.encode,
    "reward": json.encode,
    "weights": json.encode,
}
_DECODERS = {
    "image/png": image.decode,
    "image/jpeg": image.decode,
    "image/webp": image.decode,
    video.MEDIA_TYPE: video.decode,
    audio.MEDIA_TYPE: audio.decode,
    "audio/flac": audio.decode,
    "audio/mpeg": audio.decode,
    tensors.MEDIA_TYPE: tensors.decode,
    trajectory.MEDIA_TYPE: trajectory.decode,
    text.MEDIA_TYPE: text.decode,
    json.MEDIA_TYPE: json.decode,
}
_BLOB_TYPE = "application/octet-stream"


def encode(kind: str, value: Any, meta: Mapping[str, Any] | None = None) -> Encoded:
    """The bytes of `value` as an artifact of `kind`.

    Args:
        meta: facts to keep with the artifact; the codec reads what it needs (video: ``fps``, audio:
            ``sample_rate``) and adds what it knows (sizes, frame digest, encoder).

    Raises:
        InvalidParameter: the value is not what the kind holds; names shape or type and the remedy.
    """
    if kind == "blob":
        if not isinstance(value, bytes):
            raise InvalidParameter("blob", type(value).__name__, "use bytes")
        return Encoded(value, _BLOB_TYPE, dict(meta or {}))
    if kind not in _ENCODERS:
        raise InvalidParameter("kind", kind, f"no codec writes it; use one of blob, {', '.join(_ENCODERS)}")
    return _ENCODERS[kind](value, dict(meta or {}))


def decode(kind: str, data: bytes, media_type: str) -> Any:
    """The value held by an artifact's bytes. The media type decides; `kind` names the artifact in errors.

    Raises:
        InvalidParameter: the bytes are not of that media type, or no codec reads it.
    """
    if media_type == _BLOB_TYPE or kind == "blob":
        return data
    decoder = _DECODERS.get(media_type) or (json.decode if media_type.endswith("+json") else None)
    if decoder is None:
        raise InvalidParameter(
            "media_type", media_type, f"no codec reads it as {kind}; use one of {', '.join(_DECODERS)}"
        )
    return decoder(data)
