"""Archives that are not what they should be: one line that says so, and nothing in the home."""

from __future__ import annotations

import gzip
import io
import json
import random
import resource
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mutoscope.platform.custody.archive_import import import_archive
from mutoscope.platform.custody.archive_writer import writing_archive
from mutoscope.platform.errors import ArchiveInvalid, CatalogError, MutoscopeError
from mutoscope.platform.orchestration.runtime import Runtime
from tests.custody.archives import Edit, History, archive_of, edited, everything, with_sums


@pytest.fixture
def archive(source: Runtime, history: History, tmp_path: Path) -> Path:
    """A sound one."""
    return archive_of(source, tmp_path / "sound.tar", history.workflow_run)


@pytest.fixture
def refused(target: Runtime, tmp_path: Path) -> Callable[..., str]:
    """Tries to import a file; the line it is refused with."""

    def attempt(path: Path, kind: type[MutoscopeError] = ArchiveInvalid) -> str:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(kind) as raised:
            import_archive(target.catalog, target.store, path)
        assert list(target.store.digests()) == []
        assert all(rows == [] for rows in everything(target.catalog).values())
        added = set(tmp_path.rglob("*")) - set(before)
        assert not [found for found in added if not found.name.startswith("catalog.db")], added
        line = str(raised.value)
        assert "\n" not in line
        if kind is ArchiveInvalid:
            assert line.startswith(str(path))
        return line

    return attempt


Refused = Callable[..., str]


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def before_sums(*extra: tuple[tarfile.TarInfo, bytes]) -> Edit:
    """Adds members before the checksums."""

    def edit(info: tarfile.TarInfo, data: bytes) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
        if info.name == "SHA256SUMS":
            yield from extra
        yield info, data

    return edit


def changing(name: str, change: Callable[[bytes], bytes]) -> Edit:
    """Changes the bytes of one member."""

    def edit(info: tarfile.TarInfo, data: bytes) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
        yield info, change(data) if info.name == name else data

    return edit


def without(name: str) -> Edit:
    def edit(info: tarfile.TarInfo, data: bytes) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
        if info.name != name:
            yield info, data

    return edit


@pytest.mark.parametrize(
    ("added", "line"),
    [
        (member("/etc/cron.d/x"), "holds '/etc/cron.d/x' (a file), which is no part of an archive"),
        (member("../../escape"), "holds '../../escape' (a file), which is no part of an archive"),
        (member("objects/../../escape"), "holds 'objects/../../escape' (a file)"),
        (member("objects/aa/" + "b" * 64), "(a file), which is no part of an archive"),
        (member("objects/AA/" + "A" * 64), "(a file), which is no part of an archive"),
        (member("rows/artifacts.jsonl/x"), "(a file), which is no part of an archive"),
        (member("rows/alembic_version.jsonl"), "(a file), which is no part of an archive"),
        (member("outputs/x.png", tarfile.SYMTYPE, "/etc/passwd"), "(a link to '/etc/passwd')"),
        (member("outputs/x.png", tarfile.LNKTYPE, "/etc/passwd"), "(a link to '/etc/passwd')"),
        (member("outputs/../x", tarfile.LNKTYPE, "README.txt"), "(a link to 'README.txt')"),
        (member("objects/ab", tarfile.SYMTYPE, "/tmp"), "(a link to '/tmp')"),
        (member("outputs", tarfile.DIRTYPE), "(a folder)"),
        (member("outputs/null", tarfile.CHRTYPE), "(a device)"),
        (member("outputs/pipe", tarfile.FIFOTYPE), "(a device)"),
        (member("README.txt"), "holds 'README.txt' twice"),
        (member("rows/runs.jsonl"), "holds 'rows/runs.jsonl' twice"),
    ],
    ids=lambda value: value.name if isinstance(value, tarfile.TarInfo) else "",
)
def test_a_member_that_does_not_belong(
    archive: Path, refused: Refused, tmp_path: Path, added: tarfile.TarInfo, line: str
) -> None:
    assert line in refused(
        with_sums(edited(archive, tmp_path / "1.tar", before_sums((added, b""))), tmp_path / "2.tar")
    )


