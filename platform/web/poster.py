"""The first frame of a video, as PNG: what a list shows in a video's place."""

from __future__ import annotations

from mutoscope.platform.artifacts import ArtifactStore, codecs
from mutoscope.platform.artifacts.codecs import video
from mutoscope.platform.refs import ArtifactRef


def poster(store: ArtifactStore, ref: ArtifactRef) -> bytes:
    """PNG bytes. Decodes one frame, whatever the video's length.

    Raises:
        ArtifactMissing, ArtifactCorrupt: the video's bytes cannot be had.
        InvalidParameter: the artifact is not a readable video.
    """
    frame_HWC = video.first_frame(store.get(ref.digest))
    return codecs.encode("image", frame_HWC).data
