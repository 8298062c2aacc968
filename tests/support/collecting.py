"""A catalog and a store together, whose artifacts are as old as a test wants them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.collections import CollectionRecord
from mutoscope.platform.catalog.tables import artifacts, calls, edges, runs
from mutoscope.platform.custody.collect import Collector
from mutoscope.platform.refs import ArtifactRef

DAY = 86_400.0


@dataclass(frozen=True)
class Holdings:
    """Rows and bytes, made through the interfaces that flows and workers use."""

    catalog: Catalog
    store: ArtifactStore

    def put(self, name: str, kind: str = "latent") -> ArtifactRef:
        """Bytes without a row."""
        return self.store.put(name.encode() * 10, kind=kind, media_type="application/octet-stream")

    def make(
        self,
        name: str,
        kind: str = "latent",
        *,
        age: float = 0.0,
        used: Iterable[ArtifactRef] = (),
        workflow: str | None = None,
        members: Mapping[str, ArtifactRef] | None = None,
    ) -> ArtifactRef:
        """An artifact that a finished run made, `age` seconds ago."""
        ref = self.put(name, kind)
        within = None
        if workflow is not None:
            within = self.catalog.workflows.start(workflow, {})
            self.catalog.workflows.finish(within, "succeeded", outputs={"made": ref})
        more: dict[str, Any] = {} if members is None else {"members": {ref.digest: members}}
        self.catalog.runs.record_completed(
            "engine",
            card="toy-card",
            generated={"made": ref},
            used={f"input{n}": one for n, one in enumerate(used)},
            workflow_run_id=within,
            **more,
        )
        if age:
            self.age(ref, age)
        return ref

    def age(self, ref: ArtifactRef, seconds: float) -> None:
        """The artifact, and the runs that made it with their calls, happened that much earlier."""
        made = select(edges.c.run_id).where(
            edges.c.artifact_digest == ref.digest, edges.c.direction == "generated"
        )
        with self.catalog._database.write() as connection:
            connection.execute(
                update(artifacts)
                .where(artifacts.c.digest == ref.digest)
                .values(created_at=artifacts.c.created_at - seconds)
            )
            connection.execute(
                update(runs)
                .where(runs.c.id.in_(made))
                .values(
                    created_at=runs.c.created_at - seconds,
                    started_at=runs.c.started_at - seconds,
                    finished_at=runs.c.finished_at - seconds,
                )
            )
            connection.execute(
                update(calls).where(calls.c.run_id.in_(made)).values(created_at=calls.c.created_at - seconds)
            )

    def collect(self, grace: float = 0.0, **options: Any) -> CollectionRecord:
        return Collector(self.catalog, self.store, **options).collect(grace)

    def states(self, *refs: ArtifactRef) -> list[str | None]:
        """Each one's row, and its bytes: "present", "tombstone", or what is wrong."""
        found = []
        trashed = {item.digest for item in self.store.trashed()}
        for ref in refs:
            state = self.catalog.artifacts.state(ref.digest)
            has = self.store.contains(ref.digest)
            if (state == "present") != has:
                state = f"{state}, bytes {'there' if has else 'not there'}"
            elif ref.digest in trashed:
                state = f"{state}, in the trash"
            found.append(state)
        return found
