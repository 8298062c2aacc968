"""Hosts that must not join. Each says why in one line, and nothing is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from mutoscope.platform.catalog.schema import HEAD
from tests.e2e.stack import PATIENCE_S, Result, Stack

pytestmark = pytest.mark.e2e


def host(folder: Path, catalog_url: str, store: Path) -> Stack:
    extra = {"MUTOSCOPE_DATABASE_URL": catalog_url, "MUTOSCOPE_STORE_URL": store.as_uri()}
    return Stack(folder, extra)


def worker(stack: Stack) -> Result:
    """A worker as a container starts it."""
    ran = subprocess.run(
        [sys.executable, "-m", "mutoscope.workers", "--card", "video-frame"],
        env=stack.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Result(ran.returncode, ran.stdout, ran.stderr)


def test_two_homes_on_one_database_with_different_stores(postgres_catalog_url: str, tmp_path: Path) -> None:
    first = host(tmp_path / "first", postgres_catalog_url, tmp_path / "one")
    second = host(tmp_path / "second", postgres_catalog_url, tmp_path / "other")
    assert first.run("ready", "catalog", "store").code == 0
    for refused in (second.run("up", "--only", "workers,gateway"), worker(second)):
        assert refused.code == 2
        assert "keeps its bytes in another store than" in refused.err
        assert (tmp_path / "one").as_uri() in refused.err, "the line names the store to use"
        assert refused.err.count("\n") == 1
    assert not (second.home / "logs").exists(), "nothing was started"
    assert not (tmp_path / "other" / "users").exists(), "nothing was written into the store"


@pytest.mark.long
@pytest.mark.parametrize(
    ("revision", "remedy"),
    [("0001", "`mutoscope catalog upgrade` upgrades it"), ("9999", "upgrade Mutoscope here")],
)
def test_a_worker_of_another_schema(
    postgres_catalog_url: str, tmp_path: Path, revision: str, remedy: str
) -> None:
    plain = postgres_catalog_url.replace("+psycopg", "")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute("update alembic_version set version_num = %s", (revision,))
    stack = host(tmp_path / "home", postgres_catalog_url, tmp_path / "store")
    for refused in (worker(stack), stack.run("up", "--only", "workers")):
        assert refused.code != 0
        for needed in (f"is at revision {revision}", HEAD, remedy):
            assert needed in refused.err
    not_ready = stack.run("ready", "catalog")
    assert not_ready.code == 1
    assert f"is at revision {revision}" in not_ready.out


def test_flows_without_a_prefect_server(postgres_catalog_url: str, tmp_path: Path) -> None:
    stack = host(tmp_path / "home", postgres_catalog_url, tmp_path / "store")
    refused = stack.run("up", "--only", "flows")
    assert refused.code == 2
    assert "PREFECT_API_URL names none" in refused.err
    assert not (stack.home / "stack.json").exists()
