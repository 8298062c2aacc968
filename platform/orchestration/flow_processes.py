"""Which flow runs have a process on this machine, as the machine itself knows.

A flow process needs seconds to import what it runs, minutes on a busy machine, before it can open its record.
Until then only the process list tells one that is slow from one that is gone.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import psutil
from prefect.client.schemas.objects import FlowRun

_VARIABLE = "PREFECT__FLOW_RUN_ID"
_WORKER = "prefect.worker.name"


def taken_here(flow_run: FlowRun) -> bool:
    """Whether the pool's worker on this host took it: such workers are named after their host."""
    return str(flow_run.labels.get(_WORKER, "")).startswith(socket.gethostname())


def executed_here() -> frozenset[str]:
    """Ids of the flow runs that some process of this machine was started for."""
    return frozenset(_ids())


def _ids() -> Iterator[str]:
    for process in psutil.process_iter():
        try:
            flow_run_id = process.environ().get(_VARIABLE)
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or another user's
        if flow_run_id:
            yield flow_run_id
