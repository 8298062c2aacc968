"""One catalog, one store: the tie is made when the two first meet, and another store is refused ever after.

Two hosts that share a database but write to different stores would each record bytes that the other cannot
read; every run that uses them would fail, or be computed again, long after the mistake. So each process that
opens both asks first.
"""

from __future__ import annotations

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.identity import BoundStore
from mutoscope.platform.errors import InvalidInput, StoreUnwritable
from mutoscope.platform.ids import new_id

_SAMPLE = 50
"""How many of the newest artifacts are looked for where nothing else tells that the two belong together."""


class OtherStore(InvalidInput):
    """The catalog's bytes are in another store than the one configured."""


def tie(catalog: Catalog, store: ArtifactStore) -> None:
    """Bind the two at their first meeting. Two small questions when they are bound already.

    Raises:
        OtherStore: the catalog belongs to another store.
    """
    bound, found = catalog.store(), store.marker()
    if bound is None or found is None:
        if not _belong_together(catalog, store, bound):
            raise _refusal(catalog, store, bound)
        try:
            found = found or store.mark(bound.id if bound else new_id())
        except StoreUnwritable:
            return  # who may only read cannot record bytes in the wrong place
        bound = bound or catalog.bind_store(BoundStore(found, store.root_url))
    if bound.id != found:
        raise _refusal(catalog, store, bound)


def _belong_together(catalog: Catalog, store: ArtifactStore, bound: BoundStore | None) -> bool:
    """Whether the bytes themselves say so: a catalog from before the tie, or a store that lost its marker.

    A catalog without artifacts fits any store, unless it has met one.
    """
    recorded = catalog.artifacts.list(limit=_SAMPLE)
    if not recorded:
        return bound is None
    return any(store.contains(ref.digest) for ref in recorded)


def _refusal(catalog: Catalog, store: ArtifactStore, bound: BoundStore | None) -> OtherStore:
    if bound is None:
        return OtherStore(
            f"the store {store.root_url} holds none of the newest artifacts of the catalog {catalog.url}: "
            "set MUTOSCOPE_STORE_URL to the store that does"
        )
    return OtherStore(
        f"the catalog {catalog.url} keeps its bytes in another store than {store.root_url}: set "
        f"MUTOSCOPE_STORE_URL to the one that was {bound.url} (id {bound.id}); if it has moved here, its "
        "store.json must move along"
    )
