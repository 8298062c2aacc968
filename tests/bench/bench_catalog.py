"""The catalog at a million artifacts and three million edges, on SQLite and on Postgres.

    python tests/bench/bench_catalog.py [--steps 417] [--finished-runs 1000000] [--databases sqlite postgres]
                                        [--output FILE]

A made-up history of reinforcement learning (`tests/support/big.py`) goes in through `Catalog.bulk`; then
each question is asked many times over, warm, of rows drawn evenly from the whole history. Beside each median
stands its floor: the very statements that the call sent, sent again through the bare driver (`sqlite3`,
`psycopg`) on a connection of its own, rows fetched and dropped. What lies between is what SQLAlchemy and our
records cost. For bulk recording the floor is the driver's fastest way to insert the same rows into the same
tables: `executemany`, and COPY.

The figures decide the shape of the indexes, that a closure can be had as ids alone, that the queue's index is
partial and in claiming order, and that bulk recording does without SQLAlchemy's inserts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from sqlalchemy import event  # noqa: E402

from mutoscope.platform.catalog import Catalog, closure  # noqa: E402
from mutoscope.platform.catalog.tables import artifacts, edges, runs  # noqa: E402
from tests.bench import environment  # noqa: E402
from tests.support import big  # noqa: E402
from tests.support.records import LEASE, SERVES, a_spec, absent, present  # noqa: E402
from tests.support.servers import Databases, PostgresServer  # noqa: E402

RESULT = ROOT / "tests/bench/results/catalog.json"
BULK_STEPS = 10
BULK_BAR = 20_000
"""Edges a second, with the artifacts and runs at their ends."""

Statement = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """A call of the catalog, the things to ask it about, and how fast its median must be in milliseconds.

    Attributes:
        floor: sends the statements to be sent again bare; the call itself by default.
    """

    name: str
    ask: Callable[[Any], object]
    about: Sequence[Any]
    bar_ms: float
    floor: Callable[[Any], object] | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """How much there is: a history, and runs that have ended beside it up to so many in all."""

    shape: big.Shape
    finished_runs: int


@dataclass(slots=True)
class Bench:
    """One database under measurement."""

    catalog: Catalog
    driver: Any
    history: big.History = field(init=False)

    def fill(self, scale: Scale) -> dict[str, Any]:
        """Record the history; how long it took."""
        started = time.perf_counter()
        self.history = big.history(self.catalog, scale.shape)
        seconds = time.perf_counter() - started
        big.finished_runs(self.catalog, scale.finished_runs - self.history.runs)
        self.settle()
        told = self.history
        return {
            "artifacts": told.artifacts,
            "edges": told.edges,
            "finished_runs": max(scale.finished_runs, told.runs),
            "seconds_with_making_them_up": round(seconds, 1),
            "edges_per_second_with_making_them_up": round(told.edges / seconds),
        }

    def settle(self) -> None:
        """What a server does by itself within a minute: statistics, and which pages all may see. SQLite is
        left as it is: nothing gives it statistics in use either."""
        if not self.catalog._database.is_sqlite:
            self.driver.execute("vacuum analyze")

    def questions(self) -> list[Question]:
        """Those of everyday; the bars are the project's."""
        lineage, runs_, weights, told = (
            self.catalog.lineage,
            self.catalog.runs,
            self.catalog.weights,
            self.history,
        )
        images = _spread(told.images, 200)
        steps = len(told.versions) - 1
        one_step, many_steps = told.versions[1], told.versions[min(33, steps)]
        return [
            Question("weights of an image", lambda d: lineage.weights_of(d, 1), images, 1.0),
            Question("closure of one step", lineage.closure, [one_step] * 20, 15.0, self._walk),
            Question("closure of 33 steps", lineage.closure, [many_steps] * 5, 500.0, self._walk),
            Question("weights made, first page", lineage.made, _spread(told.versions[:-1], 50), 20.0),
            Question(
                "weights made, first page, used by every run",
                lineage.made, [weights.get(f"{big.CARD}/vae@1").digest] * 20, 20.0,
            ),
            Question("memo lookup", lambda k: runs_._find_hit(k, present), _spread(told.memo_keys, 200), 1.0),
            Question("artifact by prefix", lambda d: self.catalog.artifacts.resolve(d[:12]), images, 1.0),
            Question("newest artifacts", lambda _: self.catalog.artifacts.list(limit=50), [None] * 50, 5.0),
            Question("live weights of a card", weights.live, [big.CARD] * 100, 1.0),
        ]  # fmt: skip

    def measure(self, question: Question) -> dict[str, Any]:
        """The median of the call and of its statements through the bare driver."""
        question.ask(question.about[0])
        ours = [_timed(lambda thing=thing: question.ask(thing)) for thing in question.about]
        bare = [self._bare(question, thing) for thing in question.about]
        return _figures(ours, question.bar_ms, bare)

    def _bare(self, question: Question, thing: Any) -> float:
        with self._overheard() as sent:
            (question.floor or question.ask)(thing)

        def replay() -> None:
            for statement, parameters in sent:
                self.driver.execute(statement, parameters).fetchall()

        return _timed(replay)

    def _walk(self, digest: str) -> None:
        """A closure as one recursive statement, which SQLite's own walk (`catalog.breadth`) must beat."""
        database = self.catalog._database
        statement = closure.ids(closure.Way(down=False), lateral=not database.is_sqlite)
        with database.read() as connection:
            connection.execute(statement, {"root": digest}).all()

    @contextmanager
    def _overheard(self) -> Iterator[list[Statement]]:
        sent: list[Statement] = []

        def note(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: object) -> None:
            sent.append((statement, parameters))

        engine = self.catalog._database.engine
        event.listen(engine, "before_cursor_execute", note)
        yield sent
        event.remove(engine, "before_cursor_execute", note)

    def claims(self, waiting: int, rounds: int, bar_ms: float) -> dict[str, Any]:
        """Claiming one run while so many wait, beside a million that have ended."""
        spec = a_spec(None)
        queued = [self.catalog.runs.enqueue(spec, present=absent).run.id for _ in range(waiting)]
        taken: list[float] = []
        for _ in range(rounds):
            taken.append(_timed(lambda: self.catalog.runs.claim("bench", SERVES, LEASE)))
            self.catalog.runs.enqueue(spec, present=absent)
        for run in queued:
            self.catalog.runs.request_cancel(run, force=True)
        while left := self.catalog.runs.list(state="queued", limit=1000):
            for each in left:
                self.catalog.runs.request_cancel(each.id, force=True)
        return _figures(taken, bar_ms, None)


