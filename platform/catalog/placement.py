"""Where a run fits: what its weights are called, and how large they are.

A worker that has a run's weights in memory starts it at once, another loads them first. The key names the
weights of one card as a whole, so that workers can say what they have and runs what they need in one word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import BindParameter, Connection, bindparam, func, select

from mutoscope.platform import ids
from mutoscope.platform.catalog.tables import artifacts, members

_DOMAIN = "mutoscope.placement/1"

_PINNED: BindParameter[str] = bindparam("pinned", expanding=True)
# A union, so that what two components share is counted once.
_HELD = (
    select(artifacts.c.digest)
    .where(artifacts.c.digest.in_(_PINNED))
    .union(select(members.c.artifact_digest).where(members.c.container.in_(_PINNED)))
)
_BYTES = select(func.coalesce(func.sum(artifacts.c.size), 0)).where(artifacts.c.digest.in_(_HELD))


def weights_key(card: str, weights: Mapping[str, str]) -> str | None:
    """What a card with these weights, component to digest, is called; None without weights."""
    return ids.digest(_DOMAIN, [card, dict(weights)]) if weights else None


def weights_bytes(connection: Connection, digests: Iterable[str]) -> int:
    """Bytes of the artifacts and of what containers among them hold."""
    return int(connection.execute(_BYTES, {"pinned": sorted(set(digests))}).scalar_one())
