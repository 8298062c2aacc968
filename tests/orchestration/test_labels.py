"""What runs are called in lists."""

from __future__ import annotations

import pytest

from mutoscope.platform.orchestration.labels import flow_run_label, spelled


@pytest.mark.parametrize(
    ("ordinals", "label"),
    [
        ({}, "card"),
        ({"vae": 3, "transformer": 3}, "card@3"),
        ({"vae": 1, "text_encoder": 1, "transformer": 12}, "card@1+transformer@12"),
        ({"vae": 1, "transformer": 12}, "card@12+vae@1"),  # of two that are as common, the newer
        ({"vae": None, "transformer": None}, "card@?"),
        ({"vae": 2, "text_encoder": 2, "transformer": None}, "card@2+transformer@?"),
    ],
)
def test_a_card_at_its_versions(ordinals: dict[str, int | None], label: str) -> None:
    assert spelled("card", ordinals) == label


@pytest.mark.parametrize(
    ("parameters", "label"),
    [
        ({"prompt": "a red\n circle", "seed": 7}, "a red circle · seed 7"),
        ({"prompt": "a red circle", "seed": None}, "a red circle"),
        ({"prompts": ["a red circle", "b", "c"], "seed": 0}, "a red circle and 2 more · seed 0"),
        ({"image": "image:3fa9", "prompt": ""}, "image:3fa9"),
        ({"dry_run": True}, "collect"),
        ({"prompt": "x" * 100}, "x" * 59 + "…"),
    ],
)
def test_what_a_workflow_run_is_about(parameters: dict[str, object], label: str) -> None:
    assert flow_run_label("collect", parameters) == label