def bulk(catalog: Catalog, bare: Catalog) -> dict[str, Any]:
    """Edges a second of a part of a history, into empty tables: through `Catalog.bulk`, and bare."""
    rows = big.rows_of(big.Shape(steps=BULK_STEPS))
    ours = _timed(lambda: rows.record(catalog)) / 1000
    with catalog._database.read() as connection:
        columns = {
            table.name: (
                list(table.c.keys()),
                connection.exec_driver_sql(f"select * from {table.name}").all(),
            )
            for table in (artifacts, runs, edges)
        }
    floor = _timed(lambda: _insert_bare(bare, columns)) / 1000
    rate, floor_rate = len(rows.edges) / ours, len(rows.edges) / floor
    return {
        "edges": len(rows.edges),
        "edges_per_second": round(rate),
        "bar": BULK_BAR,
        "met": rate >= BULK_BAR,
        "bare_edges_per_second": round(floor_rate),
        "ratio_to_bare": round(floor_rate / rate, 2),
    }


def _insert_bare(catalog: Catalog, columns: dict[str, tuple[list[str], list[Any]]]) -> None:
    with catalog._database.write() as connection:
        driver: Any = connection.connection.driver_connection
        for table, (names, rows) in columns.items():
            listed = ", ".join(names)
            if catalog._database.is_sqlite:
                marks = ", ".join("?" * len(names))
                driver.executemany(f"insert into {table} ({listed}) values ({marks})", map(tuple, rows))
                continue
            with driver.cursor().copy(f"copy {table} ({listed}) from stdin") as copy:
                for row in rows:
                    copy.write_row([json.dumps(v) if isinstance(v, dict) else v for v in row])


def _timed(call: Callable[[], object]) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000


