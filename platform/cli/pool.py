"""pool: workers, what is in their memory, what waits for them, and what an operator asks of either."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.catalog.pool_report import CardLine, PoolReport, WorkerLine
    from mutoscope.platform.catalog.queues import QueueRecord
    from mutoscope.platform.cli.home import Home

app = typer.Typer(
    help="Workers and the queue of each card: status, pause, resume, limit, load, unload, drain, hint.\n\n"
    "Example: mutoscope pool status"
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OnWorker = Annotated[
    str | None, typer.Option("--worker", help="Only the worker whose id begins or ends so; else all of them.")
]


@app.callback(invoke_without_command=True)
def pool(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        status()


@app.command()
def status(json: AsJson = False) -> None:
    """Show the workers, the weights in their memory, and the queue and the pace of every card.

    Example: mutoscope pool status
    """
    from mutoscope.platform.cli.home import Home

    report = Home().catalog.pool.report()
    if json:
        return render.emit_json(report.to_dict())
    _workers(report)
    render.say()
    return _cards(report)


@app.command()
def pause(
    card: Annotated[str, typer.Argument(help="The card whose runs are to wait.")],
    note: Annotated[str | None, typer.Option(help="Why; the status shows it.")] = None,
    json: AsJson = False,
) -> None:
    """Let a card's runs wait: no worker takes one until it is resumed. What runs already goes on.

    Example: mutoscope pool pause wan-i2v --note "bad weights @12"
    """
    home = _home_with(card)
    _told(home.catalog.queues.pause(card, note), json=json)


@app.command()
def resume(
    card: Annotated[str, typer.Argument(help="The card that was paused.")], json: AsJson = False
) -> None:
    """Let a paused card's runs be taken again.

    Example: mutoscope pool resume wan-i2v
    """
    home = _home_with(card)
    _told(home.catalog.queues.resume(card), json=json)


@app.command()
def limit(
    card: Annotated[str, typer.Argument(help="The card.")],
    runs: Annotated[str, typer.Argument(help="At most so many of its runs at a time, or none for no limit.")],
    json: AsJson = False,
) -> None:
    """Bound how many runs of a card are worked on at a time, on all workers together.

    Example: mutoscope pool limit wan-i2v 2
    """
    from mutoscope.platform.errors import InvalidParameter

    if runs != "none" and not runs.isdecimal():
        raise InvalidParameter("runs", runs, "use a number such as 2, or none for no limit")
    home = _home_with(card)
    _told(home.catalog.queues.limit(card, None if runs == "none" else int(runs)), json=json)


@app.command()
def load(
    weights: Annotated[
        list[str],
        typer.Argument(help="Cards (wan-i2v: the live weights) or versions (wan-i2v/transformer@12)."),
    ],
    worker: OnWorker = None,
    json: AsJson = False,
) -> None:
    """Bring weights into workers' memory before a run asks for them, and serve their cards from then on.

    Example: mutoscope pool load wan-i2v --worker 0192
    """
    home = _home_with(*weights)
    _ask(home, worker, load=weights, json=json)


@app.command()
def unload(
    weights: Annotated[
        list[str],
        typer.Argument(help="Cards (wan-i2v: no longer served) or versions (wan-i2v/transformer@12)."),
    ],
    worker: OnWorker = None,
    json: AsJson = False,
) -> None:
    """Drop weights from workers' memory. A whole card is not served there until it is loaded again.

    Example: mutoscope pool unload wan-i2v --worker 0192
    """
    home = _home_with(*weights)
    _ask(home, worker, unload=weights, json=json)


@app.command()
def drain(
    worker: Annotated[str, typer.Argument(help="How the worker's id begins or ends, or all.")],
    json: AsJson = False,
) -> None:
    """Let a worker finish what it runs, or hand it back after its deadline, and end.

    Example: mutoscope pool drain 0192
    """
    from mutoscope.platform.cli.home import Home

    _ask(Home(), None if worker == "all" else worker, drain=True, json=json)


@app.command()
def hint(
    target: Annotated[
        str, typer.Option(help="In how long the work that waits should be done: 90s, 10m.")
    ] = "60s",
    json: AsJson = False,
) -> None:
    """Tell how many workers each card's queue calls for, from its depth and the measured time of a run.

    Example: mutoscope pool hint --json
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.durations import parse_duration

    seconds = parse_duration("target", target)
    lines = Home().catalog.pool.report(seconds).cards
    if json:
        return render.emit_json({line.card: line.wanted for line in lines})
    return render.table(
        ["card", "workers", "wanted", "in flight", "a run takes"],
        [
            (
                line.card,
                line.serving,
                line.wanted,
                line.queued + line.running,
                render.seconds(line.seconds) if line.seconds is not None else "not measured",
            )
            for line in lines
        ],
        empty="no card is served, and nothing waits",
    )


