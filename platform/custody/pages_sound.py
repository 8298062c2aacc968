"""Pictures of the sounds on a run's page.

A browser plays a sound and draws nothing of it. So the page carries each sound's waveform and spectrogram,
inside of itself: it stays one file that may be saved, sent, or opened through presigned links.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.custody.pages_facts import RunFacts, Shown
from mutoscope.platform.errors import ArtifactCorrupt, ArtifactMissing, InvalidParameter

_MOST_SOUNDS = 8
"""Drawn on one page: some 60 kB each."""

_MOST_BYTES = 64 * 2**20
"""Of a sound that is read for its picture: three minutes of stereo at 48 kHz."""


def draw_sounds(store: ArtifactStore, facts: RunFacts) -> Mapping[str, str]:
    """Addresses of the pictures by the sounds' digests. What cannot be read or drawn is left out: the page is
    about more than that."""
    drawn: dict[str, str] = {}
    for shown in _sounds(facts):
        ref = shown.artifact.ref
        if len(drawn) == _MOST_SOUNDS:
            break
        if ref.digest in drawn or ref.size > _MOST_BYTES:
            continue
        try:
            drawn[ref.digest] = _address(store.get(ref.digest))
        except (ArtifactMissing, ArtifactCorrupt, InvalidParameter):
            continue
    return drawn


def _address(data: bytes) -> str:
    """A sound's picture as an address that holds it."""
    # Here, because whoever writes pages without sounds, as most flow hosts do, needs no codecs of media.
    from mutoscope.platform.artifacts import codecs, sound

    picture = codecs.encode("image", sound.picture(data))
    return f"data:{picture.media_type};base64,{base64.b64encode(picture.data).decode()}"


def _sounds(facts: RunFacts) -> Iterator[Shown]:
    everything = (*facts.outputs, *(shown for step in facts.steps for shown in step.made))
    for shown in everything:
        if shown.artifact.ref.kind == "audio" and shown.artifact.collected_at is None:
            yield shown
