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
    """Its picture in Markdown, if it has one, a reward in words, and its name, which leads to its page."""
    url, name = picture_url(runtime, ref), linked(runtime, ref)
    if url is not None:
        # Side by side: the UI's Markdown knows no picture inside a link.
        return f"![{ref}]({url})\n\n{name}"
    return f"**{told(ref.meta)}** {name}" if ref.kind == "reward" else name