def test_an_object_twice(archive: Path, refused: Refused, tmp_path: Path, history: History) -> None:
    name = f"objects/{history.first.digest[:2]}/{history.first.digest}"
    again = edited(archive, tmp_path / "1.tar", before_sums((member(name), b"other bytes")))
    assert f"holds '{name}' twice" in refused(again)


def test_wrong_bytes_under_a_digest(
    archive: Path, refused: Refused, tmp_path: Path, history: History
) -> None:
    digest = history.first.digest
    name = f"objects/{digest[:2]}/{digest}"
    wrong = edited(archive, tmp_path / "1.tar", changing(name, lambda data: bytes(len(data))))
    assert f"object {digest[:12]} is damaged" in refused(with_sums(wrong, tmp_path / "2.tar"))


def test_every_flipped_bit_is_noticed(archive: Path, refused: Refused, tmp_path: Path) -> None:
    """Headers, rows, objects, checksums: wherever something is recorded. Blocks of padding say nothing."""
    data = archive.read_bytes()
    draw = random.Random(7)
    with tarfile.open(archive) as tar:
        spans = [(info.offset_data, info.size) for info in tar if info.isreg() and info.size]
    for start, size in spans:
        at = start + draw.randrange(size)
        flipped = bytearray(data)
        flipped[at] ^= 1 << draw.randrange(8)
        damaged = tmp_path / "flipped.tar"
        damaged.write_bytes(flipped)
        assert refused(damaged)


def test_every_truncation_is_noticed(archive: Path, refused: Refused, tmp_path: Path) -> None:
    data = archive.read_bytes()
    with tarfile.open(archive) as tar:
        infos = list(tar)
    end = infos[-1].offset_data + infos[-1].size
    cuts = {
        0,
        1,
        511,
        512,
        end - 1,
        *(info.offset for info in infos),
        *(info.offset_data + 1 for info in infos),
    }
    cut_short = tmp_path / "short.tar"
    for cut in sorted(cuts):
        if cut < end:
            cut_short.write_bytes(data[:cut])
            assert refused(cut_short)


def test_a_size_beyond_the_file(archive: Path, refused: Refused, tmp_path: Path, history: History) -> None:
    digest = history.first.digest
    with tarfile.open(archive) as tar:
        info = tar.getmember(f"objects/{digest[:2]}/{digest}")
    info.size = 1 << 50
    data = bytearray(archive.read_bytes())
    data[info.offset : info.offset + 512] = info.tobuf(tarfile.GNU_FORMAT)[:512]
    huge = tmp_path / "huge.tar"
    huge.write_bytes(data)
    assert "truncated" in refused(huge)


def test_a_sparse_member_that_claims_a_terabyte(archive: Path, refused: Refused, tmp_path: Path) -> None:
    sparse = member("README.txt")
    sparse.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "0", "GNU.sparse.size": str(1 << 40)}
    path = tmp_path / "sparse.tar"
    with tarfile.open(archive) as tar, tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as copy:
        manifest = tar.getmember("manifest.json")
        copy.addfile(manifest, tar.extractfile(manifest))
        copy.addfile(sparse, io.BytesIO(b""))
    assert "which is no part of an archive" in refused(path)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "no tar archive"),
        (b"not a tar\n" * 500, "no tar archive"),
        (bytes(10240), "incomplete"),
        (gzip.compress(bytes(1 << 20)), "it is compressed (gzip): archives are plain tar, unpack it first"),
        (b"PK\x03\x04" + bytes(100), "it is compressed (zip)"),
        (b"\x28\xb5\x2f\xfd" + bytes(100), "it is compressed (zstd)"),
    ],
    ids=["empty", "text", "zeros", "gzip", "zip", "zstd"],
)
def test_no_archive_at_all(refused: Refused, tmp_path: Path, data: bytes, line: str) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(data)
    assert line in refused(path)


