"""A group's record, held against the rollouts and rewards it names, and its trajectories joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mutoscope.platform.engine.loop import BuildContext, ComponentNode, Program
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.reward import Reward
from mutoscope.platform.training.groups import RolloutRecord, combined, verdict
from mutoscope.platform.trajectory import TrajectoryGroup, joined


def build(context: BuildContext) -> Program:
    """The card's program."""
    return Program(nodes=(ComponentNode("group", "records", run),), outputs=outputs, check=check)


def check(request: Request) -> None:
    """Refuse a record that its own inputs contradict. Raises InvalidParameter."""
    record = RolloutRecord.from_json(request.parameters["record"])
    _check_trajectories(record, request.inputs.get("trajectories", ()))
    _check_rewards(record, [Reward.from_json(each) for each in request.inputs.get("rewards", ())])
    if (given := len(request.inputs.get("tokens", ()))) != len(record.tokens):
        raise InvalidParameter("tokens", given, f"the record has {len(record.tokens)}: give each of them")
    if record.reason is None and (reason := verdict(sample.status for sample in record.samples)):
        raise InvalidParameter("record.reason", None, f"say why the group is dropped: {reason}")


def run(slots: Mapping[str, Any]) -> dict[str, Any]:
    """The record, and the trajectories as one where they can be."""
    record = RolloutRecord.from_json(slots["request"].parameters["record"])
    parts: Sequence[TrajectoryGroup] = slots.get("trajectories", ())
    if not record.kept or len({_shared(part) for part in parts}) != 1:
        return {"record": record, "joined": None}
    rows = iter(range(len(parts)))
    samples = tuple(
        sample if sample.trajectory is None else sample.model_copy(update={"trajectory": (0, next(rows))})
        for sample in record.samples
    )
    return {"record": record.model_copy(update={"joined": True, "samples": samples}), "joined": joined(parts)}


def outputs(slots: Mapping[str, Any]) -> dict[str, Output]:
    """The card's output slots. The record's facts say how many samples it has, and how they were scored."""
    record: RolloutRecord = slots["record"]
    scores = [score for score in record.scores if score is not None]
    facts: dict[str, Any] = {"samples": len(record.samples), "scored": len(scores), "kept": record.kept}
    if scores:
        facts["mean_score"] = sum(scores) / len(scores)
    made = {"rollout": Output("json", record.to_json(), facts)}
    if slots["joined"] is not None:
        made["trajectory"] = Output("trajectory", slots["joined"])
    return made


def _shared(part: TrajectoryGroup) -> tuple[Any, ...]:
    """What all rows of one file have in common."""
    facts = part.facts
    law = (facts.law, tuple(sorted(facts.law_parameters.items())), facts.window, facts.sigmas)
    shapes = {array.shape for array in part.samples[0].latents.values()}
    return (*law, tuple(sorted(facts.weights.items())), facts.prompt_embedding, frozenset(shapes))


def _check_trajectories(record: RolloutRecord, parts: Sequence[TrajectoryGroup]) -> None:
    named = [sample for sample in record.samples if sample.trajectory is not None]
    places = [sample.trajectory for sample in named]
    if not len(named) == len(parts) == len(record.trajectories):
        remedy = f"the record has {len(named)} samples with one and {len(record.trajectories)} digests"
        raise InvalidParameter("trajectories", len(parts), remedy)
    if record.joined or places != [(at, 0) for at in range(len(parts))]:
        raise InvalidParameter(
            "record.samples", places, "number the trajectories one by one: they are joined here"
        )
    for at, (sample, part) in enumerate(zip(named, parts, strict=True)):
        for name, said, recorded in (
            ("seeds", (sample.seed,), part.facts.seeds),
            ("law", record.law, part.facts.law),
            ("window", record.window, part.facts.window),
            ("weights", _of(record.weights, part), dict(part.facts.weights)),
        ):
            if said != recorded:
                raise InvalidParameter(f"trajectories.{at}.{name}", recorded, f"the record says {said}")


def _of(weights: Mapping[str, str], part: TrajectoryGroup) -> dict[str, str]:
    """Of a composed card's components those that the sampler has."""
    return {name: digest for name, digest in weights.items() if name in part.facts.weights}


def _check_rewards(record: RolloutRecord, given: Sequence[Reward]) -> None:
    unseen = [reward.to_json() for reward in given]
    for at, sample in enumerate(record.samples):
        rewards = {card: Reward.from_json(told) for card, told in sample.details.items()}
        for reward in rewards.values():
            if reward.to_json() in unseen:
                unseen.remove(reward.to_json())
            elif reward.score is not None:
                raise InvalidParameter(f"record.samples.{at}", reward.score, "give the reward that says so")
        if rewards.keys() != record.rewards.keys():
            remedy = f"use a reward of each of {', '.join(record.rewards)}"
            raise InvalidParameter(f"record.samples.{at}.details", sorted(rewards), remedy)
        whole = combined(rewards, record.rewards)
        if (whole.status, whole.score) != (sample.status, sample.score):
            remedy = f"its rewards come to {whole.status} {whole.score}"
            raise InvalidParameter(f"record.samples.{at}.score", sample.score, remedy)
    if unseen:
        raise InvalidParameter("rewards", unseen[0], "no sample of the record has that reward")
