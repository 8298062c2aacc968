"""Two versions side by side: the same prompts and seeds, judged, as one picture."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mutoscope.flows.rl.compare import compare
from mutoscope.models.registry import get_card
from mutoscope.platform.errors import InvalidParameter, UnknownReference
from tests.flows.conftest import COMMON, Studio
from tests.support.fake_worker import publish_weights

pytestmark = pytest.mark.usefixtures("prefect_server")

LEFT, RIGHT = "flux-t2i/transformer@1", "flux-t2i/transformer@2"
PROMPTS = ["a red circle", {"prompt": "blue square", "target": "a blue square on a pink background"}]


@pytest.fixture
def two_versions(studio: Studio) -> Studio:
    card = get_card("flux-t2i")
    publish_weights(
        studio.runtime,
        card,
        card.recipe.model_validate({**COMMON, "max_sequence_length": 16}),
        salt="second",
    )
    return studio


async def test_the_same_prompts_and_seeds_by_both_versions(two_versions: Studio) -> None:
    made: Any = await compare(left=LEFT, right=RIGHT, prompts=PROMPTS, count=2, seed=5)
    assert two_versions.computed() == {
        "flux-t2i": 8,
        "reward-scene": 8,
        "scene-check": 8,
        "contact-sheet": 1,
    }
    pairs = made["pairs"]
    assert [(pair.prompt, pair.seed) for pair in pairs] == [
        ("a red circle", 5), ("a red circle", 6), ("blue square", 5), ("blue square", 6)
    ]  # fmt: skip
    runs = two_versions.runtime.catalog.runs
    checked = {run.parameters["prompt"] for run in runs.list(card="scene-check")}
    assert checked == {"a red circle", "a blue square on a pink background"}
    for side in (0, 1):
        values = [pair.scores["reward-scene"][side] for pair in pairs]
        assert made["means"]["reward-scene"][side] == pytest.approx(sum(values) / 4)
    assert made["versions"] == ({"transformer": LEFT}, {"transformer": RIGHT})
    (sheet,) = runs.list(card="contact-sheet")
    assert sheet.parameters["columns"] == 2
    assert sheet.parameters["column_labels"][1].startswith(f"{RIGHT}: reward-scene ")
    assert len(sheet.parameters["row_labels"]) == 4
    (row,) = two_versions.runtime.catalog.workflows.list(workflow="rl.compare")
    assert row.outputs is not None
    kept = json.loads(two_versions.runtime.store.get(row.outputs["means"]))
    assert kept["reward-scene"] == list(made["means"]["reward-scene"])

    await compare(left=LEFT, right=RIGHT, prompts=PROMPTS, count=2, seed=5)
    assert two_versions.computed() == {}


async def test_what_cannot_be_compared(two_versions: Studio) -> None:
    with pytest.raises(
        InvalidParameter, match=r"^right='wan-i2v/transformer@1' is not valid: compare versio"
    ):
        await compare(left=LEFT, right="wan-i2v/transformer@1", prompts=["a red circle"])
    with pytest.raises(UnknownReference, match="no weights are named"):
        await compare(left=LEFT, right="flux-t2i/transformer@9", prompts=["a red circle"])
    assert two_versions.computed() == {}
