"""A package's docstring is its table of contents: it names every module."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "platform/artifacts",
    "platform/catalog",
    "platform/cli",
    "platform/custody",
    "platform/orchestration",
    "platform/training/methods",
    "workers",
    "flows/maintenance",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_names_its_modules(package: str) -> None:
    folder = ROOT / package
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    modules = {file.stem for file in folder.glob("*.py")} - {"__init__"}
    assert len(modules) > 2
    assert sorted(name for name in modules if not re.search(rf"\b{name}\b", said)) == []
