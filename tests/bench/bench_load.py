"""Many flows at once: 2,000 near-empty runs from 20 concurrent flows, four workers, Postgres and S3.

    python tests/bench/bench_load.py [--runs 2000] [--flows 20] [--workers 4] [--output FILE]

Three loads, each on an installation of its own:

    plain    the flows outside Prefect: what catalog, store and workers give
    prefect  the same as workflows, each run a task of a flow, the server's database on the same Postgres
    sqlite   eight workflows in eight processes on SQLite and a folder: what `mutoscope up` gives one person

Afterwards the catalog, the store and a journal that the card itself writes are asked what became of every
run: none lost, none computed twice, every output stored. Postgres syncs its commits to the disk, as a
database that people rely on does.

Bar: nothing lost or duplicated, no "database is locked" in anything that a user sees, and 100 runs a second
or the limit with what sets it: the share of the processors that each part takes is in the record. Everything
shares this machine, so the processors are the first limit.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
CARDS = "tests.support.tinycard.card:CARD"
os.environ.update(OMP_NUM_THREADS="1", MUTOSCOPE_CARDS=CARDS)

from mutoscope.platform.orchestration.stack import FLOW_RETRIES  # noqa: E402
from tests.bench import environment  # noqa: E402
from tests.bench.load.account import FIRST_SEED, account, is_sound  # noqa: E402
from tests.bench.load.groups import Group, Meter  # noqa: E402
from tests.bench.prefect_server import QUIET, prefect_server  # noqa: E402
from tests.support.servers import Databases, PostgresServer, S3Server, Server  # noqa: E402
from tests.support.tinycard.program import JOURNAL  # noqa: E402
from tests.support.workshop import Workshop  # noqa: E402

RESULT = ROOT / "tests/bench/results/load.json"
BAR_RUNS_PER_SECOND = 100.0
BUCKET = "load"
PATIENT = {"PREFECT_CLIENT_MAX_RETRIES": str(FLOW_RETRIES), "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500,504"}
"""As the stack tells its flow processes: a Prefect server on SQLite answers 503 where writers collide."""

S = TypeVar("S", bound=Server)
LOCKED = re.compile(r"database (table )?is locked", re.IGNORECASE)


class SyncedPostgres(PostgresServer):
    """One that keeps its commits through a power cut, unlike the tests'."""

    def command(self) -> Sequence[str]:
        lazy = {"fsync=off": "fsync=on", "synchronous_commit=off": "synchronous_commit=on"}
        return [lazy.get(part, part) for part in super().command()]


@dataclass(frozen=True)
class Load:
    """How much of what.

    Attributes:
        processes: how many processes the flows are spread over.
        at_once: runs that one flow waits for at a time.
    """

    name: str
    runs: int
    flows: int
    processes: int
    workers: int
    at_once: int
    prefect: bool

    @property
    def config(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "name"}


@dataclass(frozen=True)
class Site:
    """A running installation: its home, what its processes are told, and whose processor time is counted."""

    workshop: Workshop
    folder: Path
    variables: Mapping[str, str]
    groups: Mapping[str, Group]

    @property
    def journal(self) -> Path:
        return self.folder / "journal"


@contextmanager
def embedded(folder: Path, load: Load) -> Iterator[Site]:
    """SQLite and a folder, and a Prefect server on SQLite."""
    with ExitStack() as stack:
        workshop = Workshop(folder / "home")
        stack.callback(workshop.close)
        server = stack.enter_context(prefect_server(folder, workshop.environment()))
        yield Site(workshop, folder, {"PREFECT_API_URL": server.url}, {"prefect server": Group([server.pid])})


def started(stack: ExitStack, server: S) -> S:
    """The server, which lives as long as the stack."""
    stack.callback(server.close)
    server.start()
    return server


@contextmanager
def served(folder: Path, load: Load) -> Iterator[Site]:
    """Postgres, S3, and a Prefect server if the load wants one."""
    with ExitStack() as stack:
        # One by one: a port counts as free until its server listens.
        postgres = started(stack, SyncedPostgres())
        s3 = started(stack, S3Server())
        s3.create_bucket(BUCKET)
        credentials = s3.writer.environment(s3.endpoint)
        os.environ.update(credentials)
        databases = Databases(postgres.url())
        workshop = Workshop(folder / "home", database_url=databases.create(), store_url=f"s3://{BUCKET}")
        stack.callback(workshop.close)
        groups = {"postgres": Group([postgres.pid]), "s3": Group([s3.pid])}
        variables = dict(credentials)
        if load.prefect:
            its = stack.enter_context(prefect_server(folder, workshop.environment(), databases.create()))
            groups["prefect server"] = Group([its.pid])
            variables["PREFECT_API_URL"] = its.url
        yield Site(workshop, folder, variables, groups)


