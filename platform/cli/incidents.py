"""incidents: what should not have happened, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.catalog import Incident
    from mutoscope.platform.cli.home import Home

Kind = Literal["determinism", "damage", "loss", "schedule"]

app = typer.Typer(
    no_args_is_help=True,
    help="Bytes that differed under one key, bytes that were damaged or lost, scheduled runs that failed: "
    "list, show.\n\n"
    "Example: mutoscope incidents list",
)


@app.command("list")
def list_incidents(
    kind: Annotated[Kind | None, typer.Option(help="Only this kind.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List incidents, newest first.

    Example: mutoscope incidents list --kind determinism
    """
    from mutoscope.platform.cli.home import Home

    home = Home()
    found = home.catalog.incidents.list(limit=limit, kind=kind)
    if json:
        render.emit_json([asdict(one) for one in found])
        return
    render.table(
        ["incident", "kind", "age", "about"],
        [(one.id, one.kind, render.age(one.created_at), _about(home, one)) for one in found],
        empty="no incident is on record" if kind is None else f"no {kind} incident is on record",
    )


@app.command("show")
def show(
    incident: Annotated[str, typer.Argument(help="The beginning of an incident's id.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show an incident: both recipes and digests, or the artifact; and what to do.

    Example: mutoscope incidents show 0192f1
    """
    from mutoscope.platform.cli.home import Home

    home = Home()
    found = home.catalog.incidents.find(incident)
    if json:
        render.emit_json(asdict(found))
        return
    render.say(f"{found.kind} incident {found.id}, {render.clock(found.created_at)}")
    for line in _TOLD.get(found.kind, _bytes)(home, found):
        render.say(line)


def _about(home: Home, one: Incident) -> str:
    """The incident in a few words."""
    if one.kind == "schedule":
        return f"{one.details.get('workflow')}: {render.shorten(str(one.details.get('message')), 80)}"
    if one.kind != "determinism":
        return str(one.details.get("artifact") or str(one.details.get("digest"))[:12])
    run = home.catalog.runs.get(one.run_id) if one.run_id else None
    slots = ", ".join(_unlike(one))
    return f"{run.card if run else '?'}: {slots} of {one.run_id}, unlike {one.earlier_run_id}"


def _unlike(one: Incident) -> list[str]:
    """Slots whose bytes differ, or that only one side has."""
    earlier, now = one.details["earlier"], one.details["now"]
    return [slot for slot in sorted({*earlier, *now}) if earlier.get(slot) != now.get(slot)]


def _determinism(home: Home, found: Incident) -> Iterator[str]:
    """Who made what, under which key; then the ways out."""
    catalog = home.catalog
    sides = []
    for word, run_id in (("earlier", found.earlier_run_id), ("now", found.run_id)):
        run = catalog.runs.get(run_id) if run_id else None
        if run is not None:
            sides.append(run)
            yield f"{word:<8} {run}, worker {run.worker}, {render.clock(run.finished_at)}"
    for slot in _unlike(found):
        before, after = (found.details[side].get(slot) for side in ("earlier", "now"))
        yield f"  {slot}: {_name(home, before)} earlier, {_name(home, after)} now"
    if sides:
        yield f"one key, {found.memo_key}, of"
        parts = sides[-1].key_parts or {}
        for name in ("weights", "inputs", "parameters", "seed", "profile", "numeric"):
            if parts.get(name) not in (None, {}, ""):
                yield f"  {name:<10} {render.shorten(_said(parts[name]), 96)}"
    yield "what to do"
    yield f"  `mutoscope replay {found.run_id}` tells which of the two comes again"
    yield "  the memo keeps answering with the earlier one; neither is overwritten"
    yield "  if both come now and then, the card is not deterministic: its contract promises that it is"


def _bytes(home: Home, found: Incident) -> Iterator[str]:
    digest = str(found.details.get("digest"))
    state = home.catalog.artifacts.state(digest)
    again = "it has been made again since" if state == "present" else "its bytes are still gone"
    what = "was damaged and is in quarantine" if found.kind == "damage" else "had no bytes in the store"
    yield f"{_name(home, digest)} {what}; {again}"
    if found.run_id is not None:
        run = home.catalog.runs.get(found.run_id)
        yield f"made by  {run}"
    if state == "present":
        return
    yield "what to do"
    if found.run_id is not None and home.catalog.runs.get(found.run_id).replayable:
        yield f"  `mutoscope replay {found.run_id}` makes it again"
    else:
        yield "  import it again, or bring its file from a backup and run `mutoscope fsck --repair`"


def _schedule(home: Home, found: Incident) -> Iterator[str]:
    flow_run = str(found.details.get("flow_run"))
    yield f"a scheduled run of {found.details.get('workflow')} ended as {found.details.get('state')}"
    yield f"reason   {found.details.get('message')}"
    run = home.catalog.workflows.find_by_flow_run(flow_run)
    yield f"flow run {flow_run}, {found.details.get('name')}"
    yield "what to do"
    if run is not None:
        yield f"  `mutoscope retry {run.id}` runs it again; what succeeded is not made anew"
    yield f"  `mutoscope schedule ls {found.details.get('workflow')}` shows when it starts next"


def _name(home: Home, digest: str | None) -> str:
    if digest is None:
        return "nothing"
    ref = home.catalog.artifacts.get(digest)
    return str(ref) if ref else digest[:12]


def _said(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={_said(item)}" for key, item in value.items())
    return value[:12] if isinstance(value, str) and len(value) == 64 else str(value)


_TOLD = {"determinism": _determinism, "schedule": _schedule}
