"""Lineage as documents: read back by the standards' own libraries, and complete."""

from __future__ import annotations

import importlib
import inspect
import io
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import attr
import pytest
from openlineage.client import generated
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.serde import Serde
from prov.model import (
    ProvActivity,
    ProvAgent,
    ProvAssociation,
    ProvCommunication,
    ProvDerivation,
    ProvDocument,
    ProvEntity,
    ProvGeneration,
    ProvSpecialization,
    ProvUsage,
)

from mutoscope.platform.catalog import Catalog, LineageGraph
from mutoscope.platform.catalog.openlineage import events, write_events
from mutoscope.platform.catalog.prov import NAMESPACE, PAIRS, write_prov
from tests.support.records import an_artifact, claim, queue
from tests.support.story import SAMPLES, Story, tell


@pytest.fixture
def catalog(sqlite_catalog: Catalog) -> Catalog:
    """One will do: documents are written from a graph, not from a database."""
    return sqlite_catalog


@pytest.fixture
def story(catalog: Catalog) -> Story:
    return tell(catalog)


@pytest.fixture
def graph(catalog: Catalog, story: Story) -> LineageGraph:
    """A film with everything behind it: imports, rollouts, rewards and a training step."""
    return catalog.lineage.up(story.films["second"].digest)


def prov_of(graph: LineageGraph) -> ProvDocument:
    written = io.StringIO()
    write_prov(graph, written)
    return ProvDocument.deserialize(content=written.getvalue(), format="json")


def ends(document: ProvDocument, kind: type, *names: str) -> set[tuple[str, ...]]:
    """Of all relations of a kind, the ends of those names."""
    found = set()
    for record in document.get_records(kind):
        formal = {
            str(name.localpart): str(value.localpart)
            for name, value in record.formal_attributes
            if hasattr(value, "localpart")
        }
        found.add(tuple(formal[name] for name in names))
    return found


def test_prov_holds_the_graph(graph: LineageGraph) -> None:
    document = prov_of(graph)
    entities = {str(one.identifier.localpart) for one in document.get_records(ProvEntity)}
    assert {f"artifact.{digest}" for digest in graph.artifacts} < entities
    assert {str(one.identifier.localpart) for one in document.get_records(ProvActivity)} == {
        f"run.{run}" for run in graph.runs
    }
    for kind, direction in ((ProvUsage, "used"), (ProvGeneration, "generated")):
        assert ends(document, kind, "activity", "entity") == {
            (f"run.{edge.run_id}", f"artifact.{edge.digest}")
            for edge in graph.edges
            if edge.direction == direction
        }
    assert {one.uri for one in document.namespaces} >= {NAMESPACE}


def test_prov_spells_out_what_follows(catalog: Catalog, story: Story, graph: LineageGraph) -> None:
    document = prov_of(graph)
    film, image = story.films["second"].digest, story.images["second"].digest
    derived = ends(document, ProvDerivation, "generatedEntity", "usedEntity")
    assert (f"artifact.{film}", f"artifact.{image}") in derived
    assert (f"artifact.{image}", f"artifact.{film}") not in derived
    (filmed,), (painted,) = catalog.runs.generated_by(film), catalog.runs.generated_by(image)
    assert (f"run.{filmed.id}", f"run.{painted.id}") in ends(
        document, ProvCommunication, "informed", "informant"
    )
    versions = [catalog.weights.get(f"flux-t2i/transformer@{n}") for n in (1, 2)]
    specialized = ends(document, ProvSpecialization, "specificEntity", "generalEntity")
    for version in versions:
        assert (f"version.{version.id}", f"artifact.{version.digest}") in specialized
    assert (f"version.{versions[1].id}", f"version.{versions[0].id}") in derived
    # Queued runs have a worker; imports and the training step were recorded by hand.
    (agent,) = document.get_records(ProvAgent)
    assert str(agent.identifier.localpart) == "worker.worker-a"
    plans = ends(document, ProvAssociation, "activity", "agent", "plan")
    assert (f"run.{painted.id}", "worker.worker-a", "card.flux-t2i") in plans
    assert len(plans) == 2 + 2 * SAMPLES


def test_prov_times_sizes_and_states(catalog: Catalog, story: Story, graph: LineageGraph) -> None:
    document = prov_of(graph)
    (run,) = catalog.runs.generated_by(story.images["second"].digest)
    (activity,) = document.get_record(f"mutoscope:run.{run.id}")
    assert run.started_at is not None
    assert activity.get_startTime().timestamp() == pytest.approx(run.started_at, abs=1e-3)
    (seed,) = activity.get_attribute("mutoscope:seed")
    assert (seed.value, str(seed.datatype)) == ("7", "xsd:long")
    (entity,) = document.get_record(f"mutoscope:artifact.{story.images['second'].digest}")
    (size,) = entity.get_attribute("mutoscope:size")
    assert size.value == str(story.images["second"].size)
    assert entity.get_attribute("mutoscope:state") == {"present"}


