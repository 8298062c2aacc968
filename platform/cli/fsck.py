"""fsck: check that rows and bytes agree, and set right what can be."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mutoscope.platform.cli import render
from mutoscope.platform.cli.progress import Show, progress

if TYPE_CHECKING:
    from mutoscope.platform.custody.fsck import Report, Tally
    from mutoscope.platform.custody.fsck_repair import Repair

SHOWN_PER_CODE = 20
"""Lines printed of one kind of finding; the rest is counted."""


def fsck(
    repair: Annotated[bool, typer.Option("--repair", help="Set right what can be set right.")] = False,
    deep: Annotated[
        bool,
        typer.Option("--deep/--fast", help="Read every byte, or look at presence, sizes and manifests only."),
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check rows against bytes, both ways, while everything runs. Exit code 1 while a fault is left.

    Example: mutoscope fsck --fast
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.custody.fsck import Report
    from mutoscope.platform.custody.fsck import fsck as check

    home, report, started = Home(), Report(), time.monotonic()
    catalog, store = home.catalog, home.store
    found: list[Repair] = []
    with progress("listing", in_bytes=deep, quiet=json) as show:
        watch = _watched(show, deep)
        for outcome in check(catalog, store, deep=deep, repair=repair, report=report, watch=watch):
            if json:
                found.append(outcome)
            elif report.found[outcome.finding.rule.code] <= SHOWN_PER_CODE:
                _print(outcome, repair)
    seconds = time.monotonic() - started
    if json:
        render.emit_json(_plain(found, report, seconds))
    else:
        _summarise(report, deep, repair, seconds)
    if not report.clean:
        raise typer.Exit(1)


def _print(outcome: Repair, repair: bool) -> None:
    finding = outcome.finding
    render.say(f"{finding.rule.level:<5}  {finding.rule.code:<19}  {finding}")
    if outcome.did:
        render.say(f"       {'repaired':<19}  {outcome.did}")
    elif repair and finding.is_fault:
        render.say(f"       {'left':<19}  {finding.rule.remedy}")
    if outcome.remake:
        render.say(f"       {'make it again':<19}  {outcome.remake}")


def _summarise(report: Report, deep: bool, repair: bool, seconds: float) -> None:
    from mutoscope.platform.wording import several

    tally = report.tally
    for code, count in report.found.items():
        if count > SHOWN_PER_CODE:
            render.say(f"...    {code:<19}  and {count - SHOWN_PER_CODE} more (--json lists all)")
    read = f", {render.size(tally.bytes)} read" if deep else ""
    render.say(
        f"checked {tally.rows} artifacts and {tally.objects} objects{read} in {render.seconds(seconds)}"
    )
    if tally.fresh:
        render.say(f"{several(tally.fresh, 'object')} of the last hour without a row: a writer may be at it")
    repaired = Counter(
        {
            code: count - report.left[code]
            for code, count in report.found.items()
            if _is_fault(code) and count > report.left[code]
        }
    )
    told = (("fault", " repaired", repaired), ("fault", " left", report.left), ("note", "", _notes(report)))
    for noun, word, counts in told:
        if counts:
            render.say(f"{several(sum(counts.values()), noun)}{word}: {_counted(counts, report)}")
    if report.clean:
        render.say("clean: nothing is left to repair" if repaired else "clean")
    elif not repair:
        _remedies(report)


def _remedies(report: Report) -> None:
    """What to do, one line a code: what `--repair` would do, or what a person can."""
    from mutoscope.platform.custody.fsck_findings import RULES

    for rule in RULES.values():
        if rule.code in report.left:
            does = f"`mutoscope fsck --repair` {rule.repair}" if rule.repair else rule.remedy
            render.say(f"  {rule.code}: {does}")


def _is_fault(code: str) -> bool:
    from mutoscope.platform.custody.fsck_findings import RULES

    return RULES[code].level == "fault"


def _notes(report: Report) -> Counter[str]:
    return Counter({code: count for code, count in report.found.items() if not _is_fault(code)})


def _counted(counts: Counter[str], report: Report) -> str:
    def one(code: str) -> str:
        size = report.bytes_found[code]
        return f"{counts[code]} {code}" + (f" ({render.size(size)})" if size else "")

    return ", ".join(one(code) for code in sorted(counts))


def _plain(found: list[Repair], report: Report, seconds: float) -> dict[str, Any]:
    return {
        "clean": report.clean,
        "artifacts": report.tally.rows,
        "objects": report.tally.objects,
        "bytes_read": report.tally.bytes,
        "unrecorded": report.tally.fresh,
        "seconds": round(seconds, 3),
        "left": dict(report.left),
        "findings": [
            {**one.finding.to_dict(), "remedy": one.finding.rule.remedy, "did": one.did, "remake": one.remake}
            for one in found
        ],
    }


def _watched(show: Show, deep: bool) -> Callable[[Tally], None]:
    """Shows a tally: bytes when everything is read, else objects."""

    def watch(tally: Tally) -> None:
        done, total = (tally.bytes, tally.listed_bytes) if deep else (tally.objects, tally.listed)
        show(tally.phase, done, 0 if tally.phase == "listing" else total)

    return watch
