"""Credit among experts: trees worked by hand, and chains of 1, 3 and 4 whose true gradient is enumerated."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Sequence

import pytest

from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.training.advantages import group_advantages
from mutoscope.platform.training.methods.credit import ExpertCredit, Leaf, credit

EXPERTS = ("refiner", "generator")


def leaf(refiner: str | None, generator: str, score: float | None) -> Leaf:
    nodes = {} if refiner is None else {"refiner": refiner}
    return Leaf({**nodes, "generator": generator}, score)


TREE = [leaf("a", "a1", 0.9), leaf("a", "a2", 0.7), leaf("b", "b1", 0.1), leaf("b", "b2", 0.5)]


def earned(found: ExpertCredit) -> dict[str, float | None]:
    return {output.node: output.advantage for output in found.outputs}


def test_a_tree_by_hand() -> None:
    # returns: a 0.8, b 0.3, mean 0.55; images: about 0.8 for a's, about 0.3 for b's
    found = credit([TREE], EXPERTS, "per_expert", scale="none")
    assert earned(found["refiner"]) == pytest.approx({"a": 0.25, "b": -0.25})
    assert earned(found["generator"]) == pytest.approx({"a1": 0.1, "a2": -0.1, "b1": -0.2, "b2": 0.2})


def test_shared_by_hand() -> None:
    # mean 0.55; deviations 0.35 0.15 −0.45 −0.05, of a's output their mean 0.25
    found = credit([TREE], EXPERTS, "shared", scale="none")
    assert earned(found["refiner"]) == pytest.approx({"a": 0.25, "b": -0.25})
    assert earned(found["generator"]) == pytest.approx({"a1": 0.35, "a2": 0.15, "b1": -0.45, "b2": -0.05})


def test_advantages_are_scaled_within_their_contrast() -> None:
    found = credit([TREE], EXPERTS, "per_expert", epsilon=0)
    for expert in EXPERTS:
        assert [abs(value) for value in earned(found[expert]).values()] == pytest.approx(
            [1.0] * len(found[expert].outputs)
        )


def test_each_output_counts_once_with_the_samples_that_hold_it() -> None:
    found = credit([TREE, TREE[:2]], EXPERTS, "per_expert")
    outputs = found["refiner"].outputs
    assert [(output.group, output.node, output.samples) for output in outputs] == [
        (0, "a", (0, 1)),
        (0, "b", (2, 3)),
        (1, "a", (0, 1)),
    ]
    assert outputs[2].advantage is None  # alone in its group
    assert found["refiner"].teaching == outputs[:2]


@pytest.mark.parametrize("mode", ["shared", "per_expert"])
def test_one_expert_is_a_plain_group(mode: str) -> None:
    scores = [[0.2, 0.9, None, 0.4], [0.3, 0.3, 0.3, 0.3]]
    groups = [[Leaf({"generator": str(i)}, score) for i, score in enumerate(group)] for group in scores]
    found = credit(groups, ["generator"], mode)["generator"]
    expected = group_advantages(scores)
    assert [output.advantage for output in found.outputs] == [v for group in expected.values for v in group]
    assert found.zero_std_groups == expected.zero_std_groups == 1


def test_what_came_before_has_no_part() -> None:
    """Everything that descends from one refinement gets a better score: the images' credit stays."""
    lifted = [
        leaf(x.nodes["refiner"], x.nodes["generator"], x.score + 7 * (i < 2)) for i, x in enumerate(TREE)
    ]
    before, after = (credit([group], EXPERTS, "per_expert", scale="none") for group in (TREE, lifted))
    assert earned(after["generator"]) == pytest.approx(earned(before["generator"]))
    assert earned(after["refiner"])["a"] > earned(before["refiner"])["a"]
    shared = credit([lifted], EXPERTS, "shared", scale="none")
    assert earned(shared["generator"])["a2"] > 1


def test_refinements_are_contrasted_with_each_other() -> None:
    # refined 0.9, 0.3: mean 0.6, however little comes of leaving the prompt alone
    group = [leaf("a", "1", 0.9), leaf("b", "2", 0.3), leaf(None, "3", 0.1), leaf(None, "4", 0.3)]
    found = credit([group], EXPERTS, "per_expert", scale="none")
    assert earned(found["refiner"]) == pytest.approx({"a": 0.3, "b": -0.3})
    # those two share their input; the refined ones have no siblings
    assert earned(found["generator"]) == {
        "1": None,
        "2": None,
        "3": pytest.approx(-0.1),
        "4": pytest.approx(0.1),
    }
    # the group's mean is 0.4
    shared = credit([group], EXPERTS, "shared", scale="none")
    assert earned(shared["refiner"]) == pytest.approx({"a": 0.5, "b": -0.1})


