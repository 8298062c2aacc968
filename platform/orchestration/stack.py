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

FORMAT = "mutoscope.stack/1"
POOL = "mutoscope"

HEARTBEAT_SECONDS = 30
"""How often a flow process says that it lives. `deployments` takes three missed beats for a dead process."""

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


def environment(home: Path, prefect_api_url: str, web_url: str) -> dict[str, str]:
    """Variables that tie a process to this stack; also what keeps Prefect from calling off the machine."""
    return {
        "MUTOSCOPE_HOME": str(home),
        "MUTOSCOPE_WEB_URL": web_url,
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_API_URL": prefect_api_url,
        # Without a server a flow must fail with a clear line, not start a hidden server of its own.
        "PREFECT_SERVER_EPHEMERAL_ENABLED": "0",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_CLI_PROMPT": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS),
        # Finished flow runs are telemetry of what the catalog keeps; by default only their events age out.
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
        # Several processes share the machine, and thread counts change low bits.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def join(home: Path, environ: MutableMapping[str, str] = os.environ) -> StackRecord | None:
    """Point this process at the home's stack, before Prefect is imported. None when no stack is recorded.

    A `PREFECT_API_URL` set by the caller wins: it names a server that somebody else runs.
    """
    record = read_record(home)
    if record is None:
        return None
    for name, value in environment(home, record.prefect_api_url, record.web_url).items():
        if name in ("PREFECT_API_URL", "MUTOSCOPE_WEB_URL"):
            environ.setdefault(name, value)
        else:
            environ[name] = value
    return record