def test_prov_leaves_huge_products_to_the_reader(catalog: Catalog) -> None:
    width = 1 + int(PAIRS**0.5)
    used = {f"in.{n}": an_artifact(f"in {n}") for n in range(width)}
    made = {f"out.{n}": an_artifact(f"out {n}") for n in range(width)}
    catalog.runs.record_completed("score", used=used, generated=made)
    down, up = catalog.lineage.down(used["in.0"].digest), catalog.lineage.up(made["out.0"].digest)
    assert len(list(prov_of(down).get_records(ProvDerivation))) == width
    artifacts = {**down.artifacts, **up.artifacts}
    both = prov_of(replace(down, artifacts=artifacts, edges=tuple(sorted({*down.edges, *up.edges}))))
    assert list(both.get_records(ProvDerivation)) == []
    assert len(list(both.get_records(ProvUsage))) == width


def facet_classes() -> Iterator[tuple[str, Any]]:
    """Every facet of the standard that the client knows, by the address of its schema."""
    for module in pkgutil.iter_modules(generated.__path__):
        found = importlib.import_module(f"{generated.__name__}.{module.name}")
        for _, one in inspect.getmembers(found, attr.has):
            yield one._get_schema() if hasattr(one, "_get_schema") else "", one


FACETS = dict(facet_classes())


def built(value: dict[str, Any]) -> Any:
    """A facet as the client's class, by the schema it names; unknown or missing fields are refused there."""
    given = dict(value)
    return FACETS[given.pop("_schemaURL")](producer=given.pop("_producer"), **given)


def read_event(event: dict[str, Any]) -> RunEvent:
    def facets(described: dict[str, Any], name: str = "facets") -> dict[str, Any]:
        return {key: built(facet) for key, facet in described[name].items()}

    def dataset(kind: type, described: dict[str, Any], own: str) -> Any:
        assert set(described) == {"namespace", "name", "facets", own}
        return kind(
            described["namespace"],
            described["name"],
            facets=facets(described),
            **{own: facets(described, own)},
        )

    return RunEvent(
        eventType=RunState[event["eventType"]],
        eventTime=event["eventTime"],
        producer=event["producer"],
        run=Run(event["run"]["runId"], facets(event["run"])),
        job=Job(event["job"]["namespace"], event["job"]["name"], facets(event["job"])),
        inputs=[dataset(InputDataset, one, "inputFacets") for one in event["inputs"]],
        outputs=[dataset(OutputDataset, one, "outputFacets") for one in event["outputs"]],
    )


def test_openlineage_events_are_the_clients_own(catalog: Catalog, graph: LineageGraph) -> None:
    written = io.StringIO()
    write_events(graph, catalog.lineage.workflows(graph), written)
    for line in written.getvalue().splitlines():
        assert Serde.to_dict(read_event(json.loads(line))) == json.loads(line)


def test_openlineage_names_every_edge_twice(catalog: Catalog, graph: LineageGraph) -> None:
    told = list(events(graph, catalog.lineage.workflows(graph)))
    assert [event["eventType"] for event in told] == ["START", "COMPLETE"] * len(graph.runs)
    for side, direction in (("inputs", "used"), ("outputs", "generated")):
        found = {
            (event["run"]["runId"], one["name"].partition("/")[2], tag["value"])
            for event in told
            for one in event[side]
            for tag in one["facets"]["tags"]["tags"]
            if tag["key"] == "role"
        }
        assert found == {(e.run_id, e.digest, e.role) for e in graph.edges if e.direction == direction}
    parents = {
        event["run"]["facets"]["parent"]["job"]["name"]
        for event in told
        if "parent" in event["run"]["facets"]
    }
    assert parents == {"image_video.t2i_i2v"}


def test_openlineage_tells_how_runs_ended(catalog: Catalog) -> None:
    image = an_artifact("image")
    failed = queue(catalog, "failed", inputs={"image": image}, max_attempts=1)
    claim(catalog)
    catalog.runs.fail(failed.id, "worker-a", {"message": "out of memory"})
    stopped = queue(catalog, "stopped", inputs={"image": image})
    catalog.runs.request_cancel(stopped.id)
    queue(catalog, "waiting", inputs={"image": image})
    queue(catalog, "running", inputs={"image": image}, priority=1)
    catalog.runs.claim("worker-a", {failed.card or "": failed.contract or ""}, 60.0, 1)
    told = list(events(catalog.lineage.down(image.digest), {}))
    kinds = [(event["run"]["runId"] == failed.id, event["eventType"]) for event in told]
    assert kinds == [(True, "START"), (True, "FAIL"), (False, "START"), (False, "ABORT"), (False, "START")]
    assert told[1]["run"]["facets"]["errorMessage"]["message"] == "out of memory"
    for event in told:
        assert Serde.to_dict(read_event(event)) == event
