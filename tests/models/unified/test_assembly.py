"""A composed folder is put together out of its parts' folders, by copies or by links."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mutoscope.models.registry import get_card
from mutoscope.models.unified.__main__ import main

UNIRL, MULTI = "unirl-qwenflux", "multi-expert"


@pytest.fixture
def parts(tiny: Callable[[str], Path]) -> Path:
    return tiny(MULTI).with_name("folder.parts")


def arguments(card_id: str, parts: Path, out: Path, *refiners: str) -> list[str]:
    given = [argument for name in refiners for argument in ("--refiner", str(parts / name))]
    return [card_id, "--generator", str(parts / "generator"), *given, "--out", str(out)]


@pytest.mark.parametrize("link", [False, True])
def test_the_command_writes_a_folder_that_can_be_imported(
    link: bool, parts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    chosen = arguments(MULTI, parts, out, "refiner_2", "refiner_1")
    assert main([*chosen, *(["--link"] if link else [])]) == 0
    assert capsys.readouterr().out == f"{out}: ready for `mutoscope weights import {MULTI} {out}`\n"
    summary = get_card(MULTI).inspect(out)
    assert {"refiner_1", "refiner_2"} <= set(summary.components)
    assert (out / "vae").is_symlink() == link
    # The chain is in the order given.
    first = (out / "refiner_1" / "model.safetensors").read_bytes()
    assert first == (parts / "refiner_2" / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("card_id", "refiners", "line"),
    [
        (UNIRL, ("refiner_1", "refiner_2"), "error: refiner=2 is not valid: unirl-qwenflux takes 1 at most"),
        (UNIRL, ("generator",), "generator/config.json is missing: copy the folder again"),
        (UNIRL, ("nowhere",), "nowhere is not a folder: give the path of a language model's folder"),
    ],
)
def test_refusals_leave_nothing_behind(
    card_id: str,
    refiners: tuple[str, ...],
    line: str,
    parts: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(arguments(card_id, parts, tmp_path / "out", *refiners)) == 2
    assert line in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_existing_folder_is_never_written_into(
    parts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(UNIRL, parts, tmp_path, "refiner_1")) == 2
    assert "exists: name a folder that does not" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