@pytest.mark.parametrize("sibling", [[], [leaf("b", "2", None)]], ids=["none", "without a score"])
def test_an_only_refinement_is_contrasted_with_leaving_the_prompt_alone(sibling: list[Leaf]) -> None:
    # as asked 0.1 and 0.3, together 0.2; mean 0.55
    group = [leaf("a", "1", 0.9), *sibling, leaf(None, "3", 0.1), leaf(None, "4", 0.3)]
    found = credit([group], EXPERTS, "per_expert", scale="none")
    assert earned(found["refiner"])["a"] == pytest.approx(0.35)
    assert earned(found["refiner"]).get("b") is None


def test_a_chain_that_ended_early_is_judged_where_it_branched() -> None:
    experts = ("first", "second", "generator")
    group = [
        Leaf({"first": "a", "second": "c", "generator": "1"}, 0.9),
        Leaf({"first": "a", "second": "d", "generator": "2"}, 0.5),
        Leaf({"first": "b", "generator": "3"}, 0.1),  # b left the prompt as it was: nobody else was asked
    ]
    found = credit([group], experts, "per_expert", scale="none")
    assert earned(found["first"]) == pytest.approx({"a": 0.3, "b": -0.3})
    assert earned(found["second"]) == pytest.approx({"c": 0.2, "d": -0.2})
    assert earned(found["generator"]) == {"1": None, "2": None, "3": None}


def test_no_score_is_not_a_low_score() -> None:
    group = [*TREE[:3], leaf("b", "b2", None), leaf("c", "c1", None)]
    found = credit([group], EXPERTS, "per_expert", scale="none")
    # a 0.8, b 0.1 by its one score, c nothing
    assert earned(found["refiner"]) == {"a": pytest.approx(0.35), "b": pytest.approx(-0.35), "c": None}
    assert earned(found["generator"])["b2"] is None


def test_equal_returns_are_counted_and_say_nothing() -> None:
    group = [leaf("a", "a1", 0.5), leaf("a", "a2", 0.5), leaf("b", "b1", 0.3), leaf("b", "b2", 0.7)]
    found = credit([group], EXPERTS, "per_expert", drop_zero_std=True)
    assert found["refiner"].teaching == ()
    assert found["refiner"].zero_std_groups == 1
    assert [output.node for output in found["generator"].teaching] == ["b1", "b2"]
    assert found["generator"].zero_std_groups == 1


@pytest.mark.parametrize("mode", ["shared", "per_expert"])
@pytest.mark.parametrize("drop", [True, False])
def test_a_constant_reward_teaches_nobody(mode: str, drop: bool) -> None:
    group = [leaf(x.nodes["refiner"], x.nodes["generator"], 0.1) for x in TREE]
    for found in credit([group, group], EXPERTS, mode, drop_zero_std=drop).values():
        assert {output.advantage for output in found.outputs} == {None if drop else 0.0}


def test_draws_without_siblings_teach_their_expert_nothing() -> None:
    flat = [leaf(f"r{i}", f"g{i}", score) for i, score in enumerate([0.1, 0.4, 0.9])]
    found = credit([flat], EXPERTS, "per_expert")
    assert len(found["refiner"].teaching) == 3
    assert found["generator"].teaching == ()
    assert len(credit([flat], EXPERTS, "shared")["generator"].teaching) == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mode": "each"}, r"^credit='each' is not valid: use one of shared, per_expert"),
        ({"experts": ("generator",)}, r"^nodes='refiner' is not valid: use the experts generator"),
        (
            {"groups": [[leaf("a", "same", 1.0), leaf("b", "same", 0.0)]]},
            r"^groups\[0\].nodes='same' is not valid: an output of generator has one input",
        ),
    ],
)
def test_what_is_refused(given: dict, said: str) -> None:
    with pytest.raises(InvalidParameter, match=said):
        credit(**{"groups": [TREE], "experts": EXPERTS, "mode": "per_expert", **given})


