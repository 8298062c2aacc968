"""Bytes: a content-addressed store on fsspec and the codecs of each medium.

    store     put, get and verify by digest
    reader    the verifying stream
    backend   what the store asks of a medium; local (a folder) and remote (anything fsspec knows) answer
    manifest  how one component's files are named as a single artifact
    codecs/   one module per medium: value -> bytes and back

What a caller holds instead of bytes, the reference, is defined below store and catalog in `platform.refs`.
Nothing here knows the catalog, and nothing imports torch.
"""

from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.refs import KINDS, ArtifactRef, parse_reference

__all__ = ["KINDS", "ArtifactRef", "ArtifactStore", "parse_reference"]
