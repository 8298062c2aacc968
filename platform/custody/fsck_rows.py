"""Rows against rows, and against the manifests of weights: what cannot be true together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.manifest import iter_members, manifest_in
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.contradictions import Anomaly
from mutoscope.platform.custody.fsck_findings import Finding, finding
from mutoscope.platform.errors import ArtifactCorrupt, ArtifactMissing
from mutoscope.platform.refs import SHOWN_DIGITS


def database_findings(catalog: Catalog, *, deep: bool) -> Iterator[Finding]:
    """The database itself, before anything is read from it in earnest."""
    facts = catalog.contradictions
    yield from _each("wrong-schema", facts.schema_differences())
    if deep:
        yield from _each("damaged-catalog", facts.damaged_pages())
    yield from _each("broken-reference", facts.broken_references())


def manifest_findings(catalog: Catalog, store: ArtifactStore) -> Iterator[Finding]:
    """Weights whose manifest and record disagree. Reads every manifest, which are small."""
    for digest in catalog.audit.containers():
        subject = f"weights:{digest[:SHOWN_DIGITS]}"
        if not store.contains(digest):
            continue  # found from its row; a read would bring it back from the trash
        try:
            wanted = listed_members(store, digest)
        except ArtifactMissing:
            continue  # collected meanwhile
        except ArtifactCorrupt as error:
            if store.verify(digest) == "sound":  # else found from its bytes
                yield finding("unreadable-manifest", subject, digest, detail=str(error))
            continue
        recorded = catalog.audit.members(digest)
        if wanted is not None and wanted != recorded:
            yield finding("wrong-members", subject, digest, detail=_difference(wanted, recorded))


def row_findings(catalog: Catalog) -> Iterator[Finding]:
    """Rows that contradict each other."""
    facts = catalog.contradictions
    questions: tuple[tuple[str, Callable[[], list[Anomaly]]], ...] = (
        ("incomplete-weights", facts.incomplete_containers),
        ("dead-alias", facts.dead_aliases),
        ("dead-pin", facts.dead_pins),
        ("no-outputs", facts.runs_without_outputs),
        ("unfinished-outputs", facts.unfinished_with_outputs),
        ("impossible-run", facts.impossible_runs),
    )
    for code, question in questions:
        for one in _each(code, question()):
            yield _named(catalog, one) if code == "incomplete-weights" else one


def listed_members(store: ArtifactStore, digest: str) -> dict[str, str] | None:
    """Path to digest of what a manifest lists; None for an artifact that is no manifest.

    Raises:
        ArtifactMissing, ArtifactCorrupt: its bytes are gone or damaged, or not a manifest that we can read.
    """
    manifest = manifest_in(store.get(digest))
    return None if manifest is None else {member.path: member.digest for member in iter_members(manifest)}


def _named(catalog: Catalog, one: Finding) -> Finding:
    """The finding under the version's name, where the weights have one."""
    versions = catalog.weights.versions_of_digest(one.digest) if one.digest else []
    return replace(one, subject=str(versions[-1])) if versions else one


def _each(code: str, anomalies: list[Anomaly]) -> Iterator[Finding]:
    return (finding(code, one.subject, one.digest, detail=one.detail) for one in anomalies)


def _difference(wanted: dict[str, str], recorded: dict[str, str]) -> str:
    missing, spare = len(wanted.keys() - recorded.keys()), len(recorded.keys() - wanted.keys())
    other = sum(recorded[path] != digest for path, digest in wanted.items() if path in recorded)
    parts = ((missing, "not recorded"), (spare, "recorded and not listed"), (other, "recorded as others"))
    return ", ".join(f"{count} {what}" for count, what in parts if count)
