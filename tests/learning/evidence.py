"""What a training left on record, as plain data; and how far trainings went beyond their controls."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mutoscope.flows.rl import records
from mutoscope.flows.rl.configuration import TrainingConfiguration
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.training import notes
from tests.learning import experts, films, refinement, rolled
from tests.learning.refinement import means

Told = dict[str, Any]

REFINER = "refiner"
"""The component that refines, of a card with one refiner."""

UPDATES, CONTROL = "updates", "control"
"""Variants that every recipe has: as it ships, and with nothing to train."""

_METRICS = (
    *("method", "step", "loss", "grad_norm", "ratio_mean", "ratio_max", "clip_fraction", "kl", "delta_log_p"),
    *("zero_std_groups", "rejected", "skipped_nonfinite", "samples", "staleness_max", "policy_shift"),
)


def of(
    runtime: Runtime, name: str, configuration: TrainingConfiguration, variant: str, halted: str | None
) -> Told:
    """A training's curve: scores by judge before an iteration, rewards and metrics in it."""
    until = range(configuration.iterations + 1)
    evaluations = records.read_all(runtime, name, notes.EVALUATION, until)
    iterations = records.read_all(runtime, name, notes.ITERATION, until)
    timings = records.read_all(runtime, name, notes.TIMING, until)
    favoured = Favoured(runtime, name, configuration)
    return {
        "name": name,
        "seed": configuration.seed,
        "variant": variant,
        "halted": halted,
        "evaluations": [
            {
                **_evaluation(at, record),
                **films.checked(runtime, record["samples"]),
                **favoured.at(record["versions"]),
            }
            for at, record in evaluations.items()
        ],
        "iterations": [
            {
                "iteration": at,
                "reward": record["rewards"]["mean"],
                "reward_std": record["rewards"]["std"],
                "samples": record["rewards"]["samples"],
                **refinements(runtime, record),
                **films.criteria(runtime, record),
                "heads": {part: head["version"] for part, head in record["heads"].items()},
                "metrics": {part: _metrics(metrics) for part, metrics in record["metrics"].items()},
            }
            for at, record in iterations.items()
        ],
        "seconds": {
            part: round(sum(timing[part] for timing in timings.values() if timing["whole"]), 1)
            for part in ("collect", "train", "publish")
        },
    }


def _evaluation(iteration: int, record: Mapping[str, Any]) -> Told:
    held_out = record["held_out"]
    return {
        "iteration": iteration,
        "scores": {judge: told["mean"] for judge, told in record["scores"].items()},
        "right": right(record["samples"]),
        "held_out": held_out and {judge: told["mean"] for judge, told in held_out.items()},
        "held_out_right": right(record["held_out_samples"]),
        "samples": record["samples"],
    }


class Favoured:
    """How likely a training's refiner, or its chain of them, is to write what the target says."""

    def __init__(self, runtime: Runtime, name: str, configuration: TrainingConfiguration) -> None:
        self._runtime, self._asks = runtime, configuration.prompts
        self._card = configuration.stages[0].card
        self._base = runtime.catalog.trainings.get(name).base[self._card]
        self._chain = experts.Chain(runtime) if self._card == experts.CARD else None

    def at(self, heads: Mapping[str, str]) -> Told:
        """At versions by card/component; nothing where nobody refines."""
        began, now = self._digests({}), self._digests(heads)
        if self._chain is not None:
            return {"experts": experts.told(self._chain, began, now, self._asks)}
        if REFINER in self._base:
            return {"refinement": refinement.told(self._runtime, now[REFINER], self._asks)}
        return {}

    def _digests(self, heads: Mapping[str, str]) -> dict[str, str]:
        get = self._runtime.catalog.weights.get
        return {
            part: get(heads.get(f"{self._card}/{part}", version)).digest
            for part, version in self._base.items()
        }


def right(samples: Sequence[Mapping[str, Any]], judge: str = "scene-check") -> float | None:
    """The share of samples that pass every check; None where nobody checked."""
    scores = [sample["scores"][judge]["score"] for sample in samples if judge in sample["scores"]]
    return statistics.fmean(score == 1.0 for score in scores) if scores else None


