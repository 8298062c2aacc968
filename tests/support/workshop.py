"""A home with a migrated catalog, a store and the test card's weights, and real worker processes to serve
it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mutoscope.platform import ids
from mutoscope.platform.artifacts import ArtifactRef, ArtifactStore
from mutoscope.platform.catalog import Catalog, Enqueued, RunRecord, RunSpec
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.card import RECIPE
from mutoscope.platform.orchestration.importing import import_folder, read_recipe
from mutoscope.platform.settings import Settings
from tests.support.deadline import until
from tests.support.empty import put_catalog
from tests.support.forked import ForkedWorker
from tests.support.tinycard.card import CARD
from tests.support.tinycard.folder import write_folder

ROOT = Path(__file__).parents[2]
CARD_VARIABLE = "tests.support.tinycard.card:CARD"


class WorkerProcess:
    """A worker in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes] | ForkedWorker, log: Path, catalog: Catalog) -> None:
        self.process = process
        self._log = log
        self._catalog = catalog

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def id(self) -> str | None:
        """The id it registered with; None before that."""
        return next((w.id for w in self._catalog.workers.list() if w.pid == self.pid), None)

    def state(self) -> str | None:
        """What its row says; None before it registers."""
        return next((w.state for w in self._catalog.workers.list() if w.pid == self.pid), None)

    def wait_ready(self) -> WorkerProcess:
        """Wait until its cards are loaded."""
        until(lambda: self._alive() and self.state() == "ready", f"worker {self.pid} ready")
        return self

    def wait_exit(self) -> int:
        """Wait for its end; returns the exit code (negative: the signal that killed it)."""
        until(lambda: self.process.poll() is not None, f"exit of worker {self.pid}")
        assert self.process.returncode is not None
        return self.process.returncode

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def _alive(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"worker {self.pid} ended with {self.process.returncode}:\n{self.log}")
        return True


class Workshop:
    """One home. Everything in it is real; only the model is tiny."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.settings = Settings(home=home, **settings)
        self._extra = {f"MUTOSCOPE_{name.upper()}": str(value) for name, value in settings.items()}
        if "database_url" in settings or (home / "catalog.db").exists():
            Catalog.migrate(self.settings.database_url)
        else:
            put_catalog(home)
        self.catalog = Catalog.open(self.settings.database_url)
        self.store = ArtifactStore.open(self.settings.store_url)
        self.contract = numerics.cpu_contract(self.settings.threads)
        self.import_weights()

    def import_weights(self, **recipe: Any) -> None:
        """Make (new) weights live."""
        folder = self.settings.home / "folders" / ids.new_id()
        import_folder(self.catalog, self.store, CARD, write_folder(folder, **recipe))

    def spec(
        self, *, seed: int = 0, image: ArtifactRef | None = None, shared: bool = True, **parameters: Any
    ) -> RunSpec:
        """A run of the test card at its live weights. Not `shared`: without a memo key."""
        weights = {name: version.digest for name, version in self.catalog.weights.live(CARD.id).items()}
        recipe = read_recipe(self.store, CARD, weights[RECIPE])
        inputs = {} if image is None else {"image": image}
        parts = {
            "card": numerics.card_digest(CARD),
            "contract": self.contract,
            "parameters": CARD.resolve(parameters, recipe),
            "seed": seed,
            "inputs": {slot: ref.digest for slot, ref in inputs.items()},
            "weights": weights,
        }
        return RunSpec(
            kind="engine",
            card=CARD.id,
            card_digest=parts["card"],
            contract=numerics.contract_digest(self.contract),
            parameters=parts["parameters"],
            seed=seed,
            inputs=inputs,
            weights=weights,
            key_parts=parts,
            memo_key=ids.digest("mutoscope.test-memo/1", parts) if shared else None,
            max_attempts=self.settings.max_attempts,
        )

    def enqueue(self, **wanted: Any) -> Enqueued:
        """Queue `spec(**wanted)`."""
        return self.catalog.runs.enqueue(self.spec(**wanted), present=self.store.contains)

    def run(self, **wanted: Any) -> RunRecord:
        """Queue a run and wait for its end."""
        return self.wait(self.enqueue(**wanted).run.id)

    def wait(self, run_id: str, state: str | None = None) -> RunRecord:
        """The run, once it is finished, or in `state`."""

        def look() -> RunRecord | None:
            run = self.catalog.runs.get(run_id)
            return run if (run.state == state if state else run.finished) else None

        return until(look, f"run {run_id} {state or 'finished'}")

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a process needs to find this home and the test card."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MUTOSCOPE_", "PREFECT_"))
        }
        return {
            **inherited,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "MUTOSCOPE_HOME": str(self.settings.home),
            "MUTOSCOPE_CARDS": CARD_VARIABLE,
            **self._extra,
            **(extra or {}),
        }

    @contextmanager
    def worker(self, *arguments: str, fresh: bool = False, **environment: str) -> Iterator[WorkerProcess]:
        """A worker process; killed at the end if it still lives.

        Args:
            fresh: a new interpreter, as users start it, rather than a fork of one that has imported torch.
        """
        log = self.settings.home / f"worker-{ids.new_id()}.log"
        process = self._start(("--card", CARD.id, *arguments), self.environment(environment), log, fresh)
        try:
            yield WorkerProcess(process, log, self.catalog)
        finally:
            process.kill()
            process.wait()

    def _start(
        self, arguments: tuple[str, ...], environment: dict[str, str], log: Path, fresh: bool
    ) -> subprocess.Popen[bytes] | ForkedWorker:
        if not fresh:
            return ForkedWorker(arguments, environment, log)
        with log.open("wb") as stream:
            command = [sys.executable, "-m", "mutoscope.workers", *arguments]
            return subprocess.Popen(command, env=environment, stdout=stream, stderr=stream)

    def close(self) -> None:
        self.catalog.close()
