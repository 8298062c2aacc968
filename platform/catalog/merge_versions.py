"""Weight versions that arrive from another catalog, where numbers and aliases may mean something else.

- A version whose bytes have a name for that component here already keeps that name. One whose number is taken
  by other bytes gets the next free one, and says in its metrics what it was called (``origin``).
- Aliases stay where they are, but for one that the caller names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

from sqlalchemy import Connection, insert, select

from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.tables import weight_versions
from mutoscope.platform.catalog.transfer import Alias, parents_first
from mutoscope.platform.catalog.weights import (
    VERSION_COLUMNS,
    WeightVersion,
    move_alias,
    take_turns,
    to_version,
)
from mutoscope.platform.errors import CatalogError, UnknownReference


class ArrivingVersions:
    """The weight versions and aliases of one merge.

    Args:
        renamed: filled with the names that changed: the name there to the name here.
        moved: filled with the versions an alias points to now.
    """

    def __init__(
        self, database: Database, connection: Connection, renamed: dict[str, str], moved: list[str]
    ) -> None:
        self._database, self._connection = database, connection
        self._renamed, self._moved = renamed, moved
        self._here: dict[str, WeightVersion] = {}  # by id there

    def enter(self, found: Iterable[WeightVersion]) -> int:
        """Enter versions, each under the name it has here; returns how many are new.

        Raises:
            CatalogError: one is known here as other bytes, or of another component.
        """
        arriving = parents_first(list(found))
        for card in sorted({version.card for version in arriving}):
            take_turns(self._database, self._connection, card)
        before = self._versions_of({(version.card, version.component) for version in arriving})
        ids = {version.id: version for version in before}
        named = {(v.card, v.component, v.digest): v for v in reversed(before)}
        taken = {(v.card, v.component, v.ordinal) for v in before}
        fresh: list[WeightVersion] = []
        for version in arriving:
            here = ids.get(version.id) or named.get((version.card, version.component, version.digest))
            if here is None:
                here = self._settle(version, taken)
                taken.add((here.card, here.component, here.ordinal))
                fresh.append(here)
            elif (here.card, here.component, here.digest) != (
                version.card,
                version.component,
                version.digest,
            ):
                raise CatalogError(
                    f"version {version.id} is {here} here and {version} there: nothing was entered"
                )
            self._here[version.id] = here
            if str(here) != str(version):
                self._renamed[str(version)] = str(here)
        for version in fresh:
            row = asdict(version)
            row["artifact_digest"] = row.pop("digest")
            self._connection.execute(insert(weight_versions).values(**row))
        return len(fresh)

    def _settle(self, version: WeightVersion, taken: set[tuple[str, str, int]]) -> WeightVersion:
        """The version as it will be here: under its own number where that is free."""
        parent = self._here.get(version.parent_id) if version.parent_id else None
        settled = replace(version, parent_id=parent.id if parent else None)
        if (version.card, version.component, version.ordinal) not in taken:
            return settled
        numbers = [n for card, part, n in taken if (card, part) == (version.card, version.component)]
        metrics = {**(version.metrics or {}), "origin": str(version)}
        return replace(settled, ordinal=max(numbers) + 1, metrics=metrics)

    def _versions_of(self, components: set[tuple[str, str]]) -> list[WeightVersion]:
        """Every version of those components, oldest first."""
        found: list[WeightVersion] = []
        for card, component in sorted(components):
            query = (
                select(*VERSION_COLUMNS)
                .where(weight_versions.c.card == card, weight_versions.c.component == component)
                .order_by(weight_versions.c.ordinal)
            )
            found += [to_version(row) for row in self._connection.execute(query)]
        return found

    def move_alias(self, name: str, found: Iterable[Alias]) -> None:
        """Point the alias where it pointed at home, for each component that has it there.

        Raises:
            UnknownReference: none has.
            CatalogError: it points at a version that did not arrive.
        """
        arriving = list(found)
        wanted = [alias for alias in arriving if alias.name == name]
        if not wanted:
            known = ", ".join(sorted({alias.name for alias in arriving})) or "none"
            raise UnknownReference(f"no weights arrive under the alias {name!r}: there are {known}")
        for alias in wanted:
            target = self._here.get(alias.version_id)
            if target is None:
                raise CatalogError(f"alias {alias.name} of {alias.card}/{alias.component} leads nowhere")
            if move_alias(self._connection, name, target):
                self._moved.append(str(target))
