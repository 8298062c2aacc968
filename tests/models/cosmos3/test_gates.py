"""The gates on this card: in company, batched, rolled out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mutoscope.models.cosmos3.card import CARD
from mutoscope.platform.engine.calibration import calibrate
from mutoscope.platform.engine.example import example_request
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.parity import gates
from mutoscope.platform.engine.parity.report import Finding, Verdict
from mutoscope.platform.engine.request import Request
from tests.support.tiny_cosmos3 import variants

WEIGHTS = {"transformer": "1" * 64, "vae": "2" * 64}


@pytest.fixture(scope="module")
def batched(folder_of: Callable[[str], Path]) -> Instance:
    """An instance of its own: calibration treats its modules."""
    instance = load_instance(CARD, folder_of("qwen3"), weights=WEIGHTS)
    return calibrate(instance, most=4).prepare(instance)


def group(instance: Instance, count: int = 3, **parameters: object) -> list[Request]:
    """Samples of one prompt, unguided as in a rollout."""
    asked = {"guidance_scale": 1.0, "reasoning_tokens": 3, **parameters}
    return [
        example_request(CARD, instance.recipe, name=f"r{seed}", seed=seed, **asked)  # type: ignore[arg-type]
        for seed in range(count)
    ]


def passed(finding: Finding) -> Finding:
    assert finding.verdict is Verdict.PASSED, finding.detail
    return finding


def test_unlike_requests_in_company(batched: Instance) -> None:
    mixed = [
        example_request(CARD, batched.recipe, name=f"r{at}", seed=at, **given)
        for at, given in enumerate(variants(CARD.id))
    ]
    passed(gates.serving_together(batched, mixed, most_orders=2))


def test_a_groups_samples_share_calls_of_both_towers(batched: Instance) -> None:
    """Words and latents alike, and the bytes are those of samples served alone."""
    finding = passed(gates.serving_together(batched, group(batched), most_orders=2))
    assert finding.figures["rows"] == 3


def test_rollouts(batched: Instance) -> None:
    plain, begun = group(batched, count=2)
    image = np.random.default_rng(0).integers(0, 256, (40, 52, 3), dtype=np.uint8)
    requests = [plain, replace(begun, inputs={"image": image})]
    passed(gates.capture_off(batched, requests))
    passed(gates.rollout_repeats(batched, requests))
    c2 = passed(gates.log_probs_recomputed(batched, requests))
    assert c2.figures["largest_delta"] < 1e-5
