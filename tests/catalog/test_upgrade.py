"""Upgrading and downgrading with data in place, on both databases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Engine, create_engine, inspect, text

from mutoscope.platform.catalog import Catalog, schema
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.errors import SchemaMismatch
from tests.support.records import an_artifact
from tests.support.servers import Databases

COMPONENTS, FILES = 2, 3
NETS = [an_artifact(f"net {n}", "weights") for n in range(COMPONENTS)]
PARTS = [[an_artifact(f"part {n} {m}", "blob") for m in range(FILES)] for n in range(COMPONENTS)]
IMAGE = an_artifact("image")
IMPORTED, TRAINED, PAINTED, WAITING = (f"00000000-0000-7000-8000-{n:012}" for n in range(4))
"""Ids of runs."""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without any table."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.db'}"
    databases: Databases = request.getfixturevalue("databases")
    return databases.create()


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """A connection that knows nothing of ours."""
    engine = create_engine(url)
    yield engine
    engine.dispose()


def to_revision(url: str, revision: str, *, down: bool = False) -> None:
    database = Database(url)
    config = schema._alembic(None)
    with database.write() as connection:
        config.attributes["connection"] = connection
        (command.downgrade if down else command.upgrade)(config, revision)
    database.close()


def insert(connection: Any, table: str, **values: Any) -> None:
    marks = ", ".join(f":{name}" for name in values)
    connection.execute(text(f"insert into {table} ({', '.join(values)}) values ({marks})"), values)


def fill(engine: Engine) -> None:
    """What the first release wrote: an import of two components with their files, a trainer's component, an
    image made with them, a queued run."""
    with engine.begin() as connection:
        for ref in [*NETS, *(part for parts in PARTS for part in parts), IMAGE]:
            insert(
                connection, "artifacts", digest=ref.digest, kind=ref.kind, media_type=ref.media_type,
                size=ref.size, meta=json.dumps({"name": "é"}), state="present", created_at=1.5,
            )  # fmt: skip
        for run, kind, state in (
            (IMPORTED, "import", "succeeded"), (TRAINED, "engine", "succeeded"),
            (PAINTED, "engine", "succeeded"), (WAITING, "engine", "queued"),
        ):  # fmt: skip
            insert(
                connection, "runs", id=run, kind=kind, parameters=json.dumps({"seed": 7}), state=state,
                memo_key=run, created_at=2.5,
            )  # fmt: skip
        made = [
            (IMPORTED, "weights:net", NETS[0]),
            (TRAINED, "net", NETS[1]),
            (PAINTED, "image", IMAGE),
        ]
        made += [(IMPORTED, f"file:net/sub/{m}", part) for m, part in enumerate(PARTS[0])]
        made += [(TRAINED, f"file:net/{m}", part) for m, part in enumerate(PARTS[1])]
        for run, role, ref in made:
            insert(
                connection, "edges", run_id=run, direction="generated", role=role, ordinal=0,
                artifact_digest=ref.digest,
            )  # fmt: skip
        insert(
            connection, "edges", run_id=PAINTED, direction="used", role="weights:net", ordinal=0,
            artifact_digest=NETS[0].digest,
        )  # fmt: skip
        insert(
            connection,
            "incidents",
            id="i",
            kind="determinism",
            run_id=PAINTED,
            details="{}",
            created_at=3.5,
        )


def contents(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table."""
    with engine.connect() as connection:
        tables = sorted(set(inspect(connection).get_table_names()) - {"alembic_version"})
        return {
            table: sorted(
                (dict(row._mapping) for row in connection.execute(text(f"select * from {table}"))), key=repr
            )
            for table in tables
        }


def described(engine: Engine) -> dict[str, Any]:
    """Tables as the database itself describes them: columns, keys, checks and indexes, in no order."""
    inspector = inspect(engine)
    reads = ("get_columns", "get_indexes", "get_check_constraints", "get_foreign_keys", "get_pk_constraint")
    return {
        f"{table} {read}": sorted(json.dumps(item, default=str, sort_keys=True) for item in _listed(found))
        for table in inspector.get_table_names()
        for read in reads
        for found in [getattr(inspector, read)(table)]
    }


def _listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


def test_up_and_down_again_with_data_in_place(url: str, engine: Engine) -> None:
    to_revision(url, "0001")
    fill(engine)
    before, tables = contents(engine), described(engine)

    Catalog.migrate(url)
    upgraded = contents(engine)
    for table, rows in before.items():
        known = rows[0].keys() if rows else ()
        assert [{name: row[name] for name in known} for row in upgraded[table]] == rows, table
    database = Database(url)
    assert schema.differences(database) == []
    database.close()

    engine.dispose()
    to_revision(url, "0001", down=True)
    assert contents(engine) == before
    assert described(engine) == tables


def test_an_upgraded_catalog_works_on(url: str, engine: Engine) -> None:
    to_revision(url, "0001")
    fill(engine)
    with pytest.raises(SchemaMismatch, match=r"revision 0001.*`mutoscope catalog upgrade` upgrades it"):
        Catalog.open(url)
    Catalog.migrate(url)
    catalog = Catalog.open(url)
    assert catalog.runs.outputs(PAINTED)["image"].digest == IMAGE.digest
    assert catalog.artifacts.get(IMAGE.digest).meta == {"name": "é"}  # type: ignore[union-attr]
    assert [use.digest for use in catalog.lineage.weights_of(IMAGE.digest, 1)] == [NETS[0].digest]
    catalog.close()


def test_components_of_before_get_their_members(
    url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_revision(url, "0001")
    fill(engine)
    told: list[tuple[str, int, int]] = []
    Catalog.migrate(url, lambda *progress: told.append(progress))
    members = {(row["container"], row["path"], row["artifact_digest"]) for row in contents(engine)["members"]}
    assert members == {
        (NETS[n].digest, f"{folder}{m}", part.digest)
        for n, folder in enumerate(("sub/", ""))
        for m, part in enumerate(PARTS[n])
    }
    assert told[-1] == ("members of components", COMPONENTS * FILES, COMPONENTS * FILES)


def test_an_embedded_catalog_is_copied_before_it_is_upgraded(tmp_path: Path) -> None:
    url, backup = f"sqlite:///{tmp_path / 'catalog.db'}", tmp_path / "catalog.db.0001.bak"
    to_revision(url, "0001")
    assert not backup.exists()
    engine = create_engine(url)
    fill(engine)
    before = contents(engine)
    told: list[str] = []
    Catalog.migrate(url, lambda what, done, total: told.append(what))
    copy = create_engine(f"sqlite:///{backup}")
    assert contents(copy) == before
    assert told[0] == "backup to catalog.db.0001.bak"
    Catalog.migrate(url)
    assert {path.name for path in tmp_path.glob("*.bak")} == {backup.name}, (
        "nothing to upgrade, nothing copied"
    )
    for each in (engine, copy):
        each.dispose()


def test_an_interrupted_upgrade_stands_at_a_revision_and_goes_on(url: str, engine: Engine) -> None:
    to_revision(url, "0001")
    fill(engine)

    def interrupt(what: str, done: int, total: int) -> None:
        if what == "members of components":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Catalog.migrate(url, interrupt)
    assert contents(engine)["members"] == [], "all of a revision or nothing"
    with pytest.raises(SchemaMismatch, match="at revision 0002"):
        Catalog.open(url)
    Catalog.migrate(url)
    assert len(contents(engine)["members"]) == COMPONENTS * FILES