def measure(load: Load, site: Site) -> dict[str, Any]:
    """Run the flows and account for them."""
    with ExitStack() as stack:
        told = {**site.variables, **PATIENT, **QUIET, JOURNAL: str(site.journal)}
        told["PREFECT_HOME"] = str(site.folder / "p")
        workers = [stack.enter_context(site.workshop.worker(fresh=True, **told)) for _ in range(load.workers)]
        for worker in workers:
            worker.wait_ready()
        flows = [stack.enter_context(Flows(load, number, site, told)) for number in range(load.processes)]
        for one in flows:
            one.wait_ready()
        meter = Meter(
            {
                **site.groups,
                "workers": Group([worker.pid for worker in workers]),
                "flows": Group([one.pid for one in flows]),
            }
        )
        began = time.perf_counter()
        for one in flows:
            one.begin()
        ended = [one.end() for one in flows]
        seconds, took = time.perf_counter() - began, meter.since()
        found = account(site.workshop.catalog, site.workshop.store, site.journal, load.runs)
        said = "".join([*(one.log for one in flows), *(worker.log for worker in workers)])
    return {
        "config": load.config,
        **found,
        "sound": is_sound(found, load.runs),
        "flows_done": sum(one["done"] for one in ended),
        "failures": [failure for one in ended for failure in one["failures"]],
        "locked_seen_by_users": len(LOCKED.findall(said)),
        "wall_seconds": seconds,
        "cpu_seconds": {name: round(value, 2) for name, value in took.items()},
        "cpu_ms_a_run": {name: round(value / load.runs * 1e3, 2) for name, value in took.items()},
        "share_of_all_cores": round(sum(took.values()) / seconds / (os.cpu_count() or 1), 3),
    }


class Flows:
    """One process with its part of the flows."""

    def __init__(self, load: Load, number: int, site: Site, told: Mapping[str, str]) -> None:
        flows, runs = load.flows // load.processes, load.runs // load.flows
        self._log = site.folder / f"flows-{number}.log"
        arguments = {
            "--seed": FIRST_SEED + number * flows * runs,
            "--flows": flows,
            "--runs": runs,
            "--at-once": load.at_once,
        }
        command = [sys.executable, "-m", "tests.bench.load.flows"]
        command += [text for pair in arguments.items() for text in map(str, pair)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, *(["--prefect"] if load.prefect else [])],
                env={**site.workshop.environment(), **told}, cwd=ROOT,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", self.log

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.log
        return dict(json.loads(line))

    def __enter__(self) -> Flows:
        return self

    def __exit__(self, *failure: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()


def show(record: Mapping[str, Any]) -> None:
    """The figures, and what to make of them."""
    for name, found in record["loads"].items():
        queue, config = found["queue_ms"], found["config"]
        print(
            f"{name:8} {found['succeeded']} runs of {config['flows']} flows in {found['seconds']:.1f} s: "
            f"{found['runs_per_second']:.0f} a second; "
            f"queued p50 {queue['p50']:.0f} ms, p99 {queue['p99']:.0f} ms; "
            f"lost {found['lost']}, duplicated {found['duplicated'] + found['computed_again']}, "
            f"locked {found['locked_seen_by_users']}: {'sound' if found['sound'] else 'NOT SOUND'}"
        )
        shares = ", ".join(f"{part} {value:.1f}" for part, value in found["cpu_ms_a_run"].items())
        print(f"{'':8} ms of a core a run: {shares}; {found['share_of_all_cores']:.0%} of all cores")
        for failure in found["failures"]:
            print(f"{'':8} {failure}")
    if not record["representative"]:
        busy, cores = record["busy_cores_of_others"], record["machine"]["cores"]
        print(f"Not representative: others kept {busy:.1f} of {cores} cores busy. Repeat on an idle machine.")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure many flows at once.")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--flows", type=int, default=20)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--flow-processes", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--only", default="plain,prefect,sqlite")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    busy = environment.others_load()
    much = (options.runs, options.flows, options.flow_processes, options.workers, options.at_once)
    few = min(400, options.runs)
    loads = {
        "plain": (served, Load("plain", *much, prefect=False)),
        "prefect": (served, Load("prefect", *much, prefect=True)),
        "sqlite": (embedded, Load("sqlite", few, 8, 8, 2, options.at_once, prefect=True)),
    }
    found = {}
    for name in options.only.split(","):
        site, load = loads[name]
        with (
            tempfile.TemporaryDirectory(prefix="mutoscope-load-") as folder,
            site(Path(folder), load) as running,
        ):
            found[name] = measure(load, running)
    record = {
        "benchmark": "load",
        **environment.describe(),
        "busy_cores_of_others": round(busy, 2),
        "representative": not environment.is_busy(busy),
        "bars": {"runs_per_second": BAR_RUNS_PER_SECOND, "lost": 0, "duplicated": 0, "locked": 0},
        "loads": found,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    show(record)


if __name__ == "__main__":
    main()
