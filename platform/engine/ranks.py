"""Other processes that compute every step along: the ranks of a group of devices.

An engine decides for its whole group what runs next. It says so before, and asks afterwards how the others
fared: a request goes on only if its step succeeded everywhere. What a step computes, each rank computes for
itself from the same request, apart from what its batcher divides among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from mutoscope.platform.engine.job import Job


class Ranks(Protocol):
    """The other ranks, as the engine of the first one sees them."""

    def begin(self, job: Job) -> None:
        """Let a request begin everywhere. Raises RunFailed if it cannot somewhere."""
        ...

    def call(self, jobs: Sequence[Job]) -> None:
        """These requests' next plans are run now, in one call if they are several."""
        ...

    def agree(self, errors: Sequence[Exception | None]) -> list[Exception | None]:
        """What each plan of the last call came to, counting the others: the own error, or one of theirs.

        Raises:
            GroupLost: a rank does not answer any more.
        """
        ...

    def recall(self, job: Job, filled: Mapping[str, Any]) -> None:
        """A request's node was filled from the cache."""
        ...

    def end(self, job: Job) -> None:
        """Forget a request."""
        ...
