"""What a person, a disk or another program gets wrong about years of work: prefixes of one digit, a catalog
from a newer version, URLs with passwords."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psycopg
import pytest
from typer.main import get_command

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.cli.main import app
from mutoscope.platform.settings import get_settings
from tests.cli.conftest import Command
from tests.cli.test_surface import commands
from tests.support.damage import execute, store_bytes
from tests.support.workshop import Workshop

REF = "image:" + "3" * 12
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "audit": (REF,),
    "cancel": ("01",),
    "catalog upgrade": (),
    "diff": (REF, REF),
    "export": (REF, "x.tar"),
    "get": (REF,),
    "impact": (REF,),
    "import": ("x.tar",),
    "incidents show": ("01",),
    "lineage down": (REF,),
    "lineage export": (REF,),
    "lineage up": (REF,),
    "open": (REF,),
    "pages presign": ("01",),
    "pin": (REF, "--name", "best"),
    "pool drain": ("01",),
    "pool limit": ("flux-t2i", "2"),
    "pool load": ("flux-t2i",),
    "pool pause": ("flux-t2i",),
    "pool resume": ("flux-t2i",),
    "pool unload": ("flux-t2i",),
    "replay": (REF,),
    "retention add": ("old", "--keep", "1d"),
    "retention remove": ("old",),
    "retry": ("01",),
    "rl compare": ("flux-t2i/vae@1", "flux-t2i/vae@2"),
    "rl curves": ("first",),
    "rl show": ("first",),
    "run": ("text_to_image", "prompt=x"),
    "schedule add": ("text_to_image", "prompt=x", "--every", "1h"),
    "schedule pause": ("text_to_image", "nightly"),
    "schedule resume": ("text_to_image", "nightly"),
    "schedule rm": ("text_to_image", "nightly"),
    "show": (REF,),
    "trash restore": (REF,),
    "unpin": ("best",),
    "weights alias": ("candidate", "flux-t2i/vae@1"),
    "weights import": ("flux-t2i", "folder"),
    "weights made": ("flux-t2i/vae@1",),
    "weights of": (REF,),
    "weights show": ("flux-t2i/vae@1",),
    "why": (REF,),
}
"""What each command needs to be called with; those left out need nothing."""

CATALOG_UNSEEN = {"card check", "down", "status", "pages url"}
"""Commands that look at processes, at a folder or at the store's address alone."""
SCHEDULES = {"schedule add", "schedule ls", "schedule pause", "schedule resume", "schedule rm"}
REFUSED_BEFORE = SCHEDULES | {"run", "retry", "pages presign", "rl compare"}
"""Commands that say first that nothing runs, or that the store has no such links."""
TELLS_MORE = {"doctor", "demo", "catalog status", "ready"}
"""Commands with tests of their own."""

COMMANDS = [path.removeprefix("mutoscope ") for path, _ in commands(get_command(app), "mutoscope")]


def words(path: str) -> list[str]:
    return [*path.split(), *ARGUMENTS.get(path, ())]


@pytest.fixture
def newer(catalog: Catalog, store: ArtifactStore) -> None:
    """A home whose catalog a newer Mutoscope has upgraded."""
    store.check_writable()
    execute(catalog, "update alembic_version set version_num = '9999'")


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize(
    "path", [one for one in COMMANDS if one not in CATALOG_UNSEEN | REFUSED_BEFORE | TELLS_MORE]
)
def test_every_command_on_a_catalog_from_a_newer_version(
    mutoscope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "x.tar").write_bytes(b"")
    result = mutoscope(*words(path))
    assert (result.code, result.out) == (1, "")
    (line,) = result.err.splitlines()
    assert line.startswith("error: the catalog sqlite:///")
    assert line.endswith("upgrade Mutoscope here")
    assert not (tmp_path / "home" / "logs").exists(), "nothing was started"


@pytest.mark.usefixtures("newer")
def test_doctor_tells_of_a_newer_catalog_and_of_the_rest(mutoscope: Command) -> None:
    result = mutoscope("doctor")
    (line,) = [line for line in result.out.splitlines() if line.split()[1] == "catalog"]
    assert (result.code, line.split()[0]) == (1, "fail")
    assert "newer than this Mutoscope" in line


@pytest.mark.usefixtures("newer")
def test_demo_passes_on_what_up_says(mutoscope: Command, tmp_path: Path) -> None:
    result = mutoscope("demo", "--output", str(tmp_path / "out"))
    assert (result.code, result.out) == (1, "")
    assert result.err.endswith("upgrade Mutoscope here\n")
    assert not (tmp_path / "out").exists()


def test_a_worker_refuses_a_newer_catalog_in_one_line(newer: None, home: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "mutoscope.workers"], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.splitlines()[-1].endswith("upgrade Mutoscope here")
    assert "Traceback" not in ended.stderr


