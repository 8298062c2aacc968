"""A whole installation on one machine, cut up as it would be on several.

    control   Postgres, S3, the Prefect server on Postgres, deployments, a reconciler
    east      a home, GPU workers, a flow pool, a reconciler; a link to Postgres, S3 and Prefect
    west      the same without a reconciler

Nothing is shared between the hosts but what goes over their links, which can be cut.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

from mutoscope.models.registry import get_card
from mutoscope.models.starter.folders import starter_folder
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.cli import services
from mutoscope.platform.cli.api import get_json
from mutoscope.platform.cli.supervisor import Service
from mutoscope.platform.orchestration import stack
from mutoscope.platform.orchestration.importing import import_folder
from tests.fire.hosts import Host
from tests.fire.prefect_server import prefect_service
from tests.support.link import Link
from tests.support.servers import Databases, PostgresServer, S3Server, Server, free_ports
from tests.support.tinycard.card import CARD
from tests.support.tinycard.folder import write_folder
from tests.support.tinycard.program import JOURNAL, PACE

S = TypeVar("S", bound=Server)

ROOT = Path(__file__).parents[2]
CARD_ORIGIN = "tests.support.tinycard.card:CARD"
BUCKET = "fire"
LEASE_S = 8.0
HEARTBEAT_S = 1.0
COMMAND_S = 300.0
"""Seconds until a command counts as hung."""


class Site:
    """The installation. `start` brings it up; it is a context manager that leaves nothing running.

    Args:
        workers: GPU workers on east and on west.
        starter: cards to serve beside the test card, with the weights that ship.
        pace: seconds that a step of the test card keeps its worker busy.
        settings: further `MUTOSCOPE_*` settings, by field.
    """

    def __init__(
        self,
        folder: Path,
        *,
        workers: tuple[int, int] = (2, 1),
        starter: Sequence[str] = (),
        pace: float = 0.1,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.journal = folder / "journal"
        self._pace, self._settings = pace, settings
        self._exits = ExitStack()
        self._workers, self._starter = workers, tuple(starter)
        self.weights = write_folder(folder / "weights", num_inference_steps=3)

    def start(self) -> Site:
        """Servers, schema, weights, hosts; back when everything is ready."""
        # One by one: a port counts as free until its server listens.
        self.postgres = self._started(PostgresServer())
        self.s3 = self._started(S3Server())
        (self._prefect_port,) = free_ports(1)
        self.s3.create_bucket(BUCKET)
        databases = Databases(self.postgres.url())
        self.database_url, self._prefect_database = databases.create(), databases.create()
        Catalog.migrate(self.database_url)
        import_folder(self.catalog, self.store, CARD, self.weights)
        for card_id in self._starter:
            weights = starter_folder(card_id)
            assert weights is not None
            import_folder(self.catalog, self.store, get_card(card_id), weights)
        self.control = Host("control", self.folder / "control", {}, self._control_services())
        self.east, self.west = (
            self._host(name, count) for name, count in zip(("east", "west"), self._workers, strict=True)
        )
        self._exits.callback(self._stop_hosts)
        self.begin()
        return self

    def _started(self, server: S) -> S:
        self._exits.callback(server.close)
        server.start()
        return server

    def begin(self) -> None:
        """Start what runs on the hosts, the servers being up."""
        for host in self.hosts:
            host.begin()
        for host in self.hosts:
            host.wait_ready()

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *failure: object) -> None:
        self._exits.close()

    @property
    def lease_seconds(self) -> float:
        return LEASE_S

    @property
    def hosts(self) -> tuple[Host, Host, Host]:
        return self.control, self.east, self.west

    @property
    def away(self) -> tuple[Host, Host]:
        """The hosts that reach the servers over a link."""
        return self.east, self.west

    @property
    def served(self) -> tuple[str, ...]:
        """Ids of the cards that its workers serve."""
        return CARD.id, *self._starter

    @property
    def gpu_workers(self) -> list[str]:
        """Names of the worker processes, with their hosts'."""
        return [f"{h.name}/{s.name}" for h in self.away for s in h.services if s.name.startswith("worker-")]

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog as a person at the servers' machine sees it. What it is told reaches the disk."""
        catalog = Catalog.open(_durable(self.database_url))
        self._exits.callback(catalog.close)
        return catalog

    @cached_property
    def store(self) -> ArtifactStore:
        """The store, the same way. Its client reads the environment whenever it connects."""
        patch = self._exits.enter_context(pytest.MonkeyPatch.context())
        for name, value in self.s3.writer.environment(self.s3.endpoint).items():
            patch.setenv(name, value)
        return ArtifactStore.open(f"s3://{BUCKET}")

    def api(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask the Prefect API: GET, or POST with a body."""
        return get_json(f"{self._api_url(self._prefect_port)}{path}", body=body, timeout=60.0)

    def submit(self, workflow: str, **parameters: Any) -> str:
        """Hand a workflow to the work pool, as the UI does; returns the flow run's id."""
        deployment = self.api(f"/deployments/name/{workflow}/{workflow}")
        made = self.api(f"/deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})
        return str(made["id"])

    def command(self, *arguments: str) -> str:
        """What a `mutoscope` command says that a person types at the servers' machine."""
        ran = subprocess.run(
            [sys.executable, "-m", "mutoscope.platform.cli.main", *arguments],
            env=self.environment(self.folder / "control", None),
            capture_output=True,
            check=False,
            text=True,
            timeout=COMMAND_S,
        )
        assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}{self.logs()}"
        return ran.stdout

    def environment(self, home: Path, link: Link | None) -> dict[str, str]:
        """What a process on a host is started with."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MUTOSCOPE_", "PREFECT_"))}
        ports = link.ports if link is not None else self._server_ports
        return {
            **inherited,
            **self.s3.writer.environment(f"http://127.0.0.1:{ports['s3']}"),
            **stack.environment(home, self._api_url(ports["prefect"]), ""),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            JOURNAL: str(self.journal),
            PACE: str(self._pace),
            "MUTOSCOPE_DATABASE_URL": _durable(_through(self.database_url, ports["postgres"])),
            "MUTOSCOPE_STORE_URL": f"s3://{BUCKET}",
            "MUTOSCOPE_CARDS": CARD_ORIGIN,
            "MUTOSCOPE_WORKFLOWS": "tests.fire.workflows",
            "MUTOSCOPE_LEASE_SECONDS": str(LEASE_S),
            "MUTOSCOPE_HEARTBEAT_SECONDS": str(HEARTBEAT_S),
            "MUTOSCOPE_CONCURRENCY": "3",
            **{f"MUTOSCOPE_{name.upper()}": str(value) for name, value in self._settings.items()},
        }

    @property
    def _server_ports(self) -> Mapping[str, int]:
        postgres, s3 = urlsplit(self.postgres.url()).port, urlsplit(self.s3.endpoint).port
        assert postgres is not None
        assert s3 is not None
        return {"postgres": postgres, "s3": s3, "prefect": self._prefect_port}

    def _control_services(self) -> Sequence[Service]:
        home = self.folder / "control"
        home.mkdir()
        environment = self.environment(home, None)
        return (
            prefect_service(self._prefect_port, self._prefect_database, environment),
            services.deployments(environment),
            services.reconciler(environment),
        )

    def _host(self, name: str, workers: int) -> Host:
        home = self.folder / name
        home.mkdir()
        link = Link(self._server_ports)
        self._exits.callback(link.close)
        environment = self.environment(home, link)
        gpu = [
            self._serving(services.gpu_worker(number, environment, self._registered))
            for number in range(1, workers + 1)
        ]
        pool = services.flow_pool(name, environment)
        # Readiness is asked from here, where no link is in the way.
        reconcilers = (services.reconciler(environment),) if name == "east" else ()
        online = partial(services.pool_worker_online, self._api_url(self._prefect_port), name)
        pool = replace(pool, ready=lambda pid: online())
        return Host(name, home, environment, (*gpu, pool, *reconcilers), link)

    def _serving(self, service: Service) -> Service:
        """A worker of the site's cards alone: it is ready sooner."""
        cards = [argument for card_id in self.served for argument in ("--card", card_id)]
        return replace(service, command=[*service.command, *cards])

    def _registered(self, pid: int) -> bool:
        alive = self.catalog.workers.alive(within_seconds=LEASE_S)
        return any(worker.pid == pid and worker.state != "starting" for worker in alive)

    def _stop_hosts(self) -> None:
        for host in reversed(self.hosts):
            host.crash()

    def logs(self) -> str:
        return "".join(host.logs() for host in self.hosts)

    @staticmethod
    def _api_url(port: int) -> str:
        return f"http://127.0.0.1:{port}/api"


def _through(url: str, port: int) -> str:
    """A database's URL by way of another port."""
    before, _, database = url.rpartition("/")
    return f"{before.rpartition(':')[0]}:{port}/{database}"


def _durable(url: str) -> str:
    """The test server acknowledges before it writes; what the catalog is told must outlive a kill."""
    return f"{url}?options=-csynchronous_commit%3Don"
