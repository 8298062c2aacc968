"""What the fire suite measured, as JSON beside the code: `tests/fire/results/`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.environment import describe, others_load

RESULTS = Path(__file__).parent / "results"


@dataclass
class Report:
    """Entries by name, written as they come: a run that is cut short keeps what it has."""

    name: str
    facts: dict[str, Any]
    entries: dict[str, Any] = field(default_factory=dict)
    _where: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._where = {**describe(), "cores_busy_with_other_work": round(others_load(), 2)}

    def add(self, name: str, entry: dict[str, Any]) -> None:
        """Keep an entry, and show it on the terminal."""
        self.entries[name] = entry
        RESULTS.mkdir(exist_ok=True)
        whole = {**self._where, **self.facts, "entries": self.entries}
        (RESULTS / f"{self.name}.json").write_text(json.dumps(whole, indent=2) + "\n")
        say(f"{name}: " + ", ".join(f"{key}={value}" for key, value in entry.items()))


def say(line: str) -> None:
    """A line of progress; `make test-fire` shows them as they come."""
    print(f"fire  {line}", flush=True)
