"""impact: everything downstream of an artifact, in numbers or as a list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.catalog import WeightVersion
    from mutoscope.platform.catalog.impact import Downstream, Impact


def impact(
    reference: Annotated[
        str,
        typer.Argument(
            help="A bad input, weight version or reward model: image:3fa9, flux-t2i/transformer@3."
        ),
    ],
    listed: Annotated[bool, typer.Option("--list", help="List the artifacts, newest first.")] = False,
    kind: Annotated[str | None, typer.Option(help="List only this kind.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="List at most so many.")] = 100,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show all that came of an artifact: how much, by which workflows, and the weights trained from it.

    Example: mutoscope impact flux-t2i/transformer@3
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.cli.lineage import resolve
    from mutoscope.platform.refs import check_kind

    check_kind(kind)
    home = Home()
    digest = resolve(home, reference)
    found = home.catalog.lineage.impact(digest)
    artifacts = None
    if listed or kind is not None:
        kinds = (kind,) if kind is not None else ()
        artifacts = home.catalog.lineage.downstream(digest, kinds=kinds, limit=limit)
    if json:
        render.emit_json(_plain(found, artifacts))
    elif artifacts is not None:
        _print_list(found, artifacts, kind)
    else:
        print_impact(found)


def print_impact(found: Impact) -> None:
    """The numbers for people."""
    gone = "" if found.root.present else "  (bytes collected)"
    names = " = ".join(str(version) for version in found.root.versions)
    render.say(f"{names}  {found.root.ref}{gone}" if names else f"{found.root.ref}{gone}")
    if not found.runs and not found.count:
        render.say("nothing has come of it")
        return
    unfinished = f", {found.unfinished:,} of them not finished" if found.unfinished else ""
    render.pairs(
        {
            "artifacts": f"{found.count:,}, {render.size(found.size)}",
            "runs": f"{found.runs:,}{unfinished}",
            "first": render.clock(found.first_at),
            "last": render.clock(found.last_at),
        }
    )
    render.say()
    render.table(
        ["kind", "artifacts", "size", "collected"],
        [(one.kind, f"{one.count:,}", render.size(one.size), f"{one.collected:,}") for one in found.kinds],
        empty="no artifact was made",
    )
    render.say()
    render.table(
        ["workflow", "runs", "artifacts", "size"],
        [
            (one.workflow or "(none)", f"{one.runs:,}", f"{one.artifacts:,}", render.size(one.size))
            for one in found.workflows
        ],
        empty="no run used it",
    )
    if found.versions:
        render.say()
        render.table(["weights made from it", "versions", "now live"], _versions(found), empty="")


def _versions(found: Impact) -> Iterator[tuple[str, str, str]]:
    """A line per component: a training history is hundreds of versions long."""
    live = {(version.card, version.component): str(version) for version in found.live}
    components: dict[tuple[str, str], list[WeightVersion]] = {}
    for version in found.versions:
        components.setdefault((version.card, version.component), []).append(version)
    for name, versions in components.items():
        first, last = versions[0], versions[-1]
        numbers = f"@{first.ordinal}" if first == last else f"@{first.ordinal} to @{last.ordinal}"
        yield f"{'/'.join(name)}{numbers}", f"{len(versions):,}", live.get(name, "")


def _print_list(found: Impact, artifacts: list[Downstream], kind: str | None) -> None:
    render.table(
        ["artifact", "size", "state", "age"],
        [
            (
                str(one.ref),
                render.size(one.ref.size),
                "" if one.present else "bytes collected",
                render.age(one.created_at),
            )
            for one in artifacts
        ],
        empty="nothing has come of it",
    )
    there = sum(one.count for one in found.kinds if kind in (None, one.kind))
    if there > len(artifacts):
        render.say(f"… and {there - len(artifacts):,} more: --limit {there}")


def _plain(found: Impact, artifacts: list[Downstream] | None) -> dict[str, object]:
    totals = {"artifacts": found.count, "size": found.size}
    listed = {} if artifacts is None else {"downstream": [asdict(one) for one in artifacts]}
    return {**asdict(found), **totals, **listed}
