"""cancel and retry: stopping what runs, wherever it runs, and going on with what was stopped."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.orchestration.cancelling import Cancellation


def cancel(
    run: Annotated[
        str,
        typer.Argument(help="A workflow run or an engine run (the beginning of its id), or a flow run's id."),
    ],
    wait: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="Wait so long until it has stopped.")
    ] = 30.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Stop a run, what it started, and the steps on the device. What its runs have made is kept.

    Example: mutoscope cancel 0192f1
    """
    import asyncio

    from mutoscope.platform.cli.home import Home

    home = Home()
    _ = home.stack  # its addresses lead to the server, which knows of flow runs that have not begun
    from mutoscope.platform.orchestration.cancelling import cancel as stop

    told = asyncio.run(stop(home.runtime, run, seconds=wait))
    if json:
        render.emit_json(asdict(told))
        return
    render.say(f"{told.kind} {told.id}: {_outcome(told)}")
    for inside in told.stopped[1:]:
        render.say(f"  with it  workflow run {inside}")


def _outcome(told: Cancellation) -> str:
    match told.state:
        case "running" | "queued":
            return "is to stop, and has not yet; if its process is dead, that is found out within seconds"
        case "cancelled" | "cancelling":
            return told.state
        case "crashed":
            return "is to stop: its next attempt learns of it when it begins"
    return f"had {told.state} before it could be stopped"


def retry(
    run: Annotated[
        str, typer.Argument(help="A workflow run that did not succeed, by the beginning of its id.")
    ],
    submit: Annotated[
        bool | None,
        typer.Option(
            "--submit/--here", help="On the flow pool, or in this process. Default: where it was before."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also save the results in this folder.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and no progress.")] = False,
) -> None:
    """Go on with a failed, cancelled or crashed workflow: same parameters and seed, what was made is reused.

    Example: mutoscope retry 0192f1
    """
    import asyncio

    from mutoscope.platform.cli.follow import follower
    from mutoscope.platform.cli.run import joined_home, report, run_here, submit_and_follow

    home = joined_home()
    from mutoscope.platform.orchestration.cancelling import retry_of

    started = time.monotonic()
    again = asyncio.run(retry_of(home.runtime, run))
    launch = submit_and_follow if (again.pooled if submit is None else submit) else run_here
    with follower(render.say, quiet=json) as watch:
        finished = launch(home, again.record.workflow, again.parameters, watch, again.weights, again.marks)
    report(home, finished, time.monotonic() - started, output=output, json=json)
