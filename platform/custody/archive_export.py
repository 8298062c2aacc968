"""Export: the closure of what was asked for, rows and bytes, as one tar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from mutoscope.platform import faults
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog, RunRecord, WorkflowRecord
from mutoscope.platform.catalog.transfer import Extract, KnownArtifact
from mutoscope.platform.catalog.transfer_keys import Roots
from mutoscope.platform.custody.archive_format import (
    MANIFEST,
    README,
    README_TEXT,
    TABLES,
    ArtifactLine,
    BytesState,
    Manifest,
    Root,
    row_line,
)
from mutoscope.platform.custody.archive_reader import Progress
from mutoscope.platform.custody.archive_writer import ArchiveWriter, spool, writing_archive
from mutoscope.platform.errors import ArtifactCorrupt, InvalidInput
from mutoscope.platform.refs import ArtifactRef

Bytes = Literal["all", "without_weights", "none"]


@dataclass(frozen=True, slots=True)
class Exported:
    """An archive that was written; `size` and those of the manifest are bytes."""

    path: Path
    size: int
    manifest: Manifest


def find_root(catalog: Catalog, name: str) -> Root:
    """What a reference names: an artifact (``video:3fa9``), a weight version (``flux-t2i/transformer@live``),
    or the beginning of a run's or workflow run's id.

    Raises:
        UnknownReference, AmbiguousReference: nothing goes by that name, or several do.
    """
    match catalog.find(name):
        case RunRecord() as run:
            return Root("run", run.id, run.id)
        case WorkflowRecord() as workflow_run:
            return Root("workflow_run", workflow_run.id, workflow_run.id)
        case artifact:
            return Root("artifact", str(artifact), artifact.digest)


def export_archive(
    catalog: Catalog,
    store: ArtifactStore,
    names: Sequence[str],
    path: Path,
    *,
    include: Bytes = "all",
    progress: Progress = lambda done, total: None,
) -> Exported:
    """Write what `names` name, and all it came from, to `path`. Memory holds the keys of the closure and one
    chunk of bytes; what is exported cannot be collected meanwhile.

    Args:
        include: which bytes; rows go in any case.

    Raises:
        UnknownReference, AmbiguousReference: see `find_root`.
        InvalidInput: a root has not ended, or its bytes were collected.
        ArtifactMissing, ArtifactCorrupt: bytes that should be there are not, or are not what they should be.
        InvalidParameter: `path` cannot be written.
    """
    roots = tuple(sorted({find_root(catalog, name) for name in names}, key=lambda root: root.key))
    _refuse_unfinished(catalog, roots)
    with ExitStack() as stack:
        tables, chosen, manifest = stack.enter_context(_gathered(catalog, roots, include))
        reading = catalog.leases.reading([line.digest for line in chosen], f"export to {path.name}")
        stack.enter_context(reading)
        with writing_archive(path) as writer:
            writer.add(MANIFEST, manifest.to_bytes())
            writer.add(README, README_TEXT.encode())
            for table, rows in tables.items():
                writer.add(f"rows/{table}.jsonl", rows.file, rows.size)
            _add_objects(writer, store, chosen, manifest.object_bytes, progress)
            for name, digest in _output_names(catalog, roots, {line.digest for line in chosen}).items():
                writer.link(name, _object_name(digest))
    return Exported(path, path.stat().st_size, manifest)


@dataclass(frozen=True, slots=True)
class _Table:
    file: BinaryIO
    size: int
    count: int


@contextmanager
def _gathered(
    catalog: Catalog, roots: tuple[Root, ...], include: Bytes
) -> Iterator[tuple[Mapping[str, _Table], Sequence[ArtifactLine], Manifest]]:
    """Every table as lines, the artifacts whose bytes go along, and the manifest: as of one moment."""
    with ExitStack() as stack:
        tables: dict[str, _Table] = {}
        chosen: list[ArtifactLine] = []
        absent = {"left_out": 0, "collected": 0}
        with catalog.transfer.extract(_keys(roots)) as extract:
            judge = _judge(extract, include)

            def artifact_lines() -> Iterator[ArtifactLine]:
                for known in extract.artifacts():
                    line = _line(known, judge(known))
                    if line.bytes == "archived":
                        chosen.append(line)
                    else:
                        absent[line.bytes] += 1
                    yield line

            for table in TABLES:
                lines = artifact_lines() if table == "artifacts" else getattr(extract, table)()
                tables[table] = _spooled(stack, lines)
        gone = [root for root in roots if root.kind == "artifact" and _is_gone(catalog, root)]
        if gone and include != "none":
            raise InvalidInput(
                f"{gone[0].name} was collected, its bytes are gone: make them again with "
                f"`mutoscope replay {gone[0].name}`, or export its record alone with --rows-only"
            )
        yield (
            tables,
            chosen,
            Manifest(
                roots=roots,
                rows={table: rows.count for table, rows in tables.items()},
                objects=len(chosen),
                object_bytes=sum(line.size for line in chosen),
                left_out=absent["left_out"],
                collected=absent["collected"],
            ),
        )


def _judge(extract: Extract, include: Bytes) -> Callable[[KnownArtifact], BytesState]:
    def judge(known: KnownArtifact) -> BytesState:
        if known.collected_at is not None:
            return "collected"
        weights = known.ref.digest in extract.closure.weights
        return "left_out" if include == "none" or (include == "without_weights" and weights) else "archived"

    return judge


def _line(known: KnownArtifact, state: BytesState) -> ArtifactLine:
    ref = known.ref
    return ArtifactLine(
        ref.digest, ref.kind, ref.media_type, ref.size, dict(ref.meta), known.created_at, state
    )


def _spooled(stack: ExitStack, rows: Iterator[object]) -> _Table:
    """Rows as lines in a file of their own: a tar wants to know the size first."""
    file = stack.enter_context(spool())
    count = 0
    for row in rows:
        file.write(row_line(row))
        count += 1
    size = file.tell()
    file.seek(0)
    return _Table(file, size, count)


def _add_objects(
    writer: ArchiveWriter,
    store: ArtifactStore,
    chosen: Sequence[ArtifactLine],
    total: int,
    progress: Progress,
) -> None:
    done = 0
    for line in chosen:
        with store.open_read(line.digest) as source:
            size = store.size(line.digest)
            if size != line.size:
                raise ArtifactCorrupt(
                    f"artifact {line.digest[:12]} has {size} bytes in the store instead of {line.size}: "
                    "check it with `mutoscope fsck`"
                )
            writer.add(_object_name(line.digest), source, line.size)
        faults.hit("export.object")
        done += line.size
        progress(done, total)


def _output_names(catalog: Catalog, roots: Sequence[Root], archived: set[str]) -> dict[str, str]:
    """Names for what was asked for: the root artifacts, and what root runs and workflow runs made."""
    wanted: list[ArtifactRef | None] = []
    for root in roots:
        match root.kind:
            case "artifact":
                wanted.append(catalog.artifacts.get(root.key))
            case "run":
                wanted += catalog.runs.outputs(root.key).values()
            case "workflow_run":
                outputs = (catalog.workflows.get(root.key).outputs or {}).values()
                wanted += [catalog.artifacts.get(digest) for digest in outputs]
    named = {f"outputs/{ref.file_name}": ref.digest for ref in wanted if ref and ref.digest in archived}
    return dict(sorted(named.items()))


def _keys(roots: Sequence[Root]) -> Roots:
    keys = {
        kind: frozenset(r.key for r in roots if r.kind == kind)
        for kind in ("artifact", "run", "workflow_run")
    }
    return Roots(keys["artifact"], keys["run"], keys["workflow_run"])


def _refuse_unfinished(catalog: Catalog, roots: Sequence[Root]) -> None:
    for root in roots:
        if root.kind == "artifact":
            continue
        state = (catalog.runs if root.kind == "run" else catalog.workflows).get(root.key).state
        if state in ("queued", "running"):
            raise InvalidInput(f"{root.name} is still {state}: export it when it has ended")


def _is_gone(catalog: Catalog, root: Root) -> bool:
    return catalog.artifacts.state(root.key) != "present"


def _object_name(digest: str) -> str:
    return f"objects/{digest[:2]}/{digest}"
