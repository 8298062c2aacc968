"""Bringing a home up: starter weights are imported once, follow the package, and never replace what a person
brought.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mutoscope.models.registry import get_card
from mutoscope.models.starter.folders import starter_folder
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.cli import starter
from mutoscope.platform.cli.home import Home
from mutoscope.platform.orchestration.importing import import_folder
from mutoscope.platform.settings import get_settings

CARD = "wan-i2v"


def live(home: Home) -> dict[str, str]:
    return {name: str(version) for name, version in home.catalog.weights.live(CARD).items()}


@pytest.fixture
def prepared(home: Path) -> Home:
    opened = Home()
    starter.prepare(opened, lambda line: None)
    return opened


def test_a_fresh_home_gets_schema_and_weights(home: Path) -> None:
    said: list[str] = []
    opened = Home()
    starter.prepare(opened, said.append)
    assert said[0].startswith("catalog        ready after")
    assert set(opened.catalog.weights.live("flux-t2i")) >= {"transformer", "vae", "recipe"}
    assert {version.rpartition("@")[2] for version in live(opened).values()} == {"1"}


def test_again_changes_nothing(prepared: Home) -> None:
    before, said = live(prepared), []
    starter.prepare(prepared, said.append)
    assert live(prepared) == before
    assert len(said) == 1, "only the catalog's line"


def test_newer_starter_weights_replace_older_ones(
    prepared: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = copy_with_other_recipe(tmp_path)
    monkeypatch.setattr(starter, "starter_folder", lambda card: newer if card == CARD else None)
    said: list[str] = []
    starter.prepare(prepared, said.append)
    assert live(prepared)["recipe"] == f"{CARD}/recipe@2"
    assert live(prepared)["transformer"] == f"{CARD}/transformer@1"
    assert said[1] == f"{CARD:<14} starter weights imported: {CARD}/recipe@2"


def test_weights_that_a_person_imported_stay(prepared: Home, tmp_path: Path) -> None:
    import_folder(prepared.catalog, prepared.store, get_card(CARD), copy_with_other_recipe(tmp_path))
    before = live(prepared)
    assert before["recipe"] == f"{CARD}/recipe@2"
    starter.prepare(prepared, lambda line: None)
    assert live(prepared) == before


def test_weights_that_no_import_made_stay(prepared: Home) -> None:
    ref = prepared.store.put(b"{}", kind="weights", media_type="application/json")
    run = prepared.catalog.runs.record_completed("train", card=CARD, generated={"weights:transformer": ref})
    prepared.catalog.weights.publish(CARD, "transformer", ref.digest, run.id)
    starter.prepare(prepared, lambda line: None)
    assert live(prepared)["transformer"] == f"{CARD}/transformer@2"


def test_an_older_catalog_is_upgraded(home: Path) -> None:
    Catalog.migrate(get_settings().database_url)
    starter.prepare(Home(), lambda line: None)
    Catalog.open(get_settings().database_url).close()


def copy_with_other_recipe(tmp_path: Path) -> Path:
    """The shipped folder with one more default step."""
    import json
    import shutil

    source = starter_folder(CARD)
    assert source is not None
    folder = tmp_path / "newer"
    shutil.copytree(source, folder)
    recipe = json.loads((folder / "recipe.json").read_text())
    recipe["num_inference_steps"] += 1
    (folder / "recipe.json").write_text(json.dumps(recipe))
    return folder
