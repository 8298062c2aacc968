"""Who among several experts earned a reward. Plain Python, no torch.

A sample passes through experts in turn: refiners, then a generator. Each reads what the one before it wrote,
and a group may branch at any of them, so that the outputs of a group form a tree:

    prompt ─┬─ refiner_1: a ─┬─ refiner_2: c ─┬─ generator: image of c, 0.9
            │                │                └─ generator: image of c, 0.7
            │                └─ refiner_2: d ─── …
            └─ refiner_1: b ─── …

shared       every expert is given the sample's own advantage within the group. It carries the luck of all the
             others: unbiased, and the noisier the more experts there are.
per_expert   an output's return is the mean score of what descends from it, and its advantage contrasts it
             with its siblings, which had the same input: what came before cancels exactly, what came after
             averages out. An only output is contrasted with samples that left its input alone; without
             either it teaches its expert nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.training.advantages import Advantages, Scale, group_advantages

Credit = Literal["shared", "per_expert"]

LEAST_OUTPUTS = 2
"""So many outputs of one input are a contrast of their own."""

ROOT = ""
"""The input of a sample's first expert: the prompt as asked."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A finished sample.

    Attributes:
        nodes: id of each expert's output that led to it, by expert; an expert that was passed over is left
            out. An id names one draw, unique within the group: two draws of equal content are two nodes.
        score: None where there is none.
    """

    nodes: Mapping[str, str]
    score: float | None


@dataclass(frozen=True, slots=True)
class Output:
    """One expert's output and what it earned.

    Attributes:
        group, node: which output.
        samples: indices of the group's samples that descend from it; any of them holds it.
        advantage: None where nothing can be said: no score, or no contrast.
    """

    group: int
    node: str
    samples: tuple[int, ...]
    advantage: float | None


@dataclass(frozen=True, slots=True)
class ExpertCredit:
    """What one expert's outputs earned.

    Attributes:
        outputs: each output once, by group, in the order of their first samples.
        zero_std_groups: contrasts, that is groups or sets of siblings, whose returns are all the same.
    """

    outputs: tuple[Output, ...]
    zero_std_groups: int

    @property
    def teaching(self) -> tuple[Output, ...]:
        """The outputs that have an advantage."""
        return tuple(output for output in self.outputs if output.advantage is not None)


def credit(
    groups: Sequence[Sequence[Leaf]],
    experts: Sequence[str],
    mode: Credit,
    *,
    scale: Scale = "group",
    clip: float = 5.0,
    epsilon: float = 1e-4,
    drop_zero_std: bool = True,
) -> dict[str, ExpertCredit]:
    """What every expert's outputs earned, by expert.

    A sample that passes an expert over shows what comes of leaving its input alone. With shared credit it is
    in the group's mean as any other. With credit of their own it is contrasted with an only output; of
    several outputs it would shift all advantages by one amount, which says nothing of any and is the loudest
    part where passing over costs much.

    Args:
        groups: the samples of each group.
        experts: in the order in which a sample passes through them, the generator last.
        scale, clip, epsilon, drop_zero_std: as in `group_advantages`, of the group or of the siblings.

    Raises:
        InvalidParameter: an unknown mode or expert, an output with two inputs, or what `group_advantages`
            refuses.
    """
    if mode not in get_args(Credit):
        raise InvalidParameter("credit", mode, f"use one of {', '.join(get_args(Credit))}")
    for leaf in (leaf for group in groups for leaf in group):
        if unknown := sorted(set(leaf.nodes) - set(experts)):
            raise InvalidParameter("nodes", unknown[0], f"use the experts {', '.join(experts)}")

    def advantages(scores: Sequence[Sequence[float | None]]) -> Advantages:
        return group_advantages(scores, scale=scale, clip=clip, epsilon=epsilon, drop_zero_std=drop_zero_std)

    if mode == "per_expert":
        return {expert: _contrasted(groups, experts, expert, advantages) for expert in experts}
    shared = advantages([[leaf.score for leaf in group] for group in groups])
    return {expert: _shared(groups, expert, shared) for expert in experts}


def _shared(groups: Sequence[Sequence[Leaf]], expert: str, shared: Advantages) -> ExpertCredit:
    """Each output with the mean advantage of its samples."""
    outputs: list[Output] = []
    for number, (group, values) in enumerate(zip(groups, shared.values, strict=True)):
        for node, samples in _nodes(group, expert).items():
            known = [value for index in samples if (value := values[index]) is not None]
            outputs.append(Output(number, node, samples, statistics.fmean(known) if known else None))
    return ExpertCredit(tuple(outputs), shared.zero_std_groups)


def _contrasted(
    groups: Sequence[Sequence[Leaf]],
    experts: Sequence[str],
    expert: str,
    advantages: Callable[[Sequence[Sequence[float | None]]], Advantages],
) -> ExpertCredit:
    """Each output against its siblings."""
    units = [
        unit for number, group in enumerate(groups) for unit in _siblings(number, group, experts, expert)
    ]
    found = advantages([[branch.worth for branch in unit] for unit in units])
    outputs = [
        Output(branch.group, branch.node, branch.samples, value)
        for unit, values in zip(units, found.values, strict=True)
        for branch, value in zip(unit, values, strict=True)
        if branch.node is not None
    ]
    outputs.sort(key=lambda output: (output.group, output.samples))
    return ExpertCredit(tuple(outputs), found.zero_std_groups)


@dataclass(frozen=True, slots=True)
class _Branch:
    """What descends from one output, or (node None) from the input that was left alone."""

    group: int
    node: str | None
    samples: tuple[int, ...]
    worth: float | None


def _siblings(
    number: int, group: Sequence[Leaf], experts: Sequence[str], expert: str
) -> Iterator[list[_Branch]]:
    """A group's branches at one expert, those of one input together."""
    inputs: dict[str, tuple[str, str]] = {}
    by_input: dict[tuple[str, str], dict[str | None, list[int]]] = {}
    for index, leaf in enumerate(group):
        given, node = _input(leaf, experts, expert), leaf.nodes.get(expert)
        if node is not None and inputs.setdefault(node, given) != given:
            remedy = f"an output of {expert} has one input: name every draw apart"
            raise InvalidParameter(f"groups[{number}].nodes", node, remedy)
        by_input.setdefault(given, {}).setdefault(node, []).append(index)
    for branches in by_input.values():
        unit = [
            _Branch(number, node, tuple(samples), _return(group, samples))
            for node, samples in branches.items()
        ]
        outputs = [branch for branch in unit if branch.node is not None]
        if outputs:
            judged = sum(branch.worth is not None for branch in outputs)
            yield unit if judged < LEAST_OUTPUTS else outputs


def _input(leaf: Leaf, experts: Sequence[str], expert: str) -> tuple[str, str]:
    """The output that an expert read: of the last one before it that was not passed over."""
    for earlier in reversed(experts[: experts.index(expert)]):
        if earlier in leaf.nodes:
            return earlier, leaf.nodes[earlier]
    return ROOT, ROOT


def _nodes(group: Sequence[Leaf], expert: str) -> dict[str, tuple[int, ...]]:
    """The samples that descend from each of an expert's outputs."""
    found: dict[str, list[int]] = {}
    for index, leaf in enumerate(group):
        if expert in leaf.nodes:
            found.setdefault(leaf.nodes[expert], []).append(index)
    return {node: tuple(samples) for node, samples in found.items()}


def _return(group: Sequence[Leaf], samples: Sequence[int]) -> float | None:
    known = [score for index in samples if (score := group[index].score) is not None]
    return statistics.fmean(known) if known else None
