"""The `mutoscope` app: commands in one place, and how an error ends a command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import typer

from mutoscope.platform.cli import (
    approve,
    archive,
    audit,
    browse,
    cancel,
    card,
    cards,
    catalog,
    demo,
    diff,
    doctor,
    fsck,
    gc,
    impact,
    incidents,
    lineage,
    pages,
    pins,
    pool,
    ready,
    replay,
    retention,
    rl,
    run,
    schedule,
    stack,
    trash,
    weights,
    why,
)
from mutoscope.platform.cli.home import handles
from mutoscope.platform.errors import MutoscopeError

app = typer.Typer(
    name="mutoscope",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Generative media as recorded runs: every artifact knows the exact weights that made it.\n\n"
    "Start with `mutoscope demo`, or `mutoscope up` and then "
    '`mutoscope run text_to_video prompt="a red circle left of a blue square, drifting right" seed=7`.',
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"mutoscope {version('mutoscope')}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


STACK, MAKE, BROWSE, KEEP, CARRY, MODELS = "The stack", "Make", "Look", "Keep", "Carry", "Models"

app.command(rich_help_panel=STACK)(stack.up)
app.command(rich_help_panel=STACK)(stack.down)
app.command(rich_help_panel=STACK)(stack.status)
app.command(rich_help_panel=STACK)(stack.prepare)
app.command(rich_help_panel=STACK)(ready.ready)
app.command(rich_help_panel=STACK)(doctor.doctor)
app.command(rich_help_panel=STACK)(fsck.fsck)
app.add_typer(pool.app, name="pool", rich_help_panel=STACK)
app.add_typer(catalog.app, name="catalog", rich_help_panel=STACK)
app.add_typer(incidents.app, name="incidents", rich_help_panel=STACK)
app.command(rich_help_panel=MAKE)(demo.demo)
app.command(rich_help_panel=MAKE)(run.run)
app.command(rich_help_panel=MAKE)(cancel.cancel)
app.command(rich_help_panel=MAKE)(cancel.retry)
app.command(rich_help_panel=MAKE)(replay.replay)
app.command(rich_help_panel=MAKE)(approve.approve)
app.add_typer(schedule.app, name="schedule", rich_help_panel=MAKE)
app.command("ls", rich_help_panel=BROWSE)(browse.list_recent)
app.command(rich_help_panel=BROWSE)(browse.show)
app.command(rich_help_panel=BROWSE)(browse.get)
app.command("open", rich_help_panel=BROWSE)(browse.open_page)
app.add_typer(lineage.app, name="lineage", rich_help_panel=BROWSE)
app.command(rich_help_panel=BROWSE)(diff.diff)
app.command(rich_help_panel=BROWSE)(impact.impact)
app.command(rich_help_panel=BROWSE)(why.why)
app.command(rich_help_panel=BROWSE)(audit.audit)
app.add_typer(pages.app, name="pages", rich_help_panel=BROWSE)
app.command(rich_help_panel=KEEP)(gc.gc)
app.command(rich_help_panel=KEEP)(pins.pin)
app.command(rich_help_panel=KEEP)(pins.unpin)
app.command(rich_help_panel=KEEP)(pins.pins)
app.add_typer(retention.app, name="retention", rich_help_panel=KEEP)
app.add_typer(trash.app, name="trash", rich_help_panel=KEEP)
app.command(rich_help_panel=CARRY)(archive.export)
app.command("import", rich_help_panel=CARRY)(archive.import_)
app.command(rich_help_panel=MODELS)(cards.cards)
app.add_typer(card.app, name="card", rich_help_panel=MODELS)
app.add_typer(weights.app, name="weights", rich_help_panel=MODELS)
app.add_typer(rl.app, name="rl", rich_help_panel=MODELS)


@cache
def command() -> Callable[..., Any]:
    """The app as one command, which takes longer to build than most commands take: once a process."""
    built: Callable[..., Any] = typer.main.get_command(app)
    return built


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. An error raised on purpose is one line on stderr; a bug keeps its traceback."""
    try:
        command()(args=arguments, prog_name="mutoscope")
    except MutoscopeError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    finally:
        handles.close()


if __name__ == "__main__":
    main()
