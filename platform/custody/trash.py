"""The trash as people see it: what lies there, for how long still, and how it comes back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mutoscope.platform.artifacts import ArtifactRef, ArtifactStore
from mutoscope.platform.batches import batched
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.collect import BATCH
from mutoscope.platform.errors import ArtifactMissing


@dataclass(frozen=True, slots=True)
class Trashed:
    """Something in the trash. `ref` is None for bytes without a row; `since` is seconds since the epoch, by
    the store's clock."""

    digest: str
    size: int
    since: float
    ref: ArtifactRef | None


def contents(catalog: Catalog, store: ArtifactStore) -> Iterator[Trashed]:
    """What lies in the trash, in no particular order."""
    for batch in batched(store.trashed(), BATCH):
        refs = catalog.tombstones.references([item.digest for item in batch])
        for item in batch:
            yield Trashed(item.digest, item.size, item.modified, refs.get(item.digest))


def restore(catalog: Catalog, store: ArtifactStore, digest: str) -> Sequence[ArtifactRef]:
    """Bring a collected artifact back, and what it cannot be read without; returns what came back.

    Nothing changes for one that was not collected.

    Raises:
        ArtifactMissing: its bytes, or those of a member, were removed for good; members that could be were
            brought back.
    """
    wanted = catalog.tombstones.with_members(digest)
    back = []
    # Members first: a container that is there can be read.
    for ref in reversed(wanted):
        was_trashed = store.restore(ref.digest)
        if not was_trashed and not store.contains(ref.digest):
            raise ArtifactMissing(
                f"{ref} was removed for good: replay the run that made it; `mutoscope lineage {ref}` names it"
            )
        if catalog.tombstones.revive(ref.digest) or was_trashed:
            back.append(ref)
    return back[::-1]
