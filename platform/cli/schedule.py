"""schedule: when workflows start by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.orchestration.schedules import Planned

app = typer.Typer(
    no_args_is_help=True,
    help="When workflows start by themselves: add, ls, pause, resume, rm. They run on the flow pool of "
    "whichever host is free.\n\nExample: mutoscope schedule ls",
)

Workflow = Annotated[str, typer.Argument(help="A workflow's name or id, such as text_to_image.")]
Name = Annotated[str, typer.Argument(help="The schedule's name; `mutoscope schedule ls` lists them.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("add")
def add(
    workflow: Workflow,
    parameters: Annotated[
        list[str] | None, typer.Argument(help="key=value, as the workflow takes them.")
    ] = None,
    cron: Annotated[
        str | None,
        typer.Option(help="Minute, hour, day of month, month, day of week: '0 9 * * MON-FRI'."),
    ] = None,
    every: Annotated[str | None, typer.Option(help="An interval: 30m, 6h, 1d.")] = None,
    timezone: Annotated[str, typer.Option(help="Whose clock: an IANA name such as Europe/Zurich.")] = "UTC",
    name: Annotated[str, typer.Option(help="What it is called. Default: after when it starts.")] = "",
    paused: Annotated[bool, typer.Option("--paused", help="Start nothing until it is resumed.")] = False,
    json: AsJson = False,
) -> None:
    """Start a workflow again and again, each time with these parameters. They are checked now.

    Example: mutoscope schedule add text_to_image prompt="a red circle" --cron "0 9 * * MON-FRI"
    """
    import asyncio

    from mutoscope.platform.cli.run import joined_home, read_values
    from mutoscope.platform.cli.values import split_assignments

    home, texts = joined_home(), split_assignments(parameters or [])
    from mutoscope.platform.orchestration import schedules
    from mutoscope.platform.orchestration.schedule import Schedule

    made = Schedule(
        name=name,
        cron=cron,
        every=every,
        timezone=timezone,
        parameters=read_values(home, workflow, texts),
        active=not paused,
    )
    added = asyncio.run(schedules.add(workflow, made))
    if json:
        return render.emit_json(_plain(added))
    first = f", first on {_moment(added)}" if added.next_start else ", once it is resumed"
    return render.say(f"{added.workflow} starts {added.when}{first}: {added.name}")


@app.command("ls")
def ls(
    workflow: Annotated[str | None, typer.Argument(help="Only this workflow's.")] = None,
    json: AsJson = False,
) -> None:
    """List schedules: what starts when, and who said so.

    Example: mutoscope schedule ls
    """
    import asyncio

    from mutoscope.platform.cli.run import joined_home

    joined_home()
    from mutoscope.platform.orchestration import schedules

    found = asyncio.run(schedules.ls(workflow))
    if json:
        return render.emit_json([_plain(one) for one in found])
    return render.table(
        ["workflow", "name", "starts", "next", "by", "parameters"],
        [
            (one.workflow, one.name, one.when, _moment(one) or "paused", one.origin, one.parameters)
            for one in found
        ],
        empty="nothing starts by itself: `mutoscope schedule add` changes that",
    )


@app.command("pause")
def pause(workflow: Workflow, name: Name, json: AsJson = False) -> None:
    """Start nothing by this schedule until it is resumed. Runs under way go on.

    Example: mutoscope schedule pause text_to_image every-6h
    """
    _switch(workflow, name, active=False, json=json)


@app.command("resume")
def resume(workflow: Workflow, name: Name, json: AsJson = False) -> None:
    """Let a paused schedule start its workflow again. What it missed is not made up for.

    Example: mutoscope schedule resume text_to_image every-6h
    """
    _switch(workflow, name, active=True, json=json)


@app.command("rm")
def rm(workflow: Workflow, name: Name, json: AsJson = False) -> None:
    """Remove a schedule and the starts it has planned. One that is declared in code is removed there.

    Example: mutoscope schedule rm text_to_image every-6h
    """
    import asyncio

    from mutoscope.platform.cli.run import joined_home

    joined_home()
    from mutoscope.platform.orchestration import schedules

    gone = asyncio.run(schedules.rm(workflow, name))
    if json:
        return render.emit_json(_plain(gone))
    return render.say(f"{gone.workflow} no longer starts {gone.when}")


def _switch(workflow: str, name: str, *, active: bool, json: bool) -> None:
    import asyncio

    from mutoscope.platform.cli.run import joined_home

    joined_home()
    from mutoscope.platform.orchestration import schedules

    switched = asyncio.run(schedules.set_active(workflow, name, active))
    if json:
        return render.emit_json(_plain(switched))
    now = f"starts again, next on {_moment(switched)}" if active else "is paused"
    return render.say(f"{switched.workflow} {switched.when} {now}")


def _moment(planned: Planned) -> str | None:
    return render.clock(planned.next_start.timestamp()) if planned.next_start else None


def _plain(planned: Planned) -> dict[str, Any]:
    start = planned.next_start
    return {
        "workflow": planned.workflow,
        "name": planned.name,
        "origin": planned.origin,
        "when": planned.when,
        "parameters": dict(planned.parameters),
        "active": planned.active,
        "next_start": start.isoformat() if start else None,
    }
