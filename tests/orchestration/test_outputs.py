"""What a workflow declares to return, and how anything else is refused."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

import pytest

from mutoscope.platform.errors import InvalidWorkflow
from mutoscope.platform.orchestration.kinds import Image, Video
from mutoscope.platform.orchestration.outputs import outputs_of
from mutoscope.platform.refs import ArtifactRef


def ref(kind: str, digit: str = "a") -> ArtifactRef:
    return ArtifactRef(digit * 64, kind, "application/octet-stream", 1)


IMAGE, VIDEO = ref("image"), ref("video", "b")


class Filmed(TypedDict):
    video: Video
    stills: list[Image]
    poster: Image | None
    scores: dict[str, float]
    remark: NotRequired[str]


async def filmed() -> Filmed: ...
async def pictured() -> Image: ...
async def perhaps() -> Image | None: ...
async def anything() -> ArtifactRef: ...
async def videos() -> dict[str, Video]: ...
async def counted() -> dict[str, int]: ...
async def silent() -> None: ...


COMPLETE = {"video": VIDEO, "stills": [IMAGE, IMAGE], "poster": None, "scores": {"a": 0.5}}


def test_fields_are_outputs_by_name() -> None:
    made = outputs_of(filmed).of("a.b", COMPLETE)
    assert made.artifacts == {"video": VIDEO, "stills.0": IMAGE, "stills.1": IMAGE}
    assert made.values == {"scores": {"a": 0.5}}
    assert outputs_of(filmed).describe() == {
        "video": "an artifact of kind video",
        "stills": "a list of which each is an artifact of kind image",
        "poster": "an artifact of kind image, if made",
        "scores": "JSON data of type dict[str, float]",
        "remark": "JSON data of type str, if made",
    }


@pytest.mark.parametrize(
    ("fn", "result", "artifacts"),
    [
        (pictured, IMAGE, {"image": IMAGE}),
        (perhaps, None, {}),
        (perhaps, IMAGE, {"image": IMAGE}),
        (anything, VIDEO, {"video": VIDEO}),
        (videos, {"left": VIDEO, "right": VIDEO}, {"left": VIDEO, "right": VIDEO}),
        (counted, {"a": 1}, {}),
        (silent, None, {}),
    ],
)
def test_other_annotations(fn: Any, result: Any, artifacts: dict[str, ArtifactRef]) -> None:
    made = outputs_of(fn).of("a.b", result)
    assert (made.artifacts, made.values) == (artifacts, {})


def test_a_lone_result_by_name() -> None:
    assert outputs_of(pictured).by_name(IMAGE) == {"image": IMAGE}
    assert outputs_of(filmed).by_name(COMPLETE) == COMPLETE
    assert outputs_of(counted).by_name({"a": 1}) == {"result": {"a": 1}}
    assert outputs_of(perhaps).by_name(None) == outputs_of(silent).by_name(None) == {}


@pytest.mark.parametrize(
    ("fn", "result", "line"),
    [
        (pictured, VIDEO, "image=video:bbbbbbbbbbbb where it declares an artifact of kind image"),
        (pictured, None, "image=None where it declares an artifact of kind image"),
        (pictured, "image:3fa9", "image='image:3fa9' where it declares an artifact of kind image"),
        (videos, {"left": IMAGE}, "left=image:aaaaaaaaaaaa where it declares an artifact of kind video"),
        (videos, VIDEO, "result=video:bbbbbbbbbbbb where it declares a mapping of outputs by name"),
        (filmed, COMPLETE | {"video": IMAGE}, "video=image:aaaaaaaaaaaa where it declares an artifact of"),
        (filmed, COMPLETE | {"stills": [VIDEO]}, "stills=video:bbbbbbbbbbbb where it declares an artifact"),
        (filmed, COMPLETE | {"stills": IMAGE}, "stills=image:aaaaaaaaaaaa where it declares a list of"),
        (filmed, COMPLETE | {"scores": {"a": "b"}}, "float] (a='b' is not valid: use a number)"),
        (filmed, COMPLETE | {"colour": 1}, "colour=1 where it declares one of video, stills, poster"),
        (filmed, {"video": VIDEO}, "stills=None where it declares a list of which each"),
        (counted, {"a": IMAGE}, "where it declares JSON data of type dict[str, int]"),
        (silent, 3, "result=3 where it declares JSON data of type NoneType"),
    ],
)
def test_what_is_not_declared_is_refused_in_one_line(fn: Any, result: Any, line: str) -> None:
    with pytest.raises(InvalidWorkflow) as refusal:
        outputs_of(fn).of("a.b", result)
    said = str(refusal.value)
    assert line in said
    assert said.startswith("workflow 'a.b' returned ")
    assert said.endswith(": mend either")


def test_declarations_that_cannot_be_kept() -> None:
    async def unsaid(): ...  # type: ignore[no-untyped-def]

    async def listed() -> list[Image]: ...

    async def opaque() -> InvalidWorkflow: ...

    async def local() -> Hidden: ...  # type: ignore[name-defined]  # noqa: F821

    for fn, complaint in (
        (unsaid, "does not say what it returns: annotate it, such as -> Image or -> None"),
        (listed, "returns a list, whose items have no names: return a TypedDict"),
        (opaque, "result is a InvalidWorkflow: use an artifact kind such as Image, or JSON data"),
        (local, r"has an annotation that cannot be read \(name 'Hidden' is not defined\)"),
    ):
        with pytest.raises(InvalidWorkflow, match=complaint):
            outputs_of(fn)
