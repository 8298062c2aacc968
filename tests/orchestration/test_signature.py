"""Parameters: from a signature to validation, command-line texts and the UI's form."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.orchestration import signature


class Box(BaseModel):
    edge: int = 1


async def example(
    prompt: Annotated[str, Field(min_length=1)],
    seed: Annotated[int | None, Field(strict=True, ge=0)] = None,
    strength: float = 0.5,
    loop: bool = False,
    box: Box = Box(),  # noqa: B008
) -> None: ...


MODEL = signature.parameter_model(example)


def test_defaults_are_filled_in_and_models_stay_models() -> None:
    values = signature.validate("example", MODEL, {"prompt": "a", "box": {"edge": 3}})
    assert values == {"prompt": "a", "seed": None, "strength": 0.5, "loop": False, "box": Box(edge=3)}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "prompt=None is not valid: prompt is required; pass prompt=..."),
        ({"prompt": None}, "prompt=None is not valid: prompt is required; pass prompt=..."),
        ({"prompt": ""}, "prompt='' is not valid: use at least 1 characters"),
        ({"prompt": "a", "seed": "7"}, "seed='7' is not valid: use an integer"),
        ({"prompt": "a", "seed": 7.0}, "seed=7.0 is not valid: use an integer"),
        (
            {"prompt": "a", "seed": -1},
            "seed=-1 is not valid: use 0 or more",
        ),
        ({"promt": "a"}, "promt='a' is not valid: example takes prompt, seed, strength, loop, box"),
    ],
)
def test_bad_input_is_one_line(given: dict[str, object], line: str) -> None:
    with pytest.raises(InvalidParameter) as raised:
        signature.validate("example", MODEL, given)
    assert str(raised.value) == line


def test_texts_become_what_they_spell() -> None:
    texts = {"prompt": "7", "seed": "7", "strength": "1e-1", "loop": "true"}
    assert signature.coerce(MODEL, texts) == {"prompt": "7", "seed": 7, "strength": 0.1, "loop": True}


def test_texts_that_cannot_be_read_stay_for_the_workflow_to_refuse() -> None:
    texts = {"seed": "seven", "steps": "3", "prompt": ""}
    assert signature.coerce(MODEL, texts) == texts


def test_the_permissive_signature_binds_any_subset() -> None:
    permissive = signature.permissive(example)
    assert permissive.bind().arguments == {}
    assert permissive.parameters["prompt"].default is None
