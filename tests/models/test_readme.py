"""The worked example of models/README.md, run as it is printed there."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mutoscope.models
from mutoscope.models import registry
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.calibration import calibrate
from mutoscope.platform.engine.card import resolve_entrypoint
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.example import example_request
from mutoscope.platform.engine.instance import load_instance
from mutoscope.platform.engine.parity.check import check
from mutoscope.platform.errors import InvalidFolder, InvalidParameter

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "models" / "README.md"
ORIGIN = "mutoscope.models.dit.card:CARD"


def files() -> dict[str, str]:
    """Every code block of the page by the path in its first line."""
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return dict(blocks)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The page's files, importable under the names the page gives them, the card registered by variable."""
    numerics.configure_torch(numerics.cpu_contract(1))
    root = tmp_path_factory.mktemp("readme")
    for path, text in files().items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "models" / "dit" / "__init__.py").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mutoscope.models, "__path__", [*mutoscope.models.__path__, str(root / "models")])
        patch.setenv(registry.VARIABLE, ORIGIN)
        patch.syspath_prepend(str(root / "tests" / "support"))
        registry.cards.cache_clear()
        yield root
    registry.cards.cache_clear()
    for name in [name for name in sys.modules if name.startswith(("mutoscope.models.dit", "tiny_dit"))]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def folder(example: Path) -> Path:
    made: Path = resolve_entrypoint("tiny_dit:make")(example / "folder", "dit-class")
    return made


def test_the_page_shows_a_whole_card() -> None:
    assert list(files()) == [
        "models/dit/card.py",
        "models/dit/folder.py",
        "models/dit/program.py",
        "tests/support/tiny_dit.py",
    ]


def test_the_card_serves(folder: Path) -> None:
    card = registry.get_card("dit-class")
    instance = load_instance(card, folder)
    result = Engine().run(instance, example_request(card, instance.recipe))
    assert result.outputs["image"].value.shape == (16, 16, 3)
    with pytest.raises(InvalidParameter, match="use a class from 0 to 4"):
        Engine().submit(instance, example_request(card, instance.recipe, label=5))


def test_the_card_refuses_what_is_not_its_own(example: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidFolder, match=str(tmp_path)):
        registry.get_card("dit-class").inspect(tmp_path)


def test_its_gates_hold_and_its_defects_are_caught(folder: Path) -> None:
    card = registry.get_card("dit-class")
    instance = load_instance(card, folder)
    variants: list[dict[str, Any]] = resolve_entrypoint("tiny_dit:variants")("dit-class")
    report = check(calibrate(instance, most=4).prepare(instance), variants=variants, most_orders=2)
    lines = "\n".join(str(finding) for finding in report.findings)
    assert report.ok, lines
    assert len(report.findings) == 9, lines


def test_its_source_is_part_of_its_digest(example: Path) -> None:
    card = registry.get_card("dit-class")
    assert "program.py" in numerics.source_texts("mutoscope.models.dit")
    assert re.fullmatch("[0-9a-f]{64}", numerics.card_digest(card))
