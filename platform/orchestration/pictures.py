"""Artifacts as the Prefect UI shows them: links to the gateway, thumbnails, rewards in words."""

from __future__ import annotations

from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.reward import told

_SEEN = ("image", "video", "audio")


def picture_url(runtime: Runtime, ref: ArtifactRef) -> str | None:
    """Where a picture of it is: an image itself, a video's first frame, a sound's spectrogram. None for what
    has none, or where no gateway is known."""
    url = runtime.bytes_url(ref.digest)
    if url is None or ref.kind not in _SEEN:
        return None
    return url if ref.kind == "image" else f"{url}/poster"


def linked(runtime: Runtime, ref: ArtifactRef) -> str:
    """Its name in Markdown, leading to its page."""
    page = runtime.page_url(ref.digest)
    return f"[{ref}]({page})" if page else f"`{ref}`"


def thumbnail(runtime: Runtime, ref: ArtifactRef) -> str:
    """Its picture in Markdown, leading to its page; its name where it has no picture."""
    url, page = picture_url(runtime, ref), runtime.page_url(ref.digest)
    if url is None or page is None:
        return (
            f"**{told(ref.meta)}** {linked(runtime, ref)}" if ref.kind == "reward" else linked(runtime, ref)
        )
    return f"[![{ref}]({url})]({page})"
