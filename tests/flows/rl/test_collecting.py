"""Collections: what is recorded of a group, how it repeats, and what becomes of samples without a score."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutoscope.flows.rl.asks import Ask
from mutoscope.flows.rl.collected import Collected, Group, group_of, inputs_of
from mutoscope.flows.rl.collecting import collect
from mutoscope.flows.rl.sampling import begun_within
from mutoscope.flows.rl.settling import Limits
from mutoscope.flows.rl.stages import Stage
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.errors import NonFinite, RunFailed, ScoreTimeout
from mutoscope.platform.orchestration.context import observer
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.submit import submit_run
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.reward import Reward
from mutoscope.platform.training.groups import Draw
from mutoscope.platform.trajectory import TrajectoryGroup
from tests.support.real_engine import RealEngine, publish_folders
from tests.support.rollouts import (
    CAPTION,
    GROUP,
    OTHER,
    SCENE,
    collected,
    folder_of,
    plan,
    publish_other,
    rollout_platform,
)


def only(made: Collected, card: str = "flux-t2i") -> Group:
    (group,) = made.groups[card]
    return group


def trajectory(runtime: Runtime, ref: ArtifactRef) -> TrajectoryGroup:
    value = codecs.decode(ref.kind, runtime.store.get(ref.digest), ref.media_type)
    assert isinstance(value, TrajectoryGroup)
    return value


def stored_reward(runtime: Runtime, reward: Reward) -> dict[str, ArtifactRef]:
    encoded = codecs.encode("reward", reward.to_json(), reward.meta)
    put = runtime.store.put
    return {"reward": put(encoded.data, kind="reward", media_type=encoded.media_type, meta=encoded.meta)}


def failing(*faults: Exception | None) -> Callable[[RealEngine], Any]:
    """Work whose runs end with these errors one after another, None being none; then all succeed."""
    left = list(faults)

    def work(engine: RealEngine) -> Callable[[Runtime, RunRecord], dict[str, ArtifactRef]]:
        def perform(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
            fault = left.pop(0) if left else None
            if fault is not None:
                raise fault
            return engine.compute(runtime, run)

        return perform

    return work


async def test_a_group_is_on_the_record_with_everything_that_training_needs(engine: RealEngine) -> None:
    made = await collected(Ask(prompt="red circle", target=CAPTION), OTHER, samples=3)
    first, second = made.groups["flux-t2i"]
    record, runtime = first.record, engine.runtime
    assert (record.prompt, record.target, second.record.target) == ("red circle", CAPTION, OTHER)
    draw = Draw(seed=1, iteration=0, prompt_index=0)
    assert record.draw == draw
    assert [sample.seed for sample in record.samples] == [draw.sample_seed(place) for place in range(3)]
    live = runtime.catalog.weights.live("flux-t2i")
    assert record.weights == {name: version.digest for name, version in live.items()}
    assert record.versions["transformer"] == "flux-t2i/transformer@1"

    (whole,) = (trajectory(runtime, ref) for ref in first.trajectories)
    assert whole.facts.seeds == tuple(sample.seed for sample in record.samples)
    assert [sample.trajectory for sample in record.samples] == [(0, 0), (0, 1), (0, 2)]
    assert (whole.facts.law, whole.facts.window) == (record.law, record.window)
    assert whole.facts.law_parameters == {"noise_scale": record.noise_scale}
    assert dict(whole.facts.weights) == dict(record.weights)

    (run,) = runtime.catalog.runs.generated_by(first.rollout.digest)
    used = runtime.catalog.runs.inputs(run.id)
    scored = [json.loads(runtime.store.get(used[f"rewards.{at}"].digest)) for at in range(3)]
    assert [sample.score for sample in record.samples] == [each["score"] for each in scored]
    (rollout, *_) = runtime.catalog.runs.generated_by(used["trajectories.0"].digest)
    assert rollout.parameters == record.request_parameters(record.samples[0])
    assert made.inputs("flux-t2i") == {
        "rollouts": [first.rollout, second.rollout],
        "trajectories": [*first.trajectories, *second.trajectories],
    }


async def test_collecting_again_is_answered_from_the_memo_with_the_same_records(engine: RealEngine) -> None:
    first = await collected(CAPTION, OTHER)
    assert engine.counts() == {"flux-t2i": 4, SCENE: 4, GROUP: 2}
    again = await collected(CAPTION, OTHER, at_once=1)
    assert engine.counts() == {}
    assert [group.rollout for group in again.groups["flux-t2i"]] == [
        group.rollout for group in first.groups["flux-t2i"]
    ]
    other = await collected(CAPTION, iteration=1)
    assert only(other).record.samples[0].seed != first.groups["flux-t2i"][0].record.samples[0].seed


async def test_a_collection_that_was_killed_goes_on_where_it_was(engine: RealEngine) -> None:
    whole = await collected(CAPTION, OTHER, samples=3, seed=9)
    engine.counts()
    halted = asyncio.Event()
    loop = asyncio.get_running_loop()

    def perform(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        if len([one for one in engine.computed if one.card == "flux-t2i"]) == 4:
            loop.call_soon_threadsafe(halted.set)
        return engine.compute(runtime, run)

    fresh = {"seed": 10, "samples": 3, "at_once": 2}
    engine.instead["flux-t2i"] = perform
    killed = asyncio.create_task(collected(CAPTION, OTHER, **fresh))
    await halted.wait()
    killed.cancel()
    await asyncio.gather(killed, return_exceptions=True)
    made = engine.counts()["flux-t2i"]
    resumed = await collected(CAPTION, OTHER, **fresh)
    assert made + engine.counts().get("flux-t2i", 0) <= 6 + 2, "what was under way may be made twice"
    untouched = await collected(CAPTION, OTHER, **fresh)
    rollouts = [[g.rollout for g in each.groups["flux-t2i"]] for each in (resumed, untouched)]
    assert rollouts[0] == rollouts[1]
    assert rollouts[0] != [group.rollout for group in whole.groups["flux-t2i"]]


async def test_window_and_law_are_the_groups_and_vary_between_groups(engine: RealEngine) -> None:
    asks = [f"{CAPTION} on a {colour} background" for colour in ("white", "gray", "black", "pink")]
    made = await collected(
        *asks, laws=("flow-sde", "cps"), parameters={"num_inference_steps": 6, "window_size": 1}
    )
    groups = made.groups["flux-t2i"]
    assert {group.record.law for group in groups} == {"flow-sde", "cps"}
    assert len({group.record.window for group in groups}) > 1
    for group in groups:
        facts = trajectory(engine.runtime, group.trajectories[0]).facts
        assert (facts.law, facts.window) == (group.record.law, group.record.window)


async def test_versions_are_pinned_when_the_collection_begins(engine: RealEngine) -> None:
    def publish(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        if len(engine.computed) == 1:
            publish_other(runtime, "flux-t2i")
        return engine.compute(runtime, run)

    engine.instead["flux-t2i"] = publish
    made = await collected(CAPTION, OTHER, at_once=1)
    live = engine.runtime.catalog.weights.live("flux-t2i")["transformer"]
    assert live.ordinal == 2
    for group in made.groups["flux-t2i"]:
        assert group.record.versions["transformer"] == "flux-t2i/transformer@1"
        facts = trajectory(engine.runtime, group.trajectories[0]).facts
        assert facts.weights["transformer"] != live.digest
    chosen = await collected(CAPTION, weights="flux-t2i/transformer@1", seed=2)
    assert only(chosen).record.versions["transformer"] == "flux-t2i/transformer@1"
    assert only(await collected(CAPTION, seed=2)).record.weights["transformer"] == live.digest


async def test_several_rewards_make_one_score(engine: RealEngine, runtime: Runtime) -> None:
    def clip(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        return stored_reward(runtime, Reward("reward-clip", str(run.id), "score", 0.25))

    engine.instead["reward-clip"] = clip
    publish_folders(runtime, {"reward-clip": folder_of("reward-clip")})
    with engine.serving("reward-clip"):
        record = only(await collected(CAPTION, rewards={SCENE: 2.0, "reward-clip": -1.0})).record
    for sample in record.samples:
        scene = sample.details[SCENE]["score"]
        assert sample.details["reward-clip"]["score"] == 0.25
        assert sample.score == 2.0 * scene - 0.25


class TestSamplesWithoutAScore:
    async def test_a_rollout_that_fails_is_sampled_again_with_another_seed(self, engine: RealEngine) -> None:
        engine.instead["flux-t2i"] = failing(RunFailed("the device is on fire"))(engine)
        record = only(await collected(CAPTION, at_once=1)).record
        draw = record.draw
        assert [sample.seed for sample in record.samples] == [draw.sample_seed(0, 1), draw.sample_seed(1)]
        (lost,) = record.dropped
        assert (lost.seed, lost.status, lost.replaced_by) == (
            draw.sample_seed(0),
            "failed",
            draw.sample_seed(0, 1),
        )
        assert lost.reason.endswith("the device is on fire")
        assert record.kept

    async def test_samples_beyond_the_refills_are_dropped_on_the_record(self, engine: RealEngine) -> None:
        fault = NonFinite("denoise gave NaN or infinity")
        engine.instead["flux-t2i"] = failing(fault, fault, fault)(engine)
        record = only(await collected(CAPTION, samples=3, refills=1, at_once=1)).record
        assert [(each.status, each.replaced_by is not None) for each in record.dropped] == [
            ("non_finite", True),
            ("non_finite", False),
            ("non_finite", False),
        ]
        assert [sample.seed for sample in record.samples] == [record.draw.sample_seed(0, 1)]
        assert not record.kept
        assert record.reason is not None
        assert "2 are needed" in record.reason

    @pytest.mark.parametrize(
        ("fault", "status", "told"),
        [
            (ScoreTimeout("reward-scene had done 0 of 1 steps"), "timeout", "had done 0 of 1"),
            (RuntimeError("segmentation fault"), "failed", "segmentation fault"),
        ],
    )
    async def test_a_reward_that_never_answers_drops_the_group_and_is_no_zero(
        self, engine: RealEngine, fault: Exception, status: str, told: str
    ) -> None:
        engine.instead[SCENE] = failing(*[fault] * 100)(engine)
        made = await collected(CAPTION, OTHER, refills=1)
        assert made.kept("flux-t2i") == []
        assert made.inputs("flux-t2i") == {}
        assert made.scores == []
        for group in made.groups["flux-t2i"]:
            assert group.record.scores == [None, None]
            assert [sample.status for sample in group.record.samples] == [status] * 2
            assert all(told in str(sample.reason) for sample in group.record.samples)
            assert [each.status for each in group.record.dropped] == [status]
            assert group.record.reason == f"0 of its samples have a score, 2 are needed (3 {status})"
        assert [each["reason"] for each in made.summary()["dropped_groups"]] == [
            group.record.reason for group in made.groups["flux-t2i"]
        ]

    async def test_a_score_that_is_not_finite_has_a_status_of_its_own(self, engine: RealEngine) -> None:
        def nan(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
            return stored_reward(runtime, Reward.of(SCENE, str(run.id), float("nan")))

        engine.instead[SCENE] = nan
        record = only(await collected(CAPTION, refills=0)).record
        assert [(sample.status, sample.score) for sample in record.samples] == [("non_finite", None)] * 2
        assert "the scorer's value is nan" in str(record.samples[0].reason)
        assert not record.kept

    async def test_one_sample_without_a_score_leaves_the_others_theirs(self, engine: RealEngine) -> None:
        engine.instead[SCENE] = failing(RuntimeError("once"))(engine)
        made = await collected(CAPTION, samples=3, refills=0, at_once=1)
        record = only(made).record
        assert [sample.status for sample in record.samples] == ["failed", "score", "score"]
        assert record.kept
        assert len(made.scores) == 2

    async def test_rollouts_that_nobody_takes_in_time_are_given_up(self, engine: RealEngine) -> None:
        taken, release = threading.Event(), threading.Event()

        def hold(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
            taken.set()
            release.wait()
            return engine.compute(runtime, run)

        engine.instead["flux-t2i"] = hold
        others = asyncio.create_task(submit_run("flux-t2i", prompt=CAPTION, num_inference_steps=2, seed=1))
        await asyncio.to_thread(taken.wait)
        with engine.serving(GROUP):  # the other one is held
            record = only(await collected(CAPTION, limits=Limits(queue_seconds=0.2), refills=3)).record
        release.set()
        await others
        assert [each.status for each in record.dropped] == ["timeout"] * 2, "another seed would wait as long"
        assert {each.reason for each in record.dropped} == {"no worker took it within 0.2 s"}
        assert (record.samples, record.kept) == ((), False)
        states = [run.state for run in engine.runtime.catalog.runs.list(card="flux-t2i", limit=9)]
        assert states.count("cancelled") == 2, "what is given up is withdrawn"

    async def test_a_rollout_that_was_taken_has_all_the_time_it_needs(self, engine: RealEngine) -> None:
        await collected(CAPTION)
        (run, *_) = engine.runtime.catalog.runs.list(card="flux-t2i", limit=1)
        loop = asyncio.get_running_loop()

        async def slow() -> str:
            told = observer.get()
            assert told is not None
            told(replace(run, state="running"))
            done = loop.create_future()
            loop.call_later(0.1, done.set_result, "made")
            return str(await done)

        assert await begun_within(0.02, slow) == "made"


class TestLimits:
    async def test_a_budget_of_groups_or_samples(self, engine: RealEngine) -> None:
        made = await collected(CAPTION, OTHER, limits=Limits(max_groups=1))
        assert len(made.groups["flux-t2i"]) == 1
        assert made.stopped == "max_groups=1: 1 of 2 prompts were sampled"
        made = await collected(CAPTION, OTHER, samples=3, limits=Limits(max_samples=5))
        assert made.stopped == "max_samples=5: 1 of 2 prompts were sampled"
        assert (await collected(CAPTION, limits=Limits(max_groups=1, max_samples=2))).stopped is None

    async def test_it_stops_when_the_head_is_too_far_ahead(self, engine: RealEngine) -> None:
        weights = engine.runtime.catalog.weights
        weights.set_alias("mine", weights.get("flux-t2i/transformer@1"))

        def publish(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
            if len(engine.computed) == 1:
                publish_other(runtime, "flux-t2i")
                weights.set_alias("mine", weights.get("flux-t2i/transformer@2"))
            return engine.compute(runtime, run)

        engine.instead["flux-t2i"] = publish
        wanted = plan(
            CAPTION,
            OTHER,
            "a red ring",
            weights="flux-t2i@mine",
            limits=Limits(follow="mine", max_staleness=0),
            at_once=1,
        )
        made = await collect(wanted)
        assert len(made.groups["flux-t2i"]) < 3
        assert made.stopped == (
            "stale: flux-t2i/transformer@2 is 1 ahead of flux-t2i/transformer@1, at most 0 allowed"
        )


async def test_groups_are_found_again_by_their_records(engine: RealEngine) -> None:
    made = await collected(CAPTION, OTHER)
    refs = [group.rollout for group in made.groups["flux-t2i"]]
    found = [group_of(engine.runtime, ref) for ref in refs]
    assert found == list(made.groups["flux-t2i"])
    assert inputs_of(found) == made.inputs("flux-t2i")


class TestComposedCards:
    @pytest.fixture
    def composed(self, tmp_path: Path) -> Any:
        with rollout_platform(tmp_path, "multi-expert", SCENE) as serving:
            yield serving

    async def test_some_samples_are_drawn_from_the_prompt_as_it_is(self, composed: RealEngine) -> None:
        record = only(
            await collected(CAPTION, card="multi-expert", samples=4, unrefined=1), "multi-expert"
        ).record
        assert [sample.refined for sample in record.samples] == [True, True, True, False]
        plain = record.samples[3]
        assert (plain.prompt, dict(plain.tokens), list(plain.nodes)) == (CAPTION, {}, ["transformer"])
        assert record.parameters["refine"] is True
        assert record.request_parameters(plain)["refine"] is False
        assert not record.joined

    async def test_refiners_branch_as_asked_and_the_tree_is_on_the_record(self, composed: RealEngine) -> None:
        group = only(
            await collected(CAPTION, card="multi-expert", samples=8, branches=(2, 2)), "multi-expert"
        )
        record, runtime = group.record, composed.runtime
        first = [sample.nodes["refiner_1"] for sample in record.samples]
        assert first == [first[0]] * 4 + [first[4]] * 4
        assert first[0] != first[4]
        by_node: dict[str, set[str]] = {}
        for sample in record.samples:
            (tokens, part) = (sample.tokens["refiner_1"], sample.nodes["refiner_1"])
            by_node.setdefault(part, set()).add(group.tokens[tokens].digest)
            told = json.loads(runtime.store.get(group.tokens[tokens].digest))
            assert str(told["seed"]) == part
        assert all(len(files) == 1 for files in by_node.values())
        assert len({sample.nodes["transformer"] for sample in record.samples}) == 8
        inputs = {
            sample.nodes["refiner_2"]: sample.nodes["refiner_1"]
            for sample in record.samples
            if "refiner_2" in sample.nodes
        }
        ways = [list(inputs.values()).count(node) for node in set(inputs.values())]
        assert ways, "of these weights no first refiner has changed the text"
        assert max(ways) <= 2
        (run, *_) = runtime.catalog.runs.generated_by(group.trajectories[0].digest)
        asked = record.request_parameters(record.samples[0])
        assert {**asked["refiner_seeds"]}.items() <= {**run.parameters["refiner_seeds"]}.items()

    async def test_tokens_are_listed_once(self, composed: RealEngine) -> None:
        group = only(await collected(CAPTION, card="multi-expert", samples=3), "multi-expert")
        listed = [ref.digest for ref in group.tokens]
        assert len(listed) == len(set(listed)) == len(group.record.tokens)
        assert tuple(listed) == group.record.tokens


class TestFilms:
    @pytest.fixture
    def studio(self, tmp_path: Path) -> Any:
        with rollout_platform(tmp_path, "flux-t2i", "wan-i2v", SCENE) as serving:
            yield serving

    async def test_the_films_score_counts_for_both_stages(self, studio: RealEngine) -> None:
        asked = {"num_inference_steps": 3}
        stages = [
            Stage("flux-t2i", parameters=asked),
            Stage("wan-i2v", parameters={**asked, "num_frames": 5}),
        ]
        made = await collected(f"{CAPTION}, drifting right", stages=stages, samples=3)
        picture, film = only(made), only(made, "wan-i2v")
        assert picture.record.scores == film.record.scores
        assert picture.record.joined
        assert [sample.image for sample in film.record.samples] == [0, 1, 2]
        assert len(film.trajectories) == 3, "each began with a picture of its own"
        runtime = studio.runtime
        for sample, image in zip(film.record.samples, film.images, strict=True):
            assert sample.trajectory is not None
            (run,) = runtime.catalog.runs.generated_by(film.trajectories[sample.trajectory[0]].digest)
            assert runtime.catalog.runs.inputs(run.id)["image"] == image
        assert film.record.images == tuple(image.digest for image in film.images)
        assert studio.counts()[SCENE] == 3

    async def test_a_video_card_takes_one_picture_or_one_for_each(self, studio: RealEngine) -> None:
        pictures = []
        for value in (10, 200):
            encoded = codecs.encode("image", np.full((32, 32, 3), value, np.uint8), {})
            ref = studio.runtime.store.put(
                encoded.data, kind="image", media_type=encoded.media_type, meta=encoded.meta
            )
            studio.runtime.catalog.artifacts.record(ref)
            pictures.append(f"image:{ref.digest}")
        given: dict[str, Any] = {"card": "wan-i2v", "parameters": {"num_inference_steps": 3, "num_frames": 5}}
        prompt = f"{CAPTION}, drifting right"
        one = only(await collected(Ask(prompt=prompt, images=(pictures[0],)), **given), "wan-i2v")
        assert [sample.image for sample in one.record.samples] == [0, 0]
        assert one.record.joined
        each = only(await collected(Ask(prompt=prompt, images=tuple(pictures)), **given), "wan-i2v")
        assert [sample.image for sample in each.record.samples] == [0, 1]
        assert not each.record.joined
