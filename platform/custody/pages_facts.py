"""What a run's page tells, gathered from the catalog alone: no byte of an artifact is read for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mutoscope.platform.artifacts import layout
from mutoscope.platform.catalog import Catalog, Edge, LineageGraph, RunRecord, WorkflowRecord
from mutoscope.platform.catalog.attempts import AttemptRecord
from mutoscope.platform.catalog.records import WEIGHTS_ROLE
from mutoscope.platform.catalog.transfer import KnownArtifact
from mutoscope.platform.catalog.weights import name_for
from mutoscope.platform.custody.pages_path import folder_of
from mutoscope.platform.custody.tree import GENERATIONS, ArtifactLeaf, build_tree
from mutoscope.platform.errors import UnknownReference
from mutoscope.platform.refs import ArtifactRef

FORMAT = "mutoscope.run-page/1"

_STEPS = 200
_CHILDREN = 200


@dataclass(frozen=True, slots=True)
class Shown:
    """An artifact under the name it has there."""

    name: str
    artifact: KnownArtifact


@dataclass(frozen=True, slots=True)
class Step:
    """An engine run that the workflow asked for. `how`: ``computed``, ``shared`` with an equal run under way,
    or from ``memo``. `attempts` are those that did not succeed."""

    run: RunRecord
    how: str
    made: tuple[Shown, ...]
    used: tuple[Shown, ...]
    attempts: tuple[AttemptRecord, ...] = ()

    @property
    def seconds(self) -> float | None:
        """How long it ran; None where it did not."""
        if self.run.started_at is None or self.run.finished_at is None:
            return None
        return self.run.finished_at - self.run.started_at


@dataclass(frozen=True, slots=True)
class Weights:
    """A pinned component of a card: what people call its version, and its digest."""

    card: str
    component: str
    name: str
    digest: str
    present: bool


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One workflow run's page.

    Attributes:
        outputs: what the workflow returned; where it returned nothing, what its steps made.
        trees: the lineage of outputs, those left out that another's tree shows.
        more_steps: whether there are more than are told.
    """

    record: WorkflowRecord
    folder: str
    outputs: tuple[Shown, ...]
    steps: tuple[Step, ...]
    more_steps: bool
    weights: tuple[Weights, ...]
    trees: tuple[ArtifactLeaf, ...]
    graphs: tuple[LineageGraph, ...]
    parent: WorkflowRecord | None
    children: tuple[WorkflowRecord, ...]

    def to_dict(self) -> dict[str, Any]:
        """As `manifest.json` has it."""
        record = asdict(self.record)
        return {
            "format": FORMAT,
            "folder": self.folder,
            "workflow_run": {name: value for name, value in record.items() if name != "outputs"},
            "outputs": {shown.name: _plain(shown.artifact) for shown in self.outputs},
            "steps": [_step(step) for step in self.steps],
            "steps_left_out": self.more_steps,
            "weights": [asdict(weights) for weights in self.weights],
            "lineage": _lineage(self.graphs),
            "parent": folder_of(self.parent) if self.parent else None,
            "children": [folder_of(child) for child in self.children],
        }


def gather(catalog: Catalog, record: WorkflowRecord) -> RunFacts:
    """Everything the page of a workflow run tells."""
    steps, more = _steps(catalog, record)
    made = {shown.artifact.ref.digest: shown for step in steps for shown in step.made}
    outputs = _outputs(catalog, record) or tuple(made.values())
    graphs = _graphs(catalog, [shown.artifact.ref.digest for shown in outputs])
    parent = catalog.workflows.get(record.parent_id) if record.parent_id else None
    children = catalog.workflows.list(parent_id=record.id, limit=_CHILDREN)
    return RunFacts(
        record=record,
        folder=folder_of(record),
        outputs=outputs,
        steps=steps,
        more_steps=more,
        weights=_weights(catalog, graphs, steps),
        trees=tuple(build_tree(graph) for graph in graphs),
        graphs=graphs,
        parent=parent,
        children=tuple(reversed([child for child in children if child.finished_at is not None])),
    )


def _outputs(catalog: Catalog, record: WorkflowRecord) -> tuple[Shown, ...]:
    named = record.outputs or {}
    known = catalog.calendar.artifacts(named.values())
    found = [Shown(name, known[digest]) for name, digest in named.items() if digest in known]
    return tuple(sorted(found, key=_pictures_last))


def _pictures_last(shown: Shown) -> tuple[int, str]:
    """A workflow's story ends in its video: it is shown first, then pictures and sounds, then the rest."""
    order = {"video": 0, "image": 1, "audio": 2}
    return order.get(shown.artifact.ref.kind, 3), shown.name