def _home_with(*names: str) -> Home:
    """The home, once every name is a card or a version that exists.

    Raises:
        UnknownCard, UnknownReference: one does not.
    """
    from mutoscope.models.registry import get_card
    from mutoscope.platform.cli.home import Home

    home = Home()
    for name in names:
        if "/" in name:
            home.catalog.weights.get(name)
        get_card(name.partition("/")[0].partition("@")[0])
    return home


def _ask(
    home: Home,
    part: str | None,
    *,
    load: Sequence[str] = (),
    unload: Sequence[str] = (),
    drain: bool = False,
    json: bool,
) -> None:
    """Ask one live worker, or every one.

    Raises:
        NoWorker: none is there. UnknownReference, AmbiguousReference: the id is of none, or of several.
    """
    workers = home.catalog.workers
    asked = {
        worker.id: workers.ask(worker.id, load=load, unload=unload, drain=drain)
        for worker in workers.named(part)
    }
    if json:
        return render.emit_json({worker: wanted.to_dict() for worker, wanted in asked.items()})
    for worker, wanted in asked.items():
        words = [*(f"load {n}" for n in wanted.load), *(f"unload {n}" for n in wanted.unload)]
        render.say(f"{worker}: asked to {', '.join([*words, *(['drain'] if wanted.drain else [])])}")
    return render.say("`mutoscope pool status` shows when it is done")


def _told(record: QueueRecord, *, json: bool) -> None:
    if json:
        return render.emit_json(asdict(record))
    bound = "no limit" if record.most_running is None else f"at most {record.most_running} at a time"
    state = f"paused{f' ({record.note})' if record.note else ''}" if record.paused else "open"
    return render.say(f"{record.card}: {state}, {bound}")


def _workers(report: PoolReport) -> None:
    render.table(
        ["worker", "where", "state", "runs", "done", "memory", "resident"],
        [
            (
                line.id[-8:],
                f"{line.host}:{line.pid} {line.device}",
                line.state + (" (asked)" if line.asked else ""),
                line.running,
                line.finished,
                _memory(line),
                ", ".join(map(str, line.resident)),
            )
            for line in report.workers
        ],
        empty="no worker lives: `mutoscope up` starts one",
    )
    for line in report.workers:
        for card, trouble in line.trouble.items():
            render.say(f"{line.id[-8:]} lacks {card}: {trouble}")


def _cards(report: PoolReport) -> None:
    render.table(
        ["card", "queued", "oldest", "running", "a minute", "failed", "a run takes", "workers", "queue"],
        [
            (
                line.card,
                line.queued,
                None if line.oldest_seconds is None else render.seconds(line.oldest_seconds),
                line.running,
                f"{line.per_minute:.0f}",
                line.failed or None,
                None if line.seconds is None else render.seconds(line.seconds),
                f"{line.serving} (wants {line.wanted})" if line.wanted else line.serving,
                _queue(line),
            )
            for line in report.cards
        ],
        empty="no card is served, and nothing waits",
    )


def _memory(line: WorkerLine) -> str:
    used = render.size(line.bytes)
    return used if line.memory_bytes is None else f"{used} of {render.size(line.memory_bytes)}"


def _queue(line: CardLine) -> str:
    words = [f"paused: {line.note}" if line.note else "paused"] if line.paused else []
    if line.most_running is not None:
        words.append(f"at most {line.most_running}")
    return ", ".join(words)
