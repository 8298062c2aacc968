"""What each page shows, gathered from the catalog into plain records that the templates only lay out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mutoscope.platform.catalog import Catalog, RunRecord, WeightUse, WorkflowRecord
from mutoscope.platform.catalog.weights import name_for
from mutoscope.platform.custody.tree import GENERATIONS, ArtifactLeaf, build_tree
from mutoscope.platform.durations import spell_duration
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.wording import several

SHEET_ITEMS = 24
SHOWN_KINDS = ("image", "video", "audio")
"""Artifacts that a sheet has a picture of."""
_RECENT_RUNS = 2 * SHEET_ITEMS
_COUNTED = 2_000
"""Runs and artifacts downstream that a page counts, some ten milliseconds' worth."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A picture on a contact sheet, with the words it was made from if it was made from words."""

    ref: ArtifactRef
    caption: str


@dataclass(frozen=True, slots=True)
class ArtifactView:
    """An artifact's page."""

    ref: ArtifactRef
    present: bool
    run: RunRecord | None
    facts: Mapping[str, Any]
    tree: ArtifactLeaf
    siblings: Mapping[str, ArtifactRef]
    used_for: tuple[Tile, ...]
    weights: Mapping[str, WeightUse]
    impact: str


@dataclass(frozen=True, slots=True)
class RunView:
    """A run's page."""

    run: RunRecord
    inputs: Mapping[str, ArtifactRef]
    weights: Mapping[str, str]
    outputs: Mapping[str, ArtifactRef]
    workflow: WorkflowRecord | None


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """A workflow run's page. `answers`: run id to how the memo answered: ``new``, ``attached`` or ``hit``."""

    record: WorkflowRecord
    outputs: Mapping[str, ArtifactRef]
    runs: tuple[RunRecord, ...]
    answers: Mapping[str, str]
    children: tuple[WorkflowRecord, ...]


@dataclass(frozen=True, slots=True)
class SheetView:
    """The front page."""

    tiles: tuple[Tile, ...]
    workflows: tuple[WorkflowRecord, ...]


def sheet(catalog: Catalog) -> SheetView:
    """The newest pictures, videos and sounds, and the newest workflow runs."""
    tiles: dict[str, Tile] = {}
    for record in catalog.runs.list(state="succeeded", limit=_RECENT_RUNS):
        for ref in catalog.runs.outputs(record.id).values():
            if ref.kind in SHOWN_KINDS:
                tiles.setdefault(ref.digest, Tile(ref, prompt_of(record)))
    return SheetView(tuple(tiles.values())[:SHEET_ITEMS], tuple(catalog.workflows.list(limit=SHEET_ITEMS)))


def artifact(catalog: Catalog, digest: str) -> ArtifactView:
    """Raises UnknownReference."""
    # Weights end the tree: what trained them, thousands of samples perhaps, is on their own page.
    graph = catalog.lineage.up(digest, GENERATIONS, history=False)
    node = graph.artifacts[digest]
    run = next(iter(catalog.runs.generated_by(digest)), None)
    siblings = catalog.runs.outputs(run.id) if run is not None and run.replayable else {}
    return ArtifactView(
        ref=node.ref,
        present=node.present,
        run=run,
        facts=node.ref.meta,
        tree=build_tree(graph),
        siblings={name: ref for name, ref in siblings.items() if ref.digest != digest},
        used_for=_used_for(catalog, digest),
        weights=_weights(catalog, digest),
        impact=_impact(catalog, digest),
    )


def _weights(catalog: Catalog, digest: str) -> dict[str, WeightUse]:
    """The weights that made it, through all its inputs, by card and component."""
    uses = catalog.lineage.weights_of(digest, GENERATIONS)
    return {f"{use.card} {use.component}": use for use in reversed(uses)}


def _impact(catalog: Catalog, digest: str) -> str:
    """How much came of it, in words; empty for nothing. Stops counting early: a page answers at once."""
    found = catalog.lineage.closure(digest, down=True, containers=True, limit=_COUNTED)
    if not found.complete:
        return f"more than {_COUNTED:,} runs and artifacts"
    made = len(found.artifacts) - 1
    return f"{several(made, 'artifact')}, by {several(len(found.runs), 'run')}," if found.runs else ""


def _used_for(catalog: Catalog, digest: str) -> tuple[Tile, ...]:
    """The newest pictures, videos and sounds that runs made directly from an artifact, weights included."""
    page = catalog.lineage.made(digest, kinds=SHOWN_KINDS, limit=SHEET_ITEMS)
    runs = catalog.runs.get_many({making.run_id for making in page.makings})
    return tuple(Tile(making.ref, prompt_of(runs[making.run_id])) for making in page.makings)


def run(catalog: Catalog, run_id: str) -> RunView:
    """Raises UnknownReference."""
    record = catalog.runs.find(run_id)
    owner = catalog.workflows.get(record.workflow_run_id) if record.workflow_run_id else None
    return RunView(
        run=record,
        inputs=catalog.runs.inputs(record.id),
        weights=catalog.runs.weights(record.id),
        outputs=catalog.runs.outputs(record.id),
        workflow=owner,
    )


def workflow(catalog: Catalog, run_id: str) -> WorkflowView:
    """Raises UnknownReference."""
    record = catalog.workflows.find(run_id)
    found = {name: catalog.artifacts.get(digest) for name, digest in (record.outputs or {}).items()}
    asked = catalog.calls.asked(record.id)
    runs = catalog.runs.get_many(asked)
    return WorkflowView(
        record=record,
        outputs={name: ref for name, ref in found.items() if ref is not None},
        runs=tuple(runs[id_] for id_ in asked),
        answers=asked,
        children=tuple(reversed(catalog.workflows.list(parent_id=record.id, limit=500))),
    )


def weight_names(catalog: Catalog, view: RunView) -> dict[str, str]:
    """Component to what people call the version that the run was pinned to."""
    return {
        component: name_for(view.run.card, digest, catalog.weights.versions_of_digest(digest))
        for component, digest in view.weights.items()
    }


def prompt_of(run: RunRecord | None) -> str:
    """The words a run was given, if it was given words."""
    return str(run.parameters.get("prompt") or "") if run is not None else ""


def duration(seconds: float | None) -> str:
    """A length of time in its largest unit; nothing where there is none."""
    return "" if seconds is None else spell_duration(seconds)


def asked(wanted: Mapping[str, Any]) -> str:
    """What a worker was asked and has not done yet, in words."""
    words = [f"{verb} {name}" for verb in ("load", "unload") for name in wanted[verb]]
    return ", ".join([*words, *(["drain"] if wanted["drain"] else [])])
