"""mutoscope pool: what it shows, what it says, and what it refuses."""

from __future__ import annotations

import json

import pytest

from mutoscope.platform.catalog import Catalog
from tests.cli.conftest import Command
from tests.support.small_pool import ALPHA, BETA, CARD, GIB, OTHER, fill


@pytest.fixture
def pool(catalog: Catalog) -> Catalog:
    fill(catalog)
    return catalog


def test_status_shows_workers_residency_queues_and_pace(pool: Catalog, mutoscope: Command) -> None:
    result = mutoscope("pool", "status")
    assert (result.code, result.err) == (0, "")
    heading, alpha, beta, trouble, _, columns, flux, wan = result.out.splitlines()
    assert heading.split() == ["WORKER", "WHERE", "STATE", "RUNS", "DONE", "MEMORY", "RESIDENT"]
    assert alpha.split() == [
        "aaaaaaaa", "alpha:11", "cuda:0", "ready", "1", "5", "24.0", "GiB", "of", "80.0", "GiB", f"{CARD}@1",
    ]  # fmt: skip
    assert beta.split()[:5] == ["bbbbbbbb", "beta:22", "cpu", "draining", "(asked)"]
    assert trouble == f"bbbbbbbb lacks {OTHER}: out of memory"
    assert columns.split()[:3] == ["CARD", "QUEUED", "OLDEST"]
    assert flux.split()[:2] == [CARD, "1"]
    assert flux.endswith("1 (wants 1)  at most 2")
    assert wan.endswith("paused: bad <weights>")
    assert mutoscope("pool").out.splitlines()[:4] == [heading, alpha, beta, trouble], "status is the default"


def test_status_as_json_has_every_fact(pool: Catalog, mutoscope: Command) -> None:
    told = json.loads(mutoscope("pool", "status", "--json").out)
    alpha, beta = told["workers"]
    assert (alpha["id"], alpha["bytes"], alpha["memory_bytes"]) == (ALPHA, 24 * GIB, 80 * GIB)
    (resident,) = alpha["resident"]
    assert sorted(resident["versions"]) == [f"{CARD}/transformer@1", f"{CARD}/vae@1"]
    assert beta["asked"]["load"] == [f"{CARD}/vae@1"]
    by_card = {line["card"]: line for line in told["cards"]}
    assert (by_card[CARD]["queued"], by_card[CARD]["running"], by_card[CARD]["per_minute"]) == (1, 1, 1.0)
    assert (by_card[OTHER]["paused"], by_card[OTHER]["note"]) == (True, "bad <weights>")


def test_a_queue_is_paused_resumed_and_limited(pool: Catalog, mutoscope: Command) -> None:
    paused = mutoscope("pool", "pause", CARD, "--note", "no")
    assert paused.out == f"{CARD}: paused (no), at most 2 at a time\n"
    assert mutoscope("pool", "resume", CARD).out == f"{CARD}: open, at most 2 at a time\n"
    assert mutoscope("pool", "limit", CARD, "none").out == f"{CARD}: open, no limit\n"
    assert json.loads(mutoscope("pool", "limit", CARD, "3", "--json").out)["most_running"] == 3
    assert {record.card: record.most_running for record in pool.queues.list()} == {CARD: 3, OTHER: None}


def test_workers_are_asked_one_or_all(pool: Catalog, mutoscope: Command) -> None:
    one = mutoscope("pool", "load", CARD, f"{CARD}/vae@1", "--worker", "aaaa")
    assert one.out.splitlines()[0] == f"{ALPHA}: asked to load {CARD}, load {CARD}/vae@1"
    both = json.loads(mutoscope("pool", "drain", "all", "--json").out)
    assert set(both) == {ALPHA, BETA}
    assert all(wanted["drain"] for wanted in both.values())
    mutoscope("pool", "unload", CARD, "--worker", BETA)
    wanted = pool.workers.heartbeat(BETA)
    assert wanted is not None
    assert (wanted.load, wanted.unload, wanted.drain) == ((f"{CARD}/vae@1",), (CARD,), True)


def test_the_hint_is_a_number_per_card(pool: Catalog, mutoscope: Command) -> None:
    assert json.loads(mutoscope("pool", "hint", "--json").out) == {CARD: 1, OTHER: 0}
    heading, flux, _ = mutoscope("pool", "hint", "--target", "5m").out.splitlines()
    assert heading.split()[:3] == ["CARD", "WORKERS", "WANTED"]
    assert flux.split()[:4] == [CARD, "1", "1", "2"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["pause", "nosuch"], "card 'nosuch' is unknown"),
        (["limit", CARD, "many"], "runs='many' is not valid: use a number such as 2, or none for no limit"),
        (["load", f"{CARD}/vae@9"], "vae@9"),
        (["drain", "cccc"], "no live worker is named 'cccc': `mutoscope pool status` lists them"),
        (["drain", "019f"], "names several workers"),
        (["hint", "--target", "soon"], "target='soon' is not valid"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    pool: Catalog, mutoscope: Command, words: list[str], line: str
) -> None:
    result = mutoscope("pool", *words)
    assert result.code != 0
    assert line in result.err


def test_without_workers_nobody_is_asked(catalog: Catalog, mutoscope: Command) -> None:
    assert "no worker lives" in mutoscope("pool", "drain", "all").err
    shown = mutoscope("pool", "status").out
    assert "no worker lives" in shown
    assert "nothing waits" in shown
