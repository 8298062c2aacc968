"""ready: is a part of the stack of use? For probes, for start scripts, and for people."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from mutoscope.platform.cli import render
from mutoscope.platform.errors import InvalidParameter, MutoscopeError

if TYPE_CHECKING:
    from mutoscope.platform.cli.home import Home

LOOK_SECONDS = 0.5


def ready(
    what: Annotated[
        list[str] | None, typer.Argument(help="catalog, store, server, gateway or worker (default: catalog).")
    ] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to go on asking before giving up.")] = 0.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Tell whether parts of the stack can be used from here. Exit code 1 when one of them cannot.

    catalog: it answers, with this version's schema. store: it answers, and is the catalog's own. server: the
    Prefect API answers. gateway: it answers and reaches the catalog. worker: one on this host takes runs.

    Example: mutoscope ready catalog server --wait 60
    """
    wanted = what or ["catalog"]
    for name in wanted:
        if name not in CHECKS:
            raise InvalidParameter("what", name, f"use some of {', '.join(CHECKS)}")
    deadline = time.monotonic() + wait
    while True:
        faults = {name: fault for name in wanted if (fault := _fault(name)) is not None}
        if not faults or time.monotonic() >= deadline:
            break
        time.sleep(LOOK_SECONDS)
    if json:
        render.emit_json({name: {"ready": name not in faults, "fault": faults.get(name)} for name in wanted})
    else:
        for name in wanted:
            render.say(f"{name:<8} {faults.get(name, 'ready')}")
    if faults:
        raise typer.Exit(1)


def _fault(name: str) -> str | None:
    """What is wrong, in one line; None when nothing is. Asked with fresh handles each time."""
    from mutoscope.platform.cli.home import Home, handles

    try:
        return CHECKS[name](Home())
    except InvalidParameter:
        raise
    except MutoscopeError as error:
        return str(error)
    finally:
        handles.close()


def _catalog(home: Home) -> str | None:
    home.catalog.store()
    return None


def _store(home: Home) -> str | None:
    home.store.marker()
    return None


def _server(home: Home) -> str | None:
    import os

    record = home.stack
    address = os.environ.get("PREFECT_API_URL") or (record.prefect_api_url if record else "")
    if not address:
        return "no Prefect server is known: start one with `mutoscope up`, or set PREFECT_API_URL"
    return _no_answer(f"{address.rstrip('/')}/health")


def _gateway(home: Home) -> str | None:
    record = home.stack
    address = record.web_url if record else home.settings.web_url
    if not address:
        return "no gateway is known: start one with `mutoscope up`, or set MUTOSCOPE_WEB_URL"
    return _no_answer(f"{address.rstrip('/')}/health")


def _worker(home: Home) -> str | None:
    import socket

    here = socket.gethostname()
    alive = home.catalog.workers.alive(within_seconds=home.settings.lease_seconds)
    states = [worker.state for worker in alive if worker.host == here]
    if any(state not in ("starting", "draining") for state in states):
        return None
    return f"no worker on {here} takes runs ({', '.join(states) or 'none is registered'})"


def _no_answer(url: str) -> str | None:
    from mutoscope.platform.cli.api import answers

    return None if answers(url) else f"{url} does not answer well"


CHECKS: Mapping[str, Callable[[Home], str | None]] = {
    "catalog": _catalog,
    "store": _store,
    "server": _server,
    "gateway": _gateway,
    "worker": _worker,
}
