"""Rollouts, rewards, a training step and what is served afterwards, by a real worker process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mutoscope.models.registry import get_card
from mutoscope.models.starter.folders import starter_folder
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.artifacts.manifest import ComponentManifest
from mutoscope.platform.catalog.tree import render_tree
from mutoscope.platform.engine.request import Profile
from mutoscope.platform.errors import InvalidParameter, RunFailed, TrainingDiverged
from mutoscope.platform.orchestration.importing import import_folder
from mutoscope.platform.orchestration.runtime import Runtime, use_runtime
from mutoscope.platform.orchestration.scoring import read_reward
from mutoscope.platform.orchestration.submit import Outcome, submit_run
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.training.groups import Draw, RolloutRecord, Sample
from mutoscope.workers.weight_cache import WeightCache
from tests.support.workshop import Workshop

CARDS = ("flux-t2i", "reward-scene", "rollout-group", "flux-t2i-trainer")
PROMPT = "a red circle left of a blue square"
STEPS = 4


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    workshop = Workshop(tmp_path_factory.mktemp("training") / "home", concurrency=4)
    for card_id in ("flux-t2i", "reward-scene"):
        folder = starter_folder(card_id)
        assert isinstance(folder, Path)
        import_folder(workshop.catalog, workshop.store, get_card(card_id), folder)
    arguments = [word for card_id in CARDS for word in ("--card", card_id)]
    with workshop.worker(*arguments) as worker:
        worker.wait_ready()
        assert "card=flux-t2i-trainer" not in worker.log, "a starting worker leaves trainers alone"
        with use_runtime(Runtime(workshop.settings, workshop.catalog, workshop.store)) as opened:
            yield opened
    workshop.close()


async def rolled_out(runtime: Runtime, samples: int = 3) -> Outcome:
    """A group at the live weights, drawn, scored and put on the record."""
    draw = Draw(seed=1, iteration=0, prompt_index=0)
    drawn = [
        await submit_run(
            "flux-t2i",
            profile=Profile.ROLLOUT,
            prompt=PROMPT,
            seed=draw.sample_seed(at),
            num_inference_steps=STEPS,
            group_seed=draw.group_seed,
        )
        for at in range(samples)
    ]
    scored = [await submit_run("reward-scene", image=run.outputs["image"], prompt=PROMPT) for run in drawn]
    rewards = [read_reward(runtime, run.outputs["reward"]) for run in scored]
    first = drawn[0].run
    record = RolloutRecord(
        card="flux-t2i",
        prompt=PROMPT,
        target=PROMPT,
        draw=draw,
        parameters=first.parameters,
        group_seed=draw.group_seed,
        law="flow-sde",
        window=(0, 2),
        noise_scale=0.7,
        weights=runtime.catalog.runs.weights(first.id),
        versions={},
        rewards={"reward-scene": 1.0},
        samples=tuple(
            Sample(
                seed=draw.sample_seed(at),
                prompt=PROMPT,
                status=reward.status,
                score=reward.score,
                details={"reward-scene": reward.to_json()},
                trajectory=(at, 0),
            )
            for at, reward in enumerate(rewards)
        ),
        trajectories=tuple(run.outputs["trajectory"].digest for run in drawn),
    )
    facts = decoded(runtime, drawn[0].outputs["trajectory"]).facts
    return await submit_run(
        "rollout-group",
        record=record.model_copy(update={"window": facts.window}).to_json(),
        trajectories=[run.outputs["trajectory"] for run in drawn],
        rewards=[run.outputs["reward"] for run in scored],
    )


async def trained(group: Outcome, **asked: Any) -> Outcome:
    asked = {"component": "transformer", "method": "flow-grpo", "learning_rate": 1e-4, "seed": 5, **asked}
    return await submit_run(
        "flux-t2i-trainer",
        rollouts=[group.outputs["rollout"]],
        trajectories=[group.outputs["trajectory"]],
        **asked,
    )


def decoded(runtime: Runtime, ref: ArtifactRef) -> Any:
    return codecs.decode(ref.kind, runtime.store.get(ref.digest), ref.media_type)


def metrics(runtime: Runtime, made: Outcome) -> dict[str, Any]:
    told: dict[str, Any] = decoded(runtime, made.outputs["metrics"])
    return told


def folder_of(runtime: Runtime, digest: str) -> Path:
    return WeightCache(runtime.store, runtime.settings.home / "cache" / "weights").folder(digest)


async def test_from_rollouts_to_a_picture_of_the_new_weights(runtime: Runtime) -> None:
    from diffusers import FluxTransformer2DModel

    before = await submit_run("flux-t2i", prompt=PROMPT, seed=7, num_inference_steps=STEPS)
    pinned = runtime.catalog.weights.live("flux-t2i")["transformer"]
    group = await rolled_out(runtime)
    made = await trained(group)
    assert made.run.kind == "train_step"
    assert set(made.outputs) == {"weights", "state", "metrics"}
    told = metrics(runtime, made)
    assert told["curve"][0]["delta_log_p"] < 1e-5
    assert told["updates"] == 1

    (log,) = runtime.settings.home.glob("worker-*.log")
    assert "loaded card=flux-t2i-trainer bytes=0 " in log.read_text(), "it shares the served card's parts"

    weights = made.outputs["weights"]
    manifest = ComponentManifest.parse(runtime.store.get(weights.digest))
    assert (manifest.component, manifest.base) == ("transformer", None)
    new, old = folder_of(runtime, weights.digest), folder_of(runtime, pinned.digest)
    assert (new / "config.json").read_bytes() == (old / "config.json").read_bytes()
    model = FluxTransformer2DModel.from_pretrained(new)
    assert any(
        not torch.equal(tensor, model.state_dict()[name].to(tensor.dtype))
        for name, tensor in load_file(old / "diffusion_pytorch_model.safetensors").items()
    )

    version = runtime.catalog.weights.publish("flux-t2i", "transformer", weights.digest, made.run.id, pinned)
    after = await submit_run("flux-t2i", prompt=PROMPT, seed=7, num_inference_steps=STEPS)
    assert after.outputs["image"] != before.outputs["image"]
    shown = render_tree(runtime.catalog.lineage.up(after.outputs["image"].digest))
    for part in (str(version), "flux-t2i-trainer", "rollout-group", str(pinned), "reward-scene"):
        assert part in shown
    runtime.catalog.weights.set_alias("live", pinned)


async def test_the_same_step_is_remembered(runtime: Runtime) -> None:
    group = await rolled_out(runtime)
    first, again = [await trained(group, epochs=2) for _ in "ab"]
    assert again.disposition == "hit"
    assert again.outputs == first.outputs


async def test_a_constant_reward_gives_back_the_pinned_weights(runtime: Runtime) -> None:
    group = await rolled_out(runtime)
    record = RolloutRecord.from_json(decoded(runtime, group.outputs["rollout"]))
    flat = [sample.model_copy(update={"score": 0.5}) for sample in record.samples]
    encoded = codecs.encode("json", record.model_copy(update={"samples": tuple(flat)}).to_json(), {})
    stored = runtime.store.put(encoded.data, kind="json", media_type=encoded.media_type, meta=encoded.meta)
    runtime.catalog.artifacts.record(stored)
    made = await submit_run(
        "flux-t2i-trainer",
        rollouts=[stored],
        trajectories=[group.outputs["trajectory"]],
        component="transformer",
        method="flow-grpo",
        seed=5,
    )
    assert made.outputs["weights"].digest == runtime.catalog.weights.live("flux-t2i")["transformer"].digest
    assert metrics(runtime, made)["zero_std_groups"] == 1


async def test_a_lora_is_a_version_over_its_base_that_goes_on(runtime: Runtime) -> None:
    """Two steps of a LoRA, the second on what the first made: both lie over the base, and are served."""
    base = runtime.catalog.weights.live("flux-t2i")["transformer"]
    group = await rolled_out(runtime)
    first = await trained(group, lora_rank=2, learning_rate=1e-2, max_shift=10)
    version = publish(runtime, first, base)
    second = await trained(
        group,
        lora_rank=2,
        learning_rate=1e-2,
        max_shift=10,
        state=first.outputs["state"],
        staleness=[1],
        max_staleness=1,
        weights={"transformer": str(version)},
    )
    for made in (first, second):
        manifest = ComponentManifest.parse(runtime.store.get(made.outputs["weights"].digest))
        assert (manifest.component, manifest.base) == ("transformer", base.digest)
    assert metrics(runtime, second)["step"] == 2
    drawn = [
        (
            await submit_run("flux-t2i", prompt=PROMPT, seed=7, num_inference_steps=STEPS, weights=chosen)
        ).outputs
        for chosen in (
            (),
            {"transformer": str(version)},
            {"transformer": str(publish(runtime, second, base))},
        )
    ]
    assert len({outputs["image"].digest for outputs in drawn}) == 3


def publish(runtime: Runtime, made: Outcome, parent: Any) -> Any:
    weights = runtime.catalog.weights
    version = weights.publish("flux-t2i", "transformer", made.outputs["weights"].digest, made.run.id, parent)
    weights.set_alias("live", parent)
    return version


async def test_what_diverges_fails_and_makes_nothing(runtime: Runtime) -> None:
    group = await rolled_out(runtime)
    with pytest.raises(TrainingDiverged, match=r"the policy moved by .* lower it; nothing was published"):
        await trained(group, learning_rate=1e3)
    with pytest.raises(RunFailed, match=r"component='vae' is not valid: train one of transformer"):
        await trained(group, component="vae")


async def test_a_trainer_has_its_cards_weights(runtime: Runtime) -> None:
    with pytest.raises(InvalidParameter, match="write flux-t2i/transformer@12, @12 or @alias"):
        await trained(await rolled_out(runtime), weights={"transformer": "nonesuch"})
    folder = starter_folder("flux-t2i")
    assert isinstance(folder, Path)
    with pytest.raises(InvalidParameter, match="it trains the weights of flux-t2i: import them for that"):
        import_folder(runtime.catalog, runtime.store, get_card("flux-t2i-trainer"), folder)
