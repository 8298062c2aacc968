"""The `mutoscope catalog` commands: which schema the catalog has, upgrading it, checking it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Annotated

import typer

from mutoscope.platform.cli import render
from mutoscope.platform.cli.progress import Show, progress

app = typer.Typer(no_args_is_help=True, help="The catalog's database: schema, upgrades, soundness.")

REMEDIES = {
    "missing": "create it with `mutoscope up`",
    "behind": "upgrade it with `mutoscope catalog upgrade`",
    "ahead": "upgrade Mutoscope on this machine",
}


@app.command()
def status(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Which schema revision the catalog has, and which this Mutoscope needs. Exit code 1 when they differ.

    Example: mutoscope catalog status
    """
    from mutoscope.platform.catalog import Catalog
    from mutoscope.platform.cli.home import Home

    found = Catalog.schema_status(Home().settings.database_url)
    if json:
        render.emit_json({**asdict(found), "state": found.word})
    else:
        remedy = REMEDIES.get(found.word)
        render.pairs(
            {
                "database": found.url,
                "revision": found.revision or "none",
                "needed": found.expected,
                "state": f"{found.word}: {remedy}" if remedy else found.word,
            }
        )
    if found.word != "current":
        raise typer.Exit(1)


@app.command()
def upgrade() -> None:
    """Bring the catalog to the revision this Mutoscope needs. An embedded one is copied first, beside it.

    Stop what runs on an older Mutoscope before: it cannot open an upgraded catalog. Interrupted, the upgrade
    goes on where it was when it is called again.

    Example: mutoscope catalog upgrade
    """
    from mutoscope.platform.catalog import Catalog
    from mutoscope.platform.cli.home import Home

    url = Home().settings.database_url
    before = Catalog.schema_status(url)
    with upgrade_progress() as show:
        Catalog.migrate(url, show)
    after = Catalog.schema_status(url)
    if before.revision == after.revision:
        render.say(f"{after.url} is at revision {after.revision} already")
    else:
        render.say(f"{after.url} is at revision {after.revision} now, before at {before.revision or 'none'}")


@app.command()
def check(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Compare the catalog's tables with what this Mutoscope expects; on SQLite, look for damage in the file.

    `mutoscope fsck` looks at what the rows say. Exit code 1 while something is wrong.

    Example: mutoscope catalog check
    """
    from mutoscope.platform.cli.home import Home

    catalog = Home().catalog
    faults = catalog.faults()
    if json:
        render.emit_json({"url": catalog.url, "faults": faults})
    else:
        for fault in faults:
            render.say(fault)
        render.say(f"{catalog.url}: " + (f"{len(faults)} faults" if faults else "sound"))
    if faults:
        raise typer.Exit(1)


def upgrade_progress() -> AbstractContextManager[Show]:
    """Shows how far a long upgrade is: a bar on a terminal, elsewhere a line when a part of it is done."""
    return progress("upgrade", elsewhere=_line_when_done)


def _line_when_done(what: str, done: int, total: int) -> None:
    if done >= total:
        render.note(f"upgrade: {what}, {done:,} of {total:,}")
