"""Homes with a small history in them, and archives taken apart and put together again."""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import os
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.transfer_keys import Roots
from mutoscope.platform.custody.archive_export import export_archive
from mutoscope.platform.custody.archive_import import import_archive
from mutoscope.platform.ids import sha256
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.submit import submit_run
from mutoscope.platform.refs import ArtifactRef
from tests.orchestration.conftest import RECIPE
from tests.support import forked  # noqa: F401  # sets up what the one fork server of a test process imports
from tests.support.fake_worker import FakeWorker, publish_weights
from tests.support.tinycard.card import CARD

CARD_ID = "tiny-test"


@dataclass(frozen=True)
class History:
    """What `make_history` left in a home: a picture made from a picture, within a workflow run."""

    first: ArtifactRef
    picture: ArtifactRef
    workflow_run: str


def make_history(runtime: Runtime) -> History:
    """Weights, two runs of which the second uses the first's picture, and the workflow run around them."""
    publish_weights(runtime, CARD, RECIPE)
    workflows = runtime.catalog.workflows
    run_id = workflows.start("test.paint", {"prompt": "a red circle", "seed": 1})
    with FakeWorker(runtime, (CARD_ID,)).serving():
        first = asyncio.run(submit_run(CARD_ID, seed=1)).outputs["image"]
        outputs = asyncio.run(submit_run(CARD_ID, seed=2, image=first)).outputs
    workflows.finish(run_id, "succeeded", outputs={"image": outputs["image"]})
    return History(first, outputs["image"], run_id)


def archive_of(runtime: Runtime, path: Path, *names: object, **options: Any) -> Path:
    """An export, as a path."""
    return export_archive(runtime.catalog, runtime.store, [str(name) for name in names], path, **options).path


def everything(catalog: Catalog) -> dict[str, list[object]]:
    """Every row a transfer can carry, by table: what two catalogs are compared by."""
    roots = Roots(
        frozenset(ref.digest for ref in catalog.artifacts.list(limit=10_000)),
        frozenset(run.id for run in catalog.runs.list(limit=10_000)),
        frozenset(run.id for run in catalog.workflows.list(limit=10_000)),
    )
    with catalog.transfer.extract(roots) as extract:
        rows: dict[str, list[object]] = {
            "artifacts": list(extract.artifacts()),
            "members": list(extract.members()),
            "workflow_runs": list(extract.workflow_runs()),
            "runs": list(extract.runs()),
            "edges": list(extract.edges()),
            # A call's number is the database's own.
            "calls": [replace(call, id=0) for call in extract.calls()],
            "weight_versions": list(extract.weight_versions()),
            "incidents": list(extract.incidents()),
        }
    return rows


Edit = Callable[[tarfile.TarInfo, bytes], Iterable[tuple[tarfile.TarInfo, bytes]]]


def edited(archive: Path, target: Path, edit: Edit) -> Path:
    """A copy of an archive in which each member is replaced by what `edit` makes of it."""
    with tarfile.open(archive) as source, tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as copy:
        for info in source:
            stream = source.extractfile(info) if info.isreg() else None
            for member, data in edit(info, stream.read() if stream else b""):
                if member.isreg():
                    member.size = len(data)
                copy.addfile(member, io.BytesIO(data))
    return target


def with_sums(archive: Path, target: Path) -> Path:
    """A copy whose checksums are right for what it holds: only what it says is wrong with it."""
    sums: list[str] = []

    def edit(info: tarfile.TarInfo, data: bytes) -> Iterable[tuple[tarfile.TarInfo, bytes]]:
        if info.name == "SHA256SUMS":
            yield info, "".join(sums).encode()
            return
        if info.isreg():
            sums.append(f"{sha256(data)}  {info.name}\n")
        yield info, data

    return edited(archive, target, edit)


def in_a_process(
    work: Callable[..., Any], *arguments: str, fault: str = "", marker: Path | None = None
) -> int | None:
    """Do it in a process of its own, with a fault armed; its exit code."""
    environment = {"MUTOSCOPE_FAULT": fault, "MUTOSCOPE_FAULT_MARKER": str(marker)} if fault else {}
    process = multiprocessing.get_context("forkserver").Process(
        target=_work, args=(work, arguments, dict(os.environ) | environment)
    )
    process.start()
    process.join()
    return process.exitcode


def _work(work: Callable[..., Any], arguments: tuple[str, ...], environment: dict[str, str]) -> None:
    os.environ.update(environment)
    work(*arguments)


def bring_in(catalog_url: str, store_url: str, archive: str) -> None:
    """Import, by URLs."""
    import_archive(Catalog.open(catalog_url), ArtifactStore.open(store_url), Path(archive))


def write_out(catalog_url: str, store_url: str, name: str, archive: str) -> None:
    """Export, by URLs."""
    export_archive(Catalog.open(catalog_url), ArtifactStore.open(store_url), [name], Path(archive))
