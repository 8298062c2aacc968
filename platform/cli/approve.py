"""approve: say whether a workflow that asked may go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.catalog.approvals import Approval
    from mutoscope.platform.cli.home import Home


def approve(
    run: Annotated[
        str | None,
        typer.Argument(
            help="A workflow run or flow run, or the beginning of its id. Without: list what waits."
        ),
    ] = None,
    yes: Annotated[
        bool | None, typer.Option("--yes/--no", help="It may go on, or it ends here and keeps what it made.")
    ] = None,
    name: Annotated[str, typer.Option(help="Which question, where the run has asked several.")] = "",
    by: Annotated[str, typer.Option(help="Who decides. Default: your account on this machine.")] = "",
    note: Annotated[str, typer.Option(help="Why, for those who come after you.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Let a workflow that waits for a person go on, or not. Who decided is kept with the run.

    Example: mutoscope approve 0192f1 --yes --note "the circle is red"
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.errors import InvalidParameter

    home = Home()
    if run is None:
        return _list(home, json)
    asked = _asked(home, run, name)
    if yes is None:
        if json:
            return render.emit_json(_plain(home, asked))
        return _show(home, asked)
    if asked.approved is not None and asked.approved != yes:
        raise InvalidParameter("run", run, f"{_told(asked)} already, and the first decision stands")
    decide = home.catalog.approvals.decide
    decided = decide(asked.workflow_run_id, asked.name, yes, by or _account(), note or None)
    resumed = _resume(home, decided)
    if json:
        return render.emit_json({**_plain(home, decided), "resumed": resumed})
    return render.say(f"{_told(decided)}{'; the flow pool goes on with it' if resumed else ''}")


def _asked(home: Home, run: str, name: str) -> Approval:
    """The question that is meant.

    Raises:
        UnknownReference, AmbiguousReference: no such run. InvalidParameter: not one question of it is meant.
    """
    from mutoscope.platform.errors import InvalidParameter

    record = home.catalog.workflows.find_by_flow_run(run) or home.catalog.workflows.find(run)
    found = home.catalog.approvals.of_run(record.id)
    chosen = [one for one in found if one.name == name] if name else found
    if len(chosen) > 1:
        chosen = [one for one in chosen if one.approved is None] or chosen
    if len(chosen) != 1:
        if not found:
            raise InvalidParameter(
                "run", run, "it asks nobody anything: `mutoscope approve` lists those that do"
            )
        asked = ", ".join(one.name for one in found)
        raise InvalidParameter("name", name or None, f"{record.id} asks {asked}: name one of them")
    return chosen[0]


def _resume(home: Home, decided: Approval) -> bool:
    """Have a suspended flow run started again; a process that waits looks for itself."""
    import asyncio

    from mutoscope.platform.cli.run import joined_home

    flow_run = home.catalog.workflows.get(decided.workflow_run_id).prefect_flow_run_id
    if flow_run is None:
        return False
    joined_home()
    from mutoscope.platform.orchestration.approval import resume

    return asyncio.run(resume(flow_run, decided))


def _list(home: Home, json: bool) -> None:
    found = home.catalog.approvals.list()
    if json:
        return render.emit_json([_plain(home, one) for one in found])
    return render.table(
        ["run", "asks", "about", "since"],
        [
            (one.workflow_run_id, one.question, ", ".join(_subjects(home, one)), render.age(one.asked_at))
            for one in found
        ],
        empty="nothing waits for a person",
    )


def _show(home: Home, one: Approval) -> None:
    run = home.catalog.workflows.get(one.workflow_run_id)
    render.pairs(
        {
            "run": run.id,
            "workflow": run.workflow,
            "asks": one.question,
            "about": ", ".join(_subjects(home, one)),
            "look": ", ".join(filter(None, (home.artifact_url(digest) for digest in one.subjects))),
            "since": render.age(one.asked_at),
            "answer": _told(one) if one.approved is not None else "--yes or --no",
        }
    )


def _subjects(home: Home, one: Approval) -> list[str]:
    found = [home.catalog.artifacts.get(digest) for digest in one.subjects]
    return [str(ref) for ref in found if ref is not None]


def _told(decided: Approval) -> str:
    verdict = "approved" if decided.approved else "declined"
    note = f" ({decided.note})" if decided.note else ""
    return f"{decided.name} of {decided.workflow_run_id} was {verdict} by {decided.decided_by}{note}"


def _account() -> str:
    import getpass
    import socket

    return f"{getpass.getuser()}@{socket.gethostname()}"


def _plain(home: Home, one: Approval) -> dict[str, Any]:
    return {
        "workflow_run": one.workflow_run_id,
        "name": one.name,
        "question": one.question,
        "subjects": _subjects(home, one),
        "asked_at": one.asked_at,
        "approved": one.approved,
        "decided_by": one.decided_by,
        "decided_at": one.decided_at,
        "note": one.note,
    }
