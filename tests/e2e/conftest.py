"""One real stack for all files that ask for it, and the first video made on it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Stack
from tests.support.groups import SHARED_NOW

# A shell that starts the suite in the background has it ignore SIGINT, and children inherit that; a handler
# of our own is not inherited, so Ctrl-C reaches the commands under test as it does in a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)


PROMPT = "a red circle left of a blue square, drifting right"
SEED = 7
AUTH = "ada:a secret: with colons"


@dataclass(frozen=True)
class FirstVideo:
    """What the first run of text_to_video left behind."""

    report: dict[str, Any]
    folder: Path

    @property
    def digests(self) -> dict[str, str]:
        return {name: output["digest"] for name, output in self.report["outputs"].items()}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """The same for all files that ask for it."""
    return SHARED_NOW.get("stack", lambda: _stack(tmp_path_factory.mktemp("e2e") / "home"))


@contextmanager
def _stack(home: Path) -> Iterator[Stack]:
    # Guarded, so that every part of it is proven to identify itself wherever it asks the server.
    made = Stack(home, {"MUTOSCOPE_PREFECT_AUTH": AUTH})
    made.start()
    yield made
    made.stop()
    assert not (made.home / "stack.json").exists()


@pytest.fixture(scope="module")
def first_video(stack: Stack) -> FirstVideo:
    return SHARED_NOW.get("first_video", lambda: nullcontext(_first_video(stack)))


def _first_video(stack: Stack) -> FirstVideo:
    folder = stack.home.parent / "first"
    result = stack.run(
        "run", "text_to_video", f"prompt={PROMPT}", f"seed={SEED}", "--json", "--output", str(folder)
    )
    assert result.code == 0, f"{result.err}{stack.logs()}"
    return FirstVideo(result.json, folder)
