"""`mutoscope catalog`: the schema's state, upgrades, and what is wrong with the file."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.support.empty import put_catalog


@pytest.fixture
def file(home: Path) -> Path:
    """The embedded catalog's file, created."""
    put_catalog(home)
    return home / "catalog.db"


def execute(file: Path, *statements: str) -> None:
    plain = sqlite3.connect(file)
    for statement in statements:
        plain.execute(statement)
    plain.commit()
    plain.close()


def revision(file: Path, value: str) -> None:
    execute(file, f"update alembic_version set version_num = '{value}'")


@pytest.mark.parametrize(
    ("found", "state", "remedy"),
    [
        (None, "missing", "mutoscope up"),
        ("0001", "behind", "mutoscope catalog upgrade"),
        ("9999", "ahead", "upgrade Mutoscope on this machine"),
    ],
)
def test_status_says_what_to_do(
    file: Path, mutoscope: Command, found: str | None, state: str, remedy: str
) -> None:
    if found is None:
        execute(file, "drop table alembic_version")
    else:
        revision(file, found)
    told = mutoscope("catalog", "status")
    assert (told.code, f"{state}: " in told.out, remedy in told.out) == (1, True, True)
    document = json.loads(mutoscope("catalog", "status", "--json").out)
    assert (document["revision"], document["state"]) == (found, state)


def test_status_of_a_current_catalog(file: Path, mutoscope: Command) -> None:
    told = mutoscope("catalog", "status")
    assert told.code == 0
    assert "current" in told.out


@pytest.mark.parametrize(
    "arguments",
    [("ls",), ("gc", "--dry-run"), ("fsck",), ("catalog", "check"), ("catalog", "upgrade"), ("doctor",)],
)
def test_a_newer_catalog_is_refused_in_a_line(
    file: Path, mutoscope: Command, arguments: tuple[str, ...]
) -> None:
    revision(file, "9999")
    told = mutoscope(*arguments)
    assert told.code != 0
    said = told.err + told.out
    assert "is at revision 9999, newer than this Mutoscope" in said
    assert "Traceback" not in said


def test_upgrade_reports_and_is_idempotent(home: Path, mutoscope: Command) -> None:
    first = mutoscope("catalog", "upgrade")
    assert (first.code, "before at none" in first.out) == (0, True)
    again = mutoscope("catalog", "upgrade")
    assert (again.code, "already" in again.out) == (0, True)


def test_check_finds_what_is_missing_and_what_leads_nowhere(file: Path, mutoscope: Command) -> None:
    assert mutoscope("catalog", "check").code == 0
    execute(
        file,
        "drop index ix_runs_created_at",
        "insert into edges values ('nobody', 'used', 'image', 0, 'nothing')",
    )
    told = mutoscope("catalog", "check")
    assert told.code == 1
    assert "ix_runs_created_at" in told.out
    assert "edges: 1 row refers to runs that are not there" in told.out
    assert len(json.loads(mutoscope("catalog", "check", "--json").out)["faults"]) == 3
