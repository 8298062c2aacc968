"""A lineage graph as PROV-JSON, the JSON form of the W3C's PROV data model (https://www.w3.org/submissions/prov-json/).

    artifact        entity; a tombstone's says so
    weight version  entity, a specialization of its artifact; a revision of the version it was trained from
    run             activity, with what it used and what it generated, each in its role
    worker          software agent, associated with its runs; the card is the plan it followed

What follows from these is spelled out, as other tools expect: an output was derived from each input of its
run, and a run was informed by the one that first made what it used. Derivations of a run with so many inputs
and outputs that their product is beyond `PAIRS` are left to the reader: they say no more than use and
generation do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import product
from typing import IO, Any

from mutoscope.platform.catalog.graph import ArtifactNode, Edge, LineageGraph, place_of
from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.catalog.weights import WeightVersion

NAMESPACE = "urn:mutoscope:"
PAIRS = 10_000

Record = tuple[str, Mapping[str, Any]]


def write_prov(graph: LineageGraph, stream: IO[str]) -> None:
    """Write the graph as one PROV-JSON document, record by record: nothing is held beside the graph."""
    prefixes = {"mutoscope": NAMESPACE, "xsd": "http://www.w3.org/2001/XMLSchema#"}
    stream.write(f'{{\n"prefix": {json.dumps(prefixes)}')
    for section, records in _sections(graph):
        first = True
        for name, attributes in records:
            stream.write(f',\n"{section}": {{\n' if first else ",\n")
            stream.write(f"{json.dumps(name)}: {json.dumps(attributes, ensure_ascii=False)}")
            first = False
        if not first:
            stream.write("\n}")
    stream.write("\n}\n")


def _sections(graph: LineageGraph) -> Iterator[tuple[str, Iterator[Record]]]:
    """Sections without records are left out by the writer."""
    versions = {one.id: one for node in graph.artifacts.values() for one in node.versions}
    ends = _Ends(graph)
    yield "entity", _entities(graph, versions)
    yield "activity", (_activity(run) for run in graph.runs.values())
    yield "agent", _agents(graph)
    yield "used", _numbered("u", (_used(edge) for edge in graph.edges if edge.direction == "used"))
    made = (_generated(edge) for edge in graph.edges if edge.direction == "generated")
    yield "wasGeneratedBy", _numbered("g", made)
    yield "wasDerivedFrom", _numbered("d", _derivations(ends, versions))
    yield "wasInformedBy", _numbered("i", _informed(ends))
    yield "wasAssociatedWith", _numbered("a", _associations(graph))
    yield "specializationOf", _numbered("s", (_specialization(one) for one in versions.values()))


class _Ends:
    """The edges by run, and who first made each artifact."""

    def __init__(self, graph: LineageGraph) -> None:
        self.used: dict[str, list[str]] = {}
        self.generated: dict[str, list[str]] = {}
        self.maker: dict[str, str] = {}
        # Edges come sorted by run, and ids of runs sort by creation.
        for edge in graph.edges:
            by_run = self.used if edge.direction == "used" else self.generated
            by_run.setdefault(edge.run_id, []).append(edge.digest)
            if edge.direction == "generated":
                self.maker.setdefault(edge.digest, edge.run_id)


def _entities(graph: LineageGraph, versions: Mapping[str, WeightVersion]) -> Iterator[Record]:
    for node in graph.artifacts.values():
        yield _artifact(node.ref.digest), _entity(node)
    for version in versions.values():
        yield (
            f"mutoscope:version.{version.id}",
            {"prov:label": str(version), "prov:type": _name("mutoscope:weight_version")},
        )
    for card in sorted({run.card for run in graph.runs.values() if run.card and run.worker}):
        yield f"mutoscope:card.{card}", {"prov:label": card, "prov:type": _name("prov:Plan")}


def _entity(node: ArtifactNode) -> dict[str, Any]:
    ref = node.ref
    return {
        "prov:label": str(ref),
        "prov:type": _name(f"mutoscope:{ref.kind}"),
        "mutoscope:sha256": ref.digest,
        "mutoscope:media_type": ref.media_type,
        "mutoscope:size": {"$": str(ref.size), "type": "xsd:long"},
        "mutoscope:state": "present" if node.present else "tombstone",
    }


def _activity(run: RunRecord) -> Record:
    described = {
        "prov:startTime": _time(run.started_at or run.created_at),
        "prov:endTime": _time(run.finished_at),
        "prov:label": str(run),
        "prov:type": _name(f"mutoscope:{run.kind}"),
        "mutoscope:state": run.state,
        "mutoscope:card": run.card,
        "mutoscope:seed": None if run.seed is None else {"$": str(run.seed), "type": "xsd:long"},
        "mutoscope:parameters": json.dumps(dict(run.parameters), ensure_ascii=False, sort_keys=True),
        "mutoscope:memo_key": run.memo_key,
        "mutoscope:workflow_run": run.workflow_run_id,
    }
    return _run(run.id), {name: value for name, value in described.items() if value is not None}


def _agents(graph: LineageGraph) -> Iterator[Record]:
    for worker in sorted({run.worker for run in graph.runs.values() if run.worker}):
        yield (
            f"mutoscope:worker.{worker}",
            {"prov:label": f"worker {worker}", "prov:type": _name("prov:SoftwareAgent")},
        )


def _used(edge: Edge) -> dict[str, Any]:
    return {"prov:activity": _run(edge.run_id), "prov:entity": _artifact(edge.digest), **_role(edge)}


def _generated(edge: Edge) -> dict[str, Any]:
    return {"prov:entity": _artifact(edge.digest), "prov:activity": _run(edge.run_id), **_role(edge)}


def _derivations(ends: _Ends, versions: Mapping[str, WeightVersion]) -> Iterator[dict[str, Any]]:
    for run_id, made in ends.generated.items():
        sources = dict.fromkeys(ends.used.get(run_id, ()))
        if len(made) * len(sources) > PAIRS:
            continue
        for result, source in product(dict.fromkeys(made), sources):
            yield {
                "prov:generatedEntity": _artifact(result),
                "prov:usedEntity": _artifact(source),
                "prov:activity": _run(run_id),
            }
    for version in versions.values():
        if version.parent_id in versions:
            yield {
                "prov:generatedEntity": f"mutoscope:version.{version.id}",
                "prov:usedEntity": f"mutoscope:version.{version.parent_id}",
                "prov:type": _name("prov:Revision"),
            }


def _informed(ends: _Ends) -> Iterator[dict[str, Any]]:
    for run_id, sources in ends.used.items():
        makers = dict.fromkeys(ends.maker[source] for source in sources if source in ends.maker)
        for maker in makers:
            if maker != run_id:
                yield {"prov:informed": _run(run_id), "prov:informant": _run(maker)}


def _associations(graph: LineageGraph) -> Iterator[dict[str, Any]]:
    for run in graph.runs.values():
        if run.worker:
            plan = {"prov:plan": f"mutoscope:card.{run.card}"} if run.card else {}
            yield {"prov:activity": _run(run.id), "prov:agent": f"mutoscope:worker.{run.worker}", **plan}


def _specialization(version: WeightVersion) -> dict[str, Any]:
    return {
        "prov:specificEntity": f"mutoscope:version.{version.id}",
        "prov:generalEntity": _artifact(version.digest),
    }


def _numbered(letter: str, relations: Iterator[dict[str, Any]]) -> Iterator[Record]:
    return ((f"_:{letter}{number}", relation) for number, relation in enumerate(relations, 1))


def _artifact(digest: str) -> str:
    return f"mutoscope:artifact.{digest}"


def _run(run_id: str) -> str:
    return f"mutoscope:run.{run_id}"


def _role(edge: Edge) -> dict[str, str]:
    return {"prov:role": place_of(edge.role, edge.ordinal)}


def _name(qualified: str) -> dict[str, str]:
    return {"$": qualified, "type": "prov:QUALIFIED_NAME"}


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
