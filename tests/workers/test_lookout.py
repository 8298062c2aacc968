"""When a worker looks at the queue."""

from __future__ import annotations

from mutoscope.workers.lookout import ASKS_PER_POLL, UNPROMPTED_S, Lookout

POLL = 0.25


class Scene:
    """A hand-turned clock and a watch that answers as told."""

    def __init__(self) -> None:
        self.now = 100.0
        self.news = False
        self.asked = 0
        self.lookout = Lookout(self, POLL * ASKS_PER_POLL, clock=lambda: self.now)  # type: ignore[arg-type]

    def changed(self) -> bool:
        self.asked += 1
        news, self.news = self.news, False
        return news

    def wait(self, seconds: float) -> bool:
        assert seconds > 0
        return self.changed()

    def due_after(self, seconds: float) -> bool:
        self.now += seconds
        return self.lookout.due()


def test_looks_at_the_start_then_only_after_a_commit() -> None:
    scene = Scene()
    assert scene.due_after(0)
    assert not scene.due_after(POLL)
    scene.news = True
    assert scene.due_after(POLL)
    assert not scene.due_after(POLL)


def test_asks_once_per_interval_however_often_the_loop_turns() -> None:
    scene = Scene()
    scene.lookout.due()
    scene.news = True
    for _ in range(10):
        assert not scene.due_after(POLL / 100)
    assert scene.asked == 1
    assert scene.due_after(POLL), "the news has waited"


def test_looks_without_news_once_in_a_while() -> None:
    scene = Scene()
    assert scene.due_after(0)
    looks = [scene.due_after(POLL) for _ in range(8)]
    # POLL is a quarter of UNPROMPTED_S: every fourth turn is due.
    assert UNPROMPTED_S / POLL == 4
    assert looks == [False, False, False, True] * 2


def test_a_free_slot_looks_at_once_and_a_silent_catalog_is_left_alone() -> None:
    scene = Scene()
    scene.lookout.due()
    scene.lookout.at_once()
    assert scene.due_after(0)
    scene.lookout.not_for(5)
    scene.news = True
    assert not scene.due_after(4.9)
    assert scene.due_after(0.2)


def test_an_idle_wait_that_hears_something_makes_the_next_look_due() -> None:
    scene = Scene()
    scene.lookout.due()
    scene.lookout.wait()
    assert not scene.due_after(0)
    scene.news = True
    scene.lookout.wait()
    assert scene.due_after(0)
