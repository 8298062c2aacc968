"""`python -m tests.support.train_process NAME CONFIGURATION`: a training as a process that tests can kill."""

from __future__ import annotations

import asyncio
import json
import sys

from mutoscope.flows.rl.configuration import configuration_of
from mutoscope.flows.rl.training import train
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.orchestration.runtime import Runtime, use_runtime
from mutoscope.platform.settings import get_settings


def main() -> None:
    """Train."""
    settings = get_settings()
    catalog = Catalog.open(settings.database_url)
    name, configuration = sys.argv[1], configuration_of(json.loads(sys.argv[2]))
    with use_runtime(Runtime(settings, catalog, ArtifactStore.open(settings.store_url))):
        asyncio.run(train(name, configuration))
    catalog.close()


if __name__ == "__main__":
    main()
