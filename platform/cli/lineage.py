"""lineage: what an artifact came from, down to the weights and their import; or what came of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.catalog.lineage import LineageGraph


def lineage(
    reference: Annotated[str, typer.Argument(help="Such as video:3fa9, or weights: flux-t2i/transformer@1.")],
    down: Annotated[
        bool, typer.Option("--down", help="What came of it instead of what it came from.")
    ] = False,
    depth: Annotated[int | None, typer.Option(min=1, help="Runs to go through at most.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print nodes and edges as JSON.")] = False,
) -> None:
    """Show the tree of runs and artifacts behind an artifact, down to the weights that made it.

    Example: mutoscope lineage video:3fa9
    """
    from mutoscope.platform.cli.home import Home

    home = Home()
    if "@" in reference:
        digest = home.catalog.weights.get(reference).digest
    else:
        digest = home.catalog.artifacts.resolve(reference).digest
    walk = home.catalog.lineage.down if down else home.catalog.lineage.up
    graph = walk(digest, depth)
    if json:
        render.emit_json(asdict(graph))
    else:
        print_tree(graph)


def print_tree(graph: LineageGraph) -> None:
    """The tree as text, rooted at the artifact."""
    from mutoscope.platform.catalog.tree import render_tree

    render.say(render_tree(graph))
