"""The flow that runs any card, against a Prefect server and a worker that paints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mutoscope.flows.generate.serve import serve
from mutoscope.models.registry import get_card
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.orchestration.registry import REGISTRY
from mutoscope.platform.orchestration.runtime import Runtime
from tests.support.fake_worker import FakeWorker, publish_weights
from tests.support.platform import platform_in

pytestmark = pytest.mark.usefixtures("prefect_server")

CARD = "flux-t2i"


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    with platform_in(tmp_path) as opened:
        card = get_card(CARD)
        recipe = card.recipe(
            height=64, width=64, num_inference_steps=4, guidance_scale=1.0, max_sequence_length=8
        )
        publish_weights(opened, card, recipe)
        yield opened


async def test_a_card_is_run_by_its_id_with_parameters_of_its_own(runtime: Runtime) -> None:
    with FakeWorker(runtime, (CARD,)).serving():
        outputs = await serve(card=CARD, prompt="a ring", seed=3, parameters={"num_inference_steps": 2})
    kinds = {slot: ref.kind for slot, ref in outputs.items()}
    assert kinds == {"image": "image", "latent": "latent", "kept": "latent"}, "all that the card can make"
    (run,) = runtime.catalog.runs.list(kind="engine")
    assert (run.card, run.seed) == (CARD, 3)
    assert run.parameters["prompt"] == "a ring"
    assert run.parameters["num_inference_steps"] == 2


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"card": "starter-image-trainer"},
            r"^card='starter-image-trainer' is not valid: use one of flux-t2i",
        ),
        ({"card": CARD, "parameters": {"seed": 7}}, r"^parameters.seed=7 is not valid: give it as seed="),
        ({"card": CARD, "parameters": {"stepz": 7}, "prompt": "a"}, r"^stepz=7 is not valid: flux-t2i takes"),
        ({"card": CARD, "parameters": "{"}, r"^parameters='{' is not valid: use a JSON object"),
    ],
)
async def test_what_the_card_does_not_take_is_refused(
    runtime: Runtime, given: dict[str, Any], line: str
) -> None:
    with pytest.raises(InvalidParameter, match=line):
        await serve(**given)


def test_parameters_are_written_as_json_on_a_command_line() -> None:
    texts = {"card": CARD, "parameters": '{"num_inference_steps": 2}'}
    assert REGISTRY.get("serve").coerce(texts) == {"card": CARD, "parameters": {"num_inference_steps": 2}}
