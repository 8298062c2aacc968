"""Revisions: the upgraded schema is the tables', and a database of another revision is refused."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

from mutoscope import migrations
from mutoscope.platform.catalog import Catalog, schema
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.tables import metadata
from mutoscope.platform.errors import CatalogError, InvalidInput, SchemaMismatch
from tests.support.servers import Databases

FOLDER = Path(next(iter(migrations.__path__)))


def revisions() -> list[Path]:
    return sorted(path for path in (FOLDER / "versions").glob("*.py") if path.name != "__init__.py")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'catalog.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def blank_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without any table, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.db'}"
    made: str = request.getfixturevalue("databases").create()
    return made


def execute(url: str, statement: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_the_upgraded_schema_is_the_tables(any_catalog_url: str) -> None:
    database = Database(any_catalog_url)
    assert schema.differences(database) == []
    database.close()


def test_a_difference_is_noticed(any_catalog_url: str) -> None:
    execute(any_catalog_url, "drop index ix_edges_artifact_digest_direction_run_id")
    execute(any_catalog_url, "alter table runs add column forgotten integer")
    database = Database(any_catalog_url)
    assert len(schema.differences(database)) == 2
    database.close()


def postgres_definitions(url: str) -> dict[str, str]:
    """Every index and constraint as Postgres writes it, and each column's type."""
    engine = create_engine(url)
    with engine.connect() as connection:
        rows = connection.execute(
            text(
                "select indexname, indexdef from pg_indexes where schemaname = 'public' "
                "union all select conname, conrelid::regclass || ' ' || pg_get_constraintdef(oid) "
                "from pg_constraint where connamespace = 'public'::regnamespace "
                "union all select c.table_name || '.' || c.column_name, "
                "c.data_type || ' ' || c.is_nullable || ' ' || coalesce(c.column_default, '') "
                "from information_schema.columns c join pg_tables t on t.tablename = c.table_name "
                "where c.table_schema = 'public'"
            )
        ).all()
    engine.dispose()
    return {name: definition for name, definition in rows if "alembic_version" not in f"{name} {definition}"}


def test_conditions_and_checks_agree_on_postgres_too(postgres_catalog_url: str, databases: Databases) -> None:
    created = databases.create()
    engine = create_engine(created)
    metadata.create_all(engine)
    engine.dispose()
    upgraded = postgres_definitions(postgres_catalog_url)
    assert upgraded == postgres_definitions(created)
    assert "WHERE" in upgraded["uq_runs_memo_key_in_flight"]


def definitions(path: Path) -> Iterator[tuple[str, str]]:
    """Every table and index as SQLite keeps it, spacing, quotes and order of constraints aside. Views, which
    the tables' module knows nothing of, are in `test_views`."""
    plain = sqlite3.connect(path)
    kept = "select name, sql from sqlite_master where sql is not null and type <> 'view'"
    for name, definition in plain.execute(kept):
        head, body, tail = re.fullmatch(r"(.*?)\((.*)\)(.*)", re.sub(r"\s+", " ", definition)).groups()  # type: ignore[union-attr]
        parts = sorted(part.strip() for part in re.split(r",(?![^(]*\))", body))
        unquoted = head.strip().replace('"', "")
        yield name, f"{unquoted} ({', '.join(parts)}) {tail.strip()}"
    plain.close()


def test_partial_indices_and_checks_agree_too(empty_catalog: Path, tmp_path: Path) -> None:
    # What the comparison above does not look at: conditions of indices, CHECK constraints, WITHOUT ROWID.
    created = tmp_path / "created.db"
    engine = create_engine(f"sqlite:///{created}")
    metadata.create_all(engine)
    engine.dispose()
    upgraded = {name: text for name, text in definitions(empty_catalog) if name != "alembic_version"}
    assert upgraded == dict(definitions(created))
    assert "where state in" in upgraded["uq_runs_memo_key_in_flight"].lower()


