"""pin, unpin, pins: artifacts that are kept whatever the rules say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.catalog.pins import Pin


def pin(
    reference: Annotated[str, typer.Argument(help="Such as video:3fa9, or flux-t2i/transformer@12.")],
    name: Annotated[str, typer.Option(help="What it is kept as; no two pins share one.")],
    with_inputs: Annotated[
        bool, typer.Option("--with-inputs", help="Keep everything it came from, too.")
    ] = False,
    note: Annotated[str | None, typer.Option(help="Why.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Keep an artifact until it is unpinned. No collection takes it.

    Example: mutoscope pin video:3fa9 --name release-3 --with-inputs
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.cli.lineage import resolve

    home = Home()
    made = home.catalog.pins.add(resolve(home, reference), name, with_inputs=with_inputs, note=note)
    if json:
        return render.emit_json(_plain(made))
    return render.say(f"{made.artifact} is kept as {made.name}{_inputs(made)}")


def unpin(
    name: Annotated[str, typer.Argument(help="The pin's name; `mutoscope pins` lists them.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Let go of a pinned artifact; what else keeps it still does.

    Example: mutoscope unpin release-3
    """
    from mutoscope.platform.cli.home import Home

    gone = Home().catalog.pins.remove(name)
    if json:
        return render.emit_json(_plain(gone))
    return render.say(f"{gone.artifact} is no longer kept as {gone.name}")


def pins(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the pins.

    Example: mutoscope pins
    """
    from mutoscope.platform.cli.home import Home

    found = Home().catalog.pins.list()
    if json:
        return render.emit_json([_plain(one) for one in found])
    return render.table(
        ["name", "artifact", "inputs", "age", "note"],
        [
            (
                one.name,
                str(one.artifact),
                "too" if one.with_inputs else "",
                render.age(one.created_at),
                one.note,
            )
            for one in found
        ],
        empty="nothing is pinned",
    )


def _inputs(made: Pin) -> str:
    return ", with everything it came from" if made.with_inputs else ""


def _plain(one: Pin) -> dict[str, Any]:
    return {
        "name": one.name,
        "artifact": one.artifact.to_dict(),
        "with_inputs": one.with_inputs,
        "note": one.note,
        "created_at": one.created_at,
    }