def test_prefixes_of_one_digit(catalog: Catalog, store: ArtifactStore, mutoscope: Command) -> None:
    made = {}
    for n in range(200):  # until one first digit is taken by one artifact and another by several
        ref = store_bytes(store, str(n))
        made.setdefault(ref.digest[0], []).append(ref)
        catalog.artifacts.record(ref)
        if {1, 2} <= {len(refs) for refs in made.values()}:
            break
    (alone,) = next(refs for refs in made.values() if len(refs) == 1)
    several = next(refs for refs in made.values() if len(refs) == 2)
    digit = alone.digest[0]
    for text in (digit, digit.upper(), f"image:{digit}", f" {digit} "):
        assert json.loads(mutoscope("show", text, "--json").out)["digest"] == alone.digest, text
    for text in (several[0].digest[0], f"image:{several[0].digest[0]}"):
        result = mutoscope("show", text)
        assert (result.code, result.out) == (2, "")
        assert "names several artifacts" in result.err
        assert all(str(ref) in result.err for ref in several)
    unused = next(digit for digit in "0123456789abcdef" if digit not in made)
    for text in (unused, f"image:{unused}", f"video:{alone.digest[0]}", "image:", ":", "g", "", "image:3-4"):
        result = mutoscope("show", text)
        assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1), text
    for command in ("get", "open", "impact", "why", "pin", "replay"):
        assert mutoscope(command, unused).code == 2


SECRET = "hush0hush"
S3 = f"s3://AKIDEXAMPLE:{SECRET}@bucket/store"
POSTGRES = f"postgresql://keeper:{SECRET}@127.0.0.1:1/catalog"


@pytest.mark.parametrize(
    "urls",
    [
        {"MUTOSCOPE_STORE_URL": S3},
        {"MUTOSCOPE_DATABASE_URL": POSTGRES},
        {"MUTOSCOPE_STORE_URL": f"s3://bucket/store?secret={SECRET}"},
        {"MUTOSCOPE_STORE_URL": f"nonsense://a:{SECRET}@b"},
        {"MUTOSCOPE_DATABASE_URL": f"nonsense://a:{SECRET}@b"},
    ],
    ids=lambda urls: "-".join(f"{key.split('_')[1]}-{url[:5]}" for key, url in urls.items()),
)
def test_a_password_in_a_url_is_in_no_output(
    catalog: Catalog,
    home: Path,
    mutoscope: Command,
    urls: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every command, refused as it may be, and the processes of a stack: nothing they write shows it."""
    monkeypatch.chdir(tmp_path)
    os.environ.update(urls, AWS_ENDPOINT_URL="http://127.0.0.1:1", MUTOSCOPE_STORE_DEADLINE_SECONDS="0.2")
    for path in (one for one in COMMANDS if one != "demo"):
        get_settings.cache_clear()
        result = mutoscope(*words(path))
        said = result.out + result.err
        assert SECRET not in said, f"{path}: {said}"
        assert "Traceback" not in said, path
    for module in ("mutoscope.workers", "mutoscope.platform.web") if S3 in urls.values() else ():
        ended = subprocess.run(
            [sys.executable, "-m", module], capture_output=True, text=True, check=False, timeout=120
        )
        assert ended.returncode != 0
        assert SECRET not in ended.stdout + ended.stderr, ended.stderr
    assert not [path for path in home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_a_password_that_works_is_in_no_log_and_no_row(
    postgres_catalog_url: str, home: Path, tmp_path: Path, mutoscope: Command
) -> None:
    user = postgres_catalog_url.partition("://")[2].partition("@")[0]
    url = postgres_catalog_url.replace(f"{user}@", f"{user.partition(':')[0]}:{SECRET}@")
    assert SECRET in url
    os.environ["MUTOSCOPE_DATABASE_URL"] = url
    get_settings.cache_clear()
    workshop = Workshop(home, database_url=url)
    with workshop.worker() as worker:
        run = workshop.run(seed=1)
        log = worker.log
    assert (run.state, SECRET in log) == ("succeeded", False)
    for arguments in (
        ["ls", "runs", "--json"], ["show", run.id, "--json"], ["why", run.id], ["fsck"], ["gc", "--dry-run"],
        ["doctor", "--json"], ["status", "--json"], ["incidents", "list"], ["weights", "list"], ["cards"],
    ):  # fmt: skip
        result = mutoscope(*arguments)
        assert SECRET not in result.out + result.err, arguments
    assert "postgresql" in mutoscope("doctor").out
    workshop.close()
    leaks = [path for path in home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert leaks == []
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        for table in ("runs", "workers", "workflow_runs", "artifacts", "leases", "calls"):
            rows = connection.execute(f"select {table}::text from {table}").fetchall()
            assert SECRET not in str(rows), table
