"""gc: collect what nothing keeps; say beforehand what would go, and of anything why it stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mutoscope.platform.cli import render
from mutoscope.platform.cli.progress import progress

if TYPE_CHECKING:
    from mutoscope.platform.catalog import Catalog
    from mutoscope.platform.catalog.collections import CollectionRecord
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.custody.candidates import Candidate
    from mutoscope.platform.custody.plan import Heap, Plan

GRACE = "7d"


def gc(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show what would go, and change nothing.")
    ] = False,
    grace: Annotated[
        str, typer.Option(help="How long what is collected can be brought back: 90s, 12h, 7d.")
    ] = GRACE,
    why: Annotated[
        str | None, typer.Option(metavar="REF", help="Say what keeps this artifact, and leave.")
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Another catalog that uses the store; what it needs is kept."),
    ] = None,
    forget: Annotated[
        str | None, typer.Option(metavar="ID", help="Drop a registered catalog that is gone for good.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Move what nothing keeps to the trash, and remove what has been there for longer than the grace period.

    Kept is whatever a pin, an alias, a run in flight or a lease names, and all that retention rules do not
    speak of or still keep. It may be interrupted; the next one goes on. Everything else may keep running.

    Example: mutoscope gc --dry-run
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.custody import plan, users
    from mutoscope.platform.custody.collect import Collector
    from mutoscope.platform.durations import parse_duration

    seconds, home = parse_duration("grace", grace), Home()
    if why is not None:
        return _explain(home, why, seconds, json)
    if forget is not None:
        gone = users.forget(home.store, forget)
        return render.emit_json(asdict(gone)) if json else render.say(f"forgotten: {gone}")
    with _others(also or []) as others, progress("mark", quiet=json) as report:
        if dry_run:
            looked = plan.plan(home.catalog, home.store, seconds, also=others, report=report)
        else:
            done = Collector(home.catalog, home.store, also=others, report=report).collect(seconds)
    if not dry_run:
        return print_collection(done, json)
    return render.emit_json(_plain(looked)) if json else _print_plan(looked, grace, seconds)


@contextmanager
def _others(urls: list[str]) -> Iterator[list[Catalog]]:
    from mutoscope.platform.catalog import Catalog

    with ExitStack() as stack:
        opened = []
        for url in urls:
            opened.append(Catalog.open(url))
            stack.callback(opened[-1].close)
        yield opened


def print_collection(done: CollectionRecord, json: bool, *, nothing: str = "nothing to collect") -> None:
    """What a collection came to."""
    if json:
        return render.emit_json(asdict(done))
    counts = done.counts
    for name, words in (
        ("collected", "moved to the trash"),
        ("orphans", "without a record, moved to the trash"),
        ("removed", "removed for good"),
    ):
        if counts[name]:
            render.say(f"{counts[name]:,} {words}, {render.size(counts[f'{name}_bytes'])}")
    if counts["restored"]:
        render.say(f"{counts['restored']:,} put back: wanted again")
    if counts["leftovers"]:
        render.say(f"{counts['leftovers']:,} unfinished writes removed")
    if not any(counts.values()):
        render.say(nothing)
    return None


def _heap(heap: Heap) -> str:
    return f"{heap.count:,}, {render.size(heap.size)}" if heap.count else "nothing"


def _print_plan(looked: Plan, grace: str, grace_seconds: float) -> None:
    total = looked.total
    if not total.count:
        render.say("nothing would go")
    else:
        render.table(
            ["would go", "count", "size", "can be made again"],
            [(k.kind, f"{k.count:,}", render.size(k.size), f"{k.replayable:,}") for k in looked.kinds],
            empty="",
        )
        render.say(f"in all {total.count:,}, {render.size(total.size)}")
        _print_candidates("largest", looked.largest)
    if looked.replayable:
        _print_candidates("first to go", looked.replayable)
    if looked.orphans.count:
        render.say(f"bytes without a record, older than {grace}: {_heap(looked.orphans)}")
    render.say(f"in the trash already: {_heap(looked.trash)}")
    if looked.removable.count:
        render.say(f"in the trash for longer than {grace}, to be removed for good: {_heap(looked.removable)}")
    if looked.total.count and not grace_seconds:
        render.say("without a grace period, what would go is removed for good at once")
    for user in looked.strangers:
        render.note(f"note: the store is also used by {user}: a collection needs --also URL, or --forget ID")


def _print_candidates(title: str, found: Sequence[Candidate]) -> None:
    render.say()
    render.table(
        [title, "size", "to make again", "per second"],
        [
            (
                f"{one.kind}:{one.digest[:12]}",
                render.size(one.size),
                "never" if one.seconds is None else render.seconds(one.seconds),
                "" if one.bytes_per_second is None else render.size(int(one.bytes_per_second)),
            )
            for one in found
        ],
        empty="",
    )


def _explain(home: Home, reference: str, grace: float, json: bool) -> None:
    from mutoscope.platform.cli.lineage import resolve

    digest = resolve(home, reference)
    ref = home.catalog.artifacts.get(digest)
    standing = home.catalog.reasons.of(digest, tuple(home.catalog.retention.list()))
    if json:
        return render.emit_json({"artifact": str(ref), "digest": digest, **asdict(standing)})
    render.say(f"{ref} {_state(standing, grace)}")
    for reason in standing.reasons:
        render.say(f"  {reason}")
    return None


def _state(standing: Any, grace: float) -> str:
    if standing.state == "present":
        return "is kept by" if standing.reasons else "is kept by nothing: the next collection takes it"
    if standing.purged_at is not None:
        return f"was collected, its bytes were removed for good {render.age(standing.purged_at)}"
    if standing.collected_at is None:
        return "was collected just now"
    until = render.clock(standing.collected_at + grace)
    return f"was collected {render.age(standing.collected_at)}; it can be brought back until {until} at least"


def _plain(looked: Plan) -> dict[str, Any]:
    def candidate(one: Candidate) -> dict[str, Any]:
        return {**asdict(one), "bytes_per_second": one.bytes_per_second}

    return {
        **asdict(looked),
        "total": asdict(looked.total),
        "largest": [candidate(one) for one in looked.largest],
        "replayable": [candidate(one) for one in looked.replayable],
    }
