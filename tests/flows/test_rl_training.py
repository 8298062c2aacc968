"""Trainings from end to end on tiny weights: a real worker samples, scores and trains; nothing is painted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from mutoscope.flows.rl.configuration import configuration_of
from mutoscope.flows.rl.training import Trained, train
from mutoscope.platform.catalog import render_tree
from mutoscope.platform.errors import InvalidParameter, TrainingHalted, UnknownReference
from mutoscope.platform.training import notes
from tests.support.trainings import School, lesson

HEAD = "flux-t2i/transformer"


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    opened = School(tmp_path_factory.mktemp("school") / "home")
    with opened.teaching():
        yield opened
    opened.close()


@pytest.fixture(scope="module")
def first(school: School) -> Trained:
    """A whole training that nothing disturbed."""
    return asyncio.run(train("first", lesson()))


def test_every_iteration_makes_a_version_and_is_on_record(school: School, first: Trained) -> None:
    assert first.heads == {HEAD: f"{HEAD}@4"}
    versions = [school.catalog.weights.get(f"{HEAD}@{ordinal}") for ordinal in (1, 2, 3, 4)]
    assert [one.parent_id for one in versions[1:]] == [one.id for one in versions[:-1]]
    records = school.noted("first", notes.ITERATION)
    assert [record["heads"][HEAD]["version"] for record in records.values()] == [
        f"{HEAD}@{ordinal}" for ordinal in (2, 3, 4)
    ]
    for record in records.values():
        assert record["rewards"]["scored"] == record["rewards"]["samples"] == 6
        assert record["metrics"][HEAD]["updates"] == 1
        assert record["metrics"][HEAD]["staleness_max"] == 0
        assert record["metrics"][HEAD]["delta_log_p"] < 1e-5
    assert versions[3].metrics is not None
    assert (versions[3].metrics["training"], versions[3].metrics["iteration"]) == ("first", 2)


def test_what_is_live_stays_so_and_the_training_has_its_own_aliases(school: School, first: Trained) -> None:
    weights = school.catalog.weights
    assert str(weights.live("flux-t2i")["transformer"]) == f"{HEAD}@1"
    assert {part: str(one) for part, one in weights.aliased("flux-t2i", "first").items()} == {
        "transformer": f"{HEAD}@4"
    }
    base = weights.aliased("flux-t2i", "first-base")
    assert base == weights.live("flux-t2i")
    assert weights.aliased("reward-scene", "first-base") == weights.live("reward-scene")
    assert str(weights.aliased("flux-t2i", "first-best")["transformer"]) == first.best[HEAD]


def test_evaluations_judge_by_more_than_the_reward(school: School, first: Trained) -> None:
    looked = school.noted("first", notes.EVALUATION)
    assert list(looked) == [0, 2, 3]
    for record in looked.values():
        assert set(record["scores"]) == {"reward-scene", "scene-check"}
        assert record["scores"]["scene-check"]["scored"] == 4
        assert record["held_out"]["scene-check"]["samples"] == 2
        assert record["statistics"]["samples"] == 4
        assert {sample["target"] for sample in record["samples"]} == {
            "a red circle on a pink background",
            "a blue square",
        }
    best = max(looked.values(), key=lambda record: record["scores"]["scene-check"]["mean"])
    assert first.best[HEAD] in {record["versions"][HEAD] for record in looked.values()}
    assert best["scores"]["scene-check"]["mean"] >= looked[0]["scores"]["scene-check"]["mean"]


async def test_started_again_it_computes_nothing_and_ends_alike(school: School, first: Trained) -> None:
    runs, versions = school.catalog.runs.counts(), school.catalog.weights.list()
    assert await train("first", lesson()) == first
    assert school.catalog.runs.counts() == runs
    assert school.catalog.weights.list() == versions


async def test_it_goes_on_further_when_it_is_given_more_iterations(school: School, first: Trained) -> None:
    further = await train("first", lesson(iterations=4))
    assert further.heads == {HEAD: f"{HEAD}@5"}
    assert list(school.noted("first", notes.ITERATION)) == [0, 1, 2, 3]


async def test_another_configuration_under_the_name_is_refused(school: School, first: Trained) -> None:
    changed = lesson().to_json()
    changed["stages"][0]["train"]["transformer"]["learning_rate"] = 0.5
    line = r"^stages\.0\.train\.transformer\.learning_rate=0\.5 is not valid: training first was set up with"
    with pytest.raises(InvalidParameter, match=line):
        await train("first", configuration_of(changed))
    with pytest.raises(InvalidParameter, match=r"^prompts=.* is not valid: training first was set up with"):
        await train("first", lesson(prompts=["a red circle"]))


def test_the_lineage_of_a_picture_reads_back_to_the_base(school: School, first: Trained) -> None:
    made = school.noted("first", notes.EVALUATION)[3]["samples"][0]["made"]
    digest = school.catalog.artifacts.resolve(made).digest
    tree = render_tree(school.catalog.lineage.up(digest))
    order = [f"{HEAD}@4", f"{HEAD}@3", f"{HEAD}@2", f"{HEAD}@1"]
    places = [tree.index(name) for name in order]
    assert places == sorted(places), tree
    for said in ("flux-t2i-trainer", "rollout-group", "trajectory:", "reward:", "reward-scene/scorer@1"):
        assert said in tree, tree
    closure = school.catalog.lineage.closure(digest)
    kinds = {run.kind for run in school.catalog.runs.get_many(list(closure.runs)).values()}
    assert kinds >= {"engine", "reward", "train_step", "import"}
    uses = school.catalog.lineage.weights_of(digest, history=True)
    assert {str(version) for use in uses for version in use.versions} >= set(order)


def test_the_impact_of_a_reward_lists_every_version_that_it_taught(school: School, first: Trained) -> None:
    scorer = school.catalog.weights.get("reward-scene/scorer@1")
    taught = {str(version) for version in school.catalog.lineage.impact(scorer.digest).versions}
    assert taught >= {f"{HEAD}@2", f"{HEAD}@3", f"{HEAD}@4"}
    assert f"{HEAD}@1" not in taught


async def test_a_reading_beyond_its_limit_halts_and_puts_the_head_back(school: School) -> None:
    """No reading may move for the worse: the first version that is looked at moved one of them."""
    strict = {"least_diversity": 1.0, "least_edge_density": 1.0, "most_edge_density": 1.0}
    limits = {**strict, "least_colour_entropy": 1.0, "most_dark_fraction": 0.0, "most_held_out_drop": 0.0}
    asked = lesson(seed=8, evaluation={"every": 1, "seeds": [1, 2], "limits": limits})
    with pytest.raises(
        TrainingHalted, match=r"^training strict halted before iteration \d: .* is .*, its limit"
    ):
        await train("strict", asked)
    ((iteration, halt),) = school.noted("strict", notes.HALT).items()
    well = school.noted("strict", notes.EVALUATION)[iteration - 1]["versions"]
    assert halt["back_to"] == well
    assert halt["from"] != well
    head = school.catalog.weights.get(f"{HEAD}@strict")
    assert str(head) == well[HEAD]
    with pytest.raises(TrainingHalted):
        await train("strict", asked)
    assert school.catalog.weights.get(f"{HEAD}@strict") == head, "started again, it halts where it did"


async def test_a_learning_rate_that_diverges_stops_it_and_nothing_is_published(school: School) -> None:
    train_fast = {"transformer": {"method": "flow-grpo", "learning_rate": 1e6}}
    stage = {"card": "flux-t2i", "train": train_fast, "parameters": {"num_inference_steps": 3}}
    versions = school.catalog.weights.list("flux-t2i")
    with pytest.raises(
        TrainingHalted, match=r"^training fast halted at iteration 0: .* lower it; nothing was"
    ):
        await train("fast", lesson(stages=[stage], evaluation=None))
    assert school.catalog.weights.list("flux-t2i") == versions
    assert str(school.catalog.weights.get(f"{HEAD}@fast")) == f"{HEAD}@1"


async def test_a_version_to_begin_from_that_is_not_there(school: School) -> None:
    stage = {**lesson().to_json()["stages"][0], "weights": [f"{HEAD}@99"]}
    with pytest.raises(UnknownReference, match="no weights are named 'flux-t2i/transformer@99'"):
        await train("lost", lesson(stages=[stage]))
    with pytest.raises(UnknownReference, match="card wan-i2v has no weights to begin from"):
        await train("lost", lesson(stages=[{"card": "wan-i2v"}]))
    assert "lost" not in {training.name for training in school.catalog.trainings.list()}


async def test_with_updates_off_nothing_moves(school: School, first: Trained) -> None:
    stage = {"card": "flux-t2i", "parameters": {"num_inference_steps": 3}}
    versions = school.catalog.weights.list("flux-t2i")
    made = await train("control", lesson(stages=[stage]))
    assert (made.heads, made.best) == ({}, {})
    assert school.catalog.weights.list("flux-t2i") == versions
    looked = school.noted("control", notes.EVALUATION)
    assert looked[0]["scores"] == looked[3]["scores"] == school.noted("first", notes.EVALUATION)[0]["scores"]


@pytest.mark.long
async def test_a_student_descends_from_its_teacher(school: School, first: Trained) -> None:
    teacher = first.heads[HEAD]
    stage = {
        "card": "flux-t2i",
        "parameters": {"num_inference_steps": 4, "levels": "all"},
        "laws": ["ode"],
        "serve": {"num_inference_steps": 2},
        "teacher": [teacher],
        "weights": [teacher],
        "train": {"transformer": {"method": "distill", "learning_rate": 1e-3, "distill_steps": 2}},
    }
    made = await train("student", lesson(stages=[stage], iterations=2, evaluation=None))
    student = school.catalog.weights.get(made.heads[HEAD])
    uses = school.catalog.lineage.weights_of(student.digest, history=True)
    names = {str(version) for use in uses for version in use.versions}
    assert names >= {teacher, f"{HEAD}@1"}, "base, teacher, student"
    for record in school.noted("student", notes.ITERATION).values():
        (digest, *_) = record["rollouts"]["cards"]["flux-t2i"]["records"]
        assert json.loads(school.store.get(digest))["versions"]["transformer"] == teacher
