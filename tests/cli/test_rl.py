"""rl: trainings as they are listed, shown and drawn; no worker runs here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mutoscope.flows.rl.course import begin
from mutoscope.flows.rl.records import write
from mutoscope.models.media.chart import COLOURS
from mutoscope.models.registry import get_card
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.settings import get_settings
from mutoscope.platform.training import notes
from tests.cli.conftest import Command
from tests.support.fake_worker import publish_weights
from tests.support.trainings import lesson

HEAD = "flux-t2i/transformer"
RECIPE = {"height": 64, "width": 64, "num_inference_steps": 4, "guidance_scale": 2, "max_sequence_length": 16}


@pytest.fixture
def runtime(catalog: Catalog, store: ArtifactStore) -> Runtime:
    opened = Runtime(get_settings(), catalog, store)
    publish_weights(opened, get_card("flux-t2i"), get_card("flux-t2i").recipe.model_validate(RECIPE))
    publish_weights(opened, get_card("reward-scene"), get_card("reward-scene").recipe())
    return opened


@pytest.fixture
def trained(runtime: Runtime) -> Runtime:
    """A training of three iterations of which two are done."""
    begin(runtime, "first", lesson())
    for at, reward in ((0, 0.5), (1, 0.75)):
        write(runtime, "first", notes.ITERATION, at, iteration(reward, at))
        timing = {"collect": 2.0, "samples": 6, "whole": True}
        write(runtime, "first", notes.TIMING, at, timing)
    evaluation = {"scores": {"scene-check": {"mean": 0.25}}, "held_out": None, "statistics": None}
    write(runtime, "first", notes.EVALUATION, 0, evaluation)
    write(runtime, "first", notes.HALT, 2, {"iteration": 2, "reasons": ["diversity is 0.01"]})
    return runtime


def iteration(reward: float, at: int) -> dict[str, Any]:
    return {
        "rewards": {"mean": reward, "std": 0.1, "scored": 6, "samples": 6},
        "heads": {HEAD: {"version": f"{HEAD}@{at + 2}"}},
        "metrics": {HEAD: {"kl": 0.001 * at, "ratio_mean": 1.0, "clip_fraction": 0.5, "loss": -0.1}},
    }


def test_nothing_has_been_trained(runtime: Runtime, mutoscope: Command) -> None:
    assert "nothing has been trained yet" in mutoscope("rl", "ls").out
    refused = mutoscope("rl", "show", "first")
    assert (refused.code, refused.err) == (
        2,
        "error: no training is named 'first': `mutoscope rl ls` lists them\n",
    )


def test_trainings_are_listed(trained: Runtime, mutoscope: Command) -> None:
    head, row = mutoscope("rl", "ls").out.splitlines()
    assert head.split() == ["TRAINING", "ITERATIONS", "REWARD", "HEAD", "BEST", "STATE", "AGE"]
    assert row.split()[:7] == ["first", "2", "of", "3", "0.7500", f"{HEAD}@1", "halted"]
    (told,) = json.loads(mutoscope("rl", "ls", "--json").out)
    assert (told["done"], told["reward"], told["halts"], told["heads"]) == (2, 0.75, [2], [f"{HEAD}@1"])


def test_a_training_is_shown(trained: Runtime, mutoscope: Command) -> None:
    out = mutoscope("rl", "show", "first").out
    assert "reward-scene x 1" in out
    assert "halted before iteration 2: diversity is 0.01" in out
    rows = [line.split() for line in out.splitlines() if line[:1].isdecimal()]
    assert rows == [
        ["0", "0.5000", "6", "of", "6", "scene-check", "0.2500", f"{HEAD}@2"],
        ["1", "0.7500", "6", "of", "6", f"{HEAD}@3"],
    ]
    told = json.loads(mutoscope("rl", "show", "first", "--json").out)
    assert told["configuration"] == lesson().to_json()
    assert [record["rewards"]["mean"] for record in told["iteration"]] == [0.5, 0.75]


def test_curves_are_drawn_where_one_asks(trained: Runtime, mutoscope: Command, tmp_path: Path) -> None:
    path = tmp_path / "curves.png"
    assert mutoscope("rl", "curves", "first", "-o", str(path)).out == f"{path}\n"
    pixels = np.asarray(Image.open(path))
    assert (pixels == COLOURS[0]).all(axis=-1).sum() > 200
    series = json.loads(mutoscope("rl", "curves", "first", "--json").out)
    lines = {panel["title"]: panel["lines"] for panel in series["panels"]}
    assert lines["reward of the rollouts"]["mean"] == [[0, 0.5], [1, 0.75]]
    assert lines["rollouts per second"] == {"rollouts/s": [[0, 3.0], [1, 3.0]]}
    assert lines["KL to the reference"] == {HEAD: [[0, 0.0], [1, 0.001]]}
    refused = mutoscope("rl", "curves", "first", "-o", str(tmp_path / "none" / "curves.png"))
    assert refused.code == 2
    assert refused.err.startswith("error: output=")


def test_there_are_no_curves_yet(runtime: Runtime, mutoscope: Command) -> None:
    begin(runtime, "first", lesson())
    refused = mutoscope("rl", "curves", "first")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "error: training first has no curves yet: nothing of it is done\n"


def test_without_tensorboard_the_command_says_what_to_install(
    trained: Runtime, mutoscope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    refused = mutoscope("rl", "curves", "first", "--tensorboard", str(tmp_path / "runs"))
    assert refused.code == 2
    assert "pip install 'mutoscope[tensorboard]'" in refused.err


def test_every_number_goes_to_tensorboard(trained: Runtime, mutoscope: Command, tmp_path: Path) -> None:
    """Read back with TensorBoard's own reader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / "runs"
    done = mutoscope("rl", "curves", "first", "--tensorboard", str(folder), "--json")
    board = EventAccumulator(str(folder))
    board.Reload()
    tags = board.Tags()["scalars"]
    written = {tag: [(each.step, each.value) for each in board.Scalars(tag)] for tag in tags}
    assert written["reward of the rollouts/mean"] == [(0, 0.5), (1, 0.75)]
    numbers = sum(len(line) for line in written.values())
    assert done.err == f"{numbers} numbers for TensorBoard in {folder}\n"
