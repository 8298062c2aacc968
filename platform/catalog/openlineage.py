"""A lineage graph as OpenLineage run events (https://openlineage.io/spec), one JSON object a line.

Each run is a START event and, once it is finished, a COMPLETE, FAIL or ABORT; a queued run has neither. A
card's runs of one kind are a job, an artifact is a dataset that has one version, and a workflow run is its
runs' parent. An event names what the graph holds: upwards, of a run's outputs those that lead to the root.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version as installed
from typing import IO, Any

from mutoscope.platform.catalog.graph import ArtifactNode, Edge, LineageGraph
from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.wording import plain

NAMESPACE = "mutoscope"
SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = "https://openlineage.io/spec/facets"
_ENDS = {"succeeded": "COMPLETE", "failed": "FAIL", "cancelled": "ABORT"}


def write_events(graph: LineageGraph, workflows: Mapping[str, str], stream: IO[str]) -> None:
    """Write the events of every run of the graph, in the order the runs were created.

    Args:
        workflows: ids of workflow runs to their workflows' ids.
    """
    for event in events(graph, workflows):
        stream.write(f"{json.dumps(event, ensure_ascii=False)}\n")


def events(graph: LineageGraph, workflows: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The events; see `write_events`."""
    release = installed("mutoscope")
    ends: dict[str, list[Edge]] = {}
    for edge in graph.edges:
        ends.setdefault(edge.run_id, []).append(edge)
    for run_id in sorted(graph.runs):
        yield from _Events(graph, release, graph.runs[run_id], ends.get(run_id, ()), workflows).all()


class _Events:
    """The events of one run."""

    def __init__(
        self,
        graph: LineageGraph,
        release: str,
        run: RunRecord,
        ends: Sequence[Edge],
        workflows: Mapping[str, str],
    ) -> None:
        self._graph, self._release, self._run, self._ends = graph, release, run, ends
        self._workflow = workflows.get(run.workflow_run_id or "")
        self._producer = f"urn:mutoscope:{release}"

    def all(self) -> Iterator[dict[str, Any]]:
        run = self._run
        if run.started_at is None and not run.finished:
            return
        yield self._event("START", run.started_at or run.created_at)
        if run.finished and run.finished_at is not None:
            yield self._event(_ENDS[run.state], run.finished_at)

    def _event(self, kind: str, at: float) -> dict[str, Any]:
        run = self._run
        return {
            "eventType": kind,
            "eventTime": datetime.fromtimestamp(at, UTC).isoformat(),
            "producer": self._producer,
            "schemaURL": SCHEMA,
            "run": {"runId": run.id, "facets": self._run_facets(kind)},
            "job": {
                "namespace": NAMESPACE,
                "name": f"{run.card}.{run.kind}" if run.card else run.kind,
                "facets": {
                    "jobType": self._facet(
                        "2-0-4/JobTypeJobFacet",
                        processingType="BATCH",
                        integration="MUTOSCOPE",
                        jobType="RUN",
                    )
                },
            },
            "inputs": [
                {**dataset, "inputFacets": {"inputStatistics": self._size("Input", "1-0-0", node)}}
                for node, dataset in self._datasets("used")
            ],
            "outputs": [
                {**dataset, "outputFacets": {"outputStatistics": self._size("Output", "1-0-2", node)}}
                for node, dataset in self._datasets("generated")
            ],
        }

    def _run_facets(self, kind: str) -> dict[str, Any]:
        run = self._run
        given = {**run.parameters, **({} if run.seed is None else {"seed": run.seed})}
        facets = {
            "processing_engine": self._facet(
                "1-1-1/ProcessingEngineRunFacet", name="Mutoscope", version=self._release
            ),
            "executionParameters": self._facet(
                "1-0-0/ExecutionParametersRunFacet",
                parameters=[{"key": name, "value": plain(value)} for name, value in given.items()],
            ),
        }
        if self._workflow is not None:
            facets["parent"] = self._facet(
                "1-2-0/ParentRunFacet",
                run={"runId": run.workflow_run_id},
                job={"namespace": NAMESPACE, "name": self._workflow},
            )
        if kind == "FAIL":
            message = str((run.error or {}).get("message") or "no error was recorded")
            facets["errorMessage"] = self._facet(
                "1-0-1/ErrorMessageRunFacet", message=message, programmingLanguage="PYTHON"
            )
        return facets

    def _datasets(self, direction: str) -> Iterator[tuple[ArtifactNode, dict[str, Any]]]:
        """Each artifact once, whatever the number of roles it plays."""
        roles: dict[str, list[str]] = {}
        for edge in self._ends:
            if edge.direction == direction:
                roles.setdefault(edge.digest, []).append(edge.role)
        for digest, played in roles.items():
            node = self._graph.artifacts[digest]
            yield node, self._dataset(node, played)

    def _dataset(self, node: ArtifactNode, roles: Sequence[str]) -> dict[str, Any]:
        ref = node.ref
        tags = [("kind", ref.kind), ("media_type", ref.media_type), *(("role", role) for role in roles)]
        tags += [("weights", str(version)) for version in node.versions]
        tags += [] if node.present else [("state", "tombstone")]
        return {
            "namespace": NAMESPACE,
            "name": f"{ref.kind}/{ref.digest}",
            "facets": {
                "version": self._facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=ref.digest),
                "tags": self._facet(
                    "1-0-0/TagsDatasetFacet",
                    tags=[{"key": key, "value": value, "source": "MUTOSCOPE"} for key, value in tags],
                ),
            },
        }

    def _size(self, side: str, release: str, node: ArtifactNode) -> dict[str, Any]:
        name = f"{side}Statistics{side}DatasetFacet"
        return self._facet(f"{release}/{name}", size=node.ref.size, fileCount=1)

    def _facet(self, schema: str, **values: Any) -> dict[str, Any]:
        """A facet of the standard, by release and name of its schema."""
        release, _, name = schema.partition("/")
        return {
            "_producer": self._producer,
            "_schemaURL": f"{_FACETS}/{release}/{name}.json#/$defs/{name}",
            **values,
        }
