"""weights import --adapter, weights alias, weights list: what versions are called from the shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mutoscope.models.flux.card import CARD
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.orchestration.importing import import_folder
from tests.cli.conftest import Command
from tests.support.tiny_flux import save_tiny_flux
from tests.support.versions import lora_tensors, named, write_lora


@pytest.fixture
def lora(catalog: Catalog, store: ArtifactStore, tmp_path: Path) -> Path:
    """A LoRA for the weights that are live."""
    source = save_tiny_flux(tmp_path / "source")
    import_folder(catalog, store, CARD, source)
    return write_lora(tmp_path / "lora.safetensors", lora_tensors(named(source), 1))


def test_an_adapter_is_imported_under_its_alias(lora: Path, mutoscope: Command) -> None:
    words = ("weights", "import", CARD.id, "--adapter", str(lora), "--alias", "my-style")
    first = mutoscope(*words)
    assert (first.code, first.err) == (0, "")
    assert [line.split() for line in first.out.splitlines()[1:]] == [
        ["transformer", "flux-t2i/transformer@2", "new,", "my-style"],
        ["select", "it", "with", "--weights", "flux-t2i@my-style"],
    ]
    assert "unchanged" in mutoscope(*words).out
    assert json.loads(mutoscope(*words, "--json").out) == {"transformer": "flux-t2i/transformer@2"}
    listed = json.loads(mutoscope("weights", "list", CARD.id, "--json").out)
    aliases = {one["version"]: (one["aliases"], one["live"]) for one in listed}
    assert aliases["flux-t2i/transformer@1"] == (["live"], True)
    assert aliases["flux-t2i/transformer@2"] == (["my-style"], False)
    shown = mutoscope("weights", "show", "flux-t2i/transformer@my-style").out
    base = next(one["digest"] for one in listed if one["version"] == "flux-t2i/transformer@1")
    assert f"an adapter for {base[:12]}" in shown


def test_an_alias_is_moved_and_listed(lora: Path, mutoscope: Command) -> None:
    result = mutoscope("weights", "alias", "candidate", "flux-t2i/vae@1")
    assert (result.code, result.out) == (0, "flux-t2i/vae@candidate is flux-t2i/vae@1\n")
    (line,) = [one for one in mutoscope("weights", "list").out.splitlines() if "vae@1" in one]
    assert line.split()[1:3] == ["candidate,", "live"]
    assert "flux-t2i/vae@1" in mutoscope("weights", "show", "flux-t2i/vae@candidate").out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["import", CARD.id], "give a folder, or --adapter FILE instead of one"),
        (["import", CARD.id, "f", "--adapter", "x"], "give a folder, or --adapter FILE instead of one"),
        (["import", CARD.id, "--adapter", "x"], "name the adapter with --alias"),
        (["import", CARD.id, "f", "--alias", "x"], "alias='x' is not valid: it goes with --adapter"),
        (["import", CARD.id, "--adapter", "absent", "--alias", "x"], "cannot be read (No such file"),
        (["alias", "12", "flux-t2i/vae@1"], "alias='12' is not valid"),
        (["alias", "best", "flux-t2i/vae@9"], "no weights are named 'flux-t2i/vae@9'"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_bad_input_is_one_line(lora: Path, mutoscope: Command, words: list[str], line: str) -> None:
    result = mutoscope("weights", *words)
    assert (result.code, result.out) == (2, "")
    (said,) = result.err.splitlines()
    assert said.startswith("error: ")
    assert line in said