def _steps(catalog: Catalog, record: WorkflowRecord) -> tuple[tuple[Step, ...], bool]:
    words = {"new": "computed", "attached": "shared", "hit": "memo"}
    asked = catalog.calls.asked(record.id, limit=_STEPS + 1)
    run_ids = list(asked)[:_STEPS]
    runs = catalog.runs.get_many(run_ids)
    made = {run_id: catalog.runs.outputs(run_id) for run_id in run_ids}
    used = {run_id: catalog.runs.inputs(run_id) for run_id in run_ids}
    refs = (ref for roles in (*made.values(), *used.values()) for ref in roles.values())
    known = catalog.calendar.artifacts(ref.digest for ref in refs)

    def shown(roles: Mapping[str, ArtifactRef]) -> list[Shown]:
        return [Shown(name, known[ref.digest]) for name, ref in roles.items()]

    steps = tuple(
        Step(
            runs[run_id],
            words[asked[run_id]],
            tuple(sorted(shown(made[run_id]), key=_pictures_last)),
            tuple(shown(used[run_id])),
            # Most runs succeed at once; only of the others is more to tell.
            tuple(catalog.runs.attempts(run_id)) if _has_tried(runs[run_id]) else (),
        )
        for run_id in run_ids
    )
    return steps, len(asked) > _STEPS


def _has_tried(run: RunRecord) -> bool:
    return run.attempt > 1 or (run.attempt == 1 and run.state != "succeeded")


def _graphs(catalog: Catalog, digests: Iterable[str]) -> tuple[LineageGraph, ...]:
    """The closures of the outputs, weights being where they end; each that no other one contains."""
    found: list[LineageGraph] = []
    for digest in digests:
        try:
            graph = catalog.lineage.up(digest, GENERATIONS, history=False)
        except UnknownReference:
            continue
        if not any(digest in other.artifacts for other in found):
            found = [other for other in found if other.root not in graph.artifacts]
            found.append(graph)
    return tuple(found)


def _weights(catalog: Catalog, graphs: Iterable[LineageGraph], steps: Iterable[Step]) -> tuple[Weights, ...]:
    """Every component behind the outputs; those of the steps where nothing came out."""
    found: dict[tuple[str, str, str], Weights] = {}
    for graph in graphs:
        for edge in graph.edges:
            if edge.direction == "used" and edge.role.startswith(WEIGHTS_ROLE):
                card, component = graph.runs[edge.run_id].card or "", edge.role.removeprefix(WEIGHTS_ROLE)
                node = graph.artifacts[edge.digest]
                name = name_for(card, edge.digest, node.versions)
                found[card, component, edge.digest] = Weights(
                    card, component, name, edge.digest, node.present
                )
    if not found:
        for step in steps:
            card = step.run.card or ""
            for component, digest in catalog.runs.weights(step.run.id).items():
                name = name_for(card, digest, catalog.weights.versions_of_digest(digest))
                found[card, component, digest] = Weights(card, component, name, digest, present=True)
    return tuple(found[key] for key in sorted(found))


def _plain(known: KnownArtifact) -> dict[str, Any]:
    return {
        **known.ref.to_dict(),
        "present": known.collected_at is None,
        "object": layout.object_name(known.ref.digest),
    }


def _step(step: Step) -> dict[str, Any]:
    run = step.run
    return {
        "run": run.id,
        "kind": run.kind,
        "card": run.card,
        "state": run.state,
        "how": step.how,
        "seed": run.seed,
        "parameters": dict(run.parameters),
        "memo_key": run.memo_key,
        "worker": run.worker,
        "attempt": run.attempt,
        "attempts": [
            {"attempt": each.attempt, "outcome": each.outcome, "worker": each.worker, "error": each.error}
            for each in step.attempts
        ],
        "seconds": step.seconds,
        "timings": dict(run.timings or {}),
        "warnings": list(run.warnings or ()),
        "error": run.error,
        "used": {shown.name: _plain(shown.artifact) for shown in step.used},
        "made": {shown.name: _plain(shown.artifact) for shown in step.made},
    }


def _lineage(graphs: Iterable[LineageGraph]) -> Mapping[str, Any]:
    artifacts: dict[str, Any] = {}
    runs: dict[str, Any] = {}
    edges: set[Edge] = set()
    for graph in graphs:
        for digest, node in graph.artifacts.items():
            versions = [str(version) for version in node.versions]
            artifacts[digest] = {**node.ref.to_dict(), "present": node.present, "versions": versions}
        for run_id, run in graph.runs.items():
            runs[run_id] = {"kind": run.kind, "card": run.card, "seed": run.seed, "state": run.state}
        edges.update(graph.edges)
    # In an order of their own, so that a rebuild on another database finds nothing to write.
    return {
        "artifacts": dict(sorted(artifacts.items())),
        "runs": dict(sorted(runs.items())),
        "edges": [asdict(edge) for edge in sorted(edges)],
    }
