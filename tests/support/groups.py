"""Files of tests that share a costly server run one after another in one process, and the server ends with
the last of them: beside the rest of the suite it would only take time from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
from xdist.scheduler import LoadFileScheduling

T = TypeVar("T")

SHARED = {"stack": r"\b(stack: Stack|first_video)\b", "prefect_server": r"\bprefect_server\b"}
"""Fixtures that are shared so, in the order in which they come, and how a file says that it needs one."""


@cache
def group_of(path: Path) -> str:
    """The fixture that a file shares with others; its own path if there is none."""
    text = path.read_text()
    return next((name for name, needed in SHARED.items() if re.search(needed, text)), str(path))


def together(items: list[pytest.Item]) -> None:
    """Bring each group's tests together, those that wait longest first; the order is otherwise as it was."""
    ranks = {name: rank for rank, name in enumerate(SHARED)}
    items.sort(key=lambda item: ranks.get(group_of(item.path), len(ranks)))
    for item in items:
        asked = SHARED.keys() & set(getattr(item, "fixturenames", ()))
        assert not asked or group_of(item.path) in SHARED, f"{item.nodeid} asks for {asked}: see {__name__}"


class GroupScheduling(LoadFileScheduling):  # type: ignore[misc]
    """A file of tests at a time to a process; of a group, all files to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return group_of(self.config.rootpath / file)


class Shared:
    """What the tests of a group share, made when it is first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}
        self._ends = ExitStack()

    def get(self, name: str, make: Callable[[], AbstractContextManager[T]]) -> T:
        """What has been made under that name in this group, or what `make` makes now."""
        if name not in self._made:
            self._made[name] = self._ends.enter_context(make())
        found: T = self._made[name]
        return found

    def leave(self, done: pytest.Item, following: pytest.Item | None) -> None:
        """End it all if the next test belongs to another group."""
        if following is None or group_of(done.path) != group_of(following.path):
            self._made.clear()
            self._ends.close()


SHARED_NOW = Shared()
"""Of this process."""
