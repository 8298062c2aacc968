"""A made-up pool with something of everything: what its page, its metrics and its command show."""

from __future__ import annotations

from sqlalchemy import update

from mutoscope.platform.catalog import Catalog, WorkerInfo, weights_key
from mutoscope.platform.catalog.tables import runs, workers
from mutoscope.platform.ids import sha256
from tests.support.records import LEASE, an_artifact, queue

CARD, OTHER = "flux-t2i", "wan-i2v"
CONTRACT = sha256(b"numeric contract")
ALPHA, BETA = "019f0000-0000-7000-8000-0000aaaaaaaa", "019f0000-0000-7000-8000-0000bbbbbbbb"
GIB = 1 << 30
HOUR = 3600.0


def fill(catalog: Catalog) -> None:
    """Two workers, three runs of one card of which one runs and one has succeeded, and a paused card with one
    run."""
    pinned = {}
    for component in ("transformer", "vae"):
        ref = an_artifact(component, "weights")
        catalog.artifacts.record(ref)
        catalog.weights.publish(CARD, component, ref.digest)
        pinned[component] = ref.digest
    facts = {
        "resident": {str(weights_key(CARD, pinned)): pinned},
        "bytes": 24 * GIB,
        "running": 1,
        "finished": 5,
    }
    catalog.workers.register(
        WorkerInfo(ALPHA, "alpha", 11, "cuda:0", {CARD: facts}, "ready", memory_bytes=80 * GIB)
    )
    lacking = {"resident": {}, "trouble": "out of memory"}
    catalog.workers.register(WorkerInfo(BETA, "beta", 22, "cpu", {OTHER: lacking}, "draining"))
    catalog.workers.ask(BETA, load=[f"{CARD}/vae@1"])
    for n in range(3):
        queue(catalog, f"key {n}", card=CARD, weights=pinned, contract=CONTRACT)
    queue(catalog, "held", card=OTHER, contract=CONTRACT)
    catalog.queues.pause(OTHER, "bad <weights>")
    catalog.queues.limit(CARD, 2)
    first, _ = catalog.runs.claim(ALPHA, {CARD: CONTRACT}, LEASE, 2)
    catalog.runs.succeed(first.id, ALPHA, {"image": an_artifact("image")})
    _keep_fresh(catalog)


def _keep_fresh(catalog: Catalog) -> None:
    """Move what grows old, heartbeats and ended runs, an hour ahead: no test is that slow."""
    with catalog._database.write() as connection:
        connection.execute(update(workers).values(heartbeat_at=workers.c.heartbeat_at + HOUR))
        connection.execute(
            update(runs)
            .where(runs.c.finished_at.is_not(None))
            .values(started_at=runs.c.started_at + HOUR, finished_at=runs.c.finished_at + HOUR)
        )
