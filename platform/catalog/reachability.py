"""What may go and what must stay: the collector's questions to the catalog.

`scan` answers for the whole catalog, page by page, so that neither memory nor a transaction grows with it.
What keeps an artifact is in `keeping`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import FromClause, and_, case, exists, func, literal, select

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.keeping import old_before, stays
from mutoscope.platform.catalog.records import REPLAYABLE_KINDS
from mutoscope.platform.catalog.retention import Policy
from mutoscope.platform.catalog.tables import artifacts, edges, members, pins, runs


@dataclass(frozen=True, slots=True)
class Suspect:
    """An artifact that nothing keeps but, perhaps, a container it is a member of."""

    digest: str
    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a scan. `last` is where the next one begins; None when there is no more."""

    suspects: list[Suspect]
    looked_at: int
    last: str | None


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an artifact could be made again: the run, and the seconds it took."""

    digest: str
    run_id: str
    seconds: float


class Reachability:
    """`catalog.reachability`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def now(self) -> float:
        """Seconds since the epoch by the database's clock."""
        with self._database.glance() as connection:
            return float(connection.execute(select(now())).scalar_one())

    def count_present(self) -> int:
        """How many artifacts are not collected: what a scan has before it."""
        with self._database.glance() as connection:
            query = select(func.count()).select_from(artifacts).where(artifacts.c.state == "present")
            return int(connection.execute(query).scalar_one())

    def scan(self, policy: Policy, after: str = "", limit: int = 10_000) -> Page:
        """Look at the next artifacts, in order of digest, that a rule speaks of and that are old enough.

        Args:
            after: `last` of the page before.
        """
        if not policy.rules:
            return Page([], 0, None)
        page = _page(policy, after, limit)
        query = select(page.c.digest, page.c.kind, page.c.size, case((stays(page), 0), else_=1)).order_by(
            page.c.digest
        )
        with self._database.glance() as connection:
            rows = connection.execute(query).all()
        suspects = [Suspect(digest, kind, size) for digest, kind, size, suspected in rows if suspected]
        return Page(suspects, len(rows), rows[-1][0] if len(rows) == limit else None)

    def inputs_of_pins(self, size: int = 10_000) -> Iterator[list[str]]:
        """Everything that artifacts pinned with their inputs came from, themselves included, in parts."""
        reached = select(pins.c.artifact_digest.label("digest")).where(pins.c.with_inputs)
        walk = reached.cte("reached", recursive=True)
        made, used = edges.alias("made"), edges.alias("used_by_it")
        step = (
            select(used.c.artifact_digest)
            .select_from(walk)
            .join(made, and_(made.c.artifact_digest == walk.c.digest, made.c.direction == "generated"))
            .join(used, and_(used.c.run_id == made.c.run_id, used.c.direction == "used"))
        )
        with self._database.read() as connection:
            found = connection.execute(select(walk.union(step).c.digest).execution_options(yield_per=size))
            for part in found.scalars().partitions():
                yield list(part)

    def containers(self, digests: Sequence[str]) -> list[tuple[str, str]]:
        """(container, member) for each of the artifacts that is a member of a container not collected."""
        holder = artifacts.alias("holder")
        query = (
            select(members.c.container, members.c.artifact_digest)
            .distinct()
            .join(holder, holder.c.digest == members.c.container)
            .where(members.c.artifact_digest.in_(digests), holder.c.state == "present")
        )
        with self._database.glance() as connection:
            return [(row[0], row[1]) for row in connection.execute(query)]

    def recipes(self, digests: Sequence[str]) -> list[Recipe]:
        """For each of the artifacts that a replay could make again, the cheapest recorded run that did.

        A replay needs the run's key parts, and everything the run used not collected yet.
        """
        used, needed = edges.alias("used_by_it"), artifacts.alias("needed")
        lacking = exists(
            select(literal(1))
            .select_from(used)
            .join(needed, needed.c.digest == used.c.artifact_digest)
            .where(used.c.run_id == runs.c.id, used.c.direction == "used", needed.c.state != "present")
        )
        query = (
            select(edges.c.artifact_digest, runs.c.id, runs.c.timings, runs.c.finished_at - runs.c.started_at)
            .join(runs, runs.c.id == edges.c.run_id)
            .where(
                edges.c.artifact_digest.in_(digests),
                edges.c.direction == "generated",
                runs.c.state == "succeeded",
                runs.c.kind.in_(REPLAYABLE_KINDS),
                runs.c.key_parts.is_not(None),
                ~lacking,
            )
        )
        cheapest: dict[str, Recipe] = {}
        with self._database.glance() as connection:
            for digest, run_id, timings, elapsed in connection.execute(query):
                found = Recipe(digest, run_id, sum(timings.values()) if timings else float(elapsed or 0.0))
                if digest not in cheapest or found.seconds < cheapest[digest].seconds:
                    cheapest[digest] = found
        return list(cheapest.values())


def _page(policy: Policy, after: str, limit: int) -> FromClause:
    """The next rows in order of digest, each with the moment before which it counts as old."""
    query = (
        select(
            artifacts.c.digest,
            artifacts.c.kind,
            artifacts.c.size,
            artifacts.c.created_at,
            old_before(policy).label("old_before"),
        )
        .where(artifacts.c.state == "present", artifacts.c.digest > after)
        .where(artifacts.c.created_at < policy.newest)
        .order_by(artifacts.c.digest)
        .limit(limit)
    )
    if policy.kinds is not None:
        query = query.where(artifacts.c.kind.in_(policy.kinds))
    return query.subquery("page")
