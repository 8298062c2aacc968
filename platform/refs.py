"""References to artifacts: what travels between flows, workers and people instead of bytes.

An `ArtifactRef` is small (under 1 KiB as JSON), typed and self-contained: whoever holds one can fetch the
bytes from the store without asking the catalog. Store and catalog both speak in references and do not know
each other, which is why the class lives below both.
"""

from __future__ import annotations

import json
import mimetypes
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mutoscope.platform.errors import InvalidParameter, UnknownReference
from mutoscope.platform.ids import is_sha256

KINDS = (
    "image",
    "video",
    "audio",
    "latent",
    "embedding",
    "trajectory",
    "reward",
    "weights",
    "text",
    "json",
    "blob",
)
"""What an artifact is, as a person would say it. How it is encoded is the media type's business."""

SHOWN_DIGITS = 12
"""Hex digits of a digest shown to people: 48 bits, unique by all odds among millions of artifacts."""

TRAINER_SUFFIX = "-trainer"
"""The card that trains another one goes by that one's id with this behind it, and runs its weights."""


def check_kind(kind: str | None) -> None:
    """Raise InvalidParameter for what is no kind of artifact; None, for all kinds, is fine."""
    if kind is not None and kind not in KINDS:
        raise InvalidParameter("kind", kind, f"use one of {', '.join(KINDS)}")


_EXTENSIONS = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/webp": ".webp",
    "video/mp4": ".mp4",
    "audio/wav": ".wav",
    "audio/flac": ".flac",
    "audio/mpeg": ".mp3",
    "text/plain": ".txt",
    "application/json": ".json",
    "application/vnd.safetensors": ".safetensors",
    "application/x-safetensors": ".safetensors",
    "application/vnd.mutoscope.trajectory": ".safetensors",
}
"""Spelled out, because what the mimetypes module answers depends on the machine's own tables."""

_MAX_META_BYTES = 768
_PREFIX = re.compile(r"[0-9a-f]{1,64}")


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """Names immutable bytes and says what they are.

    Attributes:
        digest: SHA-256 of the bytes, 64 lower-case hex digits.
        kind: one of `KINDS`.
        media_type: RFC 6838 type of the encoding, such as ``image/png``.
        size: bytes.
        meta: small JSON facts about the content (height, width, fps, frames, ...), at most 768 bytes encoded.
            It describes; it is not part of the identity.
    """

    digest: str
    kind: str
    media_type: str
    size: int
    meta: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not is_sha256(self.digest):
            raise InvalidParameter("digest", self.digest, "use the 64 lower-case hex digits of a SHA-256")
        if self.kind not in KINDS:
            raise InvalidParameter("kind", self.kind, f"use one of {', '.join(KINDS)}")
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 0:
            raise InvalidParameter("size", self.size, "use the number of bytes")
        object.__setattr__(self, "meta", _checked_meta(self.meta))

    def __str__(self) -> str:
        """What people read and type: ``video:3fa9c1d2e4f5``."""
        return f"{self.kind}:{self.digest[:SHOWN_DIGITS]}"

    @property
    def extension(self) -> str:
        """The usual ending of a file of this media type, dot included."""
        return _EXTENSIONS.get(self.media_type) or mimetypes.guess_extension(self.media_type) or ".bin"

    @property
    def file_name(self) -> str:
        """What a file of these bytes is called: ``video-3fa9c1d2e4f5.mp4``."""
        return f"{self.kind}-{self.digest[:SHOWN_DIGITS]}{self.extension}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form, under 1 KiB; `from_dict` reads it back."""
        return {
            "digest": self.digest,
            "kind": self.kind,
            "media_type": self.media_type,
            "size": self.size,
            "meta": dict(self.meta),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ArtifactRef:
        """The reference `to_dict` wrote. Raises InvalidParameter when it is not one."""
        try:
            return cls(
                digest=values["digest"],
                kind=values["kind"],
                media_type=values["media_type"],
                size=values["size"],
                meta=values.get("meta") or {},
            )
        except (KeyError, TypeError, AttributeError):
            raise InvalidParameter(
                "reference", values, "use a mapping with digest, kind, media_type and size"
            ) from None


def parse_reference(text: str) -> tuple[str | None, str]:
    """Split ``video:3fa9`` or ``3fa9`` into (kind or None, digest prefix).

    Raises:
        UnknownReference: when the text cannot name any artifact.
    """
    kind, colon, prefix = text.strip().rpartition(":")
    prefix = prefix.lower()
    if (colon and kind not in KINDS) or not _PREFIX.fullmatch(prefix):
        raise UnknownReference(
            f"{text!r} is not an artifact: write kind:digits or digits, such as video:3fa9c1"
        )
    return (kind if colon else None), prefix


def _checked_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """A plain copy that is what it will be after a trip through JSON (tuples become lists)."""
    if not meta:
        return {}
    try:
        encoded = json.dumps(dict(meta), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidParameter("meta", meta, f"use plain JSON data ({error})") from None
    if len(encoded) > _MAX_META_BYTES:
        raise InvalidParameter(
            "meta",
            meta,
            f"keep it within {_MAX_META_BYTES} bytes of JSON (it has {len(encoded)}); store it as bytes",
        )
    copied: dict[str, Any] = json.loads(encoded)
    return copied
