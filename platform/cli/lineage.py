"""lineage up, down, export: what an artifact came from, what came of it, and either as a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.catalog.graph import LineageGraph
    from mutoscope.platform.cli.home import Home

Format = Literal["prov", "openlineage"]

Reference = Annotated[str, typer.Argument(help="Such as video:3fa9, or weights: flux-t2i/transformer@1.")]
Depth = Annotated[int | None, typer.Option(min=1, help="Runs to go through at most.")]
Limit = Annotated[
    int, typer.Option("--limit", "-n", min=0, help="Lines at most, equal siblings folded; 0 for all.")
]
Json = Annotated[bool, typer.Option("--json", help="Print nodes and edges as JSON, all of them.")]

LINES = 200
"""Of a tree, unless more are asked for."""


class UpByDefault(TyperGroup):
    """`lineage REF` is `lineage up REF`; with ``--down``, `lineage down REF`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = [word for word in args if not word.startswith("-")]
        if words and words[0] not in self.commands:
            way = "down" if "--down" in args else "up"
            args = [way, *(word for word in args if word != "--down")]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=UpByDefault,
    no_args_is_help=True,
    help="What an artifact came from (up), and what came of it (down).\n\n"
    "Example: mutoscope lineage video:3fa9",
)


@app.command("up")
def up(reference: Reference, depth: Depth = None, limit: Limit = LINES, json: Json = False) -> None:
    """Show the tree of runs and artifacts behind an artifact, down to the weights that made it.

    Example: mutoscope lineage up video:3fa9
    """
    from mutoscope.platform.cli.home import Home

    home = Home()
    digest = resolve(home, reference)
    graph = home.catalog.lineage.up(digest, depth)
    _show(graph, limit, json)
    if not json and not graph.runs and (holders := home.catalog.lineage.containers(digest)):
        render.note(
            f"no run made it by itself; {_part_of(holders)}: "
            f"`mutoscope lineage up {holders[0][:12]}` tells where that came from"
        )


@app.command("down")
def down(reference: Reference, depth: Depth = None, limit: Limit = LINES, json: Json = False) -> None:
    """Show the tree of everything made from an artifact, weights included.

    Example: mutoscope lineage down flux-t2i/transformer@1
    """
    from mutoscope.platform.cli.home import Home

    home = Home()
    digest = resolve(home, reference)
    _show(home.catalog.lineage.down(digest, depth), limit, json)
    if not json and (holders := home.catalog.lineage.containers(digest)):
        render.note(f"{_part_of(holders)}: `mutoscope impact {reference}` tells what came of that")


@app.command("export")
def export(
    reference: Reference,
    standard: Annotated[
        Format, typer.Option("--format", help="W3C PROV-JSON, or OpenLineage run events.")
    ] = "prov",
    downwards: Annotated[bool, typer.Option("--down", help="What came of it.")] = False,
    depth: Depth = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; stdout if not given.")
    ] = None,
) -> None:
    """Write the lineage as a document of a standard: PROV-JSON, or OpenLineage events, one a line.

    Example: mutoscope lineage export video:3fa9 --format prov -o video.prov.json
    """
    from mutoscope.platform.catalog.openlineage import write_events
    from mutoscope.platform.catalog.prov import write_prov
    from mutoscope.platform.cli.home import Home

    home = Home()
    walk = home.catalog.lineage.down if downwards else home.catalog.lineage.up
    graph = walk(resolve(home, reference), depth)
    with _opened(output) as stream:
        if standard == "prov":
            write_prov(graph, stream)
        else:
            write_events(graph, home.catalog.lineage.workflows(graph), stream)
    if output is not None:
        render.say(str(output))


def resolve(home: Home, reference: str) -> str:
    """The digest that a reference to an artifact, or the name of a weight version, stands for.

    Raises:
        UnknownReference, AmbiguousReference: as the catalog says.
    """
    return home.catalog.find_artifact(reference).digest


def print_tree(graph: LineageGraph) -> None:
    """The tree as text, rooted at the artifact."""
    from mutoscope.platform.catalog.tree import render_tree

    render.say(render_tree(graph))


def _part_of(holders: Sequence[str]) -> str:
    others = f" and of {len(holders) - 1:,} more" if len(holders) > 1 else ""
    return f"it is part of {holders[0][:12]}{others}"


def _show(graph: LineageGraph, limit: int, json: bool) -> None:
    from mutoscope.platform.catalog.tree import render_tree

    if json:
        render.emit_json(asdict(graph))
    else:
        render.say(render_tree(graph, limit=limit or None))


@contextmanager
def _opened(path: Path | None) -> Iterator[IO[str]]:
    from mutoscope.platform.errors import InvalidParameter

    if path is None:
        yield typer.get_text_stream("stdout")
        return
    try:
        with path.open("w", encoding="utf-8") as stream:
            yield stream
    except OSError as error:
        raise InvalidParameter("output", str(path), f"{error.strerror}: name a file to write") from None
