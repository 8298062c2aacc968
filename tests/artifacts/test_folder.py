"""The local folder: its layout, and what it does when the disk or a writer fails."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.backend import Facts
from mutoscope.platform.artifacts.layout import object_name
from mutoscope.platform.artifacts.local import LocalBackend
from mutoscope.platform.errors import InvalidInput, StoreUnwritable
from mutoscope.platform.ids import sha256

ROOT = Path(__file__).parents[2]
DATA = b"some bytes"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(folder: Path) -> ArtifactStore:
    return ArtifactStore.open(folder.as_uri())


def put(store: ArtifactStore, data: bytes) -> str:
    return store.put(data, kind="blob", media_type="application/octet-stream").digest


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_layout_reads_without_our_code(store: ArtifactStore, folder: Path) -> None:
    digest = put(store, DATA)
    assert files(folder) == ["README.txt", f"objects/{digest[:2]}/{digest}"]
    assert "sha256sum" in (folder / "README.txt").read_text()
    printed = subprocess.run(
        ["sha256sum", folder / "objects" / digest[:2] / digest], capture_output=True, check=True
    )
    assert printed.stdout.decode().split()[0] == digest


def test_objects_are_read_only(store: ArtifactStore, folder: Path) -> None:
    path = store.local_path(put(store, DATA))
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) & 0o222 == 0


def test_opening_creates_nothing(store: ArtifactStore, folder: Path) -> None:
    assert not store.contains(sha256(DATA))
    assert not folder.exists()


def test_equal_bytes_are_not_written_again(store: ArtifactStore) -> None:
    path = store.local_path(put(store, DATA))
    assert path is not None
    inode = path.stat().st_ino
    put(store, DATA)
    assert path.stat().st_ino == inode


def test_a_file_that_is_stored_already_is_not_copied_again(
    store: ArtifactStore, folder: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(3 << 20))
    first = store.local_path(store.put(source, kind="blob", media_type="x/y").digest)
    assert first is not None
    before = first.stat()
    (folder / "tmp").rmdir()  # whoever wrote would make it again
    store.put(source, kind="blob", media_type="x/y")
    assert first.stat() == before
    assert not (folder / "tmp").exists()


def test_a_file_that_changes_while_it_is_stored_is_refused(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"before")
    backend = LocalBackend(folder)
    facts = Facts("x/y", "blob", sha256(b"before"))
    for change in (b"behind", b"longer than before"):
        with source.open("rb") as origin, backend.stage(origin) as staged:
            staged.write(origin.read())
            source.write_bytes(change)
            with pytest.raises(StoreUnwritable, match="changed while it was stored"):
                staged.commit(object_name(facts.digest), facts, replace=False)
        source.write_bytes(b"before")
    assert files(folder) == ["README.txt"]


@pytest.mark.parametrize("refusal", [errno.EXDEV, errno.ENOSYS, None])
def test_files_are_copied_where_the_system_cannot_do_it(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int | None
) -> None:
    def refuse(*arguments: object) -> int:
        assert refusal is not None
        raise OSError(refusal, "not between these")

    if refusal is None:
        monkeypatch.delattr(os, "copy_file_range")
    else:
        monkeypatch.setattr(os, "copy_file_range", refuse)
    data = bytes(range(256)) * 10_000
    (tmp_path / "source").write_bytes(data)
    digest = store.put(tmp_path / "source", kind="blob", media_type="x/y").digest
    assert store.get(digest) == data


def test_a_pipe_is_a_file_too(store: ArtifactStore, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(DATA,))
    writer.start()
    digest = store.put(pipe, kind="blob", media_type="x/y").digest
    writer.join()
    assert store.get(digest) == DATA


def test_a_bare_path_is_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    digest = put(ArtifactStore.open("here"), DATA)
    assert ArtifactStore.open((tmp_path / "here").as_uri()).get(digest) == DATA


@pytest.mark.parametrize("url", ["file://relative/path", "nosuchscheme://x"])
def test_a_url_that_is_no_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="file:///"):
        ArtifactStore.open(url)


def test_a_folder_that_cannot_be_made_is_unwritable(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_bytes(b"a file where the folder should go")
    store = ArtifactStore.open((tmp_path / "occupied").as_uri())
    for attempt in (store.check_writable, lambda: put(store, DATA)):
        with pytest.raises(
            StoreUnwritable, match=r"cannot be written \(Not a directory\).*MUTOSCOPE_STORE_URL"
        ):
            attempt()


FULL_DISK = """
import io, resource, signal, sys
from pathlib import Path
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.errors import StoreUnwritable

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = ArtifactStore.open(sys.argv[1])
store.put(b"fits", kind="blob", media_type="x/y")
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
for source in (bytes(3 << 20), io.BytesIO(bytes(3 << 20)), [bytes(1 << 20)] * 3, Path(sys.argv[2])):
    try:
        store.put(source, kind="blob", media_type="x/y")
    except StoreUnwritable as error:
        print(error)
