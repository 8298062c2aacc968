"""The processes of a stack: what is started, with which environment, and how each shows that it is ready."""

from __future__ import annotations

import json
import socket
import sys
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mutoscope.platform.cli.supervisor import Service
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.orchestration.stack import POOL

_LOOPBACK = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The stack's own servers are never behind a proxy, whatever the environment says."""

GPU_WORKER_DRAIN_SECONDS = 30.0


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


def get_json(url: str, *, body: Mapping[str, Any] | None = None, timeout: float = 2.0) -> Any:
    """GET, or POST when there is a body. Raises OSError when nobody answers well."""
    request = urllib.request.Request(url, headers={"content-type": "application/json"})
    if body is not None:
        request.data = json.dumps(body).encode()
    with _LOOPBACK.open(request, timeout=timeout) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def answers(url: str) -> bool:
    """Whether a health address says that its server is up."""
    try:
        get_json(url)
    except (OSError, ValueError):
        return False
    return True


def prefect_server(host: str, port: int, environment: Mapping[str, str]) -> Service:
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", host, "--port", str(port)]
    health = f"{environment['PREFECT_API_URL']}/health"
    return Service("prefect-server", command, environment, ready=lambda pid: answers(health))


def gateway(host: str, port: int, environment: Mapping[str, str]) -> Service:
    command = [sys.executable, "-m", "mutoscope.platform.web", "--host", host, "--port", str(port)]
    health = f"{environment['MUTOSCOPE_WEB_URL']}/health"
    return Service("gateway", command, environment, ready=lambda pid: answers(health))


def gpu_worker(number: int, environment: Mapping[str, str], registered: Callable[[int], bool]) -> Service:
    """`registered` tells whether the catalog lists a live worker with that pid."""
    return Service(
        f"worker-{number}",
        [sys.executable, "-m", "mutoscope.workers"],
        environment,
        ready=registered,
        drain_seconds=GPU_WORKER_DRAIN_SECONDS,
    )


def deployments(environment: Mapping[str, str]) -> Service:
    command = [sys.executable, "-m", "mutoscope.platform.orchestration.deployments"]
    return Service("deployments", command, environment, ready=lambda pid: False, once=True, attempts=5)


def flow_pool(name: str, environment: Mapping[str, str]) -> Service:
    """The ordinary process pool in which submitted flows run. It keeps no GPU and no model."""
    command = [sys.executable, "-m", "mutoscope.platform.orchestration.pool", "--name", name]
    api = environment["PREFECT_API_URL"]
    return Service("flow-pool", command, environment, ready=lambda pid: pool_worker_online(api, name))


def pool_worker_online(api_url: str, name: str) -> bool:
    try:
        workers = get_json(f"{api_url}/work_pools/{POOL}/workers/filter", body={})
    except (OSError, ValueError):
        return False
    return any(worker.get("name") == name and worker.get("status") == "ONLINE" for worker in workers)


def log_folder(home: Path) -> Path:
    return home / "logs"
