"""Running plans that were chosen: alone or in a shared call, and apart again when a shared call fails.

A step reads its state and changes nothing, so that a call that failed may be made again over fewer rows.
That is how trouble stays with whom it belongs to: a batch that fails is halved until the culprit fails alone,
and a lone step that runs out of memory is tried row by row.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from mutoscope.platform.engine.batching import Batcher
from mutoscope.platform.engine.loop import Rows, WorkPlan

Outcome = Any
"""What a plan came to: its result, or the exception that ended it."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the device, or the host, has no memory left."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def detach(error: BaseException) -> None:
    """Turn an exception's traceback into a note.

    A traceback holds the frames it passed through, and they hold the failed request's tensors, for as long as
    anyone keeps the exception. The note prints the same lines and holds nothing.
    """
    if error.__traceback__ is None:
        return
    error.add_note("".join(traceback.format_exception(error)).rstrip())
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        link = chain.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            link.__traceback__ = None
            chain += [link.__cause__, link.__context__]


def may_share(plan: WorkPlan, other: WorkPlan) -> bool:
    """Whether two steps may share a call."""
    return (
        plan.rows is not None
        and other.rows is not None
        and plan.rows.call == other.rows.call
        and plan.kind == other.kind
        and plan.shape == other.shape
    )


def execute(plans: Sequence[WorkPlan], batcher: Batcher, free_unused: Callable[[], None]) -> list[Outcome]:
    """Run plans, which share a call if there are several; one outcome each.

    Args:
        batcher: runs those that offer rows. What it returns for a row may depend neither on the rows beside
            it nor on how many there are, within its capacity: batches are cut here as need be.
        free_unused: called before a call that ran out of memory is made again.
    """
    outcome = _attempt(plans, batcher)
    if isinstance(outcome, list):
        return outcome
    detach(outcome)  # or the failed call's tensors are still there when it is made again
    out_of_memory = is_out_of_memory(outcome)
    if out_of_memory:
        free_unused()
    if len(plans) > 1:
        middle = len(plans) // 2
        halves = (plans[:middle], plans[middle:])
        return [each for half in halves for each in execute(half, batcher, free_unused)]
    rows = plans[0].rows
    if out_of_memory and rows is not None and rows.count > 1:
        return [_row_by_row(plans[0], rows, batcher)]
    return [outcome]


def _attempt(plans: Sequence[WorkPlan], batcher: Batcher) -> list[Outcome] | Exception:
    """One call for all plans; the exception instead, if it ended them all or the only one."""
    try:
        outcomes = [plans[0].run()] if plans[0].rows is None else batcher.run(plans)
    except Exception as error:
        return error
    if len(plans) == 1 and isinstance(outcomes[0], Exception):
        return outcomes[0]
    return outcomes


def _row_by_row(plan: WorkPlan, rows: Rows, batcher: Batcher) -> Outcome:
    """A step's result from calls of a single row each; the exception instead, if one of them fails."""
    results = []
    try:
        for row in rows.make():
            single = Rows(rows.call, 1, partial(_only, row), _first)
            outcome = _attempt([WorkPlan.of_rows(plan.kind, plan.shape, single, plan.cost)], batcher)
            if isinstance(outcome, Exception):
                return outcome
            results += outcome
        return rows.combine(results)
    except Exception as error:
        return error


def _only(row: Any) -> list[Any]:
    return [row]


def _first(results: Sequence[Any]) -> Any:
    return results[0]