def test_a_folder_and_a_file_that_is_not_there(refused: Refused, tmp_path: Path) -> None:
    assert "cannot be read" in refused(tmp_path)
    assert "cannot be read (No such file or directory)" in refused(tmp_path / "nowhere.tar")


def test_another_tar(refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "backup.tar"
    with tarfile.open(path, "w") as tar:
        tar.addfile(member("home/user/letter.txt"))
    assert "no part of an archive" in refused(path)


@pytest.mark.parametrize(
    ("form", "line"),
    [
        (
            "mutoscope.archive/2",
            "newer than this Mutoscope reads (mutoscope.archive/1): upgrade Mutoscope here",
        ),
        ("mutoscope.archive/0", "no longer reads"),
        ("somebody.else/1", "its format is 'somebody.else/1'"),
    ],
)
def test_another_format(archive: Path, refused: Refused, tmp_path: Path, form: str, line: str) -> None:
    def change(data: bytes) -> bytes:
        return json.dumps({**json.loads(data), "format": form}).encode()

    other = edited(archive, tmp_path / "1.tar", changing("manifest.json", change))
    assert line in refused(with_sums(other, tmp_path / "2.tar"))


Row = dict[str, object]


def in_first_row(table: str, change: Callable[[Row], object]) -> Edit:
    def edit(data: bytes) -> bytes:
        first, *others = data.splitlines(keepends=True)
        row = json.loads(first)
        change(row)
        return json.dumps(row).encode() + b"\n" + b"".join(others)

    return changing(f"rows/{table}.jsonl", edit)


@pytest.mark.parametrize(
    ("table", "change", "line"),
    [
        ("artifacts", {"size": -1}, "line 1 of rows/artifacts.jsonl: size=-1"),
        ("artifacts", {"size": 1 << 50}, "bytes, its row says 1125899906842624"),
        ("artifacts", {"digest": "abc"}, "line 1 of rows/artifacts.jsonl: digest='abc'"),
        ("artifacts", {"kind": "virus"}, "line 1 of rows/artifacts.jsonl: kind='virus'"),
        ("artifacts", {"bytes": "collected"}, "is there, but its row says collected"),
        ("artifacts", {"state": "present"}, "has a field 'state', which this Mutoscope does not know"),
        ("artifacts", {"meta": {"x": "y" * 2000}}, "line 1 of rows/artifacts.jsonl: meta="),
        ("runs", {"id": "../../../etc"}, "id='../../../etc' is no UUIDv7"),
        ("runs", {"state": "possessed"}, "line 1 of rows/runs.jsonl: state is wrong"),
        ("runs", {"attempt": "many"}, "line 1 of rows/runs.jsonl: attempt is wrong"),
        ("workflow_runs", {"id": "ffffffff-ffff-7fff-bfff-ffffffffffff"}, "is no UUIDv7"),
        ("edges", {"direction": "sideways"}, "line 1 of rows/edges.jsonl: direction is wrong"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_row_that_is_none(
    archive: Path, refused: Refused, tmp_path: Path, table: str, change: Row, line: str
) -> None:
    other = edited(archive, tmp_path / "1.tar", in_first_row(table, lambda row: row.update(change)))
    assert line in refused(with_sums(other, tmp_path / "2.tar"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{not json}\n", "is not JSON"),
        (b"[1, 2]\n", "is no JSON object"),
        (b'{"created_at": NaN}\n', "NaN is no JSON number"),
        (b"[" * 100_000 + b"\n", "is not JSON"),
        (b"\xff\xfe\n", "is not JSON"),
        (b'"' + b"x" * (17 << 20) + b'"\n', "is longer than 16 MiB"),
    ],
    ids=["words", "list", "nan", "nested", "binary", "long"],
)
def test_a_line_that_is_no_row(
    archive: Path, refused: Refused, tmp_path: Path, line: bytes, said: str
) -> None:
    other = edited(archive, tmp_path / "1.tar", changing("rows/runs.jsonl", lambda data: data + line))
    assert said in refused(with_sums(other, tmp_path / "2.tar"))


@pytest.mark.parametrize("dropped", [0, -1], ids=["the import", "an engine run"])
def test_rows_that_lead_nowhere(archive: Path, refused: Refused, tmp_path: Path, dropped: int) -> None:
    def drop(data: bytes) -> bytes:
        rows = data.splitlines(keepends=True)
        del rows[dropped]
        return b"".join(rows)

    other = edited(archive, tmp_path / "1.tar", changing("rows/runs.jsonl", drop))
    assert "nothing was entered" in refused(with_sums(other, tmp_path / "2.tar"), CatalogError)


def test_an_object_without_a_row_and_a_row_without_an_object(
    archive: Path, refused: Refused, tmp_path: Path, history: History
) -> None:
    digest = history.first.digest
    lost = edited(archive, tmp_path / "1.tar", without(f"objects/{digest[:2]}/{digest}"))
    assert "is not there, but its row says archived" in refused(with_sums(lost, tmp_path / "2.tar"))

    def drop(data: bytes) -> bytes:
        return b"".join(row for row in data.splitlines(keepends=True) if digest.encode() not in row)

    orphan = edited(archive, tmp_path / "3.tar", changing("rows/artifacts.jsonl", drop))
    assert "1 of its objects have no row" in refused(with_sums(orphan, tmp_path / "4.tar"))


def test_checksums_that_leave_something_out(archive: Path, refused: Refused, tmp_path: Path) -> None:
    def drop(data: bytes) -> bytes:
        return b"".join(data.splitlines(keepends=True)[1:])

    fewer = edited(archive, tmp_path / "1.tar", changing("SHA256SUMS", drop))
    assert "does not name 1 of its members" in refused(fewer)


def test_more_after_the_checksums(archive: Path, refused: Refused, tmp_path: Path) -> None:
    def edit(info: tarfile.TarInfo, data: bytes) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
        if info.name == "README.txt":
            return
        yield info, data
        if info.name == "SHA256SUMS":
            yield member("README.txt"), b"late"

    assert "goes on after SHA256SUMS" in refused(edited(archive, tmp_path / "1.tar", edit))


def test_a_missing_table(archive: Path, refused: Refused, tmp_path: Path) -> None:
    other = edited(archive, tmp_path / "1.tar", without("rows/calls.jsonl"))
    assert "lacks rows/calls.jsonl" in refused(with_sums(other, tmp_path / "2.tar"))


def test_a_version_that_is_another_here(
    source: Runtime, history: History, target: Runtime, archive: Path, tmp_path: Path
) -> None:
    import_archive(target.catalog, target.store, archive)

    def change(row: Row) -> None:
        row["component"] = "other"

    other = with_sums(
        edited(archive, tmp_path / "1.tar", in_first_row("weight_versions", change)), tmp_path / "2.tar"
    )
    with pytest.raises(CatalogError, match="nothing was entered"):
        import_archive(target.catalog, target.store, other)


def test_a_place_that_cannot_be_written(source: Runtime, history: History, tmp_path: Path) -> None:
    with pytest.raises(MutoscopeError, match="name a file in a writable folder"):
        archive_of(source, tmp_path / "nowhere" / "a.tar", history.first)


def test_a_medium_without_room(source: Runtime, tmp_path: Path) -> None:
    """A real limit on the size of files stands in for a full disk: the write fails half-way."""
    ref = source.store.put(bytes(6 << 20), kind="blob", media_type="application/octet-stream")
    source.catalog.artifacts.record(ref)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, limits[1]))
    try:
        with pytest.raises(MutoscopeError, match="File too large"):
            archive_of(source, tmp_path / "a.tar", ref)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.glob("*.tar*")) == list(tmp_path.glob(".*")) == []


def test_two_exports_to_one_file(source: Runtime, history: History, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with (
        writing_archive(path),
        pytest.raises(MutoscopeError, match="another export is writing it"),
    ):
        archive_of(source, path, history.first)
    assert path.exists()
