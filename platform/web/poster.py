"""What a list shows in the place of something that is no picture itself, as PNG: a video's first frame, a
sound's waveform and spectrogram."""

from __future__ import annotations

from mutoscope.platform.artifacts import ArtifactStore, codecs, sound
from mutoscope.platform.artifacts.codecs import video
from mutoscope.platform.refs import ArtifactRef

KINDS = ("video", "audio")
"""Artifacts that have a poster; an image is its own."""


def poster(store: ArtifactStore, ref: ArtifactRef) -> bytes:
    """PNG bytes. Of a video one frame is decoded, whatever its length.

    Raises:
        ArtifactMissing, ArtifactCorrupt: the artifact's bytes cannot be had.
        InvalidParameter: it is not a readable video or sound.
    """
    data = store.get(ref.digest)
    pixels_HWC = sound.picture(data) if ref.kind == "audio" else video.first_frame(data)
    return codecs.encode("image", pixels_HWC).data
