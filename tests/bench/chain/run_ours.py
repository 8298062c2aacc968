"""The chain on this platform, with the worker that serves it: `run_ours.py` as plain awaits, `run_ours.py
prefect` as a workflow, which is a Prefect flow whose steps are tasks.

The home is the working directory; SQLite catalog and file store as `mutoscope up` has them.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))
CARDS = "tests.bench.chain.card:LINK"
os.environ.update(MUTOSCOPE_CARDS=CARDS, MUTOSCOPE_HOME=os.getcwd(), OMP_NUM_THREADS="1")

from mutoscope.platform.artifacts import ArtifactStore  # noqa: E402
from mutoscope.platform.catalog import Catalog  # noqa: E402
from mutoscope.platform.orchestration.runtime import Runtime, use_runtime  # noqa: E402
from mutoscope.platform.settings import get_settings  # noqa: E402
from tests.bench.chain import link  # noqa: E402
from tests.support.deadline import until  # noqa: E402


def start_worker(catalog: Catalog) -> subprocess.Popen[bytes]:
    """A worker process, as users start it; returns when it is ready."""
    log = Path("worker.log").open("ab")  # noqa: SIM115  # the worker's, for as long as it lives
    process = subprocess.Popen(
        [sys.executable, "-m", "mutoscope.workers", "--card", "chain-link"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    pid = process.pid
    until(lambda: any(w.pid == pid and w.state == "ready" for w in catalog.workers.list()), "the worker")
    return process


def main() -> None:
    settings = get_settings()
    Catalog.migrate(settings.database_url)
    catalog = Catalog.open(settings.database_url)
    worker = start_worker(catalog)

    from tests.bench.chain.workflow import chain, links

    body = chain if "prefect" in sys.argv else links
    try:
        with use_runtime(Runtime(settings, catalog, ArtifactStore.of(settings))):
            link.serve(lambda seed, steps: asyncio.run(body(seed, steps)).digest)
    finally:
        worker.terminate()
        worker.wait()


if __name__ == "__main__":
    main()
