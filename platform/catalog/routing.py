"""The order in which a worker takes runs: what it says of itself, and the rules.

By priority, then age, with two exceptions among runs of equal priority. Both are bounded by `patience`, so
that neither keeps a run waiting for good:

- A worker that would have to load a run's weights leaves it, while it is young, to one that has them in
  memory: loading takes longer than the wait.
- A run whose weights are in this worker's memory goes before older ones that need others, as long as it was
  queued at most `patience` seconds after them. So a mixed queue is worked off in stretches of equal weights
  instead of loading them anew for each run, however long the queue is.

Before both goes fairness: runs of workflow runs that the worker does not serve yet, so that one with a long
queue does not keep the others out.

Left alone altogether are runs for other code or another numeric contract, of a paused card, of a card that
runs as often as its limit allows, and those whose weights the worker's memory cannot hold. What is left
alone is settled by the database (`claiming`), the order among the rest here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claimant:
    """What decides which runs a worker may take.

    Attributes:
        served: pairs of card and numeric contract. coded: pairs of card and digest of its code; uncoded: the
            cards of which any code will do.
        resident: `weights_key` of each set of weights in its memory; elsewhere: of those in the memory of
            other live workers.
        memory_bytes: largest weights it can hold; None: not known.
        patience: seconds; see above.
        expired: whether it takes runs whose worker went silent.
    """

    worker: str
    served: Sequence[tuple[str, str]]
    coded: Sequence[tuple[str, str]]
    uncoded: Sequence[str]
    resident: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()
    memory_bytes: int | None = None
    patience: float = 0.0
    expired: bool = True


@dataclass(frozen=True, slots=True)
class Candidate:
    """Of a run that may be claimed, what the order goes by. `state` is ``queued``, or ``running`` for one
    whose worker went silent."""

    id: str
    card: str
    state: str
    priority: int
    created_at: float
    workflow_run_id: str | None
    weights_key: str | None
    cancel_requested: bool

    @property
    def plain(self) -> bool:
        """Taking it is all there is to do: nobody had it before, and nobody wants it stopped."""
        return self.state == "queued" and not self.cancel_requested


def in_order(
    head: Sequence[Candidate], claimant: Claimant, busy: Collection[str], count: int
) -> list[Candidate]:
    """The first `count` of the queue's head in the order in which the worker takes them.

    Args:
        head: by priority and age.
        busy: workflow runs that the worker serves.
    """
    waiting, served, chosen = list(head), set(busy), list[Candidate]()
    while waiting and len(chosen) < count:
        taken = _next(waiting, claimant, served)
        waiting.remove(taken)
        chosen.append(taken)
        if taken.workflow_run_id is not None:
            served.add(taken.workflow_run_id)
    return chosen


def is_crowded(head: Sequence[Candidate], busy: Collection[str]) -> bool:
    """Whether all of the head is of one priority and of workflow runs that the worker serves: of others there
    may be runs farther behind."""
    return all(one.workflow_run_id in busy and one.priority == head[0].priority for one in head)


def _next(waiting: Sequence[Candidate], claimant: Claimant, served: Collection[str]) -> Candidate:
    level = [one for one in waiting if one.priority == waiting[0].priority]
    eligible = [one for one in level if one.workflow_run_id not in served] or level
    oldest = eligible[0]
    until = oldest.created_at + claimant.patience
    # Nothing to load: the oldest itself, if it is such a one.
    at_home = (
        one
        for one in eligible
        if one.created_at <= until and (one.weights_key is None or one.weights_key in claimant.resident)
    )
    return next(at_home, oldest)
