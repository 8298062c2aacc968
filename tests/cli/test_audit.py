"""audit: recorded log-probabilities from cold storage, and what must be caught."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutoscope.flows.rl.collected import Group
from mutoscope.flows.rl.stages import Stage
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.trajectory import TrajectoryGroup, TrajectorySample
from tests.cli.conftest import Command
from tests.support.damage import flip
from tests.support.real_engine import RealEngine
from tests.support.rollouts import CAPTION, SCENE, collected, publish_other, rollout_platform


@pytest.fixture
def engine(home: Path) -> Iterator[RealEngine]:
    home.mkdir()
    with rollout_platform(home, "flux-t2i", SCENE) as serving:
        yield serving


def group(card: str = "flux-t2i", **how: Any) -> Group:
    (made,) = asyncio.run(collected(CAPTION, card=card, **how)).groups[card]
    return made


def trajectory(runtime: Runtime, ref: ArtifactRef) -> TrajectoryGroup:
    value = codecs.decode(ref.kind, runtime.store.get(ref.digest), ref.media_type)
    assert isinstance(value, TrajectoryGroup)
    return value


def put(runtime: Runtime, value: TrajectoryGroup) -> ArtifactRef:
    encoded = codecs.encode("trajectory", value, {})
    return runtime.store.put(
        encoded.data, kind="trajectory", media_type=encoded.media_type, meta=encoded.meta
    )


@pytest.mark.parametrize("law", ["flow-sde", "cps"])
def test_what_was_sampled_holds_row_by_row(engine: RealEngine, mutoscope: Command, law: str) -> None:
    made = group(laws=(law,), samples=3)
    told = mutoscope("audit", str(made.trajectories[0]))
    assert (told.code, told.err) == (0, "")
    assert f"3 rollouts of flux-t2i, {law}, steps" in told.out
    assert "weights  transformer      flux-t2i/transformer@1" in told.out
    assert told.out.splitlines()[-1].startswith("holds: |Δlog p| <= ")
    assert "over 6 steps (limit 1e-05)" in told.out
    plain = json.loads(mutoscope("audit", str(made.trajectories[0]), "--json").out)
    assert plain["holds"] is True
    assert [each["seed"] for each in plain["rollouts"]] == [each.seed for each in made.record.samples]
    assert [int(step) for step in plain["per_step"]] == list(range(*made.record.window or ()))


def test_weights_come_from_the_store_and_nothing_stays_behind(engine: RealEngine, mutoscope: Command) -> None:
    made = group()
    (transformer,) = (
        version.digest
        for name, version in engine.runtime.catalog.weights.live("flux-t2i").items()
        if name == "transformer"
    )
    flip(engine.runtime.store, transformer)
    told = mutoscope("audit", str(made.trajectories[0]))
    assert told.code != 0
    assert transformer[:12] in told.err
    assert list((engine.runtime.settings.home / "cache").glob("audit-*")) == []


def test_the_records_artifact_stands_for_the_group(engine: RealEngine, mutoscope: Command) -> None:
    told = mutoscope("audit", str(group().rollout))
    assert told.code == 0
    assert "2 rollouts of flux-t2i" in told.out


def test_other_versions_do_not_hold(engine: RealEngine, mutoscope: Command) -> None:
    made = group()
    publish_other(engine.runtime, "flux-t2i")
    ref = str(made.trajectories[0])
    assert mutoscope("audit", ref).code == 0, "the recorded version is what counts, not the live one"
    told = mutoscope("audit", ref, "--weights", "flux-t2i/transformer@2")
    assert told.code == 1
    assert "DIFFERS" in told.out
    assert told.out.splitlines()[-1].startswith("MISMATCH in 2 of 2")


def test_a_rollout_that_names_weights_it_was_not_sampled_with_is_caught(
    engine: RealEngine, mutoscope: Command
) -> None:
    """A worker that sampled with the next version already, and put the pinned one's name on it."""
    runtime = engine.runtime
    pinned = {name: version.digest for name, version in runtime.catalog.weights.live("flux-t2i").items()}
    publish_other(runtime, "flux-t2i")
    other = {name: version.digest for name, version in runtime.catalog.weights.live("flux-t2i").items()}

    def swapped(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        lying = replace(run, key_parts={**(run.key_parts or {}), "weights": other})
        outputs = engine.compute(runtime, lying)
        sampled = trajectory(runtime, outputs["trajectory"])
        outputs["trajectory"] = put(
            runtime, TrajectoryGroup(replace(sampled.facts, weights=pinned), sampled.samples)
        )
        return outputs

    engine.instead["flux-t2i"] = swapped
    made = group(weights=[f"flux-t2i/{name}@1" for name in pinned if other[name] != pinned[name]])
    told = mutoscope("audit", str(made.trajectories[0]))
    assert told.code == 1
    assert "MISMATCH in 2 of 2" in told.out


def test_a_rollout_that_names_other_weights_than_its_run_is_caught(
    engine: RealEngine, mutoscope: Command
) -> None:
    runtime = engine.runtime
    publish_other(runtime, "flux-t2i")
    first = runtime.catalog.weights.get("flux-t2i/transformer@1")

    def renamed(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        outputs = engine.compute(runtime, run)
        sampled = trajectory(runtime, outputs["trajectory"])
        weights = {**sampled.facts.weights, "transformer": first.digest}
        lie = TrajectoryGroup(replace(sampled.facts, weights=weights), sampled.samples)
        return outputs | {"trajectory": put(runtime, lie)}

    engine.instead["flux-t2i"] = renamed
    with pytest.raises(Exception, match=r"trajectories.0.weights"):
        group(seed=3)  # the group's own record is held against it already
    (rollout,) = [run for run in runtime.catalog.runs.list(card="flux-t2i", limit=9) if run.profile][:1]
    ref = runtime.catalog.runs.outputs(rollout.id)["trajectory"]
    told = mutoscope("audit", str(ref))
    assert told.code == 1
    assert f"its transformer is {first.digest[:12]}, that of its run" in told.out


def test_one_number_changed_in_a_latent_is_caught(engine: RealEngine, mutoscope: Command) -> None:
    def flipped(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        outputs = engine.compute(runtime, run)
        sampled = trajectory(runtime, outputs["trajectory"])
        (sample,), level = sampled.samples, sampled.facts.window[1]
        latents = {at: np.array(array) for at, array in sample.latents.items()}
        latents[level].flat[0] *= -1
        changed = TrajectoryGroup(sampled.facts, (TrajectorySample(latents, sample.log_probs_W),))
        return outputs | {"trajectory": put(runtime, changed)}

    engine.instead["flux-t2i"] = flipped
    told = mutoscope("audit", str(group().trajectories[0]))
    assert told.code == 1
    assert "DIFFERS" in told.out


def test_under_the_ode_there_is_nothing_to_compare(engine: RealEngine, mutoscope: Command) -> None:
    told = mutoscope("audit", str(group(laws=("ode",)).trajectories[0]))
    assert (told.code, told.out.splitlines()[-1]) == (0, "nothing to compare: no step was drawn at random")


def test_what_is_no_rollout_is_refused(engine: RealEngine, mutoscope: Command) -> None:
    made = group()
    (run, *_) = engine.runtime.catalog.runs.generated_by(made.rollout.digest)
    reward = engine.runtime.catalog.runs.inputs(run.id)["rewards.0"]
    told = mutoscope("audit", str(reward))
    assert told.code == 2
    assert told.err.startswith(f"error: {reward} records no rollout: name a trajectory")
    assert mutoscope("audit", "trajectory:33333").code == 2


class TestComposedCards:
    @pytest.fixture
    def engine(self, home: Path) -> Iterator[RealEngine]:
        home.mkdir()
        with rollout_platform(home, "multi-expert", SCENE) as serving:
            yield serving

    def test_trajectories_and_tokens_hold(self, engine: RealEngine, mutoscope: Command) -> None:
        made = group("multi-expert", samples=3, unrefined=1)
        for ref in (*made.trajectories, *made.tokens, made.rollout):
            told = mutoscope("audit", str(ref))
            assert (told.code, told.err) == (0, ""), told.out
        assert "weights  refiner_1 " in told.out
        assert "weights  transformer " in told.out

    def test_tokens_of_other_weights_are_caught(self, engine: RealEngine, mutoscope: Command) -> None:
        made = group("multi-expert")
        publish_other(engine.runtime, "multi-expert")
        told = mutoscope("audit", str(made.tokens[0]), "--weights", "multi-expert/refiner_1@2")
        assert told.code == 1
        assert "MISMATCH in 1 of 1" in told.out


class TestVideos:
    @pytest.fixture
    def engine(self, home: Path) -> Iterator[RealEngine]:
        home.mkdir()
        with rollout_platform(home, "flux-t2i", "wan-i2v", SCENE) as serving:
            yield serving

    def test_a_film_is_audited_with_the_picture_it_began_with(
        self, engine: RealEngine, mutoscope: Command
    ) -> None:
        asked = {"num_inference_steps": 3}
        stages = [
            Stage("flux-t2i", parameters=asked),
            Stage("wan-i2v", parameters={**asked, "num_frames": 5}),
        ]
        made = asyncio.run(collected(f"{CAPTION}, drifting right", stages=stages)).groups["wan-i2v"][0]
        told = mutoscope("audit", str(made.rollout))
        assert (told.code, told.err) == (0, "")
        assert "2 rollouts of wan-i2v" in told.out
