"""Deep and wide lineages on both databases: all questions answer, nothing recurses, texts stay short."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator

import pytest

from mutoscope.platform.catalog import Catalog, render_tree
from mutoscope.platform.catalog.openlineage import events
from mutoscope.platform.catalog.prov import write_prov
from tests.support import big
from tests.support.servers import Databases

DEPTH = 3_000


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """An empty catalog that the module's tests share: filling one takes seconds."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('large') / 'catalog.db'}"
    else:
        databases: Databases = request.getfixturevalue("databases")
        url = databases.create()
    Catalog.migrate(url)
    catalog = Catalog.open(url)
    yield catalog
    catalog.close()
    if request.param == "postgres":
        databases.drop(url)


@pytest.fixture(scope="module")
def chain(large: Catalog) -> list[str]:
    return big.chain(large, DEPTH)


@pytest.fixture(scope="module", params=[2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def fan(large: Catalog, request: pytest.FixtureRequest) -> tuple[str, str, int]:
    return *big.fan(large, request.param), request.param


def test_a_chain_is_walked_both_ways(large: Catalog, chain: list[str]) -> None:
    assert sys.getrecursionlimit() < DEPTH
    for down, root in ((False, chain[-1]), (True, chain[0])):
        closure = large.lineage.closure(root, down=down)
        assert set(closure.artifacts) == set(chain)
        assert len(closure.runs) == DEPTH
        near = large.lineage.closure(root, down=down, depth=100)
        assert (len(near.artifacts), len(near.runs)) == (101, 100)
    graph = large.lineage.up(chain[-1])
    assert (len(graph.artifacts), len(graph.runs), len(graph.edges)) == (DEPTH + 1, DEPTH, 2 * DEPTH)


def test_a_chain_as_text_and_documents(large: Catalog, chain: list[str]) -> None:
    graph = large.lineage.down(chain[0])
    lines = render_tree(graph, limit=50).split("\n")
    assert len(lines) == 50
    assert lines[-1] == f"… and {2 * DEPTH + 1 - 49:,} more"
    written = io.StringIO()
    write_prov(graph, written)
    document = json.loads(written.getvalue())
    assert (len(document["activity"]), len(document["wasInformedBy"])) == (DEPTH, DEPTH - 1)
    assert sum(1 for _ in events(graph, {})) == 2 * DEPTH


def test_a_chain_answers_every_question(large: Catalog, chain: list[str]) -> None:
    assert large.lineage.impact(chain[0]).count == DEPTH
    assert len(large.lineage.weights_of(chain[-1], history=True)) == DEPTH
    # Each link is weights made from weights: the recipe of one is the step that made it.
    assert [use.digest for use in large.lineage.weights_of(chain[-1])] == [chain[-2]]
    assert large.lineage.diff(chain[-1], chain[-2]).compared == 1


def test_a_fan_is_walked_both_ways(large: Catalog, fan: tuple[str, str, int]) -> None:
    root, tip, width = fan
    for down, start in ((True, root), (False, tip)):
        closure = large.lineage.closure(start, down=down)
        assert (len(closure.artifacts), len(closure.runs)) == (width + 2, width + 1)
    graph = large.lineage.down(root)
    assert (len(graph.artifacts), len(graph.runs), len(graph.edges)) == (width + 2, width + 1, 3 * width + 1)


def test_a_fan_fits_a_screen(large: Catalog, fan: tuple[str, str, int]) -> None:
    root, tip, width = fan
    down = render_tree(large.lineage.down(root), limit=200).split("\n")
    assert len(down) < 40
    assert down[-1] == f"└─ … {width - 8:,} more flux-t2i runs: {width - 8:,} images"
    up = render_tree(large.lineage.up(tip), limit=200).split("\n")
    assert len(up) < 40
    assert up[-1] == f"   └─ … {width - 8:,} more sample images"


def test_a_fan_in_numbers_and_pages(large: Catalog, fan: tuple[str, str, int]) -> None:
    root, tip, width = fan
    impact = large.lineage.impact(root)
    assert {kind.kind: kind.count for kind in impact.kinds} == {"image": width, "weights": 1}
    assert impact.runs == width + 1
    assert len(large.lineage.downstream(root, kinds=("image",), limit=10)) == 10
    pages, after, seen = 0, None, set()
    while pages < 4:
        page = large.lineage.made(root, limit=500, after=after)
        seen |= {making.ref.digest for making in page.makings}
        pages, after = pages + 1, page.next
    assert len(seen) == 2_000
    assert large.lineage.diff(root, tip).steps


def test_a_fan_as_documents(large: Catalog, fan: tuple[str, str, int]) -> None:
    _, tip, width = fan
    graph = large.lineage.up(tip)
    written = io.StringIO()
    write_prov(graph, written)
    document = json.loads(written.getvalue())
    assert len(document["entity"]) >= width + 2
    # The last run has more inputs than are spelled out as derivations; that it used them is there.
    assert len(document["used"]) == 2 * width
    assert sum(1 for _ in events(graph, {})) == 2 * (width + 1)