"""


def test_a_write_the_kernel_cuts_off_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(3 << 20))
    # The kernel ends a write at the file size limit half-way through the object, as it does on a full disk.
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, folder.as_uri(), str(tmp_path / "large")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all("cannot be written (File too large): free space" in line for line in lines)
    digest = sha256(b"fits")
    assert files(folder) == ["README.txt", f"objects/{digest[:2]}/{digest}"]


def test_short_writes_are_continued(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, bytes(data)[:3]))
    digest = put(store, DATA)
    monkeypatch.undo()
    assert store.get(digest) == DATA


def test_short_reads_are_no_damage(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(DATA)
    path = store.local_path(put(store, DATA))
    assert path is not None
    before = path.stat()
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, length, at: real(descriptor, min(length, 3), at))
    put(store, DATA)
    store.put(source, kind="blob", media_type="x/y")
    assert store.read_range(sha256(DATA), 1, 100) == DATA[1:]
    assert path.stat() == before
    assert list(store.quarantined()) == []


KILLED = """
import os, signal, sys
from mutoscope.platform.artifacts import ArtifactStore

def chunks():
    yield bytes(1 << 20)
    os.kill(os.getpid(), signal.SIGKILL)
    yield b"never"

ArtifactStore.open(sys.argv[1]).put(chunks(), kind="blob", media_type="x/y")
"""


def test_a_killed_writer_leaves_no_object(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, folder.as_uri()], capture_output=True, check=False)
    assert done.returncode == -9
    store = ArtifactStore.open(folder.as_uri())
    assert list(store.digests()) == []
    # What is left lies in tmp/, where the documentation says it may be deleted.
    assert [name.split("/")[0] for name in files(folder) if name != "README.txt"] == ["tmp"]
    digest = put(store, bytes(1 << 20) + b"never")
    assert store.get(digest) == bytes(1 << 20) + b"never"


BOUNDED = """
import sys
from pathlib import Path
from mutoscope.platform.artifacts import ArtifactStore
from tests.support import memory

store = ArtifactStore.open(sys.argv[1])
before = memory.reset_peak()
ref = store.put(([bytes(1 << 20)] * 64), kind="blob", media_type="x/y")
ref2 = store.put(Path(store.local_path(ref.digest)), kind="blob", media_type="x/y")
store.download(ref.digest, Path(sys.argv[2]))
with store.open_read(ref.digest) as reader:
    while reader.read(1 << 20):
        pass
assert ref.size == ref2.size == 64 << 20
print(memory.peak() - before)
"""


def test_memory_stays_bounded_whatever_the_size(folder: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED, folder.as_uri(), tmp_path / "copy"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    # 64 MiB went through put, download and read; a few chunks of 1 MiB may be held at a time.
    assert int(done.stdout) < 16 << 20, f"{done.stdout} bytes"


def test_durable_syncs_the_file_and_its_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        synced.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    put(ArtifactStore(LocalBackend(folder), folder.as_uri()), b"loose")
    assert synced == []
    durable = ArtifactStore(LocalBackend(folder, durable=True), folder.as_uri())
    digest = put(durable, b"durable")
    # The content before the name, or a power cut could keep a name without content. A new folder's name too.
    assert synced == ["file", "folder", "folder"]
    synced.clear()
    (folder / "objects" / digest[:2] / digest).unlink()
    put(durable, b"durable")
    assert synced == ["file", "folder"]
