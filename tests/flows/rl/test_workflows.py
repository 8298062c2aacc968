"""The workflows of rollouts, run as Prefect flows against the real engine."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mutoscope.flows.rl.asks import Ask
from mutoscope.flows.rl.collect_rollouts import collect_rollouts, collect_workflow_rollouts
from mutoscope.flows.rl.data_generation import Progress, progress, rl_data_generation, turn
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.errors import InvalidParameter, MutoscopeError, RunFailed
from mutoscope.platform.orchestration.registry import REGISTRY
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.schedule import Schedule
from mutoscope.platform.orchestration.schedules import check
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.training.groups import RolloutRecord
from tests.support.real_engine import RealEngine
from tests.support.rollouts import CAPTION, GROUP, OTHER, SCENE, rollout_platform

pytestmark = pytest.mark.usefixtures("prefect_server")

SMALL: dict[str, Any] = {"samples": 2, "parameters": {"num_inference_steps": 3}}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[RealEngine]:
    with rollout_platform(tmp_path, "flux-t2i", "wan-i2v", SCENE) as serving:
        yield serving


def record(runtime: Runtime, ref: ArtifactRef) -> RolloutRecord:
    return RolloutRecord.from_json(json.loads(runtime.store.get(ref.digest)))


def outputs(runtime: Runtime, workflow: str) -> dict[str, str]:
    newest = runtime.catalog.workflows.list(workflow=workflow, state="succeeded", limit=1)[0]
    return dict(newest.outputs or {})


async def test_rollouts_are_the_outputs_of_a_recorded_workflow(engine: RealEngine) -> None:
    made = await collect_rollouts(
        prompts=[CAPTION, {"prompt": "ring", "target": OTHER}], seed=5, rewards=SCENE, **SMALL
    )
    records = [record(engine.runtime, ref) for ref in made["rollouts"]]
    assert [one.target for one in records] == [CAPTION, OTHER]
    assert {one.draw.seed for one in records} == {5}
    assert made["summary"]["groups"] == {"flux-t2i": 2}
    assert made["summary"]["versions"]["flux-t2i"]["transformer"] == "flux-t2i/transformer@1"
    kept = outputs(engine.runtime, "rl.collect_rollouts")
    assert [kept["rollouts.0"], kept["rollouts.1"]] == [ref.digest for ref in made["rollouts"]]
    assert "summary" in kept
    engine.counts()
    again = await collect_rollouts(
        prompts=[CAPTION, {"prompt": "ring", "target": OTHER}], seed=5, rewards=SCENE, **SMALL
    )
    assert (again["rollouts"], engine.counts()) == (made["rollouts"], {})


@pytest.mark.long
async def test_films_come_out_as_two_records_for_each_group(engine: RealEngine) -> None:
    made = await collect_workflow_rollouts(
        prompts=[f"{CAPTION}, drifting right"],
        seed=5,
        samples=2,
        image_parameters={"num_inference_steps": 3},
        video_parameters={"num_inference_steps": 3, "num_frames": 5},
        weights=["wan-i2v/transformer@1"],
    )
    (picture,), (film,) = made["image_rollouts"], made["video_rollouts"]
    one, other = record(engine.runtime, picture), record(engine.runtime, film)
    assert (one.card, other.card) == ("flux-t2i", "wan-i2v")
    assert one.scores == other.scores
    assert engine.counts() == {"flux-t2i": 2, "wan-i2v": 2, SCENE: 2, GROUP: 2}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"prompts": []}, r"^prompts=\[\] is not valid: give 1 or more"),
        ({"prompts": [CAPTION], "samples": 1}, r"^samples=1 is not valid: use 2 or more"),
        ({"prompts": [CAPTION], "rewards": {}}, r"^rewards=\{\} is not valid"),
        ({"prompts": [CAPTION], "rewards": "reward-taste"}, r"^rewards='reward-taste' is not valid: no such"),
        ({"prompts": ["a cat"]}, r"^prompt='a cat' is not valid: say a starter scene"),
        ({"prompts": [CAPTION], "parameters": "steps=4"}, r"^parameters='steps=4' is not valid: use a JSON"),
        ({"prompts": [CAPTION], "max_groups": 0}, r"^max_groups=0 is not valid: use a number greater than 0"),
    ],
)
async def test_bad_input_fails_the_flow_with_one_line(
    engine: RealEngine, given: dict[str, Any], line: str
) -> None:
    with pytest.raises(InvalidParameter, match=line):
        await collect_rollouts(**{"seed": 1, **given})
    assert engine.counts() == {}


def test_a_command_line_spells_prompts_and_rewards() -> None:
    declared = REGISTRY.get("collect_rollouts")
    values = declared.validate(
        declared.coerce(
            {
                "prompts": f"{CAPTION} | {OTHER}",
                "rewards": '{"reward-scene": 1, "reward-clip": 0.5}',
                "laws": "flow-sde|cps",
                "parameters": '{"num_inference_steps": 4}',
                "samples": "4",
            }
        )
    )
    assert values["prompts"] == [Ask(prompt=CAPTION), Ask(prompt=OTHER)]
    assert values["rewards"] == {"reward-scene": 1.0, "reward-clip": 0.5}
    assert (values["laws"], values["samples"]) == (["flow-sde", "cps"], 4)
    both = declared.validate({"prompts": f'["{CAPTION}", {{"prompt": "ring", "target": "{OTHER}"}}]'})
    assert both["prompts"][1].against == OTHER
    assert both["rewards"] == {"reward-scene": 1.0}


def test_the_commands_of_the_page_fit_the_workflows() -> None:
    page = (Path(__file__).parents[3] / "docs" / "rollouts.md").read_text()
    commands = re.findall(
        r"^mutoscope (?:run|schedule add) (\w+) (.*?)(?: --every \w+| +#.*)?$", page, re.MULTILINE
    )
    assert len(commands) == 6
    for name, arguments in commands:
        declared = REGISTRY.get(name)
        texts = {key: value for key, _, value in (each.partition("=") for each in shlex.split(arguments))}
        if "prompt_set" in texts:  # a file, which becomes an artifact on the way
            assert declared.references["prompt_set"] == "json"
            texts["prompt_set"] = "json:" + "3" * 12
        declared.validate(declared.coerce(texts))


class TestDataGeneration:
    ASKS = (CAPTION, OTHER, "a blue circle")

    async def start(self, **how: Any) -> Any:
        return await rl_data_generation(
            **{"name": "night", "prompts": list(self.ASKS), "groups": 2, "budget": 5, **SMALL, **how}
        )

    async def test_starts_continue_each_other_until_the_budget_is_spent(self, engine: RealEngine) -> None:
        runtime = engine.runtime
        made = [await self.start() for _ in range(4)]
        groups = [[record(runtime, ref) for ref in each["rollouts"]] for each in made]
        assert [len(each) for each in groups] == [2, 2, 1, 0]
        assert [one.draw.iteration for each in groups for one in each] == [0, 0, 1, 1, 2]
        drawn = [one.prompt for each in groups for one in each]
        assert sorted(drawn[:3]) == sorted(self.ASKS), "every prompt has its turn before any comes again"
        assert made[3]["summary"]["stopped"] == "budget=5: 5 groups were made under the name night"
        assert [each["summary"]["budget_left"] for each in made] == [3, 1, 0, 0]
        assert progress(runtime, "night") == Progress(starts=3, groups=5)
        assert progress(runtime, "day") == Progress()
        other = await self.start(name="day", seed=1)
        assert record(runtime, other["rollouts"][0]).draw.iteration == 0

    @pytest.mark.long
    async def test_a_start_that_failed_is_made_up_for_by_the_next(self, engine: RealEngine) -> None:
        def broken(runtime: Runtime, run: Any) -> dict[str, ArtifactRef]:
            raise RunFailed("the disk is full")

        engine.instead[GROUP] = broken
        with pytest.raises(MutoscopeError, match="the disk is full"):
            await self.start()
        sampled = engine.counts()["flux-t2i"]
        del engine.instead[GROUP]
        made = await self.start()
        assert {record(engine.runtime, ref).draw.iteration for ref in made["rollouts"]} == {0}
        assert sampled + engine.counts().get("flux-t2i", 0) <= 4 + 2

    async def test_groups_that_are_dropped_count_and_are_told_apart(self, engine: RealEngine) -> None:
        def broken(runtime: Runtime, run: Any) -> dict[str, ArtifactRef]:
            raise RuntimeError("no scorer today")

        engine.instead[SCENE] = broken
        made = await self.start(refills=0)
        assert (made["rollouts"], len(made["dropped"])) == ([], 2)
        assert not record(engine.runtime, made["dropped"][0]).kept
        assert progress(engine.runtime, "night") == Progress(1, 2)

    async def test_prompts_may_come_from_an_artifact(self, engine: RealEngine) -> None:
        runtime = engine.runtime
        refs = {}
        for name, held in (("set", [CAPTION, {"prompt": "ring", "target": OTHER}]), ("bad", [{"text": "a"}])):
            encoded = codecs.encode("json", held, {})
            refs[name] = runtime.store.put(encoded.data, kind="json", media_type=encoded.media_type, meta={})
            runtime.catalog.artifacts.record(refs[name])
        made = await self.start(prompts=None, prompt_set=refs["set"])
        targets = [record(runtime, ref).target for ref in made["rollouts"]]
        assert sorted(targets) == sorted([CAPTION, OTHER])
        with pytest.raises(InvalidParameter, match=r"^prompt_set='json:.* it is no list of prompts"):
            await self.start(prompts=None, prompt_set=refs["bad"])
        with pytest.raises(InvalidParameter, match=r"^prompts=None is not valid: give either prompts or"):
            await self.start(prompts=None)

    def test_it_can_be_scheduled(self) -> None:
        wanted = {"name": "night", "prompts": [CAPTION], "groups": 2}
        check(REGISTRY.get("rl_data_generation"), Schedule(every="1h", parameters=wanted))
        check(REGISTRY.get("rl_data_generation"), Schedule(cron="0 3 * * *", parameters=wanted))
        with pytest.raises(InvalidParameter, match=r"^name="):
            check(REGISTRY.get("rl_data_generation"), Schedule(every="1h", parameters={"prompts": [CAPTION]}))

    def test_the_order_of_a_round_is_drawn_for_each_round(self) -> None:
        asks = [Ask(prompt=f"a {colour} circle") for colour in ("red", "green", "blue", "yellow", "purple")]
        rounds = [turn(asks, 3, 5 * number, 5) for number in range(4)]
        assert all(sorted(each, key=str) == sorted(asks, key=str) for each in rounds)
        assert len({tuple(map(str, each)) for each in rounds}) > 1
        assert turn(asks, 3, 2, 7) == [*rounds[0][2:], *rounds[1][:4]]
