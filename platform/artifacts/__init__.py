"""Bytes: a content-addressed store on fsspec and the codecs of each medium.

    store     put, get and verify by digest
    reader    the verifying stream
    shelves   objects, trash and quarantine, and what moves between them
    layout    the names of all that below the root
    backend   what the store asks of a medium; local (a folder) and remote (anything fsspec knows) answer
    spool     bytes waiting for their name
    manifest  how one component's files are named as a single artifact
    codecs/   one module per medium: value -> bytes and back

What a caller holds instead of bytes, the reference, is defined below store and catalog in `platform.refs`.
Nothing here knows the catalog, and nothing imports torch.
"""

from mutoscope.platform.artifacts.shelves import StoredObject
from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.refs import KINDS, ArtifactRef, parse_reference

__all__ = ["KINDS", "ArtifactRef", "ArtifactStore", "StoredObject", "parse_reference"]
