"""The processes of a stack: what is started, with which environment, and how each shows that it is ready."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mutoscope.platform.cli.api import answers, get_json
from mutoscope.platform.cli.roles import reachable
from mutoscope.platform.cli.supervisor import Service
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.orchestration.stack import POOL, POOL_RETRIES

ANSWER_SECONDS = 10.0
"""How long the Prefect server may take to answer a question about its pool: on a busy machine, seconds."""

GPU_WORKER_DRAIN_SECONDS = 45.0
"""A worker hands back after 30 s what it has not finished; reporting that takes a moment more."""


def free_port(host: str, wanted: int, *, insist: str | None = None) -> int:
    """`wanted` if it is free, else any free port.

    Args:
        insist: name of the option that asked for this very port; then a taken port is an error.
    """
    for port in (wanted, 0):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                if insist is not None:
                    raise InvalidParameter(
                        insist, wanted, "the port is taken; name another one or none"
                    ) from None
                continue
            return int(probe.getsockname()[1])
    raise InvalidParameter("host", host, "use an address of this machine, such as 127.0.0.1")


def prefect_server(host: str, port: int, environment: Mapping[str, str]) -> Service:
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", host, "--port", str(port)]
    health = f"{environment['PREFECT_API_URL']}/health"
    return Service("prefect-server", command, environment, ready=lambda pid: answers(health))


def gateway(host: str, port: int, environment: Mapping[str, str]) -> Service:
    command = [sys.executable, "-m", "mutoscope.platform.web", "--host", host, "--port", str(port)]
    # At its own address: the public one may lie behind a proxy that asks for a password.
    health = f"http://{reachable(host)}:{port}/health"
    return Service("gateway", command, environment, ready=lambda pid: answers(health))


def gpu_worker(
    number: int,
    environment: Mapping[str, str],
    registered: Callable[[int], bool],
    cards: Sequence[str] = (),
) -> Service:
    """A worker.

    Args:
        registered: tells whether the catalog lists a live worker with that pid.
        cards: what it serves; all cards when empty.
    """
    serving = [word for card in cards for word in ("--card", card)]
    return Service(
        f"worker-{number}",
        [sys.executable, "-m", "mutoscope.workers", *serving],
        environment,
        ready=registered,
        drain_seconds=GPU_WORKER_DRAIN_SECONDS,
        team="workers",
    )


def deployments(environment: Mapping[str, str]) -> Service:
    command = [sys.executable, "-m", "mutoscope.platform.orchestration.deployments"]
    return Service("deployments", command, environment, ready=lambda pid: False, once=True, attempts=5)


def reconciler(environment: Mapping[str, str]) -> Service:
    """It has no port and no row of its own: it is of use as soon as it runs."""
    command = [sys.executable, "-m", "mutoscope.platform.orchestration.reconciler"]
    return Service("reconciler", command, environment, ready=lambda pid: True)


def flow_pool(name: str, environment: Mapping[str, str]) -> Service:
    """The ordinary process pool in which submitted flows run. It keeps no GPU and no model."""
    command = [sys.executable, "-m", "mutoscope.platform.orchestration.pool", "--name", name]
    api, auth = environment["PREFECT_API_URL"], environment.get("PREFECT_API_AUTH_STRING")
    patient = {**environment, "PREFECT_CLIENT_MAX_RETRIES": str(POOL_RETRIES)}
    return Service("flow-pool", command, patient, ready=lambda pid: pool_worker_online(api, name, auth))


def pool_worker_online(api_url: str, name: str, auth: str | None = None) -> bool:
    url = f"{api_url}/work_pools/{POOL}/workers/filter"
    try:
        workers = get_json(url, body={}, timeout=ANSWER_SECONDS, auth=auth)
    except (OSError, ValueError):
        return False
    return any(worker.get("name") == name and worker.get("status") == "ONLINE" for worker in workers)


def log_folder(home: Path) -> Path:
    return home / "logs"
