"""A small home with rows and bytes, and ways to break it: each as a disk, a person or a crash might."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text

from mutoscope.platform.artifacts import ArtifactStore, layout
from mutoscope.platform.artifacts.backend import Facts
from mutoscope.platform.artifacts.components import put_component
from mutoscope.platform.catalog import Catalog, RunRecord
from mutoscope.platform.refs import ArtifactRef
from tests.support.records import CARD, a_spec, claim

OTHER = b"something else altogether"


def store_bytes(store: ArtifactStore, name: str, kind: str = "image") -> ArtifactRef:
    """Bytes that `name` decides, long enough to be cut."""
    return store.put(name.encode() * 64, kind=kind, media_type="application/octet-stream")


def overwrite(store: ArtifactStore, digest: str, data: bytes) -> None:
    """Put other bytes under an artifact's name, past every check."""
    store._backend.write(layout.object_name(digest), data, Facts("application/octet-stream"), replace=True)


def remove(store: ArtifactStore, digest: str) -> None:
    """Remove an object without a trace."""
    assert store._backend.remove(layout.object_name(digest))


def flip(store: ArtifactStore, digest: str) -> None:
    """Turn one bit round, in place: the size stays."""
    data = bytearray(store.get(digest))
    data[len(data) // 2] ^= 1
    overwrite(store, digest, bytes(data))


def execute(catalog: Catalog, statement: str, **values: object) -> None:
    """Change rows as another program might, foreign keys aside."""
    with catalog._database.engine.connect() as connection:
        if catalog._database.is_sqlite:
            connection.exec_driver_sql("commit")
            connection.exec_driver_sql("pragma foreign_keys = off")
            connection.exec_driver_sql("begin immediate")
        connection.execute(text(statement), values)
        connection.commit()
    catalog.close()


@dataclass(frozen=True)
class World:
    """Two engine runs, of which the second used the first's image; imported weights; a pin."""

    catalog: Catalog
    store: ArtifactStore
    first: RunRecord
    second: RunRecord
    image: ArtifactRef
    video: ArtifactRef
    weights: ArtifactRef
    member: ArtifactRef


def make_world(catalog: Catalog, store: ArtifactStore) -> World:
    """Everything in it is sound."""
    component = put_component(store, "net", {"config.json": b"{}", "net.bin": b"weights" * 99})
    members = {path: ref for path, ref in component.members.items() if isinstance(ref, ArtifactRef)}
    run = catalog.runs.record_completed(
        "import",
        card=CARD,
        parameters={"folder": "/weights/net"},
        generated={"weights:net": component.manifest},
        members={component.manifest.digest: component.members},
    )
    catalog.weights.publish_all(CARD, {"net": component.manifest.digest}, run.id)

    def ran(key: str, ref: ArtifactRef, **spec: object) -> RunRecord:
        wanted = a_spec(
            key, key_parts={"seed": 7, "name": key}, weights={"net": component.manifest.digest}, **spec
        )
        queued = catalog.runs.enqueue(wanted, present=store.contains).run
        claim(catalog)
        return catalog.runs.succeed(queued.id, "worker-a", {ref.kind: ref}, {})

    image, video = store_bytes(store, "image"), store_bytes(store, "video", "video")
    first = ran("first", image)
    second = ran("second", video, inputs={"image": image})
    return World(catalog, store, first, second, image, video, component.manifest, members["net.bin"])
