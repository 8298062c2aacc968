"""Pins: artifacts that somebody wants kept, under a name that says why."""

from __future__ import annotations

import builtins
import re
from dataclasses import dataclass

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import IntegrityError

from mutoscope.platform.catalog.artifacts import REF_COLUMNS, to_ref
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.tables import artifacts, pins
from mutoscope.platform.errors import InvalidParameter, UnknownReference
from mutoscope.platform.ids import new_id
from mutoscope.platform.refs import ArtifactRef

_NAME = re.compile(r"[\w.-]{1,128}")
_MAX_NOTE = 255


@dataclass(frozen=True, slots=True)
class Pin:
    """A named root. `with_inputs`: everything the artifact came from is kept too. `created_at`: seconds since
    the epoch."""

    name: str
    artifact: ArtifactRef
    with_inputs: bool
    note: str | None
    created_at: float


class Pins:
    """`catalog.pins`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, digest: str, name: str, *, with_inputs: bool = False, note: str | None = None) -> Pin:
        """Keep an artifact until the pin is removed.

        Raises:
            InvalidParameter: the name is taken or cannot be used, or the artifact's bytes were collected.
            UnknownReference: the catalog does not know the digest.
        """
        check_name("name", name)
        if note is not None and len(note) > _MAX_NOTE:
            raise InvalidParameter("note", note, f"use at most {_MAX_NOTE} characters")
        try:
            with self._database.write() as connection:
                # Locked: a collection that is about to take it waits, and then sees the pin.
                known = select(artifacts.c.state).where(artifacts.c.digest == digest).with_for_update()
                state = connection.execute(known).scalar_one_or_none()
                if state is None:
                    raise UnknownReference(f"the catalog knows no artifact {digest[:12]}: record it first")
                if state != "present":
                    raise InvalidParameter(
                        "artifact",
                        digest[:12],
                        "it was collected: `mutoscope trash restore` brings it back while it is in the trash",
                    )
                values = {"artifact_digest": digest, "with_inputs": with_inputs, "note": note}
                connection.execute(insert(pins).values(id=new_id(), name=name, created_at=now(), **values))
        except IntegrityError:
            raise InvalidParameter(
                "name", name, f"a pin of that name keeps {self.get(name).artifact}: unpin it or use another"
            ) from None
        return self.get(name)

    def remove(self, name: str) -> Pin:
        """Let go. Raises UnknownReference when there is no such pin."""
        pin = self.get(name)
        with self._database.write() as connection:
            connection.execute(delete(pins).where(pins.c.name == name))
        return pin

    def get(self, name: str) -> Pin:
        """The pin of that name. Raises UnknownReference."""
        found = self._select(pins.c.name == name)
        if not found:
            raise UnknownReference(f"no pin is named {name!r}: `mutoscope pins` lists them")
        return found[0]

    def list(self) -> builtins.list[Pin]:
        """All of them, by name."""
        return self._select()

    def _select(self, *conditions: object) -> builtins.list[Pin]:
        query = (
            select(pins.c.name, pins.c.with_inputs, pins.c.note, pins.c.created_at, *REF_COLUMNS)
            .join(artifacts, artifacts.c.digest == pins.c.artifact_digest)
            .where(*conditions)  # type: ignore[arg-type]
            .order_by(pins.c.name)
        )
        with self._database.glance() as connection:
            return [
                Pin(row.name, to_ref(row), row.with_inputs, row.note, row.created_at)
                for row in connection.execute(query)
            ]


def check_name(field: str, name: str) -> None:
    """Raise InvalidParameter unless the text can name a pin or a rule."""
    if not _NAME.fullmatch(name):
        raise InvalidParameter(field, name, "use 1 to 128 letters, digits, dots, dashes and underscores")
