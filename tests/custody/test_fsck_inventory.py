"""A listing of any order, sorted in bounded memory; two sorted sides, paired."""

from __future__ import annotations

import random

import pytest

from mutoscope.platform.catalog.audit import Holding
from mutoscope.platform.custody.fsck_bytes import Pair, paired
from mutoscope.platform.custody.fsck_inventory import Inventory, Listed
from mutoscope.platform.ids import sha256

LISTED = [Listed(sha256(str(n).encode()), n, n + 0.5) for n in range(1000)]


@pytest.mark.parametrize("run_records", [1, 7, 999, 1000, 5000])
def test_sorted_whatever_the_order_and_however_many_files_it_takes(run_records: int) -> None:
    shuffled = random.Random(run_records).sample(LISTED, len(LISTED))
    watched: list[int] = []
    with Inventory(shuffled, watched.append, run_records) as inventory:
        assert list(inventory) == sorted(LISTED)
        assert (inventory.count, inventory.bytes) == (1000, sum(one.size for one in LISTED))
    assert watched[-1] == 1000


def test_nothing_listed() -> None:
    with Inventory([]) as inventory:
        assert list(inventory) == []


def test_each_digest_is_paired_once() -> None:
    rows = [Holding(digit * 64, "image", 1, True, False) for digit in "0359ab"]
    found = [Listed(digit * 64, 1, 0.0) for digit in "1359c"]
    pairs = list(paired(rows, found))
    assert [pair.digest[0] for pair in pairs] == list("01359abc")
    assert [pair.digest[0] for pair in pairs if pair.row and pair.listed] == list("359")
    assert [pair.digest[0] for pair in pairs if pair.row is None] == list("1c")
    assert list(paired(rows, [])) == [Pair(row.digest, row, None) for row in rows]
    assert list(paired([], found)) == [Pair(one.digest, None, one) for one in found]
    assert list(paired([], [])) == []
