"""`key=value` arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutoscope.platform.cli.values import as_file, split_assignments
from mutoscope.platform.errors import InvalidParameter


def test_splits_at_the_first_equals_sign() -> None:
    given = ["prompt=x = y, a red circle", "seed=7", "negative-prompt="]
    assert split_assignments(given) == {"prompt": "x = y, a red circle", "seed": "7", "negative_prompt": ""}


@pytest.mark.parametrize("argument", ["seed", "=7", "a b=7", "7=7"])
def test_refuses_other_shapes(argument: str) -> None:
    with pytest.raises(InvalidParameter, match="write key=value"):
        split_assignments(["prompt=x", argument])


def test_refuses_a_repeated_key() -> None:
    with pytest.raises(InvalidParameter) as caught:
        split_assignments(["seed=7", "seed=8"])
    assert str(caught.value) == "seed='8' is not valid: seed was already given as '7'; give it once"


def test_a_reference_is_no_file() -> None:
    assert as_file("image", "image:3fa9") is None
    assert as_file("image", "3fa9c1d2") is None


def test_an_existing_file_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "3fa9").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert as_file("image", "3fa9") == Path("3fa9")


@pytest.mark.parametrize("text", ["./3fa9", "picture.png", "~/picture.png"])
def test_what_can_only_be_a_file_must_exist(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InvalidParameter, match="there is no such file"):
        as_file("image", text)
