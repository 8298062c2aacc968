"""Members: the artifacts without which a container, such as a component's manifest, cannot be read.

Who keeps, copies, checks or counts a container follows these rows to the rest of it, and need not open a
byte. A member may be a container itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, bindparam, select

from mutoscope.platform.catalog.artifacts import REF_COLUMNS, record_all, to_ref
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.edges import require_known
from mutoscope.platform.catalog.tables import artifacts, members
from mutoscope.platform.refs import ArtifactRef

CONTAINER_KIND = "weights"
"""The kind of artifacts that have members."""

Members = Mapping[str, ArtifactRef | str]
"""Path within the container to the member; a digest alone will do for one the catalog knows."""


def record_members(database: Database, connection: Connection, containers: Mapping[str, Members]) -> None:
    """Record what containers hold, and the held artifacts themselves. Recording it again changes nothing: a
    container's bytes name its members, so they never differ.

    Args:
        containers: digest of each container, whose row must be there, to its members.

    Raises:
        UnknownReference: a member given by its digest alone is not in the catalog.
    """
    for container, held in containers.items():
        record_all(database, connection, (ref for ref in held.values() if isinstance(ref, ArtifactRef)))
        known = {path: member for path, member in held.items() if isinstance(member, str)}
        require_known(connection, known)
        rows = [
            {
                "container": container,
                "path": path,
                "artifact_digest": member if isinstance(member, str) else member.digest,
            }
            for path, member in held.items()
        ]
        if rows:
            connection.execute(database.insert(members).on_conflict_do_nothing(), rows)


_HELD = (
    select(members.c.artifact_digest.label("digest"))
    .where(members.c.container.in_(bindparam("containers", expanding=True)))
    .cte("held", recursive=True)
)
_HELD = _HELD.union(select(members.c.artifact_digest).join(_HELD, members.c.container == _HELD.c.digest))
_ALL_HELD = select(*REF_COLUMNS).join(_HELD, _HELD.c.digest == artifacts.c.digest)


def held_by(connection: Connection, containers: Iterable[str]) -> list[ArtifactRef]:
    """Everything the containers cannot be read without, each once, members of members included."""
    wanted = list(containers)
    return [to_ref(row) for row in connection.execute(_ALL_HELD, {"containers": wanted})] if wanted else []
