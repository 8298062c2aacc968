"""The record of a running stack: HOME/stack.json, and the environment its processes share.

`mutoscope up` writes the record; everyone else reads it to find the servers. It is telemetry of processes on
one machine, never a source of truth about runs. No Prefect here: the environment must be set before Prefect
is imported.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import MutableMapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from mutoscope.platform.durations import parse_duration
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.settings import Settings, get_settings

FORMAT = "mutoscope.stack/1"
POOL = "mutoscope"

HEARTBEAT_SECONDS = 30
"""How often a flow process says that it lives. `deployments` takes three missed beats for a dead process."""

FLOW_RETRIES = 7
"""Times a flow process repeats a request that the Prefect server does not answer, 2, 4, 8, ... seconds apart:
four minutes, after which the flow run fails and the catalog still knows what it made."""

POOL_RETRIES = 2
"""Times the pool's worker does: it asks every second anyway, and must not sleep long when the server is
back."""

_SHORTEST_KEEP_SECONDS = 3600.0
"""Prefect's own limit."""

StackState = Literal["starting", "ready", "stopping"]


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One child of the stack. `created` is the kernel's start time: with `pid` it names a process for
    good.
    """

    name: str
    pid: int
    created: float
    log: str
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class StackRecord:
    """What `up` runs: its own pid, the addresses, the children."""

    state: StackState
    pid: int
    created: float
    started_at: float
    prefect_api_url: str
    prefect_ui_url: str
    web_url: str
    processes: tuple[ProcessRecord, ...] = field(default=())

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> StackRecord:
        """Raises ValueError when the text is not a stack record of this format."""
        values: dict[str, Any] = json.loads(text)
        if values.pop("format", None) != FORMAT:
            raise ValueError(f"not a {FORMAT} record")
        values["processes"] = tuple(ProcessRecord(**process) for process in values["processes"])
        return cls(**values)

    def with_state(self, state: StackState) -> StackRecord:
        return replace(self, state=state)


def record_path(home: Path) -> Path:
    return home / "stack.json"


def read_record(home: Path) -> StackRecord | None:
    """The record of the home's stack, or None where there is none. Its processes may be dead all the same."""
    try:
        return StackRecord.from_json(record_path(home).read_text())
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        return None


def write_record(home: Path, record: StackRecord) -> None:
    """Replace the record in one step, so that a reader never sees half of it."""
    home.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=home, prefix=".stack-", suffix=".json")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(record.to_json())
        os.replace(temporary, record_path(home))
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def remove_record(home: Path) -> None:
    record_path(home).unlink(missing_ok=True)


def environment(
    home: Path, prefect_api_url: str, web_url: str, settings: Settings | None = None
) -> dict[str, str]:
    """Variables that tie a process to this stack; also what keeps Prefect from calling off the machine. An
    address that is not known leaves its variable alone."""
    settings = settings or get_settings()
    known = {"MUTOSCOPE_WEB_URL": web_url, "PREFECT_API_URL": prefect_api_url}
    return {
        **{name: url for name, url in known.items() if url},
        "MUTOSCOPE_HOME": str(home),
        "PREFECT_HOME": str(home / "prefect"),
        # Without a server a flow must fail with a clear line, not start a hidden server of its own.
        "PREFECT_SERVER_EPHEMERAL_ENABLED": "0",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        # Its second UI sets up a tracker whose configuration comes from elsewhere, whatever analytics says.
        "PREFECT_SERVER_UI_V2_ENABLED": "false",
        "PREFECT_CLI_PROMPT": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS),
        # A server whose own database restarts says so by one of several numbers.
        "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500,504",
        **_retention(settings),
        **_access(settings, prefect_api_url),
        # Several processes share the machine, and thread counts change low bits.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def _retention(settings: Settings) -> dict[str, str]:
    """Finished flow runs are telemetry of what the catalog keeps; by default only their events age out."""
    seconds = parse_duration("MUTOSCOPE_PREFECT_KEEP", settings.prefect_keep)
    if seconds <= _SHORTEST_KEEP_SECONDS:
        raise InvalidParameter(
            "MUTOSCOPE_PREFECT_KEEP", settings.prefect_keep, "use more than 1h, such as 30d"
        )
    return {
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": f"{seconds:.0f}",
    }


def _access(settings: Settings, prefect_api_url: str) -> dict[str, str]:
    """Who may talk to the server: pages of its own origin, and whoever has the credentials, if there are any.

    Without a token per client and with every origin allowed, as Prefect has it by default, any page that a
    person visits could drive a server on their machine.
    """
    access = {
        "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": prefect_api_url.removesuffix("/api"),
        # The UI asks where it came from, under whatever name that was.
        "PREFECT_UI_API_URL": "/api",
    }
    # Whoever runs the server elsewhere, or behind a proxy, says so by Prefect's own names.
    access = {name: os.environ.get(name, value) for name, value in access.items()}
    if settings.prefect_auth is not None:
        secret = settings.prefect_auth.get_secret_value()
        if not all(secret.partition(":")):
            raise InvalidParameter("MUTOSCOPE_PREFECT_AUTH", "...", "write user:password")
        access |= {"PREFECT_SERVER_API_AUTH_STRING": secret, "PREFECT_API_AUTH_STRING": secret}
    return access


def join(home: Path, environ: MutableMapping[str, str] = os.environ) -> StackRecord | None:
    """Point this process at the home's stack, before Prefect is imported. None when no stack is recorded.

    A `PREFECT_API_URL` set by the caller wins: it names a server that somebody else runs. Credentials are for
    either.
    """
    record = read_record(home)
    if record is None:
        auth = get_settings().prefect_auth
        if auth is not None:
            environ.setdefault("PREFECT_API_AUTH_STRING", auth.get_secret_value())
        return None
    for name, value in environment(home, record.prefect_api_url, record.web_url).items():
        if name in ("PREFECT_API_URL", "MUTOSCOPE_WEB_URL"):
            environ.setdefault(name, value)
        else:
            environ[name] = value
    return record
