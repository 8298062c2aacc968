"""Waiting for runs: one thread looks for all who wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from mutoscope.platform.catalog import Catalog, ends
from mutoscope.platform.catalog.ends import Seen
from tests.support.deadline import until
from tests.support.records import an_artifact, claim, queue

NOBODY = "0" * 32


class Follower:
    """What one waiter was told."""

    def __init__(self, catalog: Catalog, run_id: str, *, look: bool = True) -> None:
        self.told: list[Seen | None] = []
        self.ticket = catalog.ends.follow(run_id, self.told.append)
        if look:
            catalog.ends.look(self.ticket)

    @property
    def states(self) -> list[str]:
        return [seen.run.state for seen in self.told if seen is not None]

    def sees(self, state: str) -> Callable[[], bool]:
        return lambda: self.states[-1:] == [state]


def lookers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ends"]


def test_a_follower_is_told_of_changes_and_of_what_was_made(catalog: Catalog) -> None:
    run = queue(catalog)
    follower = Follower(catalog, run.id)
    until(follower.sees("queued"), "how it stands at first")
    claim(catalog)
    until(follower.sees("running"), "that it was taken")
    made = an_artifact("image")
    catalog.runs.succeed(run.id, "worker-a", {"image": made})
    until(follower.sees("succeeded"), "its end")
    last = follower.told[-1]
    assert last is not None
    assert last.outputs == {"image": made}
    assert last.run == catalog.runs.get(run.id)
    assert follower.states == ["queued", "running", "succeeded"], "nothing twice"


def test_an_end_before_the_follow_is_seen_by_a_look(catalog: Catalog) -> None:
    run = queue(catalog)
    claim(catalog)
    catalog.runs.fail(run.id, "worker-a", {"type": "Oops"})
    assert Follower(catalog, run.id).states[:1] == ["failed"]


def test_of_a_run_that_is_not_there_a_follower_is_told_so(catalog: Catalog) -> None:
    assert Follower(catalog, NOBODY).told[:1] == [None]


def test_many_wait_behind_one_thread_and_each_hears_of_its_own(catalog: Catalog) -> None:
    runs = [queue(catalog, f"key {number}") for number in range(12)]
    followers = [Follower(catalog, run.id, look=False) for run in runs]
    assert len(lookers()) == 1
    taken = catalog.runs.claim("worker-a", {runs[0].card: runs[0].contract}, 600.0, limit=12)
    for run in taken[::2]:
        catalog.runs.succeed(run.id, "worker-a", {"image": an_artifact(run.id)})
    ended = {run.id for run in taken[::2]}
    for run, follower in zip(runs, followers, strict=True):
        until(follower.sees("succeeded" if run.id in ended else "running"), "its own")


def test_who_leaves_is_told_nothing_more_and_the_thread_leaves_last(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "LINGER_SECONDS", 0.01)
    run = queue(catalog)
    gone, stays = Follower(catalog, run.id), Follower(catalog, run.id)
    catalog.ends.leave(gone.ticket)
    before = len(gone.told)
    claim(catalog)
    until(stays.sees("running"), "the one who stays")
    assert len(gone.told) == before
    catalog.ends.leave(stays.ticket)
    until(lambda: not lookers(), "the thread to end")
    catalog.runs.succeed(run.id, "worker-a", {"image": an_artifact("image")})
    until(Follower(catalog, run.id).sees("succeeded"), "a thread for whoever comes later")


def test_closing_the_catalog_ends_the_thread_under_a_wait(catalog: Catalog) -> None:
    run = queue(catalog)
    Follower(catalog, run.id)
    assert lookers()
    catalog.ends.close()
    assert not lookers()
    catalog.close()  # as its catalog does; closing twice is fine
    claim(catalog)
    until(Follower(catalog, run.id).sees("running"), "it opens anew")


def test_a_wait_ends_with_the_commit_not_with_its_time(catalog: Catalog) -> None:
    watch, heard = catalog.watch(), threading.Event()
    until(lambda: not watch.wait(0.0), "silence")

    def listen() -> None:
        if watch.wait(3600.0):
            heard.set()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    queue(catalog)
    until(heard.is_set, "an hour's wait to end early")
    listener.join()
    watch.close()
