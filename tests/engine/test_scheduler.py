"""Fair queueing by cost, in two levels.

Random traffic comes from seeded generators: a failure names its seed and repeats.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest

from mutoscope.platform.engine.scheduler import FairQueue

SEEDS = range(25)


class Item:
    """Told apart by identity."""

    def __init__(
        self, name: str, group: str = "", weight: float = 1.0, costs: Sequence[float] = (1.0,)
    ) -> None:
        self.name, self.group, self.weight, self.costs = name, group, weight, costs


def add(queue: FairQueue[Item], *items: Item) -> None:
    for item in items:
        queue.add(item, item.group, item.weight)


def turn(queue: FairQueue[Item], cost: float = 1.0) -> Item:
    """Serve whose turn it is."""
    item = queue.next()
    assert item is not None
    queue.charge(item, cost)
    return item


def serve(queue: FairQueue[Item], costs: Mapping[str, float], turns: int) -> str:
    served = ""
    for _ in range(turns):
        item = queue.next()
        assert item is not None
        served += item.name
        queue.charge(item, costs[item.name])
    return served


def queue_of(names: str) -> FairQueue[Item]:
    queue: FairQueue[Item] = FairQueue()
    add(queue, *[Item(name) for name in names])
    return queue


def test_equal_costs_go_round() -> None:
    assert serve(queue_of("abc"), dict.fromkeys("abc", 1.0), 9) == "abcabcabc"


def test_a_request_of_double_cost_gets_half_the_turns() -> None:
    # a pays 2 a turn, b pays 1: after a's first turn (2) b is served until it has paid 2 as well.
    assert serve(queue_of("ab"), {"a": 2.0, "b": 1.0}, 9) == "abbabbabb"


def test_a_newcomer_starts_level_and_waits_behind_its_equals() -> None:
    queue = queue_of("ab")
    assert serve(queue, {"a": 1.0, "b": 1.0}, 6) == "ababab"
    add(queue, Item("c"))
    assert serve(queue, dict.fromkeys("abc", 1.0), 6) == "abcabc"


def test_removal_leaves_the_others_in_turn() -> None:
    queue = queue_of("abc")
    serve(queue, dict.fromkeys("abc", 1.0), 1)
    queue.remove(next(item for item in queue if item.name == "b"))
    assert len(queue) == 2
    assert serve(queue, dict.fromkeys("abc", 1.0), 4) == "caca"


def test_nobody_waits() -> None:
    assert FairQueue[Item]().next() is None


def test_groups_share_evenly_whatever_their_number_of_requests() -> None:
    queue: FairQueue[Item] = FairQueue()
    add(queue, *[Item(name, "many") for name in "abcd"], Item("z", "one"))
    # Every second turn is z's; those of the other group take the rest in turn.
    assert serve(queue, dict.fromkeys("abcdz", 1.0), 8) == "azbzczdz"


def test_a_priority_of_two_gets_twice_the_time() -> None:
    queue: FairQueue[Item] = FairQueue()
    add(queue, Item("a", weight=2.0), Item("b"))
    assert serve(queue, {"a": 1.0, "b": 1.0}, 9).count("a") == 6


def test_a_group_weighs_what_its_weightiest_request_does() -> None:
    queue: FairQueue[Item] = FairQueue()
    heavy = Item("h", "g", weight=3.0)
    add(queue, Item("l", "g"), heavy, Item("z"))
    assert serve(queue, dict.fromkeys("lhz", 1.0), 16).count("z") == 4
    queue.remove(heavy)
    assert serve(queue, dict.fromkeys("lz", 1.0), 16).count("z") == 8


def test_a_corrected_estimate_counts_as_what_it_was_corrected_to() -> None:
    queue = queue_of("ab")
    a = queue.next()
    assert a is not None
    queue.charge(a, 5.0)
    queue.charge(a, -4.0)
    assert serve(queue, {"a": 1.0, "b": 1.0}, 5) == "babab"


def test_order_tells_the_turns_to_come_without_taking_them() -> None:
    queue: FairQueue[Item] = FairQueue()
    add(queue, Item("a", "g"), Item("b", "g"), Item("c", "h"))
    assert "".join(item.name for item in queue.order()) == "acb"
    assert serve(queue, dict.fromkeys("abc", 1.0), 3) == "acb"


@pytest.mark.parametrize("seed", SEEDS)
def test_backlogged_groups_stay_within_a_step_of_each_other(seed: int) -> None:
    """The bound of start-time fair queueing: for any two that always have work, the difference of what they
    were served over their weight is at most the sum of one largest step over weight of each."""
    draw = random.Random(seed)
    queue: FairQueue[Item] = FairQueue()
    weights, largest = {}, {}
    for number in range(draw.randint(2, 5)):
        group = f"g{number}"
        weights[group] = draw.choice([0.5, 1.0, 2.0, 4.0])
        costs = [draw.uniform(0.1, 5.0) for _ in range(4)]
        largest[group] = max(costs)
        for member in range(draw.randint(1, 6)):
            add(queue, Item(f"{group}.{member}", group, weights[group], costs))
    by_group: dict[str, float] = defaultdict(float)
    by_item: dict[str, float] = defaultdict(float)
    for _ in range(400):
        item = queue.next()
        assert item is not None
        cost = draw.choice(item.costs)
        # As the engine does it: charge an estimate, then correct it by what was measured.
        queue.charge(item, 1.0)
        queue.charge(item, cost - 1.0)
        by_group[item.group] += cost
        by_item[item.name] += cost
    for one, other in pairwise(weights):
        apart = abs(by_group[one] / weights[one] - by_group[other] / weights[other])
        assert apart <= largest[one] / weights[one] + largest[other] / weights[other] + 1e-9
    for one, other in pairwise(sorted(by_item)):
        group = one.partition(".")[0]
        if other.startswith(f"{group}."):
            assert abs(by_item[one] - by_item[other]) <= 2 * largest[group] + 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_a_newcomer_is_served_within_one_round(seed: int) -> None:
    """It waits for one step of each other group at most."""
    draw = random.Random(seed)
    queue: FairQueue[Item] = FairQueue()
    add(queue, *[Item(f"old{n}") for n in range(draw.randint(1, 8))])
    for _ in range(draw.randint(0, 60)):
        turn(queue)
    newcomer = Item("new")
    add(queue, newcomer)
    others = len(queue) - 1
    waited = 0
    while turn(queue) is not newcomer:
        waited += 1
    assert waited <= others


def test_a_stream_of_newcomers_starves_nobody() -> None:
    """Two newcomers wait at any time, each for a single step; the old request still gets its third."""
    queue: FairQueue[Item] = FairQueue()
    old = Item("old")
    add(queue, old, Item("new"))
    turns = 0
    for _ in range(300):
        add(queue, Item("new"))
        item = turn(queue)
        if item is old:
            turns += 1
            queue.remove(next(each for each in queue if each is not old))
        else:
            queue.remove(item)
    assert turns >= 90


def test_coming_back_wins_nothing() -> None:
    """A group that sends one expensive request after another gets no more than one that is always there."""
    queue: FairQueue[Item] = FairQueue()
    served = {"serial": 0.0, "steady": 0.0}
    costs = {"serial": 10.0, "steady": 1.0}
    add(queue, Item("steady", "steady"), Item("serial", "serial"))
    for _ in range(400):
        item = turn(queue, costs[queue.next().name])  # type: ignore[union-attr]
        served[item.name] += costs[item.name]
        if item.name == "serial":
            queue.remove(item)
            add(queue, Item("serial", "serial"))
    assert abs(served["serial"] - served["steady"]) <= 11.0


def test_an_idle_queue_forgives() -> None:
    """Nobody was kept waiting by what a group had to itself: it starts level with the next one."""
    queue: FairQueue[Item] = FairQueue()
    alone = Item("a", "g")
    add(queue, alone)
    for _ in range(50):
        turn(queue)
    queue.remove(alone)
    add(queue, Item("a", "g"), Item("b", "h"))
    assert serve(queue, {"a": 1.0, "b": 1.0}, 6) == "ababab"


def test_what_has_left_is_forgotten() -> None:
    queue: FairQueue[Item] = FairQueue()
    keeper = Item("keeper", "keeper")
    add(queue, keeper)
    for number in range(2_000):
        passing = Item("p", f"group {number}")
        add(queue, passing)
        while turn(queue) is not passing:
            pass
        queue.remove(passing)
    assert len(queue) == 1
    assert len(queue._shares.gone) < 10
    assert len(queue._groups) == 1
