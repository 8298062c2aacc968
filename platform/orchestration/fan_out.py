"""Many stages at once, within bounds.

    images = await for_each(seeds, lambda seed: text_to_image(prompt=prompt, seed=seed), at_most=4)

Results come in the order of the items, whatever order they are done in. No more than `at_most` stages are
under way at a time, and an item is taken only when there is room for it, so that a workflow over thousands of
items holds a few tasks and queues a few runs.

The first stage to fail ends it: no further stage begins, those under way are cancelled (which takes back the
runs that nobody else waits for), and when all of them have ended the error is raised as it is. Of several
that fail at the same moment the one of the first item counts. With `try_each`, errors of a type the caller
names take the places of results instead. A caller that is cancelled cancels its stages in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from mutoscope.platform.errors import InvalidParameter

Item = TypeVar("Item")
Result = TypeVar("Result")
Error = TypeVar("Error", bound=Exception)

AT_MOST = 8
"""Stages at a time where the caller says nothing: enough to fill the batches of a worker or two."""


async def for_each(
    items: Iterable[Item], stage: Callable[[Item], Awaitable[Result]], *, at_most: int = AT_MOST
) -> list[Result]:
    """The result of a stage for each item, in their order.

    Args:
        stage: called with an item; returns what to await, such as an engine run or a workflow.
        at_most: how many are under way at a time, at least one.

    Raises:
        InvalidParameter: `at_most` is less than one.
        Exception: the first that a stage raised.
    """
    results: list[Result | Exception] = await _run(items, stage, at_most, ())
    return results  # type: ignore[return-value]  # with nothing tolerated, no error is among them


async def try_each(
    items: Iterable[Item],
    stage: Callable[[Item], Awaitable[Result]],
    *,
    catch: type[Error],
    at_most: int = AT_MOST,
) -> list[Result | Error]:
    """As `for_each`; an error of type `catch` is the item's result, and the others go on."""
    results: list[Result | Error] = await _run(items, stage, at_most, catch)  # type: ignore[assignment]
    return results


async def _run(
    items: Iterable[Item],
    stage: Callable[[Item], Awaitable[Result]],
    at_most: int,
    tolerate: type[Exception] | tuple[()],
) -> list[Result | Exception]:
    if at_most < 1:
        raise InvalidParameter("at_most", at_most, "use 1 or more")
    results: dict[int, Result | Exception] = {}
    under_way: dict[asyncio.Task[Result], int] = {}
    try:
        for index, item in enumerate(items):
            if len(under_way) == at_most:
                await _gather(under_way, results, tolerate)
            under_way[asyncio.create_task(_awaited(stage, item))] = index
        while under_way:
            await _gather(under_way, results, tolerate)
    except BaseException:
        await _wind_up(under_way)
        raise
    return [results[index] for index in range(len(results))]


async def _awaited(stage: Callable[[Item], Awaitable[Result]], item: Item) -> Result:
    # A task of its own for every item: what a stage sets in its context stays with it.
    return await stage(item)


async def _gather(
    under_way: dict[asyncio.Task[Result], int],
    results: dict[int, Result | Exception],
    tolerate: type[Exception] | tuple[()],
) -> None:
    """Wait until a stage is done, and book all that are."""
    done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
    for task in sorted(done, key=under_way.__getitem__):
        index = under_way.pop(task)
        try:
            results[index] = task.result()
        except tolerate as error:
            results[index] = error


async def _wind_up(under_way: Iterable[asyncio.Task[Result]]) -> None:
    """Cancel what is under way and wait for its end: a stage takes its runs back on the way out."""
    tasks = list(under_way)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
