"""`wan-t2v` and `wan-adaptive` through a real worker: what is stored is what the engine makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutoscope.models.registry import get_card
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import load_instance
from mutoscope.platform.engine.request import Profile, Request
from mutoscope.platform.orchestration.importing import import_folder
from mutoscope.platform.orchestration.plan import plan_run
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.trajectory import TrajectoryGroup
from tests.models.wan.folders import TEXT, write_folder
from tests.support.workshop import Workshop

PROMPT = "a red circle drifting left"
LONG = f"{PROMPT} {'right ' * 20}"


def queue(home: Workshop, card_id: str, *, profile: Profile = Profile.SERVE, **given: Any) -> str:
    runtime = Runtime(home.settings, home.catalog, home.store)
    spec = plan_run(runtime, card_id, {"prompt": PROMPT, **given}, seed=7, profile=profile)
    return home.catalog.runs.enqueue(spec, present=home.store.contains).run.id


def stored(home: Workshop, run: RunRecord, slot: str) -> Any:
    ref = home.catalog.runs.outputs(run.id)[slot]
    return codecs.decode(ref.kind, home.store.get(ref.digest), ref.media_type)


@pytest.mark.long
def test_a_worker_makes_videos_of_text(workshop: Workshop, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder", TEXT)
    for card_id in ("wan-t2v", "wan-adaptive"):
        import_folder(workshop.catalog, workshop.store, get_card(card_id), folder)
    asked = {"reuse_threshold": 0.0, "exit_threshold": 0.0, "twin_rate": 1.0}
    plain = queue(workshop, "wan-t2v", prompt=LONG)
    cached = queue(workshop, "wan-adaptive", **asked)
    rolled = queue(workshop, "wan-t2v", profile=Profile.ROLLOUT, window_size=1)
    with workshop.worker("--card", "wan-t2v", "--card", "wan-adaptive") as worker:
        runs = [workshop.wait(run_id) for run_id in (plain, cached, rolled)]
    assert [run.state for run in runs] == ["succeeded"] * 3, worker.log
    made, adaptive, rollout = runs

    instance = load_instance(get_card("wan-t2v"), folder)
    expected = Engine().run(instance, Request("r", "wan-t2v", {}, {"prompt": LONG}, 7))
    latents = expected.outputs["latent"].value["latents"]
    np.testing.assert_array_equal(stored(workshop, made, "latent")["latents"], latents)
    assert tuple(made.warnings or ()) == expected.warnings
    assert "prompt has 26 tokens; the text encoder reads 16: the last 10 were cut" in expected.warnings[0]

    assert set(workshop.catalog.runs.outputs(adaptive.id)) == {"video", "latent", "report"}
    told = stored(workshop, adaptive, "report")
    assert (told["computed_steps"], told["saved_steps"], told["twin"]["psnr_db"]) == (3, 0, None)

    group = stored(workshop, rollout, "trajectory")
    assert isinstance(group, TrajectoryGroup)
    assert rollout.key_parts is not None
    assert group.facts.weights == rollout.key_parts["weights"]
