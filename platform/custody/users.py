"""Which catalogs use a store.

A collector sees the rows of its own catalog. What another catalog that shares the store has recorded looks to
it like bytes without a reason. So each catalog leaves a small document in the store, ``users/<id>.json``, and
nothing is collected while one is registered that the collector was not shown.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from mutoscope.platform.artifacts import ArtifactStore, layout
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.tie import tie
from mutoscope.platform.errors import InvalidInput, StoreUnwritable, UnknownReference

_JSON = "application/json"


class SharedStore(InvalidInput):
    """Other catalogs use the store, and the collector cannot see what they need."""


@dataclass(frozen=True, slots=True)
class StoreUser:
    """A catalog that uses the store. `url` holds no password; `host` is where it registered from."""

    id: str
    url: str
    host: str

    def __str__(self) -> str:
        return f"{self.url} on {self.host} ({self.id[:8]})"


def register(catalog: Catalog, store: ArtifactStore) -> None:
    """Leave the catalog's name in the store, unless it is there. One look-up when it is.

    A store that cannot be written is left alone: a catalog that can put nothing there has nothing to lose.

    Raises:
        OtherStore: the catalog's bytes are kept elsewhere.
    """
    tie(catalog, store)
    if store.published(_path(catalog.identity())) is None:
        try:
            announce(catalog, store)
        except StoreUnwritable:
            return


def announce(catalog: Catalog, store: ArtifactStore) -> float:
    """Write the document (again); returns the time by the store's clock, in seconds since the epoch.

    Raises:
        StoreUnwritable: the store refuses.
    """
    path = _path(catalog.identity())
    document = {"id": catalog.identity(), "url": catalog.url, "host": socket.gethostname()}
    store.publish(path, json.dumps(document, indent=1).encode(), _JSON)
    written = store.published_at(path)
    if written is None:
        raise StoreUnwritable(f"{path} vanished from {store.root_url} as it was written: try again")
    return written


def users(store: ArtifactStore) -> list[StoreUser]:
    """Every catalog that is registered, by id."""
    found = []
    for path in sorted(store.pages(layout.USERS)):
        data = store.published(path)
        id_ = path.removeprefix(f"{layout.USERS}/").removesuffix(".json")
        try:
            document = json.loads(data or b"{}")
            found.append(StoreUser(id_, str(document["url"]), str(document["host"])))
        except (ValueError, KeyError, TypeError):
            # Unreadable is no permission to collect what it stands for.
            found.append(StoreUser(id_, "a catalog that cannot be told", "an unknown host"))
    return found


def forget(store: ArtifactStore, prefix: str) -> StoreUser:
    """Remove a catalog that is gone for good. Raises UnknownReference when none, or several, are meant."""
    matching = [user for user in users(store) if prefix and user.id.startswith(prefix)]
    if len(matching) != 1:
        raise UnknownReference(
            f"{len(matching)} catalogs registered in {store.root_url} begin with {prefix!r}: give more digits"
        )
    store.unpublish(_path(matching[0].id))
    return matching[0]


def require_all(store: ArtifactStore, shown: Sequence[Catalog]) -> None:
    """Raise SharedStore unless every registered catalog is among those shown."""
    known = {catalog.identity() for catalog in shown}
    strangers = [user for user in users(store) if user.id not in known]
    if strangers:
        listed = ", ".join(map(str, strangers))
        raise SharedStore(
            f"the store {store.root_url} is also used by {listed}: give each with --also URL, or, if it "
            "is gone for good, drop it with --forget ID"
        )


def _path(id_: str) -> str:
    return f"{layout.USERS}/{id_}.json"
