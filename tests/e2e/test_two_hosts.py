"""Two hosts with nothing but the network between them: one Postgres, one S3 store, one Prefect server, four
workers.

Each host has a home of its own; where the machine can be several, also a network, a host name and a view of
the disk. The first does everything, the second joins with `up --only`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from mutoscope.platform.catalog import Catalog
from tests.e2e.stack import Stack
from tests.fire.shape import RUNS, WORKFLOWS
from tests.support import lan
from tests.support.servers import Databases, PostgresServer, S3Server, Server
from tests.support.tinycard.card import CARD
from tests.support.tinycard.folder import write_folder
from tests.support.tinycard.program import PACE

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
S = TypeVar("S", bound=Server)


@dataclass(frozen=True)
class Hosts:
    first: Stack
    second: Stack
    catalog: Catalog

    def pids(self, stack: Stack) -> set[int]:
        """Everything that runs on a host."""
        processes = [psutil.Process(stack.record.pid)]
        return {p.pid for process in processes for p in (process, *process.children(recursive=True))}


@contextmanager
def machines(folder: Path) -> Iterator[Sequence[lan.Machine]]:
    """Two, as far apart as this machine allows."""
    if lan.available():
        with lan.lan(folder, 2) as apart:
            yield apart
    else:
        folders = [folder / name for name in ("one", "two")]
        yield [lan.Machine(f.name, "127.0.0.1", f, (), apart=False) for f in folders]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("hosts")
    with ExitStack() as exits:
        one, two = exits.enter_context(machines(folder))
        here = lan.HERE if one.apart else "127.0.0.1"

        def started(server: S) -> S:
            exits.callback(server.close)
            server.start()
            return server

        postgres, s3 = started(PostgresServer(here)), started(S3Server(here))
        s3.create_bucket("shared")
        databases = Databases(postgres.url())
        shared = {
            **s3.writer.environment(s3.endpoint),
            **dict.fromkeys(PROXIES, ""),
            "MUTOSCOPE_DATABASE_URL": databases.create(),
            "MUTOSCOPE_STORE_URL": "s3://shared/store",
            "MUTOSCOPE_CARDS": "tests.support.tinycard.card:CARD",
            "MUTOSCOPE_WORKFLOWS": "tests.fire.workflows",
            "PYTHONPATH": str(ROOT),
            PACE: "0.05",
        }
        # SQLite answers several hosts at once with "database is locked".
        prefects = databases.create().replace("+psycopg", "+asyncpg")
        serving = {"MUTOSCOPE_HOST": one.address, "PREFECT_SERVER_DATABASE_CONNECTION_URL": prefects}
        first = Stack(one.folder / "home", {**shared, **serving}, one.command)
        weights = write_folder(folder / "weights")
        for arguments in (["prepare"], ["weights", "import", CARD.id, str(weights)]):
            done = first.run(*arguments)
            assert done.code == 0, done.err
        first.start("--workers", "2", "--card", CARD.id)
        exits.callback(first.stop)
        joining = {"MUTOSCOPE_HOST": two.address, "PREFECT_API_URL": first.record.prefect_api_url}
        second = Stack(two.folder / "home", {**shared, **joining}, two.command)
        second.start("--only", "workers,flows,reconciler", "--workers", "2", "--card", CARD.id)
        exits.callback(second.stop)
        catalog = Catalog.open(shared["MUTOSCOPE_DATABASE_URL"])
        exits.callback(catalog.close)
        yield Hosts(first, second, catalog)


def test_a_nested_workflow_is_served_by_both(hosts: Hosts) -> None:
    """Begun on the host that has no server; the same again from the other one costs no run."""
    made = hosts.second.run("run", "fire.film", "seed=1", "--json")
    assert made.code == 0, f"{made.err}{hosts.second.logs()}"
    assert len(made.json["outputs"]) == 8
    runs = hosts.catalog.runs.list(card=CARD.id, kind="engine", limit=1000)
    assert len(runs) == RUNS
    assert {(run.state, run.attempt) for run in runs} == {("succeeded", 1)}
    assert len(hosts.catalog.workflows.list(limit=100)) == WORKFLOWS

    workers = {worker.id: worker for worker in hosts.catalog.workers.alive()}
    assert len(workers) == 4
    served = {workers[str(run.worker)].pid for run in runs}
    for stack in (hosts.first, hosts.second):
        assert served & hosts.pids(stack), "workers of each host took some"

    again = hosts.first.run("run", "fire.film", "seed=1", "--submit", "--json")
    assert again.code == 0, f"{again.err}{hosts.first.logs()}{hosts.second.logs()}"
    assert digests(again.json) == digests(made.json)
    assert len(hosts.catalog.runs.list(card=CARD.id, kind="engine", limit=1000)) == RUNS


def digests(report: dict[str, dict[str, dict[str, str]]]) -> dict[str, str]:
    return {name: output["digest"] for name, output in report["outputs"].items()}


def test_each_host_tells_the_same_lineage_and_finds_no_fault(hosts: Hosts) -> None:
    made = hosts.catalog.artifacts.list(kind="image", limit=1)[0]
    asked = [
        ["lineage", "up", str(made)],
        ["fsck", "--deep"],
        ["ready", "catalog", "store", "server", "worker"],
    ]
    (first, *ends), (second, *others) = (stack.run_all(asked) for stack in (hosts.first, hosts.second))
    assert first.out == second.out
    for needed in (f"{CARD.id} run", f"{CARD.id}/net@1", f"{CARD.id} import"):
        assert needed in first.out
    assert [result.code for result in (*ends, *others)] == [0] * 4, [*ends, *others]


def test_no_file_is_shared(hosts: Hosts) -> None:
    """Neither home holds a catalog or a store, and no process of a host has a file of the other's open."""
    for mine, other in ((hosts.first, hosts.second), (hosts.second, hosts.first)):
        assert not {"catalog.db", "store"} & {path.name for path in mine.home.iterdir()}
        opened = [file.path for pid in hosts.pids(mine) for file in psutil.Process(pid).open_files()]
        assert any(path.startswith(str(mine.home)) for path in opened)
        assert not [path for path in opened if path.startswith(str(other.home.parent))]
