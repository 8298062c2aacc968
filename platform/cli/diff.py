"""diff: what differs between the recipes of two artifacts, on one screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.catalog import RunRecord
    from mutoscope.platform.catalog.diff import Diff, Difference, Step
    from mutoscope.platform.catalog.graph import ArtifactNode

WIDTH = 48
"""Characters of a value that are shown; JSON has all of them."""

FOLDED = 3
"""Numbered fields of one name that only one side has: up to so many are told one by one."""

_SORTS = (
    ("card", "card"),
    ("weights", "component"),
    ("parameters", "parameter"),
    ("seed", "seed"),
    ("inputs", "input"),
    ("code", "code digest"),
    ("numerics", "numeric setting"),
)
"""Sorts of equal fields, in the order they are told, and what one is called. An equal output slot goes
without saying."""


def diff(
    left: Annotated[str, typer.Argument(help="Such as video:3fa9, or weights: flux-t2i/transformer@1.")],
    right: Annotated[str, typer.Argument(help="What to compare it with.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Differences to print at most.")] = 40,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what differs between how two artifacts were made, all the way down their inputs.

    Example: mutoscope diff video:3fa9 video:77b0
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.cli.lineage import resolve

    home = Home()
    found = home.catalog.lineage.diff(resolve(home, left), resolve(home, right))
    if json:
        render.emit_json(asdict(found))
    else:
        print_diff(found, limit)


def print_diff(found: Diff, limit: int) -> None:
    """The diff for people: a table of what differs, a line about what does not, and what to make of it."""
    from mutoscope.platform.wording import several

    if found.same_bytes:
        render.say(f"both are {found.left.ref}: nothing differs")
        return
    render.pairs({"left": _made(found.left, found.left_run), "right": _made(found.right, found.right_run)})
    rows = [row for step in found.steps for row in _rows(step)]
    # There is a row at least: two artifacts of equal recipes differ in their bytes.
    render.table(["step", "what", "left", "right"], rows[:limit], empty="")
    if len(rows) > limit:
        render.say(f"… and {len(rows) - limit:,} more: --limit {len(rows)}")
    if found.left_run and found.right_run and found.left_run.id == found.right_run.id:
        render.say("one run made both")
        return
    equal = [several(found.equal[sort], noun) for sort, noun in _SORTS if found.equal.get(sort)]
    render.say(f"equal: {', '.join(equal) or 'nothing'}; {several(found.compared, 'pair')} of runs compared")
    for line in _conclusion(found):
        render.say(line)


def _made(node: ArtifactNode, run: RunRecord | None) -> str:
    names = " = ".join(str(version) for version in node.versions)
    gone = "" if node.present else "  (bytes collected)"
    return f"{names}  {node.ref}{gone}  {run or 'made by no run on record'}".strip()


def _rows(step: Step) -> Iterator[tuple[str, str, str, str]]:
    place = " < ".join(reversed(step.path)) + (" < …" if step.depth > len(step.path) else "")
    run = step.left_run or step.right_run
    name = (run.card or run.kind) if run else "?"
    name = f"{name} ({place})" if place else name
    for field, left, right in _folded(step.differences):
        yield name, field, *render.contrast(left, right, WIDTH)
    if step.unexplained:
        yield name, "bytes", str(step.left.ref), str(step.right.ref)


def _folded(differences: Sequence[Difference]) -> Iterator[tuple[str, str | None, str | None]]:
    """Numbered fields that only one side has as one row: a training step has thousands of inputs."""
    from mutoscope.platform.catalog.tree import numbered

    alike: dict[tuple[str, bool, bool], list[Difference]] = {}
    for position, one in enumerate(differences):
        sides = one.left is None, one.right is None
        stem, number = numbered(one.field.rstrip("]"))
        alone = number < 0 or not any(sides)
        alike.setdefault((str(position) if alone else stem.rstrip("["), *sides), []).append(one)
    for (stem, no_left, no_right), group in alike.items():
        if len(group) <= FOLDED:
            yield from ((one.field, one.left, one.right) for one in group)
        else:
            count = f"{len(group):,} of them"
            yield f"{stem} …", None if no_left else count, None if no_right else count


def _conclusion(found: Diff) -> Iterator[str]:
    unexplained = [step for step in found.steps if step.unexplained]
    if not unexplained:
        return
    from mutoscope.platform.wording import several

    if len(unexplained) == len(found.steps):
        yield "the recipes are equal and the bytes differ: what made them is not deterministic"
    else:
        yield "where only the bytes differ, what made them is not deterministic"
    if found.incidents:
        known = several(len(found.incidents), "determinism incident")
        yield f"{known} on record about it: `mutoscope incidents list --kind determinism`"
    else:
        yield "no determinism incident is on record about it: `mutoscope replay` would tell"