def refinements(runtime: Runtime, record: Mapping[str, Any]) -> Told:
    """What refiners did in an iteration: how many of their texts mean the target's scene, and the mean score
    of refined and of unrefined samples. Nothing where nobody refines."""
    groups = rolled.groups(runtime, record)
    refined = [(group.target, one) for group in groups for one in group.samples if one.refined]
    if not refined:
        return {}
    plain = [one.score for group in groups for one in group.samples if not one.refined]
    return {
        "favoured": statistics.fmean(means(one.prompt, target) for target, one in refined),
        "refined": _mean(one.score for _, one in refined),
        "unrefined": _mean(plain),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _metrics(metrics: Mapping[str, Any]) -> Told:
    return {name: metrics[name] for name in _METRICS if metrics.get(name) is not None}


def without_samples(training: Told) -> Told:
    """The same without a line for every evaluated sample."""
    rest = [{k: v for k, v in one.items() if k != "samples"} for one in training["evaluations"]]
    return {**training, "evaluations": rest}


def gain(training: Told, judge: str, scores: str = "scores") -> float | None:
    """The last evaluation's mean less the first's."""
    told = [one[scores] for one in training["evaluations"]]
    if len(told) < 2 or told[0] is None or told[0].get(judge) is None:
        return None
    return float(told[-1][judge] - told[0][judge])


def favoured_gain(training: Told) -> float | None:
    """What the probability of the wanted refinement rose by, from the first evaluation to the last."""
    known = [one["refinement"]["mean"] for one in training["evaluations"] if "refinement" in one]
    return float(known[-1] - known[0]) if len(known) > 1 else None


def own(training: Told, expert: str, at: int) -> float | None:
    """What `experts.told` says of somebody in the first (0) or last (-1) evaluation."""
    known = [one["experts"][expert] for one in training["evaluations"] if "experts" in one]
    return float(known[at]) if known else None


def drift(training: Told, what: str = "reward") -> float | None:
    """The mean of something over the last quarter of the iterations, at least one, less that over the first:
    of rollouts, so seeds are fresh throughout."""
    values = [one[what] for one in training["iterations"] if one.get(what) is not None]
    part = max(1, len(values) // 4)
    return statistics.fmean(values[-part:]) - statistics.fmean(values[:part]) if len(values) > 1 else None


def summary(trainings: Sequence[Told]) -> Told:
    """By variant: gains by judge on trained and on held-out prompts, and drifts of the rollouts."""
    judges = {judge for training in trainings for one in training["evaluations"] for judge in one["scores"]}
    return {
        kind: {
            **{
                f"{judge}{suffix}": _spread(gain(training, judge, scores) for training in mine)
                for judge in sorted(judges)
                for suffix, scores in (("", "scores"), (" held out", "held_out"))
            },
            "first": _spread(training["evaluations"][0]["scores"].get("scene-check") for training in mine),
            "last": _spread(training["evaluations"][-1]["scores"].get("scene-check") for training in mine),
            "right, first": _spread(training["evaluations"][0]["right"] for training in mine),
            "right, last": _spread(training["evaluations"][-1]["right"] for training in mine),
            "favoured": _spread(favoured_gain(training) for training in mine),
            **{
                f"{expert}, {when}": _spread(own(training, expert, at) for training in mine)
                for expert in experts.TOLD
                for when, at in (("first", 0), ("last", -1))
            },
            **{
                f"rollouts: {what}": _spread(drift(training, what) for training in mine)
                for what in ("reward", "refined", "unrefined", "favoured", *films.HALVES)
            },
            **{
                f"{half}, {when}": _spread(training["evaluations"][at].get(half) for training in mine)
                for half in films.CHECKED
                for when, at in (("first", 0), ("last", -1))
            },
        }
        for kind, mine in _kinds(trainings)
    }


def _kinds(trainings: Sequence[Told]) -> Iterator[tuple[str, list[Told]]]:
    for variant in dict.fromkeys(one["variant"] for one in trainings):
        mine = [one for one in trainings if one["variant"] == variant and one["evaluations"]]
        if mine:
            yield variant, mine


def _spread(values: Iterable[float | None]) -> Told | None:
    known = [round(value, 4) for value in values if value is not None]
    if not known:
        return None
    return {"mean": round(statistics.fmean(known), 4), "least": min(known), "most": max(known), "each": known}


def lines(training: Told) -> list[str]:
    """For whoever watches."""
    told = [
        f"before {one['iteration']:>3}: {_scores(one['scores'])}; held out {_scores(one['held_out'] or {})}"
        for one in training["evaluations"]
    ]
    rewards = " ".join(f"{one['reward']:.3f}" for one in training["iterations"] if one["reward"] is not None)
    return [*told, f"rollouts: {rewards}", *([training["halted"]] if training["halted"] else [])]


def _scores(scores: Mapping[str, float | None]) -> str:
    return ", ".join(f"{judge} {score:.3f}" for judge, score in scores.items() if score is not None)
