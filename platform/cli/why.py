"""why: was it served from memo or computed, and for what reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.catalog import RunRecord, WorkflowRecord
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.custody.why import Explanation

SHOWN_CALLS = 6
SHOWN_FIELDS = 12
SHOWN_OF_WORKFLOW = 100
WIDTH = 44
"""Characters of a value that are shown; JSON has all of them."""


def why(
    what: Annotated[
        str,
        typer.Argument(help="An artifact (video:3fa9), a run or a workflow run, by the start of its id."),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain a memo hit or miss: whom a run served, and what differs from the run it came closest to.

    Example: mutoscope why video:3fa9
    """
    from mutoscope.platform.catalog import RunRecord
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.custody.why import explain

    home = Home()
    named = subject(home, what)
    if not isinstance(named, RunRecord):
        _workflow(home, named, json)
        return
    explanation = explain(home.catalog, home.store, named)
    if json:
        render.emit_json(_plain(explanation))
        return
    for line in lines(home, explanation):
        render.say(line)


def subject(home: Home, what: str) -> RunRecord | WorkflowRecord:
    """The run that a reference or an id names or that made what it names; or the workflow run.

    Raises:
        UnknownReference, AmbiguousReference: as the catalog says.
    """
    from mutoscope.platform.catalog import RunRecord, WorkflowRecord
    from mutoscope.platform.errors import UnknownReference

    found = home.catalog.find(what)
    if isinstance(found, RunRecord | WorkflowRecord):
        return found
    made_by = home.catalog.runs.generated_by(found.digest)
    if not made_by:
        raise UnknownReference(f"{what} has no run on record: nobody asked for it")
    return made_by[0]


def lines(home: Home, found: Explanation) -> Iterator[str]:
    """The explanation for people, on one screen."""
    run = found.run
    made = ", ".join(str(ref) for ref in found.outputs.values())
    yield f"{run}: {run.state}{f', made {made}' if made else ''}"
    yield from _calls(home, found)
    yield from _computed(found)
    yield from _now(found)


def _calls(home: Home, found: Explanation) -> Iterator[str]:
    if not found.calls:
        return
    total = sum(found.answered.values())
    yield f"asked for {'once' if total == 1 else f'{total} times'}"
    for call in found.calls[:SHOWN_CALLS]:
        caller = "directly"
        if call.workflow_run_id is not None:
            record = home.catalog.workflows.get(call.workflow_run_id)
            caller = f"{record.workflow} {record.id}"
        yield f"  {call.disposition:<9} {caller}  {render.age(call.created_at)}"
    if total > SHOWN_CALLS:
        hits = found.answered.get("hit", 0)
        yield f"  … {total - SHOWN_CALLS} more; {hits} of all {total} were hits"


def _computed(found: Explanation) -> Iterator[str]:
    from mutoscope.platform.wording import several

    yield f"computed because {_because(found)}"
    if found.failures:
        yield f"  {several(found.failures, 'equal run')} before it ended without outputs; such never answer"
    nearest = found.nearest
    if nearest is None or not nearest.differences:
        return
    unlike = len(nearest.differences)
    yield (
        f"nearest of {nearest.among} earlier: {nearest.run}; "
        f"{unlike} of {nearest.fields} key fields {'differs' if unlike == 1 else 'differ'}"
    )
    width = max(len(one.field) for one in nearest.differences[:SHOWN_FIELDS])
    for one in nearest.differences[:SHOWN_FIELDS]:
        left, right = render.contrast(one.left, one.right, WIDTH)
        yield f"  {one.field:<{width}}  {left}  →  {right}"
    if unlike > SHOWN_FIELDS:
        yield f"  … and {unlike - SHOWN_FIELDS} more (--json has all)"
    for one in nearest.differences:
        if one.field.startswith("inputs.") and one.left and one.right:
            yield f"  what made the inputs differ: `mutoscope diff {one.left} {one.right}`"
            break


def _because(found: Explanation) -> str:
    over = found.passed_over
    match found.reason:
        case "unlike":
            return "no earlier success has its key"
        case "first":
            return f"{found.run.card} had no earlier success"
        case "unshared":
            return "it has no memo key: nothing like it is shared"
        case "recorded":
            return "it is work recorded when it was done: it is asked of no memo"
        case "replay":
            return f"it was to be made anew: a replay of {over.run_id if over else '?'}"
        case "empty":
            return f"the equal run {over.run_id if over else '?'} had no outputs"
        case "absent" if over is not None:
            gone = ", ".join(digest[:12] for digest in over.absent)
            return f"bytes of the equal run {over.run_id} were not in the store then: {gone}"
    nearest = found.nearest
    return f"the equal run {nearest.run.id if nearest else '?'} did not answer; its reason is not on record"


def _now(found: Explanation) -> Iterator[str]:
    if found.incident is not None:
        yield f"it made other bytes than the equal run before it: `mutoscope incidents show {found.incident}`"
    if found.run.memo_key is None:
        return
    if found.would_hit:
        yield "an equal call now: a hit"
    elif not found.run.finished:
        yield "an equal call now: attaches to it"
    elif found.absent:
        gone = ", ".join(str(ref) for ref in found.absent)
        yield f"an equal call now: computed again, the store lacks {gone}"
    else:
        yield f"an equal call now: computed, a {found.run.state} run never answers"


def _workflow(home: Home, record: WorkflowRecord, json: bool) -> None:
    """Each call of a workflow run, and why it was not a hit."""
    from mutoscope.platform.custody.why import explain

    calls = home.catalog.calls.of_workflow(record.id, limit=SHOWN_OF_WORKFLOW + 1)
    explained = [
        (call, explain(home.catalog, home.store, home.catalog.runs.get(call.run_id)))
        for call in calls[:SHOWN_OF_WORKFLOW]
    ]
    if json:
        render.emit_json([{**asdict(call), "explanation": _plain(found)} for call, found in explained])
        return
    render.say(f"{record.workflow} {record.id}: {record.state}")
    render.table(
        ["answer", "card", "run", "why"],
        [
            (call.disposition, found.run.card, found.run.id, _in_short(call.disposition, found))
            for call, found in explained
        ],
        empty="it asked for no run",
    )
    if len(calls) > SHOWN_OF_WORKFLOW:
        render.say(f"the first {SHOWN_OF_WORKFLOW} calls; `mutoscope why RUN` explains any other")


def _in_short(disposition: str, found: Explanation) -> str:
    """A call's reason in a few words; `mutoscope why RUN` has them all."""
    if disposition == "hit":
        return "an equal run had succeeded"
    if disposition == "attached":
        return "an equal run was under way"
    if found.reason == "unlike" and found.nearest is not None:
        fields = [one.field for one in found.nearest.differences]
        more = f" and {len(fields) - 3} more" if len(fields) > 3 else ""
        return f"differs from {found.nearest.run.id} in {', '.join(fields[:3])}{more}"
    return _because(found)


def _plain(found: Explanation) -> dict[str, Any]:
    return {**asdict(found), "would_hit": found.would_hit}
