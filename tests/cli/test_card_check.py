"""card check and doctor --card: a folder of weights on trial."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mutoscope.models import registry
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.parity import gates
from mutoscope.platform.engine.parity.report import Finding, Verdict
from tests.cli.conftest import Command
from tests.support.cards import tiny_folder
from tests.support.platform import cards_registered
from tests.support.tinycard.folder import write_folder

TINY = "tests.support.tinycard.card:CARD"


@pytest.fixture(scope="module")
def flux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    numerics.configure_torch(numerics.cpu_contract(1))
    return tiny_folder("flux-t2i", tmp_path_factory.mktemp("check") / "flux-t2i")


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the near-empty card, over in milliseconds."""
    with cards_registered(monkeypatch, TINY):
        yield write_folder(tmp_path / "tiny")


def test_a_folder_that_fits(flux: Path, home: Path, mutoscope: Command) -> None:
    result = mutoscope("card", "check", flux)
    assert result.code == 0, result.out
    lines = result.out.splitlines()
    assert lines[:2] == [f"folder    {flux}", "fits      flux-t2i"]
    assert lines[2].startswith("loads     as flux-t2i, ")
    assert "image: image uint8 (16, 24, 3)" in lines[3]
    assert "batching  bitwise" in lines
    assert sum(line.startswith("passed  gate") for line in lines) == 4
    assert sum(line.startswith("passed  control") for line in lines) == 5
    assert lines[-1] == "all gates hold"
    assert not home.exists(), "nothing is imported"


def test_a_folder_that_fits_no_card_is_told_why(home: Path, tmp_path: Path, mutoscope: Command) -> None:
    result = mutoscope("card", "check", tmp_path)
    assert result.code == 2
    reasons = {line.split()[1].rstrip(":") for line in result.out.splitlines() if line.startswith("  not ")}
    own = {name for name, card in registry.cards().items() if card.components and card.weights_of is None}
    assert reasons == own, "a trainer has the weights of the card that it trains"
    assert f"error: {tmp_path} fits no card" in result.err


def test_no_fit_as_json(home: Path, tmp_path: Path, mutoscope: Command) -> None:
    result = mutoscope("card", "check", tmp_path, "--json")
    assert result.code == 2
    found = json.loads(result.out)
    assert (found["fits"], "flux-t2i" in found["refused"]) == ([], True)


def test_a_named_card_that_it_does_not_fit(flux: Path, home: Path, mutoscope: Command) -> None:
    result = mutoscope("card", "check", flux, "--card", "wan-t2v")
    assert result.code == 2
    assert "holds a FluxPipeline" in result.err


def test_a_damaged_folder(flux: Path, home: Path, tmp_path: Path, mutoscope: Command) -> None:
    folder = Path(shutil.copytree(flux, tmp_path / "copy"))
    (folder / "vae" / "config.json").unlink()
    result = mutoscope("card", "check", folder, "--card", "flux-t2i")
    assert result.code == 2
    assert "vae" in result.err


def test_as_json(tiny: Path, home: Path, mutoscope: Command) -> None:
    result = mutoscope("card", "check", tiny, "--card", "tiny-test", "--json")
    assert result.code == 0, result.out
    found = json.loads(result.out)
    assert found["loaded"]["card"] == found["card"] == "tiny-test"
    assert found["served"]["outputs"]["image"] == "image uint8 (4, 4, 3)"
    assert found["batching"] == {"mode": "off", "remark": "its steps offer no rows"}
    assert {each["verdict"] for each in found["findings"]} == {"passed", "n/a"}


def test_a_gate_that_fails_ends_with_1(
    tiny: Path, home: Path, mutoscope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Finding(gates.TOGETHER, Verdict.FAILED, "planted")
    monkeypatch.setattr(gates, "serving_together", lambda *_, **__: broken)
    for arguments in (("card", "check", tiny), ("doctor", "--card", "tiny-test", "--folder", tiny)):
        result = mutoscope(*arguments)
        assert result.code == 1
        assert f"failed  gate     {gates.TOGETHER}: planted" in result.out
        assert result.out.splitlines()[-1] == "some gate does not hold: see the lines above"


def test_doctor_reads_a_folder(tiny: Path, home: Path, mutoscope: Command) -> None:
    result = mutoscope("doctor", "--card", "tiny-test", "--folder", tiny)
    assert result.code == 0, result.out
    assert result.out.startswith("card      tiny-test on cpu-")
    assert "passed  control  planted global: caught by" in result.out


def test_doctor_without_weights_names_the_remedy(tiny: Path, home: Path, mutoscope: Command) -> None:
    result = mutoscope("doctor", "--card", "tiny-test")
    assert (result.code, result.out) == (2, "")
    assert result.err == "error: card tiny-test has no weights here: name a folder with --folder\n"


def test_doctor_refuses_what_it_cannot_check(home: Path, tmp_path: Path, mutoscope: Command) -> None:
    assert "serves no requests" in mutoscope("doctor", "--card", "starter-image-trainer").err
    assert "with --card" in mutoscope("doctor", "--folder", tmp_path).err
    assert mutoscope("doctor", "--card", "nobody").code == 2
