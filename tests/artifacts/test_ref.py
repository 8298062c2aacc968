from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import pytest

from mutoscope.platform.errors import InvalidParameter, UnknownReference
from mutoscope.platform.refs import KINDS, ArtifactRef, parse_reference

DIGEST = "3fa9c1d2e4f5" + "0" * 52


def ref(**changes: Any) -> ArtifactRef:
    values = {"digest": DIGEST, "kind": "video", "media_type": "video/mp4", "size": 7, "meta": {"fps": 8}}
    return ArtifactRef(**{**values, **changes})  # type: ignore[arg-type]


def test_prints_as_people_write_it() -> None:
    assert str(ref()) == "video:3fa9c1d2e4f5"
    assert parse_reference(str(ref())) == ("video", "3fa9c1d2e4f5")


def test_survives_json_and_pickle() -> None:
    original = ref(meta={"fps": 8, "size": (64, 64), "nested": {"a": [1, None]}})
    assert ArtifactRef.from_dict(json.loads(json.dumps(original.to_dict()))) == original
    assert pickle.loads(pickle.dumps(original)) == original
    assert original.meta["size"] == [64, 64], "meta is what it will be after a trip through JSON"


def test_stays_below_a_kibibyte_at_its_largest() -> None:
    longest = max(KINDS, key=len)
    big = ref(kind=longest, media_type="x" * 100, size=2**62, meta={"m": "x" * 758})
    assert 900 < len(json.dumps(big.to_dict())) <= 1024
    with pytest.raises(InvalidParameter, match="768 bytes"):
        ref(meta={"m": "x" * 770})


def test_is_a_value() -> None:
    assert ref() == ref()
    assert ref() != ref(meta={"fps": 9})
    assert hash(ref()) == hash(ref(meta={"fps": 9}))
    assert len({ref(), ref()}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        ref().size = 8  # type: ignore[misc]


def test_does_not_share_the_callers_meta() -> None:
    meta = {"fps": 8}
    kept = ref(meta=meta)
    meta["fps"] = 9
    assert kept.meta == {"fps": 8}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("digest", "3fa9"),
        ("digest", DIGEST.upper()),
        ("digest", DIGEST + "\n"),
        ("digest", None),
        ("kind", "picture"),
        ("size", -1),
        ("size", 1.5),
        ("size", True),
        ("meta", {"value": float("nan")}),
        ("meta", {"value": object()}),
    ],
)
def test_refuses_what_is_no_reference(field: str, value: Any) -> None:
    with pytest.raises(InvalidParameter, match=field):
        ref(**{field: value})


def test_from_dict_refuses_other_data() -> None:
    for data in ({}, {"digest": DIGEST}, [], None):
        with pytest.raises(InvalidParameter, match="reference"):
            ArtifactRef.from_dict(data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("video:3fa9", ("video", "3fa9")),
        ("3fa9", (None, "3fa9")),
        (" VIDEO:3F".lower(), ("video", "3f")),
        ("3FA9", (None, "3fa9")),
        (DIGEST, (None, DIGEST)),
    ],
)
def test_parses_references(text: str, parsed: tuple[str | None, str]) -> None:
    assert parse_reference(text) == parsed


@pytest.mark.parametrize(
    "text", ["", "video:", ":", "video", "picture:3fa9", "video:xyz", DIGEST + "0", "a b", "video::3f"]
)
def test_refuses_nonsense(text: str) -> None:
    with pytest.raises(UnknownReference, match="such as video:3fa9c1"):
        parse_reference(text)
