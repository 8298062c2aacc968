"""pages: browse pages of workflow runs, in the store."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from mutoscope.platform.cli import render

app = typer.Typer(
    no_args_is_help=True,
    help="Browse pages in the store: one per workflow run, an index per day.\n\nExample: mutoscope pages url",
)


@app.command("url")
def url(
    run: Annotated[
        str | None, typer.Argument(help="The beginning of a workflow run's id; without it, all days.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say where the page of a workflow run is.

    Example: mutoscope pages url 0192c7f0
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.custody.pages_index import DAYS_PAGE

    home = Home()
    found = (
        home.store.web_url(DAYS_PAGE) if run is None else home.run_page_url(home.catalog.workflows.find(run))
    )
    if json:
        render.emit_json({"url": found})
    else:
        render.say(found)


@app.command("rebuild")
def rebuild(
    since: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Only days from this one on (UTC).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write all pages again from the catalog; those that are current are left alone.

    Example: mutoscope pages rebuild --since 2026-11-01
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.custody.pages import Pages
    from mutoscope.platform.custody.pages_index import DAYS_PAGE

    home = Home()
    done = Pages(home.catalog, home.store).rebuild(since.date() if since else None)
    where = home.store.web_url(DAYS_PAGE)
    if json:
        render.emit_json({"written": done.written, "current": done.derived - done.written, "url": where})
        return
    render.say(f"{done.written} pages written, {done.derived - done.written} were current")
    render.say(where)


@app.command("presign")
def presign(
    run: Annotated[str, typer.Argument(help="The beginning of a workflow run's id.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")],
    hours: Annotated[float, typer.Option(help="How long its links open, at most 168.")] = 24.0,
) -> None:
    """Write one HTML file whose pictures open without credentials for a while (S3 stores).

    Example: mutoscope pages presign 0192c7f0 -o page.html --hours 24
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.custody.pages import Pages
    from mutoscope.platform.errors import InvalidParameter

    home = Home()
    page = Pages(home.catalog, home.store).presigned(home.catalog.workflows.find(run), hours)
    try:
        output.write_bytes(page)
    except OSError as error:
        raise InvalidParameter("output", str(output), f"name a writable file ({error.strerror})") from None
    render.say(str(output))