# Unbiasedness: experts that each choose 0 or 1, after what was chosen before them

Choices = tuple[int, ...]


class Chain:
    """N experts; the probability of 1 depends on the choices before. Any reward of all choices."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.random = count, random.Random(seed)
        paths = [path for size in range(count) for path in itertools.product((0, 1), repeat=size)]
        self.logits = {path: self.random.uniform(-1, 1) for path in paths}
        self.rewards = {path: self.random.uniform(-1, 1) for path in itertools.product((0, 1), repeat=count)}

    def chance(self, before: Choices, choice: int) -> float:
        one = 1 / (1 + math.exp(-self.logits[before]))
        return one if choice else 1 - one

    def slope(self, path: Choices, expert: int) -> float:
        """∂ ln p of the expert's choice by a shift of all its logits: choice − p(1)."""
        return path[expert] - self.chance(path[:expert], 1)

    def gradient(self, expert: int) -> float:
        """∂E[R] by that shift, enumerated."""
        total = 0.0
        for path, reward in self.rewards.items():
            chance = math.prod(self.chance(path[:i], choice) for i, choice in enumerate(path))
            total += chance * reward * self.slope(path, expert)
        return total

    def tree(self, branches: Sequence[int]) -> list[tuple[Leaf, Choices]]:
        """A group that branches at each expert into so many draws, with what was chosen."""
        grown: list[tuple[dict[str, str], Choices]] = [({}, ())]
        for expert, width in enumerate(branches):
            grown = [
                (
                    {**nodes, str(expert): f"{number}/{draw}"},
                    (*path, int(self.random.random() < self.chance(path, 1))),
                )
                for number, (nodes, path) in enumerate(grown)
                for draw in range(width)
            ]
        return [(Leaf(nodes, self.rewards[path]), path) for nodes, path in grown]


def estimates(chain: Chain, mode: str, branches: Sequence[int], groups: int) -> list[list[float]]:
    """By expert, each group's estimate of its gradient, without the share of a score in its own mean."""
    drawn = [chain.tree(branches) for _ in range(groups)]
    found = credit(
        [[leaf for leaf, _ in group] for group in drawn],
        [str(expert) for expert in range(chain.count)],
        mode,
        scale="none",
        clip=math.inf,
        drop_zero_std=False,
    )
    by_expert: list[list[float]] = []
    for expert in range(chain.count):
        sums, counts = [0.0] * groups, [0] * groups
        for output in found[str(expert)].outputs:
            path = drawn[output.group][output.samples[0]][1]
            sums[output.group] += output.advantage * chain.slope(path, expert)
            counts[output.group] += 1
        siblings = branches[expert] if mode == "per_expert" else math.prod(branches)
        own = siblings / (siblings - 1)
        by_expert.append([own * total / count for total, count in zip(sums, counts, strict=True)])
    return by_expert


@pytest.mark.parametrize("count", [1, 3, 4])
def test_credit_of_a_tree_is_unbiased(count: int) -> None:
    chain = Chain(count, seed=count)
    for expert, found in enumerate(estimates(chain, "per_expert", [2] * count, 800)):
        error = statistics.stdev(found) / math.sqrt(len(found))
        assert statistics.fmean(found) == pytest.approx(chain.gradient(expert), abs=4 * error)


@pytest.mark.parametrize("count", [1, 3, 4])
def test_shared_credit_of_independent_chains_is_unbiased(count: int) -> None:
    chain = Chain(count, seed=count)
    branches = [8] + [1] * (count - 1)
    for expert, found in enumerate(estimates(chain, "shared", branches, 800)):
        error = statistics.stdev(found) / math.sqrt(len(found))
        assert statistics.fmean(found) == pytest.approx(chain.gradient(expert), abs=4 * error)


def test_shared_credit_is_noisier_where_others_matter_more() -> None:
    """Of 16 scores each, for the last of four experts when the first decides most of the reward."""
    chain = Chain(4, seed=0)
    chain.rewards = {path: 5 * path[0] + 0.5 * path[3] for path in chain.rewards}
    tree = estimates(chain, "per_expert", [2, 2, 2, 2], 400)[3]
    flat = estimates(chain, "shared", [16, 1, 1, 1], 400)[3]
    assert statistics.stdev(flat) > 3 * statistics.stdev(tree)
