"""The parameter types: what they take, what they refuse and how, what the form says."""

from __future__ import annotations

from typing import Any

import pytest

import mutoscope.flows.shipped  # noqa: F401  (registers the workflows)
from mutoscope.flows.parameters import MAX_PROMPT, height_and_width
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.orchestration.registry import REGISTRY
from mutoscope.platform.refs import ArtifactRef

DIGEST = "3fa9" + "0" * 60


def read(workflow: str, **given: Any) -> dict[str, Any]:
    return REGISTRY.get(workflow).validate({"prompt": "a", **given})


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"prompt": ""}, "prompt='' is not valid: use at least 1 characters"),
        ({"prompt": " \n "}, r"prompt=' \n ' is not valid: use at least 1 characters"),
        ({"steps": -1}, "steps=-1 is not valid: use 1 or more"),
        ({"steps": 2.0}, "steps=2.0 is not valid: use an integer"),
        ({"steps": True}, "steps=True is not valid: use an integer"),
        ({"seed": "seven"}, "seed='seven' is not valid: use an integer"),
        ({"seed": 2**63}, "seed=9223372036854775808 is not valid: use 9223372036854775807 or less"),
        ({"size": "64"}, "size='64' is not valid: use width x height in pixels, such as 64x64"),
        ({"size": "0x64"}, "size='0x64' is not valid: use width x height in pixels, such as 64x64"),
        ({"guidance": float("nan")}, "guidance=nan is not valid: use a finite number"),
    ],
)
def test_bad_values_are_one_line(given: dict[str, Any], line: str) -> None:
    with pytest.raises(InvalidParameter) as raised:
        read("text_to_image", **given)
    assert str(raised.value) == line


def test_none_is_the_same_as_nothing() -> None:
    explicit = dict.fromkeys(("seed", "size", "frames", "steps", "guidance", "negative_prompt"))
    image = f"image:{DIGEST}"
    assert read("image_to_video", image=image, **explicit) == read("image_to_video", image=image)


def test_a_prompt_has_an_end() -> None:
    assert read("text_to_image", prompt="a" * MAX_PROMPT)
    with pytest.raises(InvalidParameter, match=f"use at most {MAX_PROMPT} characters"):
        read("text_to_image", prompt="a" * (MAX_PROMPT + 1))


def test_space_around_a_prompt_makes_no_difference() -> None:
    assert read("text_to_image", prompt="  a red circle\n")["prompt"] == "a red circle"


def test_images_are_given_by_reference_or_as_artifacts() -> None:
    ref = ArtifactRef(DIGEST, "image", "image/png", 1)
    assert (
        read("image_to_video", image=ref)["image"]
        == read("image_to_video", image=ref.to_dict())["image"]
        == ref
    )
    assert read("image_to_video", image="3fa9")["image"] == "3fa9"
    for bad in ("video:3fa9", "xyz", "", "image:3f"):
        with pytest.raises(InvalidParameter, match="use a reference such as image:3fa9c1d2e4f5"):
            read("image_to_video", image=bad)


def test_sizes_are_width_by_height() -> None:
    assert height_and_width("96x64") == {"height": 64, "width": 96}
    assert height_and_width(None) == {"height": None, "width": None}


@pytest.mark.parametrize("name", ["text_to_image", "image_to_video", "text_to_video", "text_to_film"])
def test_every_field_of_a_form_has_a_title_and_a_description(name: str) -> None:
    workflow = REGISTRY.get(name)
    schema = workflow.flow.parameters.model_dump()
    assert schema["required"] == [field for field in ("image", "prompt") if field in schema["properties"]]
    for field, entry in schema["properties"].items():
        assert entry["title"][0].isupper(), field
        assert entry["description"].endswith("."), field
    titles = [entry["title"] for entry in schema["properties"].values()]
    assert len(set(titles)) == len(titles)
    for field in {"image", "size"} & set(schema["properties"]):
        assert schema["properties"][field]["pattern"]


def test_command_line_texts_become_values() -> None:
    texts = {"prompt": "12", "seed": "7", "steps": "4", "guidance": "2.5", "size": "64x64"}
    values = REGISTRY.get("text_to_image").coerce(texts)
    assert values == {"prompt": "12", "seed": 7, "steps": 4, "guidance": 2.5, "size": "64x64"}
