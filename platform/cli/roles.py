"""What a host of a stack does: `mutoscope up --only gateway,workers`.

One host does everything by default. Several share one Postgres, one S3 store and one Prefect server, each in
the roles it is asked for; nothing else ties them together, and none needs to know of the others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from mutoscope.platform.errors import InvalidInput, InvalidParameter
from mutoscope.platform.settings import Settings

SERVER, GATEWAY, WORKERS, FLOWS, RECONCILER = "server", "gateway", "workers", "flows", "reconciler"
ROLES = (SERVER, GATEWAY, WORKERS, FLOWS, RECONCILER)
"""In the order in which they start. `server` is Prefect's; a host that has it also prepares the catalog."""

ASKS_PREFECT = frozenset({FLOWS, RECONCILER})
"""Roles that are of no use without a Prefect server. Workers and the gateway never talk to one."""


def chosen(text: str | None) -> tuple[str, ...]:
    """The roles in a comma-separated list, in starting order; all of them for None.

    Raises:
        InvalidParameter: a name that is no role, or none at all.
    """
    if text is None:
        return ROLES
    named = {name.strip() for name in text.split(",") if name.strip()}
    if not named or not named <= set(ROLES):
        raise InvalidParameter("only", text, f"use some of {', '.join(ROLES)}, separated by commas")
    return tuple(role for role in ROLES if role in named)


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a host finds the servers, its own or those of others; empty where it knows none."""

    prefect_api_url: str
    prefect_ui_url: str
    web_url: str


def addresses(
    roles: tuple[str, ...],
    settings: Settings,
    port: int,
    web_port: int,
    environ: Mapping[str, str] = os.environ,
) -> Addresses:
    """Addresses of what this host starts; for what it does not start, those it was given.

    Raises:
        InvalidInput: a role needs a Prefect server that is neither started here nor named.
    """
    host = reachable(settings.host)
    api = environ.get("PREFECT_API_URL", "").rstrip("/")
    if SERVER in roles:
        api = f"http://{host}:{port}/api"
    missing = ASKS_PREFECT.intersection(roles)
    if not api and missing:
        raise InvalidInput(
            f"--only {','.join(roles)} starts no Prefect server, and PREFECT_API_URL names none: set it to "
            "the address of the shared one, such as http://10.0.0.5:4200/api, or add server to --only"
        )
    web = settings.web_url or (f"http://{host}:{web_port}" if GATEWAY in roles else "")
    return Addresses(api, environ.get("PREFECT_UI_URL") or api.removesuffix("/api"), web)


def reachable(host: str) -> str:
    """`host` as an address to connect to: a server that listens everywhere is also found on loopback."""
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"
    return f"[{host}]" if ":" in host else host