def test_the_code_knows_the_newest_revision() -> None:
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [schema.HEAD]
    assert scripts.get_bases() == ["0001"]


def test_revisions_are_named_in_order_and_stand_alone() -> None:
    names = [path.name for path in revisions()]
    assert names
    assert all(re.fullmatch(r"\d{4}_[a-z0-9_]+\.py", name) for name in names)
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    for path in revisions():
        # The package describes today's tables; a revision describes those of its own day.
        assert "mutoscope" not in path.read_text(), path.name


def test_migrating_again_changes_nothing(url: str, tmp_path: Path) -> None:
    Catalog.migrate(url)
    Catalog.open(url).workflows.start("text_to_image", {})
    before = dict(definitions(tmp_path / "catalog.db"))
    Catalog.migrate(url)
    assert dict(definitions(tmp_path / "catalog.db")) == before
    assert len(Catalog.open(url).workflows.list()) == 1


def test_downgrading_leaves_nothing_behind(url: str, tmp_path: Path) -> None:
    from alembic import command

    Catalog.migrate(url)
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    engine = create_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    engine.dispose()
    assert [name for name, _ in definitions(tmp_path / "catalog.db")] == ["alembic_version"]


def test_a_fresh_catalog_keeps_its_promises(url: str) -> None:
    Catalog.migrate(url)
    catalog = Catalog.open(url)
    with catalog._database.read() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")
        }
    assert pragmas == {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 60_000, "synchronous": 1}


def test_a_missing_catalog_is_not_created_by_opening_it(url: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatch, match=r"has no schema: .*mutoscope up"):
        Catalog.open(url)
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_something_else_is_refused(blank_url: str) -> None:
    execute(blank_url, "create table shopping (item text)")
    with pytest.raises(SchemaMismatch, match="has no schema"):
        Catalog.open(blank_url)


@pytest.mark.parametrize(
    ("revision", "message"),
    [
        ("0000", r"at revision 0000, this Mutoscope needs .* back it up"),
        ("9999", r"newer than this Mutoscope .* upgrade"),
    ],
)
def test_another_revision_is_refused_with_a_remedy(any_catalog_url: str, revision: str, message: str) -> None:
    execute(any_catalog_url, f"update alembic_version set version_num = '{revision}'")
    with pytest.raises(SchemaMismatch, match=message):
        Catalog.open(any_catalog_url)


@pytest.mark.parametrize(
    ("revision", "message"), [("9999", "newer than this Mutoscope"), ("0000", "which no Mutoscope made")]
)
def test_what_cannot_be_upgraded_is_left_alone(any_catalog_url: str, revision: str, message: str) -> None:
    execute(any_catalog_url, f"update alembic_version set version_num = '{revision}'")
    with pytest.raises(SchemaMismatch, match=message):
        Catalog.migrate(any_catalog_url)


def test_a_failed_migration_leaves_the_database_as_it_was(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alembic import op

    real = op.create_table

    def breaks_at_edges(name: str, *columns: object, **options: object) -> object:
        if name == "edges":
            raise RuntimeError("pulled the plug")
        return real(name, *columns, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(op, "create_table", breaks_at_edges)
    with pytest.raises(RuntimeError, match="pulled the plug"):
        Catalog.migrate(url)
    monkeypatch.undo()
    assert dict(definitions(tmp_path / "catalog.db")) == {}
    Catalog.migrate(url)
    Catalog.open(url)


@pytest.mark.parametrize(
    "bad",
    ["nonsense", "nosuchdialect://x", "sqlite+nosuchdriver:///x", "mysql://here/x", "postgresql+old://x"],
)
def test_a_url_that_is_no_database_is_refused(bad: str) -> None:
    with pytest.raises(InvalidInput, match=r"database_url.*sqlite:////"):
        Catalog.open(bad)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("a file")
    with pytest.raises(CatalogError, match="MUTOSCOPE_HOME"):
        Catalog.migrate(f"sqlite:///{tmp_path / 'occupied' / 'catalog.db'}")
