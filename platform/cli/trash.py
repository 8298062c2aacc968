"""trash: what was collected and can still be brought back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from mutoscope.platform.cli import gc, render
from mutoscope.platform.cli.progress import progress

app = typer.Typer(
    no_args_is_help=True,
    help="What was collected and can still be brought back: list, restore, empty.\n\n"
    "Example: mutoscope trash list",
)


@app.command("list")
def list_trash(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many, newest first.")] = 50,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List what lies in the trash.

    Example: mutoscope trash list
    """
    from heapq import nlargest
    from operator import attrgetter

    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.custody import trash

    home = Home()
    found = nlargest(limit, trash.contents(home.catalog, home.store), key=attrgetter("since"))
    if json:
        return render.emit_json([asdict(one) for one in found])
    return render.table(
        ["artifact", "size", "since"],
        [
            (str(one.ref or f"no record of {one.digest[:12]}"), render.size(one.size), render.age(one.since))
            for one in found
        ],
        empty="the trash is empty",
    )


@app.command("restore")
def restore(
    reference: Annotated[str, typer.Argument(help="Such as video:3fa9.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Bring a collected artifact back, and what it cannot be read without. It counts as made now.

    Example: mutoscope trash restore video:3fa9
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.cli.lineage import resolve
    from mutoscope.platform.custody import trash

    home = Home()
    back = trash.restore(home.catalog, home.store, resolve(home, reference))
    if json:
        return render.emit_json([ref.to_dict() for ref in back])
    for ref in back:
        render.say(f"{ref} is back, {render.size(ref.size)}")
    if not back:
        render.say(f"{reference} was not in the trash: nothing to do")
    return None


@app.command("empty")
def empty(
    older_than: Annotated[str, typer.Option(help="Only what has been there for longer: 12h, 7d.")] = "0s",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Remove what lies in the trash for good, without waiting for its grace period.

    What somebody needs again is put back instead; what writers under way may still rely on stays for now.

    Example: mutoscope trash empty --older-than 12h
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.custody.collect import Collector
    from mutoscope.platform.durations import parse_duration

    seconds, home = parse_duration("older-than", older_than), Home()
    with progress("trash", quiet=json) as report:
        done = Collector(home.catalog, home.store, report=report).empty(seconds)
    gc.print_collection(done, json, nothing="nothing to remove")
