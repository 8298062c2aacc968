"""Every register of the catalog, and every kind of database it can live in, is proven on both.

A test module counts if its catalog is each kind of database in turn: `any_catalog`, or `catalog` where the
folder makes that the same. What it calls counts, and so does what is called by the modules of
`platform.custody` that it imports: those ask the catalog on its behalf.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.database import DIALECTS
from tests import conftest

TESTS = Path(__file__).parents[1]
PLATFORM = TESTS.parent / "platform"
ON_EACH = ("any_catalog", "any_catalog_url")


def registers(catalog: Catalog) -> dict[str, type]:
    """The nouns a catalog offers, by the name of its attribute."""
    return {
        name: type(value)
        for name, value in vars(catalog).items()
        if name[0] != "_" and type(value).__module__.startswith("mutoscope.platform.catalog.")
    }


def methods(register: type) -> set[str]:
    """What it answers; static methods are parts of other transactions."""
    return {
        name
        for name, _ in inspect.getmembers(register, inspect.isfunction)
        if name[0] != "_" and inspect.isfunction(inspect.getattr_static(register, name))
    }


def proofs() -> Iterator[Path]:
    """Test modules whose catalog is each database in turn."""
    for path in sorted(TESTS.rglob("test_*.py")):
        folder = path.with_name("conftest.py")
        texts = [path.read_text(), folder.read_text() if folder.exists() else ""]
        if any(name in text for name in ON_EACH for text in texts):
            yield path


def asked(path: Path) -> set[tuple[str, str]]:
    """What a module, and what it imports of custody, names as ``….register.method``."""
    waiting, seen, found = [path], set[Path](), set[tuple[str, str]]()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.ImportFrom):
                waiting += custody_modules(node)
            if isinstance(node, ast.Attribute):
                # `catalog.pins.list`, and `pins.list` where a function was handed the register itself.
                register = getattr(node.value, "attr", getattr(node.value, "id", ""))
                found.add((register.strip("_"), node.attr))
    return found


def custody_modules(statement: ast.ImportFrom) -> list[Path]:
    package = statement.module or ""
    if not package.startswith("mutoscope.platform.custody"):
        return []
    names = [package, *(f"{package}.{alias.name}" for alias in statement.names)]
    paths = (PLATFORM.joinpath(*name.split(".")[2:]).with_suffix(".py") for name in names)
    return [path for path in paths if path.is_file()]


def unproven(wanted: dict[str, type]) -> set[str]:
    seen = set().union(*(asked(path) for path in proofs()))
    return {
        f"{name}.{method}"
        for name, register in wanted.items()
        for method in methods(register)
        if (name, method) not in seen
    }


def test_every_register_is_proven_on_each_database(sqlite_only: Catalog) -> None:
    wanted = registers(sqlite_only)
    assert len(wanted) >= 8
    assert unproven(wanted) == set()


def test_a_register_that_nobody_tests_is_noticed(sqlite_only: Catalog) -> None:
    class Forgotten:
        def recall(self) -> None: ...

    assert unproven({**registers(sqlite_only), "forgotten": Forgotten}) == {"forgotten.recall"}


def test_each_database_is_among_the_fixtures(request: pytest.FixtureRequest) -> None:
    definitions = request._fixturemanager.getfixturedefs("any_catalog_url", request.node)
    assert definitions
    assert {"sqlite" if p == "sqlite" else "postgresql" for p in definitions[-1].params or ()} == set(
        DIALECTS
    )
    assert conftest.any_catalog is not None


@pytest.fixture
def sqlite_only(catalog: Catalog) -> Catalog:
    return catalog
