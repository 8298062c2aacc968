"""A long sequence a part at a time: as much as a statement can bind, or as should be in memory at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items in their order, the last one shorter; of nothing, none. No item is taken before
    its list is asked for."""
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch
