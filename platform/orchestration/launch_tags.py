"""What a flow run is told by its tags, where the UI shows it and a process elsewhere finds it.

    priority=5        its runs are claimed before those of lower numbers; 0 is usual
    retry=<run id>    it goes on with that workflow run: what is drawn at random is drawn as it was there

Selections of weights travel the same way, see `selection`.
"""

from __future__ import annotations

from collections.abc import Iterable

from mutoscope.platform.errors import InvalidParameter

MOST = 1000

_PRIORITY = "priority="
_RETRY = "retry="


def check_priority(value: object) -> int:
    """`value` as a priority. Raises InvalidParameter."""
    if isinstance(value, bool) or not isinstance(value, int) or not -MOST <= value <= MOST:
        raise InvalidParameter(
            "priority", value, f"use an integer from {-MOST} to {MOST}; higher is claimed first"
        )
    return value


def priority_tags(priority: int) -> list[str]:
    """A priority as tags: none for the usual one. Raises InvalidParameter."""
    return [f"{_PRIORITY}{priority}"] if check_priority(priority) else []


def priority_of(tags: Iterable[str]) -> int:
    """The priority among tags, the highest of several, 0 without any. Raises InvalidParameter."""
    texts = [tag.removeprefix(_PRIORITY) for tag in tags if tag.startswith(_PRIORITY)]
    return max((_read(text) for text in texts), default=0)


def retry_tag(run_id: str) -> str:
    """Says which workflow run is gone on with."""
    return f"{_RETRY}{run_id}"


def retried(tags: Iterable[str]) -> str | None:
    """The workflow run that is gone on with."""
    return next((tag.removeprefix(_RETRY) for tag in tags if tag.startswith(_RETRY)), None)


def _read(text: str) -> int:
    try:
        return check_priority(int(text))
    except ValueError:
        raise InvalidParameter("priority", text, f"use an integer from {-MOST} to {MOST}") from None
