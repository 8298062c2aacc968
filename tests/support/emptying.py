"""A catalog on Postgres, made as good as new: a tenth of the work of making one."""

from __future__ import annotations

import time
from functools import cache

_SHAPE = """
select (select string_agg(concat_ws(' ', c.relname, c.relkind, a.attname, a.atttypid, a.attnotnull), ','
                          order by c.relname, a.attnum)
        from pg_class c join pg_attribute a on a.attrelid = c.oid
        where c.relnamespace = 'public'::regnamespace),
       (select string_agg(concat_ws(' ', conname, contype), ',' order by conname) from pg_constraint),
       (select count(*) from pg_trigger),
       (select count(*) from pg_proc where pronamespace = 'public'::regnamespace),
       (select string_agg(version_num, ',') from alembic_version)
"""
"""All that a test may have changed about a catalog besides its rows."""

_OTHERS = (
    "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
)
_TABLES = "select tablename from pg_tables where schemaname = 'public' and tablename <> 'alembic_version'"
_NUMBERS = "select sequencename from pg_sequences where schemaname = 'public'"


@cache
def _shape(url: str) -> object:
    import psycopg

    with psycopg.connect(plain(url), autocommit=True) as connection:
        return connection.execute(_SHAPE).fetchone()


def emptied(url: str, template: str) -> bool:
    """Delete all rows of a catalog; False if it is not fit to be used again."""
    import psycopg

    shape = _shape(template)
    try:
        with psycopg.connect(plain(url), autocommit=True) as connection:
            for _ in range(25):  # a session that was just closed is still listed for a moment
                if connection.execute(_OTHERS).fetchone() == (0,):
                    break
                time.sleep(0.02)
            else:
                return False
            if connection.execute(_SHAPE).fetchone() != shape:
                return False
            gone = [f'delete from "{name}"' for (name,) in connection.execute(_TABLES)]
            begun = [f'alter sequence "{name}" restart' for (name,) in connection.execute(_NUMBERS)]
            # Without looking at foreign keys: what they lead to goes too.
            everything = ["set session_replication_role = replica", *gone, *begun]
            connection.execute("; ".join(everything).encode())
    except psycopg.Error:
        return False
    return True


def plain(url: str) -> str:
    """A URL as psycopg reads it."""
    return url.replace("postgresql+psycopg://", "postgresql://")
