"""Members of the containers recorded before there was a table for them.

Until then a run that made a component (an import, a trainer) had an edge to each of its files, in the role
``file:<component>/<path>``, beside the one to its manifest. The edges stay: they are what happened.
This writes rows only, no table changes: nobody else is kept waiting while it runs, and when it is
interrupted it starts again.

Revises: 0002
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import context, op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

BATCH = 5_000
_FILE = "file:"
_GENERATED_FILES = "direction = 'generated' and role >= 'file:' and role < 'file;'"
_COUNT = sa.text(f"select count(*) from edges where {_GENERATED_FILES}")
_NEXT = sa.text(
    f"select run_id, role, artifact_digest from edges where {_GENERATED_FILES} "
    "and (run_id, role) > (:run_id, :role) order by run_id, role limit :batch"
)
_CONTAINERS = sa.text(
    "select e.run_id, e.role, e.artifact_digest from edges e "
    "join artifacts a on a.digest = e.artifact_digest and a.kind = 'weights' "
    "where e.direction = 'generated' and e.run_id in :run_ids"
).bindparams(sa.bindparam("run_ids", expanding=True))
_INSERT = sa.text(
    "insert into members (container, path, artifact_digest) values (:container, :path, :digest) "
    "on conflict do nothing"
)


def upgrade() -> None:
    connection = op.get_bind()
    total, done, last = connection.execute(_COUNT).scalar_one(), 0, ("", "")
    while done < total:
        found = connection.execute(_NEXT, {"run_id": last[0], "role": last[1], "batch": BATCH}).all()
        members = list(_members(found, _containers(connection, {row.run_id for row in found})))
        if members:
            connection.execute(_INSERT, members)
        done, last = done + len(found), (found[-1].run_id, found[-1].role)
        _report(done, total)


def downgrade() -> None:
    # The rows say nothing that the edges do not; whoever goes back further drops their table.
    pass


def _containers(connection: sa.Connection, run_ids: Iterable[str]) -> dict[tuple[str, str], str]:
    """What is a component among what runs generated: (run, component's name) to digest. An import names the
    role ``weights:transformer``, a trainer ``transformer``."""
    rows = connection.execute(_CONTAINERS, {"run_ids": list(run_ids)})
    return {(row.run_id, row.role.removeprefix("weights:")): row.artifact_digest for row in rows}


def _members(
    found: Sequence[sa.Row[Any]], containers: dict[tuple[str, str], str]
) -> Iterable[dict[str, str]]:
    for row in found:
        component, _, path = row.role.removeprefix(_FILE).partition("/")
        container = containers.get((row.run_id, component))
        if container is not None:
            yield {"container": container, "path": path, "digest": row.artifact_digest}


def _report(done: int, total: int) -> None:
    progress = context.config.attributes.get("progress")
    if progress is not None:
        progress("members of components", done, total)