def _figures(ours: Sequence[float], bar_ms: float, bare: Sequence[float] | None) -> dict[str, Any]:
    median = statistics.median(ours)
    figures: dict[str, Any] = {
        "asked": len(ours),
        "p50_ms": round(median, 3),
        "p95_ms": round(sorted(ours)[int(0.95 * (len(ours) - 1))], 3),
        "bar_ms": bar_ms,
        "met": median <= bar_ms,
    }
    if bare is not None:
        figures |= {
            "bare_p50_ms": round(statistics.median(bare), 3),
            "ratio_to_bare": round(median / statistics.median(bare), 2),
        }
    return figures


def _spread(things: Sequence[Any], count: int) -> list[Any]:
    """About so many of them, evenly apart."""
    return list(things[:: max(1, len(things) // count)])[:count]


def one_database(url: str, blank: Callable[[], str], driver: Any, scale: Scale) -> dict[str, Any]:
    """Every figure of one kind of database."""
    for each in (url, first := blank(), second := blank()):
        Catalog.migrate(each)
    empty, bare = Catalog.open(first), Catalog.open(second)
    result: dict[str, Any] = {"bulk": bulk(empty, bare)}
    empty.close()
    bare.close()
    bench = Bench(Catalog.open(url), driver(url))
    result["filled"] = bench.fill(scale)
    result["questions"] = {question.name: bench.measure(question) for question in bench.questions()}
    result["questions"]["claim, one waiting"] = bench.claims(1, 100, 5.0)
    result["questions"]["claim, 600 waiting"] = bench.claims(600, 100, 5.0)
    bench.driver.close()
    bench.catalog.close()
    return result


def on_sqlite(folder: Path, scale: Scale) -> dict[str, Any]:
    import sqlite3

    names = iter(range(100))

    def bare(url: str) -> Any:
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("PRAGMA cache_size = -65536")
        return connection

    def blank() -> str:
        return f"sqlite:///{folder / f'{next(names)}.db'}"

    return {"version": sqlite3.sqlite_version, **one_database(blank(), blank, bare, scale)}


def on_postgres(folder: Path, scale: Scale) -> dict[str, Any]:
    import psycopg

    def bare(url: str) -> Any:
        return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)

    server = PostgresServer()
    server.start()
    try:
        databases = Databases(server.url())
        with bare(server.url()) as connection:
            (version,) = connection.execute("show server_version").fetchone()
        return {"version": version, **one_database(databases.create(), databases.create, bare, scale)}
    finally:
        server.close()


DATABASES = {"sqlite": on_sqlite, "postgres": on_postgres}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=big.MILLION.steps, help="train steps; 417: a million")
    parser.add_argument("--finished-runs", type=int, default=1_000_000)
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=list(DATABASES))
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    scale = Scale(big.Shape(steps=arguments.steps), arguments.finished_runs)
    load = environment.others_load()
    result: dict[str, Any] = {
        "environment": environment.describe(),
        "others_load_cores": round(load, 2),
        "busy_machine": environment.is_busy(load),
        "history": {"steps": arguments.steps, "prompts": big.MILLION.prompts, "samples": big.MILLION.samples},
    }
    for name in arguments.databases:
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="mutoscope-bench-") as folder:
            result[name] = DATABASES[name](Path(folder), scale)
        result[name]["seconds"] = round(time.perf_counter() - started)
        report(name, result[name])
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=2) + "\n")


def report(name: str, result: dict[str, Any]) -> None:
    """A table for people."""
    filled, rate = result["filled"], result["bulk"]
    print(f"\n{name} {result['version']}: {filled['artifacts']:,} artifacts, {filled['edges']:,} edges")
    print(f"  {'bulk':<45} {rate['edges_per_second']:>9,} edges/s  bare {rate['bare_edges_per_second']:,}")
    for question, told in result["questions"].items():
        bare = f"bare {told['bare_p50_ms']:.3f}" if "bare_p50_ms" in told else ""
        missed = "" if told["met"] else f"  ABOVE {told['bar_ms']} ms"
        print(f"  {question:<45} {told['p50_ms']:>9.3f} ms  {bare}{missed}")


if __name__ == "__main__":
    main()
