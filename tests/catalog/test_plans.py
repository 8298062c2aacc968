"""The everyday questions have an index each: none reads a whole table, however large it has grown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import insert, text

from mutoscope.platform.catalog import ArtifactRow, Catalog, Member, WorkerInfo
from mutoscope.platform.catalog.tables import weight_aliases
from mutoscope.platform.errors import UnknownReference
from tests.support import big, plans
from tests.support.records import SERVES, a_spec, an_artifact, claim, present, queue

MIDDLING = big.Shape(steps=3, prompts=10, samples=4)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Catalog, big.History]]:
    """A catalog of some hundred runs, with the statistics that its database keeps of it."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('plans') / 'catalog.db'}"
    else:
        url = request.getfixturevalue("databases").create()
    Catalog.migrate(url)
    catalog = Catalog.open(url)
    told = big.history(catalog, MIDDLING)
    big.finished_runs(catalog, 500)
    pad(catalog, told)
    plans.analyse(catalog)
    yield catalog, told
    catalog.close()


def pad(catalog: Catalog, told: big.History) -> None:
    """Rows in the smaller tables too: nobody looks up five rows in an index."""
    parts = told.images
    with catalog.bulk() as bulk:
        bulk.members(
            Member(parts[n % len(parts)], f"part {n}", parts[n // len(parts) % len(parts)])
            for n in range(2000)
        )
        bulk.artifacts(ArtifactRow(an_artifact(f"padding {n}", "blob")) for n in range(2000))
    for n in range(200):
        catalog.weights.publish("padding", f"part {n}", told.versions[0])
        catalog.workflows.start("padding", {}, prefect_flow_run_id=f"flow {n}")
    history = [
        {"card": "padding", "component": f"part {n}", "name": "live", "created_at": float(n)}
        for n in range(5000)
    ]
    with catalog._database.write() as connection:
        connection.execute(insert(weight_aliases), history)


def use_the_queue(catalog: Catalog) -> None:
    """What callers and workers do all day."""
    catalog.workers.register(WorkerInfo("worker-a", "here", 1, "cpu", {}))
    image = an_artifact("image")
    for _ in range(2):  # the second success of the key is compared with the first
        run = queue(catalog, "key", inputs={"image": image})
        catalog.runs.enqueue(a_spec("key"), present=present)
        catalog.runs.get(run.id)
        claim(catalog)
        catalog.runs.progress(run.id, "worker-a", "denoise", 1, 2)
        catalog.runs.renew("worker-a", [run.id], 60)
        catalog.runs.succeed(run.id, "worker-a", {"out": an_artifact("out")})
    catalog.runs.enqueue(a_spec("key"), present=present)
    retried = queue(catalog, "other")
    claim(catalog)
    catalog.runs.fail(retried.id, "worker-a", {"type": "Oops"}, retry=True)
    claim(catalog)
    catalog.runs.release(retried.id, "worker-a")
    catalog.runs.request_cancel(retried.id)
    assert catalog.runs.claim("worker-a", SERVES, 60) == []
    catalog.workers.heartbeat("worker-a", state="ready")
    catalog.workers.alive("toy-card")


def look_around(catalog: Catalog, told: big.History) -> None:
    """What people ask."""
    image, version = told.images[0], told.versions[1]
    catalog.artifacts.get(image)
    catalog.artifacts.resolve(image[:20])
    catalog.artifacts.list(limit=5)
    catalog.artifacts.list(kind="image", limit=5)
    catalog.runs.list(limit=5)
    catalog.runs.list(memo_key=told.memo_keys[0])
    catalog.runs.find(catalog.runs.generated_by(image)[0].id[:30])
    catalog.incidents.list()
    catalog.workflows.list(limit=5)
    with pytest.raises(UnknownReference):
        catalog.workflows.find("ffffffff")
    catalog.workflows.find_by_flow_run("flow")
    catalog.weights.live(big.CARD)
    catalog.weights.get(f"{big.CARD}/transformer@2")
    catalog.weights.get(f"{big.CARD}/transformer@live")
    catalog.weights.versions_of_digest(version)
    catalog.weights.publish(big.CARD, "transformer", version)
    catalog.lineage.up(image)
    catalog.lineage.down(image, depth=2)
    catalog.lineage.closure(version)
    catalog.lineage.weights_of(image, 1)
    catalog.lineage.made(version, limit=5)


def test_no_everyday_question_reads_a_whole_table(filled: tuple[Catalog, big.History]) -> None:
    catalog, told = filled
    with plans.watched(catalog) as seen:
        use_the_queue(catalog)
        look_around(catalog, told)
    assert len(seen.scans) > 35
    assert seen.bad == {}


@pytest.mark.parametrize(
    ("indexes", "ask"),
    [
        (["ix_edges_artifact_digest_direction_run_id"], lambda c, told: c.lineage.up(told.images[0])),
        (["ix_runs_memo_key_state"], lambda c, told: c.runs.enqueue(a_spec("new"), present=present)),
        (
            ["ix_runs_queue", "uq_runs_memo_key_in_flight"],
            lambda c, told: c.runs.claim("worker-a", SERVES, 60),
        ),
        (["ix_artifacts_created_at"], lambda c, told: c.artifacts.list(limit=5)),
        (["ix_weight_aliases_card_component_name_id"], lambda c, told: c.weights.live(big.CARD)),
    ],
)
def test_without_its_index_a_question_is_caught(any_catalog: Catalog, indexes: list[str], ask: Any) -> None:
    told = big.history(any_catalog, big.Shape(steps=1, prompts=2, samples=2))
    queue(any_catalog, "waiting")
    with any_catalog._database.write() as connection:
        for index in indexes:
            connection.execute(text(f"drop index {index}"))
    with plans.watched(any_catalog) as seen:
        ask(any_catalog, told)
    assert seen.bad
