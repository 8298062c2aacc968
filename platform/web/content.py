"""An artifact's bytes over HTTP: RFC 9110 ranges and entity tags over the content-addressed store.

A digest names its bytes for good, so the digest is a strong entity tag and the answer may be cached for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.refs import ArtifactRef

IN_MEMORY_BYTES = 32 * 2**20
"""Up to this size a whole object is read and verified before its first byte is sent."""
_CHUNK = 256 * 1024

FOREVER = "public, max-age=31536000, immutable"

# What an artifact holds is somebody's input: it is shown, and never run.
_INERT = (
    "default-src 'none'; img-src 'self' data:; media-src 'self' data:; style-src 'unsafe-inline'; sandbox"
)
_SHOWN = ("image/png", "image/jpeg", "image/webp", "video/mp4", "audio/", "text/plain", "application/json")

_RANGE = re.compile(r"bytes=(?!-$)(\d*)-(\d*)")
"""A single range. For any other form the whole is sent, as RFC 9110 14.2 allows."""


def serve(request: Request, store: ArtifactStore, ref: ArtifactRef) -> Response:
    """The answer to GET or HEAD for an artifact: 200, 206, 304 or 416.

    Objects above `IN_MEMORY_BYTES` are streamed in bounded memory and verified as they go: a damaged one
    breaks off before its last bytes rather than arriving whole.

    Raises:
        ArtifactMissing, ArtifactCorrupt: before anything was sent.
    """
    headers = entity_headers(ref.digest)
    if is_current(request, ref.digest):
        return Response(status_code=304, headers=headers)
    headers |= _describing(ref)
    size = store.size(ref.digest)
    span = _span(request, ref.digest, size)
    if span is None:
        return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{size}"})
    start, stop = span
    partial = (start, stop) != (0, size) or _asks_for_range(request, ref.digest)
    if partial:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    headers["Content-Length"] = str(stop - start)
    status = 206 if partial else 200
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type=ref.media_type)
    if size <= IN_MEMORY_BYTES:
        data = store.get(ref.digest)[start:stop]
        return Response(data, status_code=status, headers=headers, media_type=ref.media_type)
    return StreamingResponse(
        _stream(store, ref.digest, start, stop),
        status_code=status,
        headers=headers,
        media_type=ref.media_type,
    )


def entity_headers(tag: str) -> dict[str, str]:
    """Headers that make an answer cacheable for ever under a strong tag."""
    return {"ETag": f'"{tag}"', "Cache-Control": FOREVER, "Accept-Ranges": "bytes"}


def is_current(request: Request, tag: str) -> bool:
    """Whether the client holds this very entity (If-None-Match; weak comparison, RFC 9110 13.1.2)."""
    held = request.headers.get("if-none-match", "")
    return held.strip() == "*" or f'"{tag}"' in (part.strip().removeprefix("W/") for part in held.split(","))


def _describing(ref: ArtifactRef) -> dict[str, str]:
    shown = ref.media_type.startswith(_SHOWN)
    return {
        "Content-Disposition": f'{"inline" if shown else "attachment"}; filename="{ref.file_name}"',
        "Content-Security-Policy": _INERT,
    }


def _asks_for_range(request: Request, tag: str) -> bool:
    """A Range counts when it is of a form we serve, and If-Range, where given, names this entity."""
    condition = request.headers.get("if-range")
    return _RANGE.fullmatch(request.headers.get("range", "")) is not None and condition in (None, f'"{tag}"')


def _span(request: Request, tag: str, size: int) -> tuple[int, int] | None:
    """The half-open range of bytes to send; None when the range asked for does not exist."""
    match = _RANGE.fullmatch(request.headers.get("range", ""))
    if match is None or not _asks_for_range(request, tag):
        return 0, size
    first, last = match.groups()
    if not first:  # the last so many bytes
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(int(last) + 1, size) if last else size
    return (start, stop) if start < stop else None


def _stream(store: ArtifactStore, digest: str, start: int, stop: int) -> Iterator[bytes]:
    # Read from the front even for a range: the stream verifies, and so it cannot skip.
    with store.open_read(digest) as source:
        position = 0
        while position < stop and (chunk := source.read(_CHUNK)):
            wanted = chunk[max(0, start - position) : stop - position]
            position += len(chunk)
            if wanted:
                yield wanted
