"""The generic backend, where it differs from what every store must do."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutoscope.platform.artifacts.backend import Facts
from mutoscope.platform.artifacts.layout import object_name
from mutoscope.platform.artifacts.remote import FsspecBackend
from mutoscope.platform.errors import StoreUnwritable
from mutoscope.platform.ids import new_id, sha256


def test_a_file_that_changes_while_it_is_stored_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    digest = sha256(b"before")
    backend = FsspecBackend(f"memory://{new_id()}")
    facts = Facts("application/octet-stream", "blob", digest)
    with path.open("rb") as origin, backend.stage(origin) as staged:
        staged.write(origin.read())
        path.write_bytes(b"behind")
        with pytest.raises(StoreUnwritable, match="changed while it was stored"):
            staged.commit(object_name(digest), facts, replace=False)
    assert backend.entry(object_name(digest)) is None
    assert list(backend.entries("tmp")) == []


def test_an_upload_that_cannot_be_called_off_has_a_copy_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    digest = sha256(b"before")
    backend = FsspecBackend(f"memory://{new_id()}")
    backend.atomic_uploads = True
    with path.open("rb") as origin, backend.stage(origin) as staged:
        staged.write(origin.read())
        path.write_bytes(b"behind")
        staged.commit(object_name(digest), Facts("x/y", "blob", digest), replace=False)
    assert backend.read(object_name(digest)) == b"before"
