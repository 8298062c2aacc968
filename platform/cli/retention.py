"""retention: rules that say what may go, and when."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from mutoscope.platform.cli import render

app = typer.Typer(
    no_args_is_help=True,
    help="Rules that say what may go, and when: add, list, remove. What no rule speaks of is kept; where "
    "several do, the longest decides.\n\nExample: mutoscope retention list",
)


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="What the rule is called.")],
    keep: Annotated[str, typer.Option(help="Since it was last made or used: 90s, 12h, 30d.")],
    kind: Annotated[str | None, typer.Option(help="Only artifacts of this kind.")] = None,
    workflow: Annotated[
        str | None, typer.Option(help="Only what runs of this workflow made; others make it theirs, too.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Let artifacts go when they have been neither made nor used for so long. The next gc heeds it.

    Example: mutoscope retention add scratch --kind latent --workflow image_video.t2i_i2v --keep 7d
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.durations import parse_duration

    seconds, home = parse_duration("keep", keep), Home()
    within = home.workflow_id(workflow) if workflow is not None else None
    rule = home.catalog.retention.add(name, seconds, kind=kind, workflow=within)
    if json:
        return render.emit_json(asdict(rule))
    render.say(f"{rule}, then {kind or 'everything'}{f' of {within}' if within else ''} may go")
    return render.say("`mutoscope gc --dry-run` shows what that is")


@app.command("list")
def list_rules(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the rules.

    Example: mutoscope retention list
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.durations import spell_duration

    rules = Home().catalog.retention.list()
    if json:
        return render.emit_json([asdict(rule) for rule in rules])
    return render.table(
        ["rule", "kind", "workflow", "keeps"],
        [(r.name, r.kind or "any", r.workflow or "any", spell_duration(r.keep_seconds)) for r in rules],
        empty="no rules: everything is kept",
    )


@app.command("remove")
def remove(
    name: Annotated[str, typer.Argument(help="The rule's name.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Drop a rule: what no other rule speaks of is kept again.

    Example: mutoscope retention remove scratch
    """
    from mutoscope.platform.cli.home import Home

    rule = Home().catalog.retention.remove(name)
    if json:
        return render.emit_json(asdict(rule))
    return render.say(f"rule {rule.name} is gone")
