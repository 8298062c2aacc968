"""Bytes: a content-addressed store on fsspec and the codecs of each medium.

    store     put, get and verify by digest
    reader    the verifying stream
    shelves   objects, trash and quarantine, and what moves between them
    pages     documents to browse; marker: the store's own id
    layout    the names of all that below the root
    medium    a backend at an address, and its refusals in words; urls: what of an address is shown
    backend   what the store asks of a medium; local (a folder), s3 and remote (anything else that fsspec
              knows) answer
    spool     bytes waiting for their name; full_reads: none too few, whatever the system hands out
    s3_client     requests repeated up to a deadline; s3_transfer: large objects in parts; s3_errors: wording
    codecs/   one module per medium: value -> bytes and back
    sound     what is heard as a picture: waveform and spectrogram

Checkpoints, cut along their tensors so that versions share them:

    manifest      how one component's files and tensors are named as a single artifact
    components    putting one; input: its files, read by range; split: a file as objects
    replacing     one like another, apart from some tensors
    assembly      a file put together again; appearing: files that are complete or not there
    tensors       one tensor of many; trajectories: one step of a group

What a caller holds instead of bytes, the reference, is defined below store and catalog in `platform.refs`.
Nothing here knows the catalog, and nothing imports torch.
"""

from mutoscope.platform.artifacts.shelves import StoredObject
from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.refs import KINDS, ArtifactRef, parse_reference

__all__ = ["KINDS", "ArtifactRef", "ArtifactStore", "StoredObject", "parse_reference"]
