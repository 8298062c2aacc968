"""Fair queueing by cost."""

from __future__ import annotations

from mutoscope.platform.engine.scheduler import FairQueue


class Item:
    """Told apart by identity."""

    def __init__(self, name: str) -> None:
        self.name = name


def serve(queue: FairQueue[Item], costs: dict[str, float], turns: int) -> str:
    served = ""
    for _ in range(turns):
        item = queue.next()
        assert item is not None
        served += item.name
        queue.charge(item, costs[item.name])
    return served


def queue_of(names: str) -> FairQueue[Item]:
    queue: FairQueue[Item] = FairQueue()
    for name in names:
        queue.add(Item(name))
    return queue


def test_equal_costs_go_round() -> None:
    assert serve(queue_of("abc"), dict.fromkeys("abc", 1.0), 9) == "abcabcabc"


def test_a_request_of_double_cost_gets_half_the_turns() -> None:
    # a pays 2 a turn, b pays 1: after a's first turn (2) b is served until it has paid 2 as well.
    assert serve(queue_of("ab"), {"a": 2.0, "b": 1.0}, 9) == "abbabbabb"


def test_a_newcomer_starts_level_and_waits_behind_its_equals() -> None:
    queue = queue_of("ab")
    assert serve(queue, {"a": 1.0, "b": 1.0}, 6) == "ababab"
    queue.add(Item("c"))
    assert serve(queue, dict.fromkeys("abc", 1.0), 6) == "abcabc"


def test_removal_leaves_the_others_in_turn() -> None:
    queue = queue_of("abc")
    serve(queue, dict.fromkeys("abc", 1.0), 1)
    queue.remove(next(item for item in queue if item.name == "b"))
    assert len(queue) == 2
    assert serve(queue, dict.fromkeys("abc", 1.0), 4) == "caca"


def test_nobody_waits() -> None:
    assert FairQueue[Item]().next() is None
