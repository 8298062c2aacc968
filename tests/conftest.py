"""Fixtures that several parts share. Prefect keeps away from the user's own profile and calls nobody."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

# Before anything imports Prefect, which reads them once.
os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="mutoscope-prefect-")
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["DO_NOT_TRACK"] = "1"


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """A Prefect server for the session. It takes about ten seconds to start, so only tests of the seam ask
    for it.
    """
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    # The variable that switches heartbeats off does not exist; None does. A heartbeat thread outlives its
    # test.
    with (
        prefect_test_harness(server_startup_timeout=600),
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
    ):
        yield
